"""Replicas that all work on the same batch."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from msprobe.diagnose import operators
from msprobe.diagnose.check import communication
from msprobe.diagnose.check.moment import Leaf, Moment, Rank
from msprobe.diagnose.check.values import distinct, measured, tensors
from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.diagnose.wording import Wording


def check(moment: Moment, copies: set[str]) -> Iterable[Finding]:
    """The model's first pass, if all ranks hold copies of the whole model, train it, and give it the same tensors.

    Ranks that divide the work of one batch take the same tensors rightly: they hold shares of parameters, or exchange
    data in the forward pass (shares of a sequence).
    """
    timelines = list(moment.timelines.values())
    if not all(moment.optimizer_steps(timeline) and any(map(_is_backward, timeline)) for timeline in timelines):
        return
    if any(set(moment.weights(timeline)) - copies or not moment.weights(timeline) for timeline in timelines):
        return
    if any(map(_divides_work, timelines)):
        return
    every = [passes(timeline) for timeline in timelines]
    first = every[0]
    if not first or any(marks(other) != marks(first) for other in every[1:]):
        return
    given = [leaf for leaf in tensors(first[0].inputs()) if distinct(leaf)]
    ranks: list[Rank] = list(moment.timelines)
    last = timelines[-1]
    yield moment.finding(
        last,
        every[-1][0],
        "replica",
        Wording(
            "ranks {}{} get the same batch: all "
            "tensors that {} takes are the same on them, so that all compute the same gradients; nothing "
            "divides the data among the ranks (DistributedSampler, or rank and number of ranks for the data set)",
            ", ".join(map(str, ranks[:8])),
            " and more" if len(ranks) > 8 else "",
            first[0].name,
        ),
        evidence={
            "cause": "same_batch",
            "ranks": [str(rank) for rank in ranks],
            "input": [measured(leaf) for leaf in given],
        },
    )


def _is_backward(event: Event) -> bool:
    return event.direction == "backward"


def _divides_work(timeline: Timeline) -> bool:
    """True if ranks exchange data while the model runs forward, or send each other messages."""
    first = next((event.index for event in timeline if event.direction == "backward"), len(timeline))
    return any(
        event.is_collective
        and (communication.api(event) in operators.MESSAGES or (event.index < first and event.parent is not None))
        for event in timeline
    )


def passes(timeline: Timeline) -> list[Event]:
    """The forward passes of the outermost modules that take a tensor that can be told from others."""
    return [
        event
        for event in timeline
        if event.is_module
        and event.parent is None
        and event.direction == "forward"
        and any(distinct(leaf) for leaf in tensors(event.inputs()))
    ]


def marks(events: list[Event]) -> list[list[Hashable]]:
    """What tells the tensors apart that these passes take."""
    return [[_mark(leaf) for leaf in tensors(event.inputs())] for event in events]


def _mark(leaf: Leaf) -> Hashable:
    return fingerprint(leaf), str(leaf.get("shape"))
