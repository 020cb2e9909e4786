"""The row of an embedding that stands for padding gets a gradient. Needs recorded tensors."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.argument_names import argument
from msprobe.diagnose.steps.timeline import is_tensor
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """Embeddings with a ``padding_idx`` whose row has a gradient."""
    timeline = moment.timeline
    for event in timeline:
        if event.direction != "backward" or operation(event.stem) != "embedding":
            continue
        forward = timeline.forward_of(event)
        row = argument(forward, 2, "padding_idx") if forward is not None else None
        gradients = [leaf for slot, leaf in event.outputs() if slot in ("input.1", "output.0") and is_tensor(leaf)]
        if not isinstance(row, int) or row < 0 or not gradients:
            continue
        name = gradients[-1].get("data_name")
        if not isinstance(name, str) or forward is None:
            continue
        values = timeline.part.array(name)
        if values is not None and values.ndim == 2 and row < len(values) and np.any(values[row]):
            yield moment.finding(
                event,
                "gradient",
                said(
                    "padding-gets-gradient",
                    row,
                    plain_path(forward.module or ""),
                    float(np.linalg.norm(values[row].astype(np.float64))),
                ),
                evidence={"padding_idx": row},
            )
