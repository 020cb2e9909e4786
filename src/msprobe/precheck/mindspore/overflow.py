"""Is an overflow of a recorded call also there on the CPU? The records say whether it overflowed on the device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from msprobe.messages import said
from msprobe.precheck import overflow
from msprobe.precheck.arguments import ArgumentTensor, UnreadableArgumentError
from msprobe.precheck.generate import CannotGenerateError
from msprobe.precheck.job import Task
from msprobe.precheck.memory import check_memory
from msprobe.precheck.mindspore.runner import CallError, MindSporeRunner
from msprobe.precheck.mindspore.standalone import leaves, plain
from msprobe.precheck.requests import ApiCall, flat


def runner(task: Task) -> OverflowRunner:
    """What a worker asks for."""
    return OverflowRunner(task)


class OverflowRunner(overflow.OverflowRunner):
    """The side of the device is the record, in its recorded types."""

    explained = (UnreadableArgumentError, CannotGenerateError, CallError)

    def __init__(self, task: Task) -> None:
        self._calls = MindSporeRunner(task)

    def overflows(self, key: str) -> tuple[bool, bool]:
        call = self._calls.requests.call(key)
        check_memory(call)
        recorded = _recorded_overflow(call)
        results = [plain(value)[0] for value in leaves(self._calls.outputs(call))]
        return recorded, any(map(_overflows, results))


def _recorded_overflow(call: ApiCall) -> bool:
    """True for a result with an infinity or NaN. Raises CallError for records that do not say it."""
    floats = [info for info in flat(call.outputs) if isinstance(info, ArgumentTensor) and "float" in info.dtype]
    known = [bound for info in floats if info.numel for bound in (info.low, info.high)]
    if any(bound is None for bound in known):
        raise CallError(said("results-without-extremes"))
    return any(bound is not None and not math.isfinite(bound) for bound in known)


def _overflows(value: Any) -> bool:
    array = np.asarray(value)
    return bool(array.dtype.kind in "fc" and not np.isfinite(array).all())
