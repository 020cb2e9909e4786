"""A step that trains on a batch that an earlier step had."""

from __future__ import annotations

from collections.abc import Iterable

from xxhash import xxh3_64_intdigest

from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.replica import marks, passes
from msprobe.diagnose.check.values import distinct, measured, tensors
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The first pass of a rank, if it is given what an earlier step began with: harmless, since a data set may be one
    batch, or small.
    """
    batch = batch_of(moment.timeline)
    if batch is None or not moment.optimizer_steps:
        return
    event, mark = batch
    before = moment.history.batches.get((moment.timeline.rank, mark))
    if before is None or before == moment.step:
        return
    yield moment.finding(
        event,
        "data",
        said("batch-repeated", event.name, before),
        evidence={"step": before, "input": [measured(leaf) for leaf in tensors(event.inputs()) if distinct(leaf)]},
        harmless=True,
    )


def batch_of(timeline: Timeline) -> tuple[Event, int] | None:
    """The first pass of a model that is trained, and what distinguishes its batch from others."""
    passes_made = passes(timeline)
    if not passes_made or timeline.first_backward == len(timeline):
        return None
    return passes_made[0], xxh3_64_intdigest(str(marks(passes_made[:1])).encode())
