"""Is an overflow of a recorded call also there on the CPU? The records say whether it overflowed on the device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from msprobe.errors import MsprobeError
from msprobe.messages import said
from msprobe.precheck.arguments import ArgumentTensor, UnreadableArgumentError
from msprobe.precheck.generate import CannotGenerateError
from msprobe.precheck.job import SKIPPED, Answer, Task, overflow_answer
from msprobe.precheck.memory import check_memory
from msprobe.precheck.mindspore.runner import CallError, MindSporeRunner, array_of, flat_values
from msprobe.precheck.requests import ApiCall, flat


def runner(task: Task) -> OverflowRunner:
    """What a worker asks for."""
    return OverflowRunner(task)


class OverflowRunner:
    """Answers each call with one line, as its note."""

    def __init__(self, task: Task) -> None:
        self._calls = MindSporeRunner(task)

    def run(self, key: str) -> Answer:
        """Compare the record of one call with the call on the CPU, in its recorded types."""
        try:
            call = self._calls.requests.call(key)
            check_memory(call)
            recorded = _recorded_overflow(call)
            results = [array_of(value)[0] for value in flat_values(self._calls.outputs(call))]
        except (UnreadableArgumentError, CannotGenerateError, CallError) as problem:
            return Answer(key, [key, SKIPPED], notes=[said("overflow-not-checked", key, problem)])
        except MsprobeError as problem:
            return Answer(key, [key, SKIPPED], notes=[said("overflow-not-checked", key, problem.message)])
        except Exception as problem:
            text = " ".join(str(problem).split())[:300]
            return Answer(
                key, [key, SKIPPED], notes=[said("overflow-not-checked", key, f"{type(problem).__name__}: {text}")]
            )
        return overflow_answer(key, recorded, any(map(_overflows, results)))


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
