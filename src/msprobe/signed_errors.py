"""Do the errors of a result go one way? Rounding has no direction: a factor or a constant that all elements share has.

The *slope* of a result is the part of the reference that its errors have in common: 0.03 where each element is 3 % too
large. The *bias* is what is added to each element, in root mean squares of the reference. Both are computed for the
whole result and for its parts (rows, channels, heads, blocks of neighbours, elements of one sign), and count where they
are many times their own standard error *and* more than a few roundings of the type: identical elements are rounded
alike, and a kernel that rounds one factor of a row gives its error to the row.

Arrays are of numpy or of torch, in double precision: only what both spell alike is used, and nothing is imported, so
that the pre-check, its scripts and the free benchmark judge by the same lines.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from msprobe.messages import said
from msprobe.signed_parts import LEAST_ELEMENTS, Division, axes_of, divisions_of, name_of, outstanding, part_at, summed

#: So many standard errors no healthy result is off.
STANDARD_ERRORS = 6.0
#: Of results with fewer elements what is said of a part.
FEW = 256
#: The standard error of an element that is rounded once, in units of the last place: that of a uniform distribution.
ROUNDED_ONCE = 12**-0.5
# So much of a scale an element may be off, however little an ordinary kernel is.
_LEAST_MOVED = 0.15
# Numbers that are cut off: so far from the middle between two neighbours, so many of all at least, of all at most so
# many on the other side; about so many are looked at.
_BETWEEN = 0.02
_LEAST_FAR = 0.1
_MOST_OTHERS = 0.01
_LOOKED_AT = 4096
# A warning, and no error.
_WARNS = 0.5
# One factor of all elements of a half type: from so many epsilons on, so many standard errors; in each of so many parts
# it is nearly the same.
_LEAST_FACTOR = 0.1
_SURE_OF_FACTOR = 12.0
_PARTS_ALIKE = 8
_LIKE_THE_WHOLE = 0.5
# Of fewer indices of a dimension nothing is learnt of what their elements have in common.
_LEAST_SHARED = 4


class SignedLimits(NamedTuple):
    """Up to how many epsilons of the type a slope or bias passes, and up to how many it is a warning: of a whole
    result, and of a part. ``moved``: how far an element, or those that share a rounding, may be off where rounding of
    the arguments moves them by one.
    """

    whole: float
    part: float
    whole_error: float
    part_error: float
    moved: float


#: Kernels of half types compute in single precision and round once; healthy ones of PyTorch's samples have slopes below
#: 0.5 % in bfloat16. Those of single precision approximate functions and add up in their own type.
OF_HALVES = SignedLimits(0.64, 1.15, 2.56, 2.56, 0.5)
OF_SINGLES = SignedLimits(4.0, 8.0, 16.0, 24.0, 4.0)
#: The reference is of the same type.
OF_DOUBLES = SignedLimits(16.0, 32.0, 64.0, 96.0, 4.0)


class SignedErrors(NamedTuple):
    """What is found of one result: ``status`` is ``pass``, ``Warning`` or ``error``; ``strength`` how far it is, more
    than 1 is an error; ``slope`` that of the whole result beyond what an ordinary kernel has, with its standard error.
    """

    status: str = "pass"
    message: str = ""
    strength: float = 0.0
    slope: float = 0.0
    standard_error: float = math.inf


class SlopeFit(NamedTuple):
    """A slope or bias with its standard error."""

    size: float
    standard_error: float

    @property
    def certainty(self) -> float:
        """The size in standard errors."""
        return abs(self.size) / self.standard_error if self.standard_error else math.inf


def limits_of(epsilon: float) -> SignedLimits:
    """The limits for a type, by its distance of 1 to the next number."""
    if epsilon >= 2.0**-10:
        return OF_HALVES
    return OF_SINGLES if epsilon >= 2.0**-23 else OF_DOUBLES


class CheckedResult(NamedTuple):
    """One result in arrays of one shape, 0 where a side is not finite.

    ``errors``: the candidate less the reference; ``units``: the distance to the next number at each element; ``scale``:
    the same or more, where rounding of the arguments moves an element further. ``epsilon``: of the type in which the
    result was computed. ``own``: the errors of an ordinary kernel of that type, whose slopes are allowed.
    ``elementwise``: no element depends on what others depend on, so that none share a rounding.
    """

    reference: Any
    errors: Any
    units: Any
    scale: Any
    epsilon: float
    own: Any = None
    elementwise: bool = False


def judge_signed(result: CheckedResult) -> SignedErrors:
    """Judge the signed errors of a result."""
    reference, errors, units, scale, epsilon, own, elementwise = result
    count = math.prod(reference.shape)
    if count == 0 or epsilon <= 0:
        return SignedErrors()
    limits = limits_of(epsilon)
    x = reference / scale
    products, squares = x * (errors / scale), x * x
    weight = float(squares.sum())
    if weight <= 0 or not math.isfinite(weight):
        return SignedErrors()
    few = weight * weight < FEW * float((squares * squares).sum())
    shared = 0.0 if elementwise else limits.moved * (count / weight) ** 0.5
    axes = axes_of(reference.shape)
    sharing = min(int(reference.shape[place]) for place in axes) if len(axes) > 1 else 1
    least = max(epsilon * limits.part, shared) if few else max(epsilon * limits.whole, shared / sharing**0.5)
    moved = limits.moved
    if own is not None:
        # An ordinary kernel shows how much of what may be is; a candidate that is rougher shows that in its own errors.
        ordinary = own / scale
        moved = min(moved, max(_LEAST_MOVED, 2 * float((ordinary * ordinary).sum() / count) ** 0.5))
    fit = slope_of(reference, errors, units, scale, moved)
    allowed = 0.0 if own is None else abs(float((x * (own / scale)).sum()) / weight)
    beyond = math.copysign(max(0.0, abs(fit.size) - allowed), fit.size)
    if abs(beyond) > least and fit.certainty > STANDARD_ERRORS:
        strength = abs(beyond) / max(epsilon * limits.whole_error, 2 * least)
        judged = SignedErrors(
            _status(strength), _slope_message(fit, said("whole-result")), strength, beyond, fit.standard_error
        )
    else:
        judged = SignedErrors("pass", "", 0.0, beyond, fit.standard_error)
    if count < LEAST_ELEMENTS or judged.strength > 1:
        return judged
    size = float((reference * reference).sum() / count) ** 0.5
    # What rounding of the arguments moves far may be off by as much.
    spread = max(epsilon * size, limits.moved * float((scale * scale).sum() / count) ** 0.5)
    bias = bias_of(errors, units, scale, moved)
    allowed = 0.0 if own is None else abs(float(own.sum()) / count)
    if abs(bias.size) > limits.whole * spread + allowed and bias.certainty > STANDARD_ERRORS:
        strength = (abs(bias.size) - allowed) / (limits.whole_error * spread)
        if strength > judged.strength:
            message = _bias_message(bias, size, said("each-element"))
            judged = judged._replace(status=_status(strength), message=message, strength=strength)
    if judged.strength > 1:
        return judged
    parts = _Parts(result, limits, products, squares, spread, size, shared, moved)
    for group in divisions_of(reference.shape):
        parts.judge(group)
        if parts.strength > 1:
            break
    if parts.strength <= 1:
        parts.judge_signs()
    if not judged.strength and not parts.strength:
        least = max(_LEAST_FACTOR * epsilon, shared / sharing**0.5)
        return judged._replace(**(_rounded_one_way(result) or _one_factor(result, moved, least)))
    # What is off everywhere is said of the whole, unless a part is so much further off that it is an error.
    if parts.strength > (1 if judged.strength else 0):
        return judged._replace(status=_status(parts.strength), message=parts.message, strength=parts.strength)
    return judged


def _rounded_one_way(result: CheckedResult) -> dict[str, Any]:
    """A warning for numbers that are cut off, or always rounded up, in place of rounded to the nearest one: half of
    them are the other neighbour then, all on the same side, and none is further off.
    """
    # Of a large result some elements say it, here and there.
    every = math.prod(result.reference.shape) // _LOOKED_AT | 1
    reference, errors, units = (array.reshape(-1)[::every] for array in (result.reference, result.errors, result.units))
    there = reference != 0
    reference, errors = reference[there], errors[there] / units[there]
    sizes, signs = abs(errors), (reference > 0) * 2.0 - 1.0
    far = sizes > 0.5 + _BETWEEN
    count, every = int(far.sum()), math.prod(reference.shape)
    if count < LEAST_ELEMENTS or count < _LEAST_FAR * every or int((sizes > 1 + _BETWEEN).sum()) > _MOST_OTHERS * every:
        return {}
    if len(set(reference[far].tolist())) < LEAST_ELEMENTS:
        return {}  # what is equal is rounded alike
    conditions = {
        "way-toward-zero": errors * signs < 0,
        "way-from-zero": errors * signs > 0,
        "way-down": errors < 0,
        "way-up": errors > 0,
    }
    for name, there in conditions.items():
        # A factor that is rounded itself moves all one way, too, but leaves some on the other side.
        if int(((sizes > _BETWEEN) * ~there).sum()) <= _MOST_OTHERS * every:
            message = said("rounded-one-way", 100 * count / every, said(name))
            return {"status": "Warning", "message": message, "strength": _WARNS}
    return {}


def _one_factor(result: CheckedResult, moved: float, least: float) -> dict[str, Any]:
    """A warning for a factor that all elements of a half type share, below the limit of a whole result: more than an
    ordinary kernel has, and the same in small and large numbers, in those of both signs, here and there.
    """
    if result.own is None or limits_of(result.epsilon) is not OF_HALVES:
        return {}
    every = math.prod(result.reference.shape) // (4 * _LOOKED_AT) | 1
    columns = [
        array.reshape(-1)[::every]
        for array in (result.reference, result.errors, result.units, result.scale, result.own)
    ]
    # What is equal is rounded alike, and counts once.
    chosen = list({value: place for place, value in enumerate(columns[0].tolist()) if value}.values())
    if len(chosen) < FEW:
        return {}
    reference, errors, units, scale, own = (array[chosen] for array in columns)
    fit, ordinary = slope_of(reference, errors, units, scale, moved), slope_of(reference, own, units, scale, moved)
    beyond = abs(fit.size) - abs(ordinary.size)
    if beyond <= least or beyond <= _SURE_OF_FACTOR * fit.standard_error:
        return {}
    sizes = abs(reference)
    order = sorted(range(len(chosen)), key=sizes.tolist().__getitem__)
    each = len(chosen) // _PARTS_ALIKE
    places = [list(range(n * each, (n + 1) * each)) for n in range(_PARTS_ALIKE)]
    parts = [*places, *([order[n] for n in order_of_place] for order_of_place in places), reference > 0, reference < 0]
    for part in parts:
        arrays = (reference[part], errors[part], units[part], scale[part])
        if math.prod(arrays[0].shape) >= LEAST_ELEMENTS:
            slope = slope_of(*arrays, moved)
            if abs(slope.size - fit.size) > _LIKE_THE_WHOLE * abs(fit.size) + 3 * slope.standard_error:
                return {}
    return {"status": "Warning", "message": _slope_message(fit, said("whole-result")), "strength": _WARNS}


def _status(strength: float) -> str:
    return "error" if strength > 1 else "Warning"


def slope_of(reference: Any, errors: Any, units: Any, scale: Any, moved: float) -> SlopeFit:
    """The slope of errors against references, of arrays of one shape.

    It is that of which both the elements in their scales and those in their sizes are sure: the smaller of the two, 0
    if they point apart. So neither one large element decides nor many small ones whose scale is too small.

    The standard error is that of the jackknife: what leaving out one element changes, or one index of any dimension,
    whose elements may have a rounding in common. It is at least that of elements that are rounded once, and of those
    that rounding of the arguments moves, by ``moved`` scales.
    """
    x, t = reference / scale, errors / scale
    squares = x * x
    total = float(squares.sum())
    if total <= 0:
        return SlopeFit(0.0, math.inf)
    slope = float((x * t).sum()) / total
    plain = float((reference * errors).sum()) / float((reference * reference).sum())
    residuals = x * (t - slope * x)
    rest = 1 - squares / total
    # A single element that outweighs all others has nothing beside it that it could be compared with.
    alone = residuals / (rest + (rest < 1e-9) * 1e-9)
    units = units / scale
    rounded = float((squares * units * units).sum()) * ROUNDED_ONCE**2
    least = max(float((alone * alone).sum()), rounded, moved**2 * total)
    for axis in axes_of(x.shape):
        many = int(x.shape[axis])
        if many >= _LEAST_SHARED:
            others = tuple(place for place in range(len(x.shape)) if place != axis)
            sums = residuals.sum(axis=others) if others else residuals
            least = max(least, float((sums * sums).sum()) * _few_are_unsure(many) ** 2)
    size = 0.0 if slope * plain <= 0 else math.copysign(min(abs(slope), abs(plain)), slope)
    return SlopeFit(size, least**0.5 / total)


def _few_are_unsure(many: int) -> float:
    """By what a standard error that so many numbers show is too small for six of it to be as sure as of a normal
    distribution: Student's t at the same probability, nearly.
    """
    return 1 + 60 / many**2


def bias_of(errors: Any, units: Any, scale: Any, moved: float) -> SlopeFit:
    """The mean error of some elements, with its standard error (as :func:`slope_of`)."""
    count = math.prod(errors.shape)
    mean = float(errors.sum()) / count
    rest = errors - mean
    spread = float((rest * rest).sum()) * count / max(1, count - 1)
    rounded = float((units * units).sum()) * ROUNDED_ONCE**2
    least = max(spread, rounded, float((scale * scale).sum()) * moved**2)
    for axis in axes_of(errors.shape):
        many = int(errors.shape[axis])
        if many >= _LEAST_SHARED:
            others = tuple(place for place in range(len(errors.shape)) if place != axis)
            sums = rest.sum(axis=others) if others else rest
            least = max(least, float((sums * sums).sum()) * _few_are_unsure(many) ** 2)
    return SlopeFit(mean, least**0.5 / count)


class _Parts:
    """What is found of the parts of a result: what is farthest, and what is said of it.

    ``spread``: what a bias counts in, ``size``: of a typical element; ``shared``: the slope that elements of a part may
    share, as they depend on numbers that are rounded once for all of them; ``moved``: how far each may be off by
    chance.
    """

    def __init__(
        self,
        result: CheckedResult,
        limits: SignedLimits,
        products: Any,
        squares: Any,
        spread: float,
        size: float,
        shared: float,
        moved: float,
    ) -> None:
        self.result = result
        self.limits = limits
        self.products = products
        self.squares = squares
        self.spread = spread
        self.size = size
        self.shared = shared
        self.moved = moved
        self.strength = 0.0
        self.message = ""

    def judge(self, group: Division) -> None:
        """Look at the parts of one group."""
        result, limits = self.result, self.limits
        weights = summed(self.squares, group)
        if not float(weights.max()) > 0:
            return
        shape = result.reference.shape
        each = math.prod(group.blocks)
        each *= math.prod(int(shape[place]) for place in range(len(shape)) if place not in group.kept)
        slopes = abs(summed(self.products, group) / (weights + (weights == 0)))
        for place in outstanding(slopes, result.epsilon * limits.part, slopes * weights**0.5):
            self._judge_slope(group, place)
        means = abs(summed(result.errors, group)) / each
        for place in outstanding(means, self.spread * limits.part, means):
            self._judge_bias(group, place)

    def _judge_slope(self, group: Division, place: tuple[int, ...]) -> None:
        part = part_at(group, place)
        result = self.result
        own = None if result.own is None else result.own[part]
        arrays = (result.reference[part], result.errors[part], result.units[part], result.scale[part])
        self._fit(name_of(group, part), *arrays, own)

    def _fit(self, name: str, reference: Any, errors: Any, units: Any, scale: Any, own: Any) -> None:
        epsilon, limits = self.result.epsilon, self.limits
        fit = slope_of(reference, errors, units, scale, self.moved)
        if abs(fit.size) <= epsilon * limits.part or fit.certainty <= STANDARD_ERRORS:
            return
        x = reference / scale
        weight = float((x * x).sum())
        shared = limits.moved * (math.prod(x.shape) / weight) ** 0.5 if self.shared else 0.0
        allowed = 0.0 if own is None else abs(float((x * (own / scale)).sum()) / weight)
        if abs(fit.size) > max(epsilon * limits.part, shared) + allowed:
            strength = (abs(fit.size) - allowed) / max(epsilon * limits.part_error, 2 * shared)
            self._say(strength, _slope_message(fit, name))

    def _judge_bias(self, group: Division, place: tuple[int, ...]) -> None:
        result, limits = self.result, self.limits
        part = part_at(group, place)
        fit = bias_of(result.errors[part], result.units[part], result.scale[part], self.moved)
        inside, scale = result.reference[part], result.scale[part]
        count = math.prod(inside.shape)
        spread = max(
            self.spread,
            result.epsilon * (float((inside * inside).sum()) / count) ** 0.5,
            limits.moved * (float((scale * scale).sum()) / count) ** 0.5,
        )
        own = 0.0 if result.own is None else abs(float(result.own[part].sum()) / count)
        if abs(fit.size) > spread * limits.part + own and fit.certainty > STANDARD_ERRORS:
            strength = (abs(fit.size) - own) / (spread * limits.part_error)
            self._say(strength, _bias_message(fit, self.size, said("each-element-of", name_of(group, part))))

    def judge_signs(self) -> None:
        """Look at the elements that are positive and those that are negative, each by themselves."""
        result = self.result
        for name, chosen in (("positive-elements", result.reference > 0), ("negative-elements", result.reference < 0)):
            if int(chosen.sum()) >= LEAST_ELEMENTS:
                own = None if result.own is None else result.own[chosen]
                arrays = (result.reference[chosen], result.errors[chosen], result.units[chosen], result.scale[chosen])
                self._fit(said(name), *arrays, own)

    def _say(self, strength: float, message: str) -> None:
        if strength > self.strength:
            self.strength, self.message = strength, message


def _slope_message(fit: SlopeFit, what: str) -> str:
    return said("scaled-one-way", what, 100 * abs(fit.size), way_of(fit), certainty_of(fit))


def _bias_message(fit: SlopeFit, size: float, what: str) -> str:
    share = said("of-typical-element", 100 * abs(fit.size) / size) if size else ""
    return said("shifted-one-way", what, abs(fit.size), way_of(fit), share, certainty_of(fit))


def way_of(fit: SlopeFit) -> str:
    """Whether numbers are too large or too small."""
    return said("way-large") if fit.size > 0 else said("way-small")


def certainty_of(fit: SlopeFit) -> float:
    """The size in standard errors, as it is shown."""
    return min(fit.certainty, 9999.0)
