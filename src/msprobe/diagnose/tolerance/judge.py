"""Each pair of events on its own: do its inputs agree, does its result, and does one explain the other?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal

from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import (
    Comparer,
    Difference,
    hides_elements,
    is_floating,
    is_integer,
    is_unread,
    not_finite,
    numbers,
    numel,
    rms,
)
from msprobe.diagnose.effect.movement import weights_of
from msprobe.diagnose.pairing.computed_numbers import NONE_APART, Apart, computed_numbers, with_candidates
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.pairing.slots import answering_slots
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.tensor_info import tensors_of
from msprobe.diagnose.steps.timeline import Event, Slot, Timeline, is_tensor
from msprobe.diagnose.steps.unwritten import reads_unwritten
from msprobe.diagnose.tolerance import frameworks, noise, units
from msprobe.diagnose.tolerance.choices import Choices
from msprobe.diagnose.tolerance.effective import Level, Products, kind_of, level_of
from msprobe.store.handed_through import has_own_backward

#: ``same``: nothing differs. ``rounding``: inputs agree, results differ by no more than rounding may.
#: ``explained``: the inputs differ, and the results by no more than that explains. ``unexplained``: the results differ
#: by more than inputs and rounding explain.
PairStatus = Literal["same", "rounding", "explained", "unexplained"]

#: The size that the gradient of a parameter would have without cancellation.
Expected = Callable[[dict[str, Any]], float]


@dataclass(slots=True)
class Judged:
    """A pair and what differs in it.

    ``input_difference`` is the largest relative difference among the inputs (and, of a backward call, of those of its
    forward call), ``output_difference`` that of the results, ``allowed`` how much of it the model explains.
    ``chosen``: it follows from a choice that rounding may decide otherwise, so that results show nothing.
    ``product_unit``: the unit to which the inputs of the products in it are rounded, if that is coarser than their
    type. ``hidden``: how far apart inputs may be that look alike only because infinities hide what is beside them, or
    because they could not be read (``unread``: one of them could not); or by how much rows say that they are apart, of
    a call that gives whole numbers.
    ``behind``: it follows from a token that rounding may have chosen otherwise.
    """

    event: Event
    partner: Event
    status: PairStatus = "same"
    inputs: list[Difference] = field(default_factory=list)
    parameters: list[Difference] = field(default_factory=list)
    outputs: list[Difference] = field(default_factory=list)
    input_difference: float = 0.0
    output_difference: float = 0.0
    allowed: float = 0.0
    chosen: bool = False
    product_unit: float = 0.0
    hidden: float = 0.0
    unread: bool = False
    behind: bool = False
    #: The distances are those of rows, and the limit is measured (:mod:`msprobe.diagnose.measured`).
    is_measured: bool = False
    #: It is the first of so many calls of its operator, which are beyond what all of them together may be.
    together: int = 1
    #: Results that differ and are gradients which cancel to nothing but rounding.
    vanishing: frozenset[str] = frozenset()
    _unit_of_results: float | None = None

    @property
    def unit_of_results(self) -> float:
        """The unit of rounding of the coarsest type that the results of either side have."""
        if self._unit_of_results is None:
            self._unit_of_results = units.unit(self.event.outputs(), self.partner.outputs())
        return self._unit_of_results

    @property
    def arguments(self) -> list[Difference]:
        """Differences of what is no tensor, and of what is given on one side only."""
        return [difference for difference in self.inputs if difference.what in ("argument", "missing")]

    @property
    def takes_another_shape(self) -> bool:
        """True if a tensor that went in has another shape: what one side did before, the other does here, or behind."""
        return any(
            is_tensor(side[0]) and is_tensor(side[1]) and side[0].get("shape") != side[1].get("shape")
            for side in ((difference.left, difference.right) for difference in self.inputs)
        )

    @property
    def changed_inputs(self) -> list[Difference]:
        """Tensors that went in with other values."""
        differences = self.inputs + self.parameters if self.parameters else self.inputs
        return [difference for difference in differences if difference.what in ("value", "not_finite")]

    @property
    def changed_outputs(self) -> list[Difference]:
        """Tensors that came out with other values, or on one side only."""
        return [difference for difference in self.outputs if difference.what in ("value", "not_finite", "missing")]


def judge_all(pairing: Pairing, comparer: Comparer, producers: Producers) -> dict[Event, Judged]:
    """Judge all pairs, in the candidate's order of execution. ``producers``: of the candidate."""
    comparer.unit_of_run = max(map(units.common_unit, (pairing.candidate, pairing.reference)))
    judged = _judge_all(pairing, comparer, producers)
    products = Products(pairing.candidate, pairing.reference)
    if products.is_possible and products.estimate(_levels(judged.values(), comparer)):
        # They were rounded to fewer bits than their types have: what that explains is known only now.
        comparer.products = products
        comparer.unit_of_run = max(comparer.unit_of_run, products.unit)
        judged = _judge_all(pairing, comparer, producers)
    return judged


def _levels(judged: Iterable[Judged], comparer: Comparer) -> dict[Event, Level]:
    """How far the results of products are apart."""
    levels: dict[Event, Level] = {}
    for call in judged:
        if kind_of(call.event) is not None:
            given = tensors_of([*call.event.inputs(), *call.event.parameters()])
            factor = noise.amplification(call.event, given, tensors_of(call.event.outputs()), comparer.crossing)
            level = level_of(call.event, call.output_difference, call.input_difference, factor)
            if level is not None:
                levels[call.event] = level
    return levels


def _judge_all(pairing: Pairing, comparer: Comparer, producers: Producers) -> dict[Event, Judged]:
    if comparer.crossing and comparer.follows:
        weights = weights_of(pairing.partner.items(), producers).values()
        comparer.weights_apart = frameworks.weights_apart(comparer.delta(*pair) for pair in weights)
    judged: dict[Event, Judged] = {}
    computed = computed_numbers(pairing)
    gradients: list[tuple[Event, Event]] = []
    choices = Choices(producers, comparer.unit_of_run)
    furthest = 0.0
    for event in pairing.candidate:
        partner = pairing.partner.get(event)
        if partner is None:
            continue
        if event.direction == "gradient":
            gradients.append((event, partner))
            continue
        forward = _forward_of(pairing, event, judged)
        maker_difference = partial(_maker_difference, event, judged, producers, furthest, comparer.unit_of_run)
        numbers_apart = computed.get(event, {})
        call = judge(event, partner, comparer, forward_delta(forward), maker_difference, numbers_apart=numbers_apart)
        for size in (call.input_difference, call.output_difference):
            if furthest < size < math.inf:
                furthest = size
        if event.direction == "backward" and is_of_another_node(pairing, event, partner):
            call.outputs = []
            call.inputs = [difference for difference in call.inputs if difference.what != "missing"]
            call.status = _status(call)
        choices.note(call)
        if event in choices or (forward is not None and forward.chosen):
            _excuse(call)
        call.behind = choices.is_behind(event)
        judged[event] = call
    largest = max((rms(leaf) for _, partner in gradients for _, leaf in _tensors(partner.outputs())), default=0.0)
    last_passes: dict[str, Event] = {}
    if gradients:
        last_passes = {
            event.parts.path: event for event in pairing.candidate if event.is_module and event.direction == "backward"
        }
    for event, partner in gradients:
        # All uses of a parameter add to its gradient, also those whose backward comes later.
        inherited = _users_difference(pairing, event, judged, producers)
        expected = _expected(pairing.candidate, last_passes.get(event.parts.path))
        judged[event] = judge(event, partner, comparer, inherited, largest=largest, expected=expected)
        if any((used := judged.get(user)) is not None and used.chosen for user in producers.users(event.parts.path)):
            _excuse(judged[event])
    return judged


def _excuse(judged: Judged) -> None:
    """Take nothing of a pair for wrong that follows from a choice."""
    judged.chosen = True
    judged.allowed = math.inf
    if judged.status in ("unexplained", "rounding"):
        judged.status = "explained"


def is_of_another_node(pairing: Pairing, event: Event, partner: Event) -> bool:
    """True if the gradients of one side are not those of what the call was given: a call that returns its input as it
    is (a dropout of nothing, a cast to the type that it has) has no node of its own in the graph, and what was recorded
    is that of the call before. Records of ours say so; of others the shapes say it.
    """
    is_other = pairing.other_nodes.get((event, partner))
    if is_other is None:
        is_other = pairing.other_nodes[event, partner] = _is_of_another_node(pairing, event, partner)
    return is_other


def _is_of_another_node(pairing: Pairing, event: Event, partner: Event) -> bool:
    for event_of_side in (event, partner):
        if event_of_side.parts.kind == "api" and not has_own_backward(
            event_of_side.record, len(event_of_side.inputs())
        ):
            return True
    for timeline, event_of_side in ((pairing.candidate, event), (pairing.reference, partner)):
        forward = timeline.forward_of(event_of_side) if event_of_side.is_call else None
        if forward is None or not forward.is_call:
            continue
        shapes = [leaf.get("shape") for _, leaf in event_of_side.outputs() if is_floating(leaf)]
        if shapes:
            given = [leaf.get("shape") for _, leaf in forward.inputs() if is_tensor(leaf)]
            if any(shape not in given for shape in shapes):
                return True
    return False


def _users_difference(pairing: Pairing, event: Event, judged: dict[Event, Judged], producers: Producers) -> float:
    """How much the backward calls differ that a module's parameters get their gradients from; infinite if one
    of them was made on one side only.
    """
    largest = 0.0
    for user in producers.users(event.parts.path):
        backward = pairing.candidate.backward_of(user)
        if backward is not None:
            judged_user = judged.get(backward)
            largest = max(
                largest,
                math.inf if judged_user is None else judged_user.input_difference,
                0.0 if judged_user is None else judged_user.output_difference,
            )
        partner = pairing.partner.get(user)
        if partner is not None and backward is None and pairing.reference.backward_of(partner) is not None:
            largest = math.inf
    return largest


def _expected(timeline: Timeline, back: Event | None) -> Expected | None:
    """What size the gradients of a module's parameters would have if the terms of these sums were unrelated. ``back``:
    a backward pass of the module.
    """
    forward = timeline.forward_of(back) if back is not None else None
    if back is None or forward is None:
        return None
    arriving = max((leaf for _, leaf in back.inputs() if is_floating(leaf)), key=numel, default=None)
    if arriving is None:
        return None
    taken = max((rms(leaf) for _, leaf in forward.inputs() if is_floating(leaf)), default=1.0)
    return partial(_without_cancellation, rms(arriving), numel(arriving), taken)


def _without_cancellation(size: float, count: int, taken: float, leaf: dict[str, Any]) -> float:
    """The size of the gradient of a bias, or of a weight that is multiplied by what the module takes."""
    shape = leaf.get("shape") or [1]
    return size * math.sqrt(max(1.0, count / shape[0])) * (taken if len(shape) > 1 else 1.0)


def _maker_difference(
    event: Event, judged: dict[Event, Judged], producers: Producers, furthest: float, least: float, leaf: Any
) -> float:
    """How much the call differs that made a tensor which ``event`` takes. ``furthest``: the most that any call before
    differs, which is taken for one that was not recorded. ``least``: what is taken where anything before differs.
    """
    maker = producers.of(leaf, event)
    if is_unread(leaf):
        return furthest
    if maker is None:
        return furthest if leaf.get("requires_grad") is True else 0.0
    return max(forward_delta(judged.get(maker)), least if furthest and hides_elements(leaf) else 0.0)


def _hiding(event: Event, partner: Event) -> list[Any]:
    """The inputs of a call that say nothing of their elements on both sides: infinities hide them, or they could not
    be read.
    """
    kinds = (is_unread, hides_elements) if event.direction in ("forward", "recompute") else (is_unread,)
    return [
        leaf
        for is_of_kind in kinds
        if (leaves := [leaf for _, leaf in event.inputs() if is_of_kind(leaf)])
        and any(is_of_kind(leaf) for _, leaf in partner.inputs())
        for leaf in leaves
    ]


def _forward_of(pairing: Pairing, event: Event, judged: dict[Event, Judged]) -> Judged | None:
    if event.direction != "backward":
        return None
    forward = pairing.candidate.forward_of(event)
    if forward is None:
        return None
    return judged.get(forward) or judged.get(pairing.repeats.get(forward, forward))


def judge(
    event: Event,
    partner: Event,
    comparer: Comparer,
    inherited: float = 0.0,
    maker_difference: Callable[[Any], float] = lambda leaf: 0.0,
    largest: float = 0.0,
    expected: Expected | None = None,
    numbers_apart: Apart = NONE_APART,
) -> Judged:
    """Judge one pair. ``inherited``: how much the forward call of a backward call differs, or what a gradient is
    made from. ``maker_difference``: how much the call differs that made a tensor. ``largest``: the size of the largest
    gradient of a parameter. ``expected``: what size that of this parameter would have without cancellation.
    ``numbers_apart``: the numbers that it is given and that were computed from tensors.
    """
    judged = Judged(event, partner)
    hiding = _hiding(event, partner)
    judged.hidden = max(map(maker_difference, hiding)) if hiding else 0.0
    judged.unread = any(map(is_unread, hiding))
    if _same_record(event, partner) and inherited == 0.0 and not _is_reordered(event, comparer):
        judged.input_difference = judged.hidden
        return judged
    (inputs, others), (outputs, results) = answering_slots(event, partner, comparer.crossing)
    if numbers_apart:
        others = with_candidates(others, inputs, numbers_apart)
        inherited = max(inherited, *numbers_apart.values())
    judged.inputs = comparer.between(inputs, others)
    judged.parameters = comparer.between(event.parameters(), partner.parameters())
    judged.outputs = comparer.between(outputs, results)
    taken, made, in_results = tensors_of(inputs), tensors_of(outputs), tensors_of(results)
    given = taken + tensors_of(event.parameters())
    types = {leaf["dtype"] for leaf in chain(taken, tensors_of(others), made, in_results)}
    rounding = units.unit_of_types(types)
    if event.stem.rpartition(".")[2].lower() in operators.RECURRENT:
        rounding = max(rounding, comparer.unit_of_run)
    arriving, changed = judged.changed_inputs, judged.changed_outputs
    is_decided = bool(changed) and not arriving and _are_whole_numbers(changed)
    if is_decided:
        # Which of two elements is larger hangs on more digits than statistics in a half type have.
        judged.hidden = max(judged.hidden, _apart_by_rows(comparer, inputs, others))
    # What is known to differ, but looks alike, differs by rounding at least.
    judged.input_difference = max(_largest(arriving), rounding if arriving else 0.0, inherited, judged.hidden)
    for difference in arriving:
        if difference.delta == 0.0 and is_tensor(difference.left) and is_tensor(difference.right):
            judged.input_difference = max(
                judged.input_difference, comparer.rows.apart(difference.left, difference.right)
            )
        if not_finite(difference.left) and math.isfinite(difference.delta):
            # A mask of infinities hides the statistics of what is beside them; what it was made from says more.
            judged.input_difference = max(judged.input_difference, maker_difference(difference.left))
    judged.output_difference = _largest(changed)
    if (arriving and operation(event.stem) in operators.CHOOSES) or (is_decided and judged.hidden):
        # Which of several that are about as large is chosen, rounding decides.
        judged.output_difference = _largest([difference for difference in changed if not is_integer(difference.left)])
    if comparer.crossing and event.direction in ("gradient", "backward"):
        least = noise.SMALL_GRADIENT * (largest or max((rms(leaf) for _, leaf in _tensors(results)), default=0.0))
        weigh = partial(delta_of_gradient, least=least, expected=expected)
        judged.outputs.sort(key=weigh, reverse=True)
        judged.output_difference = max(map(weigh, changed), default=0.0)
    elif event.direction in ("gradient", "backward") and changed:
        expected = expected or _expected_bias(inputs)
        shares = [_share_of_terms(difference, expected, rounding) for difference in changed]
        judged.output_difference = _largest(changed)
        if min(shares) < 1.0:
            judged.vanishing = frozenset(
                difference.slot for difference, share in zip(changed, shares, strict=True) if share < 1.0
            )
            judged.output_difference = max(
                difference.delta * share if share < 1.0 else difference.delta
                for difference, share in zip(changed, shares, strict=True)
            )
    factor = noise.amplification(event, given, made if outputs else in_results, comparer.crossing)
    own = noise.own_noise(event, given, made, rounding, factor, comparer.crossing)
    if comparer.crossing:
        own = max(own, frameworks.approximation(event, rounding))
    if any("digest" not in leaf for leaf in given):
        # Inputs that look alike may be apart by rounding.
        own = max(own, rounding)
    # Statistics of what arrives may be nearer than the elements are.
    arrived = max(judged.input_difference, comparer.weights_apart)
    modelled = noise.explained(own, factor, arrived, noise.safety_of(judged.input_difference, rounding))
    if comparer.products is not None:
        judged.product_unit, _ = comparer.products.of(event)
        modelled += comparer.products.added(event, factor)
    if arriving and operation(event.stem) in operators.MOVES:
        # A part of a tensor may be further apart than the whole, whose elements were rounded in the type of the run.
        modelled = max(modelled, comparer.unit_of_run)
    judged.allowed = comparer.measured_limit(
        partner.name, modelled, judged.input_difference, max(rounding, judged.product_unit)
    )
    if math.isinf(judged.output_difference) and any(
        is_tensor(given.left) and is_integer(given.left) for given in arriving
    ):
        judged.allowed = math.inf  # how many elements there are hangs on these
    judged.status = _status(judged)
    if judged.status == "unexplained" and (reads_unwritten(event) or reads_unwritten(partner)):
        # What stood in memory explains everything.
        judged.status, judged.allowed = "explained", max(judged.allowed, judged.output_difference)
    if comparer.crossing and judged.output_difference <= judged.allowed and any(map(_is_valued, outputs)):
        # Arguments of one name may mean other things, and the result says that these do not.
        judged.inputs = [difference for difference in judged.inputs if difference.what != "argument"]
    return judged


def delta_of_gradient(difference: Difference, least: float, expected: Expected | None = None) -> float:
    """How far gradients are apart. One that is zero in exact arithmetic (of the bias of keys in attention, or before a
    batch norm) is nothing but rounding, and has none of its digits in common. ``least``: gradients that are smaller
    count for that much less.
    """
    left, right = difference.left, difference.right
    if difference.what != "value" or not (is_tensor(left) and is_tensor(right)):
        return difference.delta
    size = max(rms(left), rms(right))
    least = max(least, expected(left) if expected is not None else 0.0)
    return difference.delta * min(1.0, size / least) if least and math.isfinite(size) else difference.delta


def _expected_bias(arriving: Sequence[Slot]) -> Expected:
    """What size the gradient of a bias would have, a sum of what arrives, if the terms were unrelated."""
    largest = max((leaf for _, leaf in arriving if is_floating(leaf)), key=numel, default=None)
    if largest is None:
        return lambda leaf: 0.0
    size, count = rms(largest), numel(largest)
    return lambda leaf: _without_cancellation(size, count, 1.0, leaf) if len(leaf.get("shape") or ()) == 1 else 0.0


def _share_of_terms(difference: Difference, expected: Expected, unit: float) -> float:
    """How large a gradient is beside what it is a sum of, if that cancels to nothing but rounding; else 1."""
    left, right = difference.left, difference.right
    if difference.what != "value" or not (is_tensor(left) and is_tensor(right)):
        return 1.0
    size, terms = max(rms(left), rms(right)), expected(left)
    # What arrives was rounded in a module, and the sum of it in this call: 54 units in a healthy run (1 and 2 threads).
    rounding = units.BY_CALL * units.BY_MODULE * unit * terms
    return min(1.0, size / terms) if terms and size <= rounding else 1.0


def _is_valued(slot: Slot) -> bool:
    """True for a tensor of which more than its shape was recorded."""
    return is_tensor(slot[1]) and numbers(slot[1]) is not None


def forward_delta(forward: Judged | None) -> float:
    """How much the forward call differed, which its backward call inherits."""
    return max(forward.input_difference, forward.output_difference) if forward is not None else 0.0


def _status(judged: Judged) -> PairStatus:
    if not judged.changed_outputs:
        return "explained" if judged.changed_inputs else "same"
    if any(difference.what == "not_finite" for difference in judged.outputs):
        return (
            "explained"
            if any(difference.what == "not_finite" for difference in judged.changed_inputs)
            else "unexplained"
        )
    if judged.output_difference > judged.allowed:
        return "unexplained"
    if judged.input_difference == 0.0 and not judged.changed_inputs:
        return "unexplained" if judged.allowed == 0.0 else "rounding"
    return "explained"


def _same_record(event: Event, partner: Event) -> bool:
    ours, other = event.record, partner.record
    if writes_in_place(event.stem) and event.outputs() != partner.outputs():
        return False  # what it left stands in no record: see msprobe.diagnose.steps.written
    if len(ours) != len(other):
        return False
    return all(key == "msprobe" or other.get(key) == value for key, value in ours.items())


def _are_whole_numbers(differences: Sequence[Difference]) -> bool:
    """True if all of these are tensors of whole numbers or truth values."""
    return all(is_tensor(difference.left) and is_integer(difference.left) for difference in differences)


def _apart_by_rows(comparer: Comparer, slots: Sequence[Slot], others: Sequence[Slot]) -> float:
    """The largest relative distance of numbers that answer to each other, by their rows; 0 where there are none."""
    theirs = dict(others)
    pairs = [(leaf, theirs[slot]) for slot, leaf in slots if is_floating(leaf) and is_floating(theirs.get(slot))]
    return max((comparer.rows.between(*pair) for pair in pairs), default=0.0)


def _is_reordered(event: Event, comparer: Comparer) -> bool:
    """True if a call of which both sides recorded the same has other elements in a tensor."""
    reorders = comparer.rows.reorders
    return not comparer.crossing and (
        reorders(event.inputs()) or reorders(event.parameters()) or reorders(event.outputs())
    )


def _largest(differences: Sequence[Difference]) -> float:
    return max([difference.delta for difference in differences]) if differences else 0.0


def _tensors(slots: Sequence[Slot]) -> list[Slot]:
    return [(slot, leaf) for slot, leaf in slots if is_tensor(leaf)]
