"""Results of kernels that are memory as it was found: on the CPU batch norms have five results and write some of them.

Seen in MindSpore 2.10: of the batch's mean and variance (1 and 2) none is written, and those that the backward pass
uses (3 and 4) only in training.
"""

from __future__ import annotations

from typing import Any

from msprobe.capture.mindspore.execution import device

BATCH_NORM = "BatchNorm"


def written_results(is_training: bool, result: Any) -> dict[int, bool]:
    """For each result of a batch norm, by identity: whether the kernel writes it."""
    results = result if isinstance(result, tuple) else (result,)
    if device() != "CPU":
        return {id(part): True for part in results}
    unwritten = (1, 2) if is_training else (1, 2, 3, 4)
    return {id(part): place not in unwritten for place, part in enumerate(results)}
