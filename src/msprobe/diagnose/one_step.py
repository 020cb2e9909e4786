"""Judge one step of one rank: pair its calls, search for origins, measure how far they reach."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from msprobe.diagnose.effect.in_parts import gradients_in_parts
from msprobe.diagnose.effect.leftover import Left, gradients_left
from msprobe.diagnose.effect.movement import weights_of
from msprobe.diagnose.effect.reach import Reach, reach_of, written_in
from msprobe.diagnose.effect.unmoved import unmoved_weights, weights_held
from msprobe.diagnose.origin.beyond_rounding import beyond_rounding
from msprobe.diagnose.origin.measured_calls import look_at_rows
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.search import search
from msprobe.diagnose.origin.step_facts import StepBefore, StepFacts
from msprobe.diagnose.pairing.step import Paired, pair_timelines
from msprobe.diagnose.pairing.translation import NOTE
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.tensor_info import Known
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.tolerance import effect
from msprobe.diagnose.tolerance.calibration import NO_CALIBRATION, Calibration, calibrate
from msprobe.diagnose.tolerance.declared_units import precision_of
from msprobe.diagnose.verdict.conclusion import ComparedRank, agreeing_of
from msprobe.diagnose.verdict.precision_words import precision_in_words
from msprobe.diagnose.verdict.recordings import (
    calls_answering,
    cannot_be_compared,
    look_for_steps_in_one,
    note_of_levels,
    precision_apart,
)
from msprobe.diagnose.verdict.summary import counts_of, lone_calls, notes_on
from msprobe.store.part import DumpPart
from msprobe.store.reader import Dump

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings


#: Is given what is known of a step of a rank, with its remarks; whoever answers True keeps it, and closes it.
Keep = Callable[[StepFacts, tuple[str, ...]], bool]


@dataclass(frozen=True)
class StepTask:
    """One step of one rank to compare, with all that is to be known of it in another process.

    Each dump has one part. ``before``: how far the differences of the step before reach. ``left``: the
    gradients that it left behind, in the candidate and in the reference. ``weights``: what weights were in it.
    ``steps``: how many steps each side has. ``keep``: who may go on looking at it, in this process.
    """

    candidate: Dump
    reference: Dump
    healthy: Dump | None
    first: bool
    before: Reach
    left: tuple[Mapping[str, Left], Mapping[str, Left]]
    weights: Mapping[str, tuple[Any, Any]]
    mappings: Mappings | None
    steps: tuple[int, int] = (1, 1)
    keep: Keep | None = None
    #: The candidate ran in lockstep: what differs at one call reaches no other.
    isolated: bool = False
    #: Calls of the candidate that are known to answer to calls of other names, or to none (an empty one); all others
    #: answer to those of their own names. None: nothing is known.
    known: Mapping[str, str] | None = None
    #: Parameters whose gradients are known to be the reference's, but for rounding, when their optimizer takes them.
    delivered: frozenset[str] = frozenset()


def judge(task: StepTask) -> ComparedRank:
    """What comes out for one step of one rank; nothing of its records is kept, and no file stays open."""
    with no_collection():
        return _compare_part(task, measured(task.healthy, task.reference))


def measured(healthy: Dump | None, reference: Dump) -> Calibration:
    """What a second healthy run differs by from the reference; each dump has one part. Nothing where there is none."""
    if healthy is None:
        return NO_CALIBRATION
    parts = healthy.part(), reference.part()
    try:
        return calibrate(*parts)
    finally:
        for part in parts:
            part.close()


def _compare_part(task: StepTask, calibration: Calibration) -> ComparedRank:
    timelines: list[Timeline] = []
    left, right = task.candidate.part(), task.reference.part()
    is_kept = False
    try:
        timelines += _timelines_of(left, right)
        compared, scene, notes = _compare_timelines(task, calibration, timelines[0], timelines[1])
        is_kept = task.keep is not None and task.keep(scene, notes)
        return compared
    finally:
        if not is_kept:
            for timeline in timelines:
                timeline.close()
            left.close()
            right.close()


def _timelines_of(left: DumpPart, right: DumpPart) -> list[Timeline]:
    """Those of both sides, which have tensors that are described alike once."""
    known: Known = {}
    return [Timeline(part, known=known) for part in (left, right)]


def searched(
    paired: Paired,
    calibration: Calibration,
    first: bool = False,
    before: StepBefore | None = None,
    steps: tuple[int, int] = (1, 1),
    isolated: bool = False,
    delivered: frozenset[str] = frozenset(),
) -> Scene:
    """Judge all pairs and search for origins, as every comparison does it: a search finds out that some pairs, which
    are within rounding as a whole, are not. The arguments are those of :class:`StepTask`.
    """
    calibration.set_limits(paired.comparer)
    scene = Scene(paired.pairing, paired.comparer, first, before, isolated, delivered)
    look_for_steps_in_one(scene, steps)
    search(scene)
    look_at_rows(scene)
    return scene


def _compare_timelines(
    task: StepTask, calibration: Calibration, candidate: Timeline, reference: Timeline
) -> tuple[ComparedRank, Scene, tuple[str, ...]]:
    left, right = candidate.part, reference.part
    sides = ("candidate", left), ("reference", right)
    paired = pair_timelines(candidate, reference, task.mappings, bool(task.weights), task.known)
    pairing, comparer, crossing = paired.pairing, paired.comparer, paired.crossing
    weights = {} if crossing else weights_held(pairing)
    # A gradient of nothing but rounding moves a weight on either side, or does not.
    unmoved = unmoved_weights(weights, task.before.weights) - task.before.vanishing
    before = StepBefore(
        task.before.gradients,
        task.weights,
        task.before.states,
        task.left,
        task.before.untouched,
        task.before.written,
        unmoved,
    )
    scene = searched(paired, calibration, task.first, before, task.steps, task.isolated, task.delivered)
    reach = reach_of(pairing, scene.judged, comparer, task.before, scene.candidate.makers, unmoved)
    reach = replace(
        reach,
        untouched=scene.untouched,
        weights=weights,
        explained=_is_explained(scene, task.before) and not reach.moved_otherwise,
        # Where nothing was written, what earlier steps wrote is still there.
        written=written_in(scene.judged.values()) or task.before.written,
    )
    compared = ComparedRank(
        step=left.step,
        rank=left.rank,
        # In lockstep it is asked which call each of them is about.
        suspects=[suspect if task.isolated else suspect.without_pair() for suspect in scene.ledger.in_order()],
        reach=reach,
        tolerance=calibration.limit_of_reach(_tolerance(scene), effect.unit_of(scene.judged.values())),
        doubts=[suspect.without_pair() for suspect in scene.ledger.doubts],
        unlike=cannot_be_compared(pairing),
        summary=counts_of(pairing, scene),
        notes=[*([NOTE] if crossing else []), *notes_on(pairing, scene), *paired.unseen],
        interrupted=tuple(side for side, part in sides if not part.complete),
        values=scene.has_values,
        carried=task.before.size > 0.0,
        collectives=[event.index for event in pairing.candidate if event.is_collective],
        lone=lone_calls(pairing),
        left=(gradients_left(candidate), gradients_left(reference)),
        weights=weights_of(pairing.partner.items(), scene.candidate.makers) if crossing else {},
        crossing=crossing,
        precision=() if crossing else precision_apart(left, right),
        precision_in_words=precision_in_words(precision_of(left.ours), precision_of(right.ours)),
        answering={} if crossing or not (left.complete and right.complete) else calls_answering(pairing),
        levels="" if crossing else note_of_levels(pairing),
        # An interrupted dump may name files that were on their way.
        unread={side: tuple(part.unread) for side, part in sides if part.unread and part.complete},
        in_parts=gradients_in_parts(pairing, scene.judged.values()),
        **_exchanged(scene),
    )
    compared = replace(compared, beyond=beyond_rounding(scene, reach, agreeing_of(compared)))
    return compared, scene, paired.unseen


def _exchanged(scene: Scene) -> dict[str, Any]:
    """What all ranks are to know of collectives; nobody else knows the events of this one."""
    if scene.by_rows is None:
        return {}
    put_in: dict[tuple[str, tuple[int, ...]], array[float]] = {}
    for exchange in scene.by_rows.exchanges:
        put_in.setdefault(exchange.key, array("d")).extend((exchange.distance, exchange.coherent))
    nobody: Any = None
    waiting = {waiting.node.event.name: replace(waiting.node, event=nobody) for waiting in scene.by_rows.waiting}
    taken = {node.event.name: node.taken_over_ranks for node in scene.by_rows.over_ranks}
    return {"put_in": put_in, "waiting": waiting, "taken_over_ranks": taken}


def _is_explained(scene: Scene, before: Reach) -> bool:
    """True if both sides made the same calls, and rows explain all that differs: however far apart the step is, that is
    rounding which grew, as behind a relu of which one element changes its side. What comes into the step from elsewhere
    is what the steps before left, if these are explained.
    """
    pairing, rows = scene.pairing, scene.by_rows
    alone = len(pairing.candidate) + len(pairing.reference) - 2 * len(pairing.partner)
    if rows is None or not rows.explains_all or alone or scene.ledger.doubts:
        return False
    return before.explained or not rows.from_outside


def _tolerance(scene: Scene) -> float:
    judged = scene.judged.values()
    if not scene.comparer.crossing:
        return effect.step_limit(judged)
    return effect.frameworks_limit(judged, scene.comparer.weights_apart)
