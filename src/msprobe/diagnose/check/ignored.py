"""Labels that a loss ignores: all of them, or nearly all.

How many are ignored is not among the statistics of the labels. But the gradient of the scores has a row of zeros for
each, and no other zeros in single precision, so their number says it; recorded values say it at once.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import floats, measured, tensors
from msprobe.diagnose.differences.records import is_integer, numel
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.argument_names import argument
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said

#: Where prompts are left out, nine of ten labels may well be ignored.
_MANY = 0.95


def check(moment: CheckedStep) -> Iterable[Finding]:
    """Losses that learn nothing, and those that learn from few of their labels, which may be meant."""
    timeline = moment.timeline
    for event in timeline:
        if event.direction != "forward" or operation(event.stem) not in operators.LOSSES:
            continue
        if event.parts.kind != "api" or timeline.backward_of(event) is None:
            continue
        labels = next((leaf for leaf in tensors(event.inputs()) if is_integer(leaf)), None)
        ignored = _ignored(timeline, event, labels) if labels is not None else None
        if labels is None or ignored is None or ignored <= _MANY * numel(labels):
            continue
        total = numel(labels)
        everything = ignored == total
        share = said("all-of") if everything else said("some-of", ignored)
        yield moment.finding(
            event,
            "data",
            said("labels-ignored", share, total, event.name, _index(event))
            + ("nothing is learned from them" if everything else "few are learned from"),
            evidence={"ignored": ignored, "labels": measured(labels)},
            harmless=not everything,
        )


def _index(event: Event) -> int:
    index = argument(event, 4, "ignore_index")
    return index if isinstance(index, int) else -100


def _ignored(timeline: Timeline, event: Event, labels: dict[str, object]) -> int | None:
    """How many labels are ignored; None if that is not known."""
    index = _index(event)
    if labels.get("Min") == labels.get("Max") == index:
        return numel(labels)
    least = labels.get("Min")
    if not isinstance(least, (int, float)) or least > index:
        return 0 if isinstance(least, (int, float)) else None
    name = labels.get("data_name")
    values = timeline.part.array(name) if isinstance(name, str) else None
    if values is not None:
        return int(np.count_nonzero(values == index))
    return _rows_of_zeros(timeline, event, numel(labels))


def _rows_of_zeros(timeline: Timeline, event: Event, rows: int) -> int | None:
    """How many rows of the gradient of the scores are zero, if all zeros stand in such rows."""
    later = timeline.backward_of(event)
    gradients = [leaf for leaf in floats(later.outputs()) if numel(leaf) % rows == 0] if later is not None else []
    if not gradients or not rows or str(gradients[0]["dtype"]) != "torch.float32":
        return None
    classes = numel(gradients[0]) // rows
    zeros = gradients[0].get("zero") or 0
    return zeros // classes if classes > 1 and isinstance(zeros, int) and zeros % classes == 0 else None
