"""Which primitives of MindSpore write into tensors that are there already.

They say so themselves: the attribute ``side_effect_mem`` is what keeps the compiler from moving them. Batch norms write
their running averages, some without saying so; custom operators may do anything. And which of their results they do
not write: on the CPU batch norms have five results and write some of them, the rest is memory as it was found. Seen in
MindSpore 2.10: of the batch's mean and variance (1 and 2) none is written, and those that the backward pass uses (3 and
4) only in training.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from mindspore import ops

from msprobe.capture.mindspore.graphs.execution import device

_WRITES = "side_effect_mem"
# They write nothing but averages, which have as many elements as there are channels.
_AVERAGING = frozenset(
    "BatchNorm BatchNormExt BatchNormGatherStatsWithCounts BatchNormWithActivation BatchNormWithAddAndActivation"
    " InstanceNorm SyncBatchNorm".split()
)
BATCH_NORM = "BatchNorm"
# They write into the state of random numbers alone.
_RANDOM = "Generator"


def writes(primitive: Any) -> bool:
    """True if a call of this primitive may write into any of its arguments."""
    if type(primitive).__name__ == _RANDOM:
        return False
    return bool(primitive.attrs.get(_WRITES)) or type(primitive).__name__.startswith("Custom")


def writes_averages(primitive: Any) -> bool:
    """True for a norm that writes averages into its arguments, and nothing else."""
    return type(primitive).__name__ in _AVERAGING


def writing_classes() -> Iterator[type]:
    """The classes with a call of their own that write. Others are called by what runs all primitives."""
    seen = set()
    todo = [ops.Primitive]
    while todo:
        for kind in todo.pop().__subclasses__():
            if kind not in seen:
                seen.add(kind)
                todo.append(kind)
                if "__call__" in vars(kind) and _may_write(kind):
                    yield kind


@functools.cache
def _may_write(kind: type) -> bool:
    # Views are marked so as not to be moved, too.
    if kind.__name__.endswith("View"):
        return False
    if kind.__name__ in _AVERAGING:
        return True
    code = getattr(inspect.unwrap(vars(kind).get("__init__", object)), "__code__", None)
    return code is not None and _WRITES in code.co_consts


def written_results(is_training: bool, result: Any) -> dict[int, bool]:
    """For each result of a batch norm, by identity: whether the kernel writes it."""
    results = result if isinstance(result, tuple) else (result,)
    if device() != "CPU":
        return {id(part): True for part in results}
    unwritten = (1, 2) if is_training else (1, 2, 3, 4)
    return {id(part): place not in unwritten for place, part in enumerate(results)}
