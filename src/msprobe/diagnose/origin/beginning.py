"""What differs first, where everything before agrees: there is no rounding that could have grown.

Far behind it, in loss and gradients, a difference that begins so may be no larger than rounding makes them in types
with few digits. Where it begins, two things still show that it is no rounding: what the call does differently, and how
far apart the first results are that follow from it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, is_floating, is_integer, numel, statistics
from msprobe.diagnose.differences.words import ratio_of
from msprobe.diagnose.evidence import OneSide, OtherArguments
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.steps.randomness import is_random
from msprobe.diagnose.steps.tensor_info import rms
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance import tensor, units
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.diagnose.tolerance.roundings import is_same_number, least, lone_gradient_limit, roundings_limit

_MEASURED = frozenset(("computation", "gradient", "parameter_gradient", "recompute", "collective"))
_FROM_OUTSIDE = frozenset(("data", "initial_weights"))
_MOST_CALLS = 400
#: So many times as far apart as all before: no growth of rounding, which is some times from call to call.
_BY_FAR = 64.0
_REVERSED = operators.MOVES | operators.CASTS | operators.FACTORS | operators.IDLE
_DONE_OTHERWISE = frozenset(("structure", "mutation", "loss_scale", "layout"))


def settle_beginnings(scene: Scene) -> None:
    """Mark the suspects that something differs by where nothing differed before, and that no rounding explains."""
    if scene.comparer.crossing or not scene.has_values:
        return
    computes_otherwise = _computes_otherwise(scene)
    orders, before = _Orders(scene), _FurthestBefore(scene)

    def settle(suspect: Suspect) -> Suspect:
        if computes_otherwise and orders.includes(suspect):
            return replace(suspect, clear=False)  # where all is apart a little, what comes of it is not seen
        settled = _with_beginning(_settled(scene, suspect), before)
        return replace(settled, clear=True) if _is_made_otherwise(scene, settled, before) else settled

    scene.ledger.revise(settle)


class _FurthestBefore:
    """How far the forward calls before a place of the step are apart at most."""

    def __init__(self, scene: Scene) -> None:
        forward = sorted(
            (event.index, max(judged.output_difference, judged.input_difference))
            for event, judged in scene.judged.items()
            if event.direction == "forward"
        )
        self._indexes = [index for index, _ in forward]
        self._furthest = [0.0, *accumulate((apart for _, apart in forward), max)]

    def at(self, place: float) -> float:
        """That of the calls before ``place``; 0 where there are none."""
        return self._furthest[bisect_left(self._indexes, place)]


def _with_beginning(suspect: Suspect, before: _FurthestBefore) -> Suspect:
    """The suspect, which begins if what comes from outside is further apart by far than all before it."""
    difference = suspect.difference
    if suspect.begins or difference is None or suspect.finding.kind not in _FROM_OUTSIDE:
        return suspect
    return replace(suspect, begins=difference.delta > _BY_FAR * before.at(suspect.place) > 0.0)


def _is_made_otherwise(scene: Scene, suspect: Suspect, before: _FurthestBefore) -> bool:
    """True if calls of one side alone make a tensor of a half type that is further apart, by rows, than what they do
    otherwise makes of all before it: the statistics of such types say little.
    """
    difference = suspect.difference
    if suspect.clear or difference is None or suspect.finding.fact(OneSide) is None:
        return False
    judged, sides = suspect.judged, (difference.left, difference.right)
    if judged is None or judged.event.direction != "forward" or not all(map(is_floating, sides)):
        return False
    if numel(difference.left) != numel(difference.right):
        return False
    return tensor.is_made_otherwise(difference, scene.comparer.rows.between(*sides), before.at(suspect.place))


def _settled(scene: Scene, suspect: Suspect) -> Suspect:
    if suspect.begins and _is_cause(scene, suspect):
        return replace(suspect, clear=True, decisive=True)
    judged, difference = suspect.judged, suspect.difference
    if suspect.begins and difference is not None and _is_reordered(scene, difference):
        return replace(suspect, clear=True)  # no rounding makes another order
    if (
        judged is not None
        and suspect.finding.kind == "argument"
        and judged.event.module is None
        and not scene.same_passes
        and not _changes_loss(scene, judged)
    ):
        # More micro-batches, each of which counts less by as much.
        return replace(suspect, clear=False)
    return suspect


def _computes_otherwise(scene: Scene) -> bool:
    """True if calls that take the same give results that are apart by rounding: the kernels of both sides differ."""
    return any(judged.status == "rounding" and not is_random(judged.event) for judged in scene.judged.values())


class _Orders:
    """What both sides do in different orders: of whole numbers, or of calls that are given one of several each."""

    def __init__(self, scene: Scene) -> None:
        self._timelines = [side.timeline for side in scene.sides]
        # The calls of both sides, by API and module.
        self._calls: list[dict[tuple[str, str | None], list[Event]]] = []
        # Whether these are given the same arguments, in slots, by both sides in different orders.
        self._is_order: dict[tuple[str, str | None, tuple[str, ...]], bool] = {}

    def includes(self, suspect: Suspect) -> bool:
        """True if a suspect says no more than that."""
        judged, difference = suspect.judged, suspect.difference
        if difference is not None and is_tensor(difference.left) and is_tensor(difference.right):
            left, right = difference.left, difference.right
            is_whole = is_integer(left) and is_integer(right) and "bool" not in left["dtype"]
            return is_whole and statistics(left) == statistics(right) and left.get("shape") == right.get("shape")
        arguments = suspect.finding.fact(OtherArguments)
        if judged is None or arguments is None or not judged.event.is_call:
            return False
        key = judged.event.stem, judged.event.module, tuple(each.slot for each in arguments.differences)
        if key not in self._is_order:
            mine, theirs = ([_numbers_given(call, key[2]) for call in calls] for calls in self._alike(judged.event))
            self._is_order[key] = mine != theirs and set(mine) == set(theirs)
        return self._is_order[key]

    def _alike(self, event: Event) -> list[list[Event]]:
        """The forward calls of an API in a module, of both sides."""
        if not self._calls:
            for timeline in self._timelines:
                calls: dict[tuple[str, str | None], list[Event]] = {}
                for call in timeline:
                    if call.is_call and call.direction == "forward":
                        calls.setdefault((call.stem, call.module), []).append(call)
                self._calls.append(calls)
        return [calls.get((event.stem, event.module), []) for calls in self._calls]


def _numbers_given(call: Event, slots: Sequence[str]) -> tuple[str, ...]:
    given = dict(call.inputs())
    return tuple(str(_plain(given.get(slot))) for slot in slots)


def _is_reordered(scene: Scene, difference: Difference) -> bool:
    """True if two tensors have the same statistics, and their rows say that their elements are others."""
    sides = difference.left, difference.right
    return difference.delta == 0.0 and all(map(is_tensor, sides)) and scene.comparer.rows.apart(*sides) > 0.0


def _is_cause(scene: Scene, suspect: Suspect) -> bool:
    judged, difference, kind = suspect.judged, suspect.difference, suspect.finding.kind
    if judged is None or _is_measured_noise(scene, judged, difference):
        return False
    if kind in _MEASURED:
        return judged.status == "unexplained" and not judged.changed_inputs
    if kind == "dtype":
        # A cast of one side alone, and no call of both that computes in another type: one of several calls.
        return suspect.finding.fact(OneSide) is None or _changes_results(scene, suspect, judged)
    if kind == "argument" and suspect.finding.fact(OtherArguments) is not None:
        if not any(map(_is_meant, judged.arguments)) or _is_taken_back(scene, judged):
            return False
        if judged.takes_another_shape:
            return _changes_loss(scene, judged)  # one of several calls that do it otherwise
        # Rows in another order, or in more parts: outside of all modules the loss says whether that is all.
        is_arranged = judged.event.module is None and operation(judged.event.stem) in operators.MOVES
        return not is_arranged or _changes_loss(scene, judged)
    if kind in _FROM_OUTSIDE and difference is not None:
        return is_integer(difference.left) or difference.delta > least(units.pair_unit(difference))
    if kind in _DONE_OTHERWISE:
        return _changes_results(scene, suspect, judged)
    return False


def _is_measured_noise(scene: Scene, judged: Judged, difference: Difference | None) -> bool:
    """True if a second healthy run differs as much here."""
    measured = max(
        scene.comparer.measured_noise(judged.partner.name), scene.comparer.measured_inputs(judged.partner.name)
    )
    return 0.0 < (difference.delta if difference is not None else judged.output_difference) <= measured


def _is_meant(argument: Difference) -> bool:
    """True for an argument that says what is computed: a number or a word. Truth values mostly say how, and a mask that
    is given on one side alone may be made by such a word on the other.
    """
    left, right = (_plain(value) for value in (argument.left, argument.right))
    if isinstance(left, bool) or isinstance(right, bool) or is_tensor(argument.left) or is_tensor(argument.right):
        return False
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return not is_same_number(left, right)
    return isinstance(left, (int, float, str)) or isinstance(right, (int, float, str))


def _plain(value: Any) -> Any:
    return value.get("value") if isinstance(value, dict) and "value" in value else value


def _is_taken_back(scene: Scene, judged: Judged) -> bool:
    """True if another argument changes the result of its call, and hardly that of the module around it: a loop that
    runs the other way, a convolution whose result is cut out later.
    """
    if judged.event.module is None or judged.output_difference <= _roundings_between(
        scene, [judged.event, judged.partner]
    ):
        return False
    outer = _changed_module(scene, judged.event)
    return outer is None or outer.output_difference <= _roundings_between(scene, [outer.event, outer.partner])


def _changes_results(scene: Scene, suspect: Suspect, judged: Judged) -> bool:
    """True if what is done otherwise changes what follows by more than so many roundings do: the results of the module
    around it; outside of all modules the tensor that both sides make by calls of their own; else the loss.
    """
    alone = suspect.finding.fact(OneSide) or OneSide()
    sides = zip((alone.candidate, alone.reference), scene.sides, strict=True)
    lone = [known for names, side in sides for name in names if (known := side.timeline.by_name.get(name)) is not None]
    allowed = _roundings_between(scene, [*lone, judged.event, judged.partner])
    joined = lone and _is_joined(scene, suspect, judged) and not _goes_on_behind(scene, judged)
    if joined and bool(alone.candidate) != bool(alone.reference) and any(map(_computes, lone)):
        # What one side computes and the other does not is made good nowhere.
        assert suspect.difference is not None
        return suspect.difference.delta > allowed
    if lone and _is_chosen_otherwise(scene, judged):
        return True
    outer = next(
        (changed for call in (*lone, judged.event) if (changed := _changed_module(scene, call)) is not None), None
    )
    if outer is not None:
        return math.isfinite(outer.output_difference) and _apart(scene, outer) > _roundings_between(
            scene, [outer.event, outer.partner]
        )
    if lone and _is_answered(scene, suspect, judged) and _is_whole(suspect.difference):
        return True  # whole numbers and truth values have no rounding
    if joined:
        assert suspect.difference is not None
        return suspect.difference.delta > allowed
    return _changes_loss(scene, judged) or _changes_gradients(scene, lone)


def _distance(scene: Scene, difference: Difference) -> float:
    """How far two tensors are apart: by statistics, and by rows, which see the place of each element."""
    sides = difference.left, difference.right
    return max(difference.delta, scene.comparer.rows.between(*sides) if all(map(is_tensor, sides)) else 0.0)


def _changes_gradients(scene: Scene, lone: Sequence[Event]) -> bool:
    """True if the first gradient that calls of one side alone give back to those of both is further apart than the
    roundings of all such calls on the way to the loss make it.
    """
    if not lone or scene.arrival.clean:
        return False
    first = next((call for call in scene.judged.values() if call.event.direction == "backward"), None)
    gradients = [difference for difference in first.changed_inputs if is_floating(difference.left)] if first else []
    if not gradients or any(ratio_of(each.left, each.right) is not None for each in gradients):
        return False  # A factor may be taken out again behind it.
    allowed = lone_gradient_limit(
        sum(_size_of_exponent(call) ** 2 for call in _made_outside(scene)), scene.comparer.unit_of_run
    )
    return any(
        is_floating(each.right) and _distance(scene, each) > allowed * _cancelled(scene, each) for each in gradients
    )


def _size_of_exponent(call: Event) -> float:
    """By how much a call enlarges the relative error of its argument: an exponent by the size of that. Its result
    counts, too, which may be the argument of an exponent in the backward pass.
    """
    if operation(call.stem) not in operators.EXPONENTS:
        return 1.0
    sizes = (rms(leaf) for _, leaf in (*call.inputs(), *call.outputs()) if is_floating(leaf))
    return max(1.0, *filter(math.isfinite, sizes))


def _cancelled(scene: Scene, gradient: Difference) -> float:
    """By how much cancellation enlarges the relative error of a gradient: the largest tensor of as many elements that
    calls of one side alone take or give in the backward pass, over the gradient, by their sizes.
    """
    size = max(rms(gradient.left), rms(gradient.right))
    sizes = [
        rms(leaf) / size if size else math.inf
        for side in scene.sides
        for event in side.alone
        if event.direction == "backward"
        for _, leaf in (*event.inputs(), *event.outputs())
        if is_floating(leaf) and numel(leaf) == numel(gradient.left)
    ]
    return max(filter(math.isfinite, sizes), default=1.0)


def _apart(scene: Scene, judged: Judged) -> float:
    """How far the results of a pair are apart: by statistics, and by rows, which see the place of each element."""
    others = dict(judged.partner.outputs())
    pairs = [(leaf, others.get(slot) or {}) for slot, leaf in judged.event.outputs()]
    distances = [
        scene.comparer.rows.between(leaf, other)
        for leaf, other in pairs
        if is_floating(leaf) and is_floating(other) and numel(leaf) == numel(other)
    ]
    return max(judged.output_difference, *distances, 0.0)


#: What is computed in front of them may as well be computed behind them.
_EXCHANGED = _REVERSED | operators.SUMS | operators.PRODUCTS


def _goes_on_behind(scene: Scene, judged: Judged) -> bool:
    """True if a call moves, adds up or multiplies what it takes, and one side goes on behind it by calls of its own: a
    norm in front of a permutation or behind it, products before they are added up or after, a low-rank addition merged
    into a weight or beside it.
    """
    if operation(judged.event.stem) not in _EXCHANGED:
        return False
    return _is_followed_alone(scene.candidate, judged.event) or _is_followed_alone(scene.reference, judged.partner)


def _is_followed_alone(side: StepSide, first: Event) -> bool:
    """True if a call of one side alone computes something of what this call gives, moved or as it is."""
    todo, seen = [first], {first}
    while todo and len(seen) < _MOST_CALLS:
        event = todo.pop()
        users = {user for slot, _ in event.outputs() for user in side.users_of(event, slot) if user.is_call}
        if any(side.is_alone(user) and _computes(user) for user in users):
            return True
        todo += [user for user in users - seen if not _computes(user)]
        seen |= users
    return False


def _changes_loss(scene: Scene, judged: Judged) -> bool:
    """True if the loss is further apart than the roundings of all calls that one side alone makes on the way to it."""
    allowed = _roundings_between(scene, [*_made_outside(scene), judged.event, judged.partner])
    return scene.loss_difference > allowed


def _made_outside(scene: Scene) -> list[Event]:
    """The calls of one side alone that stand outside of all modules, before the step of the optimizer."""
    return [
        event
        for side in scene.sides
        for event in side.alone
        if event.direction == "forward"
        and event.module is None
        and not (side.timeline.optimizers and event.index > side.timeline.optimizers[0].index)
    ]


def _computes(event: Event) -> bool:
    """True for a call that does more than move, cast or scale: what a later factor does not take back."""
    return operation(event.stem) not in _REVERSED


def _changed_module(scene: Scene, event: Event) -> Judged | None:
    """The innermost module around a call of either side whose results differ."""
    for outer in event.around():
        changed = scene.judged.get(outer) or scene.judged.get(scene.pairing.back.get(outer, outer))
        if outer.is_module and changed is not None and changed.changed_outputs:
            return changed
    return None


def _is_answered(scene: Scene, suspect: Suspect, judged: Judged) -> bool:
    """True if the same call takes the tensor that shows the difference on both sides, in one shape, and with the same
    arguments.
    """
    difference = suspect.difference
    if difference is None or judged.event in scene.pairing.loose or judged.event.stem != judged.partner.stem:
        return False
    if judged.arguments:
        return False
    left, right = difference.left, difference.right
    return is_tensor(left) and is_tensor(right) and left.get("shape") == right.get("shape")


def _is_chosen_otherwise(scene: Scene, judged: Judged) -> bool:
    """True if a call takes whole numbers or truth values that are others, all else alike, and computes more of it than
    rounding makes: a mask. What moves elements by them may be moved back behind it.
    """
    return (
        bool(judged.changed_inputs)
        and not judged.arguments
        and all(map(_is_whole, judged.changed_inputs))
        and not any(map(_is_whole, judged.changed_outputs))
        and _computes(judged.event)
        and judged.output_difference > _roundings_between(scene, [judged.event, judged.partner])
    )


def _is_whole(difference: Difference | None) -> bool:
    return difference is not None and is_integer(difference.left)


def _is_joined(scene: Scene, suspect: Suspect, judged: Judged) -> bool:
    """True if the tensor that shows the difference is the same argument of the same call on both sides, and not a
    factor times it.
    """
    difference = suspect.difference
    if difference is None or not _is_answered(scene, suspect, judged):
        return False
    left, right = difference.left, difference.right
    if not (is_floating(left) and is_floating(right)):
        return False
    # A factor may be taken out again behind it.
    return math.isfinite(difference.delta) and ratio_of(left, right) is None


def silent_cause(scene: Scene, judged: Judged) -> Judged | None:
    """The call with another argument that a first difference comes from, though its own result looks the same: types of
    few digits show in their statistics only what is larger than a unit.
    """
    if not scene.untouched or judged.changed_inputs or scene.comparer.crossing:
        return None
    silent = {
        call.event: call for call in scene.silent if any(map(_is_meant, call.arguments)) and not is_random(call.event)
    }
    todo, seen = [judged.event], {judged.event}
    while silent and todo and len(seen) < _MOST_CALLS:
        event = todo.pop(0)
        for _, leaf in event.inputs():
            maker = scene.candidate.makers.of(leaf, event)
            if maker in silent:
                return silent[maker]
            if maker is not None and maker not in seen:
                seen.add(maker)
                todo.append(maker)
    return None


def _roundings_between(scene: Scene, events: Sequence[Event]) -> float:
    return roundings_limit(events, scene.comparer.unit_of_run)
