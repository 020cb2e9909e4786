"""The mean of means: a loss that is averaged within each micro-batch, whatever number of labels each has.

A token of a short micro-batch weighs more than one of a long one. How many labels count is known from the mask that
the labels were filled with.
"""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.compare.entry_names import operation
from msprobe.diagnose.check.language import TokenText, texts
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import tensors
from msprobe.diagnose.differences.records import numel
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.argument_names import argument
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The first of several mean losses of one step that count different numbers of labels."""
    if moment.weights_move:
        return  # each pass is a step of its own, by whatever hand
    passes = [text for text in texts(moment) if moment.timeline.backward_of(text.loss) is not None]
    if len({text.embedding for text in passes}) < 2 or len(moment.optimizer_steps) > 1:
        return
    if not all(argument(text.loss, 6, "reduction") in (None, "mean") for text in passes):
        return
    counts = [_labels(text) for text in passes]
    known = [count for count in counts if count is not None]
    if len(known) != len(counts) or len(set(known)) < 2:
        return
    yield moment.finding(
        passes[0].loss,
        "argument",
        said("mean-of-means", len(passes), min(known), max(known)),
        evidence={"labels": known, "reduction": "mean", "losses": [text.loss.name for text in passes]},
    )


def _labels(text: TokenText) -> int | None:
    """How many labels of a loss count: those that no mask replaced by the index that is ignored."""
    ignored = argument(text.loss, 4, "ignore_index")
    ignored = -100 if ignored is None else ignored
    target = [leaf for leaf in tensors(text.loss.inputs()) if "int" in str(leaf["dtype"])]
    if not target:
        return None
    if isinstance(target[0].get("Min"), (int, float)) and target[0]["Min"] > ignored:
        return numel(target[0])
    for event in text.chain:
        if operation(event.stem) == "masked_fill" and argument(event, 2, "value") == ignored:
            given = tensors(event.inputs())
            mask = given[1] if len(given) > 1 else None
            if mask is not None and mask.get("shape") == given[0].get("shape"):
                return int(mask.get("zero") or 0)
    return None
