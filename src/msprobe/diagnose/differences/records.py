"""How far two records are apart, value by value.

The distance of two tensors, *delta*, is relative: of the values where they were recorded (the L2 norm of the
difference over the larger of both), else of the statistics (the largest of the differences of max, min,
mean and norm, each over the size that rounding errors of it have: the largest element, the RMS, the norm).
The second is a lower bound of what the values may differ by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msprobe.diagnose.differences.row_digests import RowDigests
from msprobe.diagnose.differences.tensor_files import TensorFiles
from msprobe.diagnose.differences.tensor_pass import Detail
from msprobe.diagnose.measured.healthy import NOT_MEASURED
from msprobe.diagnose.steps.tensor_info import RecordedTensor, spoken
from msprobe.diagnose.steps.tensor_info import fingerprint as fingerprint
from msprobe.diagnose.steps.tensor_info import is_floating as is_floating
from msprobe.diagnose.steps.tensor_info import is_integer as is_integer
from msprobe.diagnose.steps.tensor_info import is_tensor as is_tensor
from msprobe.diagnose.steps.tensor_info import not_finite as not_finite
from msprobe.diagnose.steps.tensor_info import numbers as numbers
from msprobe.diagnose.steps.tensor_info import numel as numel
from msprobe.diagnose.steps.tensor_info import rms as rms
from msprobe.diagnose.steps.tensor_info import statistics as statistics
from msprobe.diagnose.steps.timeline import Slot
from msprobe.statistics_table import USUAL_KEYS
from msprobe.store.part import DumpPart

if TYPE_CHECKING:
    from msprobe.diagnose.tolerance.effective import Products

What = Literal["value", "argument", "missing", "dtype", "shape", "layout", "requires_grad", "not_finite"]

_STATISTICS = USUAL_KEYS
_UNRELATED = frozenset(("torch.device", "function", "object", "torch.Generator"))
# Python floats that are computed in another order are distinguished from other settings by this.
_SAME_NUMBER = 1e-9
# Statistics that are rounded to bfloat16 are no further apart where the elements are the same: two of its units.
_LOOK_ALIKE = 1 / 64


class Difference(NamedTuple):
    """One place where two records differ.

    ``what``: ``value`` (of a tensor; ``delta`` says by how much, ``sure`` whether the bits are known to
    differ or known only to look alike), ``not_finite`` (NaN or infinities on the candidate's side only),
    ``dtype``, ``shape``, ``layout`` (strides), ``requires_grad``, ``argument`` (another value of what is no tensor),
    ``missing`` (there on one side only: the other is None).
    """

    slot: str
    what: What
    left: Any
    right: Any
    delta: float = 0.0

    @property
    def in_words(self) -> tuple[str, str]:
        """Both sides for the eye. An argument that is left out has a default, which was not recorded."""
        if self.what != "missing":
            return described(self.left), described(self.right)
        left, right = ("not given" if side is None else described(side) for side in (self.left, self.right))
        return left, right


def pair_slots(left: Sequence[Slot], right: Sequence[Slot]) -> tuple[list[tuple[Slot, Slot]], list[Slot], list[Slot]]:
    """Which of two lists of slots answer to each other, and what each list has alone: those of one name answer to each
    other, and a tensor by position to one by keyword.
    """
    pairs: list[tuple[Slot, Slot]] = []
    others = dict(right)
    rest: list[Slot] = []
    for slot, value in left:
        if slot in others:
            pairs.append(((slot, value), (slot, others.pop(slot))))
        else:
            rest.append((slot, value))
    if rest and others:
        for lone_slot in list(rest):
            twin = next((key for key, other in others.items() if is_tensor(other)), None)
            if is_tensor(lone_slot[1]) and twin is not None:
                pairs.append((lone_slot, (twin, others.pop(twin))))
                rest.remove(lone_slot)
    return pairs, rest, list(others.items())


class Comparer:
    """Compares the values of two parts; reads tensor files where both sides wrote them. ``files``: those of both, if
    some of them were read already.
    """

    def __init__(self, candidate: DumpPart, reference: DumpPart, files: TensorFiles | None = None) -> None:
        self._files = files or TensorFiles(candidate, reference)
        self.rows = RowDigests(candidate.rows, reference.rows)
        # What the values in two files have to do with each other, as far as it was asked for.
        self.relations: dict[tuple[str, str, str], Any] = {}
        # What the results of an entry of the reference may differ by, where that was measured.
        self.measured_noise: Callable[[str], float] = lambda entry: 0.0
        # What they may differ by: entry, what the model allows, how far its inputs are apart, unit of rounding.
        self.measured_limit: Callable[[str, float, float, float], float] = lambda entry, modelled, *_: max(
            modelled, self.measured_noise(entry)
        )
        # The rounding unit of the type that the run computes in, as far as calls say.
        self.unit_of_run = 0.0
        # The units to which products round the inputs, where that is coarser than its type.
        self.products: Products | None = None
        # The same for what goes into it: the other healthy run may have got other data.
        self.measured_inputs: Callable[[str], float] = lambda entry: 0.0
        # What calls of the other healthy run show by their rows.
        self.healthy_calls = NOT_MEASURED
        # One side ran on MindSpore, the other on PyTorch: see :mod:`msprobe.diagnose.pairing.translation`.
        self.crossing = False
        # Then, in a step that follows another: how far the weights are apart, by what optimizers made of rounding.
        self.follows = False
        self.weights_apart = 0.0

    def between(self, left: Sequence[Slot], right: Sequence[Slot]) -> list[Difference]:
        """What differs between two lists of slots; those of one name answer to each other."""
        if not left and not right:
            return []
        others = dict(right)
        if len(right) == len(others) and [slot for slot, _ in left] == list(others):
            in_order: list[Difference] = []
            for slot, value in left:
                in_order += self.leaf(slot, value, others[slot])
            return in_order
        if left == right and not any(_needs_values(value) for _, value in left) and not self.rows.reorders(left):
            return []
        pairs, rest, alone = pair_slots(left, right)
        differences = [
            difference for (slot, value), (_, other) in pairs for difference in self.leaf(slot, value, other)
        ]
        differences += [Difference(slot, "missing", value, None) for slot, value in rest if value is not None]
        differences += [Difference(slot, "missing", None, value) for slot, value in alone if value is not None]
        return differences

    def leaf(self, slot: str, left: Any, right: Any) -> list[Difference]:
        """What differs between two values."""
        if type(left) is RecordedTensor and type(right) is RecordedTensor and left.plain and right.plain:
            # Most are of this kind: known by four finite numbers alone, and alike in all else.
            if (
                not self.crossing
                and left.floating
                and left["dtype"] == right["dtype"]
                and left.get("shape") == right.get("shape")
                and left.get("requires_grad") == right.get("requires_grad")
                and left.get("stride") == right.get("stride")
            ):
                if left.statistics == right.statistics:
                    # Other elements in another order, as far apart as no statistic says.
                    return [Difference(slot, "value", left, right)] if self.rows.reordered(left, right) else []
                apart = _plain_distance(left, right)
                if apart <= _LOOK_ALIKE and self.rows.added_up_otherwise(left, right, left.count):
                    apart = 0.0  # as far apart as no statistic says
                return [Difference(slot, "value", left, right, apart)]
        elif left == right and not is_tensor(left):
            return []
        if not (is_tensor(left) and is_tensor(right)):
            return _compare_plain(slot, left, right)
        if self.crossing:
            return self._across(slot, left, right)
        differences: list[Difference] = []
        if left["dtype"] != right["dtype"]:
            differences.append(Difference(slot, "dtype", left, right))
        if left.get("shape") != right.get("shape"):
            differences.append(Difference(slot, "shape", left, right))
            if numel(left) != numel(right):
                return [*differences, Difference(slot, "value", left, right, math.inf)]
        if (
            left.get("stride") != right.get("stride")
            and "layout" not in left
            and left.get("shape") == right.get("shape")
        ):
            differences.append(Difference(slot, "layout", left, right))
        if is_floating(left) and left.get("requires_grad") != right.get("requires_grad"):
            differences.append(Difference(slot, "requires_grad", left, right))
        if not _is_unset(left, right) and not self.same(left, right):
            if not_finite(left) and not not_finite(right):
                differences.append(Difference(slot, "not_finite", left, right, math.inf))
            else:
                delta = self.delta(left, right)
                if delta or not _half_known(left, right):
                    differences.append(Difference(slot, "value", left, right, delta))
        return differences

    def _across(self, slot: str, left: dict[str, Any], right: dict[str, Any]) -> list[Difference]:
        """What differs between tensors of two frameworks. Each has whole numbers, and layouts, of its own liking."""
        differences: list[Difference] = []
        if left["dtype"] != right["dtype"] and not (is_integer(left) and is_integer(right)):
            differences.append(Difference(slot, "dtype", left, right))
        if numel(left) != numel(right):
            return [
                *differences,
                Difference(slot, "shape", left, right),
                Difference(slot, "value", left, right, math.inf),
            ]
        if self.same(left, right):
            return differences
        if not_finite(left) and not not_finite(right):
            return [*differences, Difference(slot, "not_finite", left, right, math.inf)]
        delta = self.delta(left, right)
        return [*differences, Difference(slot, "value", left, right, delta)] if delta else differences

    def same(self, left: dict[str, Any], right: dict[str, Any]) -> bool:
        """True if two tensors hold the same values, or look alike in all that was recorded."""
        if self.crossing and _digest_of(left) == _digest_of(right) is not None:
            return True
        # Two frameworks round otherwise, so that other digests say nothing of floating-point numbers.
        if left["dtype"] == right["dtype"] and not (self.crossing and is_floating(left)):
            for kind in ("digest", "md5"):
                first, other = left.get(kind), right.get(kind)
                if (
                    isinstance(first, str)
                    and isinstance(other, str)
                    and first.partition(":")[0] == other.partition(":")[0]
                ):
                    return first == other
                if kind == "md5" and isinstance(first, str) and isinstance(other, str):
                    return first == other
        exact = self._distance_of_values(left, right)
        if exact is not None:
            return exact == 0.0  # statistics are rounded to the type of the tensor
        if statistics(left) != statistics(right) and not _alike(left, right):
            return False
        return not _other_count(left, right)

    def delta(self, left: dict[str, Any], right: dict[str, Any]) -> float:
        """The relative distance of two tensors of as many elements."""
        exact = self._distance_of_values(left, right)
        return statistics_difference(left, right) if exact is None else exact

    def _distance_of_values(self, left: dict[str, Any], right: dict[str, Any]) -> float | None:
        names = left.get("data_name"), right.get("data_name")
        if not (isinstance(names[0], str) and isinstance(names[1], str)):
            return None
        return self._files.delta(names[0], names[1])

    def detail(self, left: str, right: str) -> Detail | None:
        """What the values in two files are to each other, where one pass over them said so."""
        measured = self._files.measured(left, right)
        return None if measured is None else measured.detail

    def values(self, left: str, right: str) -> tuple[Any, Any] | None:
        """The values of two tensors, flat; None where one cannot be read."""
        return self._files.values(left, right)


def _is_unset(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """True if nobody has written one of them: then there is nothing to compare."""
    return left.get("unset") is True or right.get("unset") is True


def _digest_of(leaf: dict[str, Any]) -> Hashable | None:
    """Type, number of elements and digest, which say that two tensors are the same; None without digest."""
    digest = leaf.get("digest") or leaf.get("md5")
    return (leaf["dtype"], numel(leaf), digest) if isinstance(digest, str) else None


def _needs_values(value: Any) -> bool:
    """True if a tensor may differ from one of which the same was recorded: its values are in a file, and no digest."""
    return is_tensor(value) and "data_name" in value and not ("digest" in value or "md5" in value)


def _alike(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Equal statistics, NaN for NaN, whether as numbers or as the words of strict JSON."""
    for number, other in zip(statistics(left), statistics(right), strict=True):
        if number != other:
            a, b = spoken(number), spoken(other)
            if a != b and not (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)):
                return False
    return True


def hides_elements(leaf: Any) -> bool:
    """True if statistics are all that is known of a tensor, and say nothing of most of its elements: beside an infinity
    or a NaN neither mean nor norm says anything.
    """
    if type(leaf) is RecordedTensor and leaf.plain:
        return False
    norm = leaf.get("Norm") if is_tensor(leaf) else None
    if norm is None or "digest" in leaf or "md5" in leaf or "data_name" in leaf:
        return False
    number = spoken(norm)
    return isinstance(number, float) and not math.isfinite(number)


def is_unread(leaf: Any) -> bool:
    """True for a tensor of which a record of values has none: its elements could not be read."""
    if type(leaf) is RecordedTensor and leaf.plain:
        return False
    return is_tensor(leaf) and "unsupported" in leaf and numbers(leaf) is None and "data_name" not in leaf


def statistics_difference(left: dict[str, Any], right: dict[str, Any]) -> float:
    """Relative distance of the statistics of two tensors; 1 for whole numbers that differ, and for another number of
    elements that are not finite.
    """
    ours, other = numbers(left), numbers(right)
    if ours is None or other is None:
        return 0.0  # not recorded on one side: nothing is known
    lacking = [a is None or b is None for a, b in zip(statistics(left), statistics(right), strict=True)]
    if any(lacking):
        ours, other = _without(ours, lacking), _without(other, lacking)
    if is_integer(left) and is_integer(right):
        return 1.0
    if _other_count(left, right):
        return 1.0
    if not all(map(math.isfinite, (*ours, *other))) and any(
        a != b and not (math.isfinite(a) and math.isfinite(b)) for a, b in zip(ours, other, strict=True)
    ):
        same = all(_same_or_finite(a, b) for a, b in zip(ours, other, strict=True))
        return 0.0 if same else math.inf
    # Statistics that are infinite on both sides say nothing.
    largest = max((abs(v) for v in (*ours[:2], *other[:2]) if math.isfinite(v)), default=0.0)
    typical = max(ours[3] / math.sqrt(max(numel(left), 1)), other[3] / math.sqrt(max(numel(right), 1)))
    typical = typical if math.isfinite(typical) else largest
    return max(
        _relative(ours[0], other[0], largest),
        _relative(ours[1], other[1], largest),
        _relative(ours[2], other[2], typical or largest),
        _relative(ours[3], other[3], max(ours[3], other[3])),
    )


def _plain_distance(left: RecordedTensor, right: RecordedTensor) -> float:
    """The same for tensors of floating-point numbers of one form of which four finite numbers are known."""
    (most, least, mean, norm), (its_most, its_least, its_mean, its_norm) = left.statistics, right.statistics
    largest = max(most, -most, least, -least, its_most, -its_most, its_least, -its_least)
    size = left.rms if left.rms >= right.rms else right.rms
    typical = size or largest
    highest, lowest = abs(most - its_most), abs(least - its_least)
    largest_part = (highest if highest >= lowest else lowest) / largest if largest else 0.0
    mean_part = abs(mean - its_mean) / typical if typical else 0.0
    its_norm, norm = (its_norm, norm) if norm >= its_norm else (norm, its_norm)
    norm_part = (norm - its_norm) / norm if norm else 0.0
    largest_part = largest_part if largest_part >= mean_part else mean_part
    return largest_part if largest_part >= norm_part else norm_part


def _other_count(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """True if both sides count elements that are not finite, and count other numbers of them."""
    return any(kind in left and kind in right and left[kind] != right[kind] for kind in ("nan", "inf"))


def _half_known(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """True if one side has not recorded what the other has: then nothing is known of the difference."""
    if any(kind in left and kind in right for kind in ("digest", "md5")):
        return False
    return any((a is None) != (b is None) for a, b in zip(statistics(left), statistics(right), strict=True))


def _without(values: tuple[float, float, float, float], lacking: list[bool]) -> tuple[float, float, float, float]:
    """The statistics with those that one side has not recorded left out: zero, on both sides."""
    first, second, third, fourth = (0.0 if gone else value for value, gone in zip(values, lacking, strict=True))
    return first, second, third, fourth


def _relative(a: float, b: float, size: float) -> float:
    return abs(a - b) / size if size and a != b else 0.0


def _same_or_finite(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b)) or (math.isfinite(a) and math.isfinite(b))


def _compare_plain(slot: str, left: Any, right: Any) -> list[Difference]:
    if left is None or right is None:
        return [Difference(slot, "missing", left, right)]
    if is_tensor(left) or is_tensor(right):
        number, tensor = (right, left) if is_tensor(left) else (left, right)
        value = number.get("value") if isinstance(number, dict) else number
        if isinstance(value, (int, float)) and tensor.get("shape") == [] and tensor.get("Max") == value:
            return []
        return [Difference(slot, "argument", left, right)]
    if isinstance(left, dict) and isinstance(right, dict):
        if left.get("type") in _UNRELATED and right.get("type") in _UNRELATED:
            return []
        left_value, right_value = left.get("value", left), right.get("value", right)
        if _same_plain(left_value, right_value):
            return []
    return [Difference(slot, "argument", left, right)]


def _same_plain(left: Any, right: Any) -> bool:
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if math.isnan(left) and math.isnan(right):
            return True
        if left == right or math.isinf(left) or math.isinf(right):
            return left == right
        return abs(left - right) <= _SAME_NUMBER * max(abs(left), abs(right))
    return bool(left == right)


def described(value: Any) -> str:
    """A value for the eye: a tensor by dtype and shape, else what it is."""
    if is_tensor(value):
        dtype = str(value["dtype"]).removeprefix("torch.")
        return f"{dtype}{value.get('shape')}"
    if isinstance(value, dict):
        inner = value.get("value", value.get("type"))
        return f'"{inner}"' if isinstance(inner, str) and value.get("type") == "str" else str(inner)
    return str(value)
