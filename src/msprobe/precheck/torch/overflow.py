"""Is an overflow also there on the CPU? Runs each call forward on both sides, in its recorded types."""

from __future__ import annotations

from typing import Any

import torch

from msprobe.precheck import overflow
from msprobe.precheck.arguments import UnreadableArgumentError
from msprobe.precheck.executors import executor_of
from msprobe.precheck.job import Task
from msprobe.precheck.memory import check_memory
from msprobe.precheck.requests import open_requests
from msprobe.precheck.torch.functions import UnknownApiError, find_function
from msprobe.precheck.torch.inputs import InputError, InputMaker
from msprobe.precheck.torch.machine import Machine, cpu


def runner(task: Task) -> OverflowRunner:
    """What a worker asks for."""
    return OverflowRunner(task)


class OverflowRunner(overflow.OverflowRunner):
    """See the base class."""

    explained = (UnreadableArgumentError, UnknownApiError, InputError)

    def __init__(self, task: Task) -> None:
        self._requests = open_requests(task.dump)
        self._maker = InputMaker(self._requests, task.seed)
        self._candidate = Machine(executor_of(task.candidate))
        self._cpu = cpu()

    def overflows(self, key: str) -> tuple[bool, bool]:
        call = self._requests.call(key)
        function = find_function(call.api.prefix, call.api.name)
        check_memory(call)
        inputs = self._maker.make(call)
        device = self._candidate.run(function, inputs, False).outputs
        bench = self._cpu.run(function, inputs, False).outputs
        return _overflows(device), _overflows(bench)


def _overflows(outputs: list[Any]) -> bool:
    """True for an infinity or NaN in a tensor or a number."""
    for value in outputs:
        if isinstance(value, float):
            value = torch.tensor(value)
        if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
            continue
        if not bool(torch.isfinite(value.to_dense() if value.layout is not torch.strided else value).all()):
            return True
    return False
