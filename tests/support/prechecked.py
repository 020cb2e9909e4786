"""Calls of a dump that are checked in the process of a test, and what the checked function sees."""

from __future__ import annotations

import csv
import json
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe.precheck import pool, worker
from msprobe.precheck.job import Answer, Task
from msprobe.precheck.torch import runner

TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 4], "Max": 2.0, "Min": -2.0}


class InThisProcess(pool.Worker):
    """A worker without a process of its own, which would import torch in each test."""

    def ask(self, key: str, timeout: float) -> dict[str, Any]:
        if not hasattr(self, "_runner"):
            self._runner = worker.runner_of(self._task)
        answer: dict[str, Any] = json.loads(self._runner.run(key).to_json())
        return answer

    def stop(self, kill: bool = False) -> None:
        del kill


def forward(*args: Any, output: Any = TENSOR, **kwargs: Any) -> dict[str, Any]:
    """The record of a forward call."""
    return {"input_args": list(args), "input_kwargs": kwargs, "output": [output]}


def write_dump(folder: Path, data: dict[str, Any], task: str = "statistics") -> Path:
    """A dump of these records; one with task tensor has values only of the tensors that name a file."""
    path = folder / "dump.json"
    values = "./dump_tensor_data" if task == "tensor" else None
    header = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": values}
    path.write_text(json.dumps({**header, "data": data}))
    return path


def answer_of(folder: Path, name: str, record: dict[str, Any], gradient: Any = None, **task: Any) -> Answer:
    """What is found of one call, without a command line."""
    data = {f"{name}.0.forward": record}
    if gradient is not None:
        data[f"{name}.0.backward"] = {"input": [gradient], "output": []}
    dump = write_dump(folder, data)
    return runner.runner(Task(str(dump), **{"candidate": "cpu", **task})).run(f"{name}.0")


def rows(folder: Path, kind: str) -> list[list[str]]:
    """The rows of a csv file of a check, with the header."""
    (path,) = folder.glob(f"accuracy_checking_{kind}_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def watch(monkeypatch: pytest.MonkeyPatch, see: Callable[..., Any]) -> list[Any]:
    """What ``see(*args, **kwargs)`` gives in each call of a checked function: of the candidate first."""
    seen: list[Any] = []
    find = runner.find_function

    def watched(prefix: str, name: str) -> Callable[..., Any]:
        function = find(prefix, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            seen.append(see(*args, **kwargs))
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(runner, "find_function", watched)
    return seen


def plugin(monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]) -> str:
    """A candidate that calls ``run(function, args, kwargs)``."""
    module: Any = types.ModuleType("plugin_of_a_test")
    module.run = run
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return f"plugin:{module.__name__}:run"


@pytest.fixture
def own_threads() -> Any:
    """A worker takes one thread; the process of the tests keeps its own."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


@lru_cache(1)
def one_dnn_has_lstm() -> bool:
    """Whether oneDNN trains an LSTM in bfloat16 here: on some processors it has none, where torch's own kernels do."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.nn.LSTM(16, 8)(torch.zeros(6, 4, 16, requires_grad=True))
    except RuntimeError:
        return False
    return True


@contextmanager
def kernels_that_are_here() -> Iterator[None]:
    """What runs in this block is computed by kernels that this processor has."""
    with torch.backends.mkldnn.flags(enabled=one_dnn_has_lstm()):
        yield
