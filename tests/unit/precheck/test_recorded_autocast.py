"""A recorded call under autocast is judged in the type that it was computed in, also where its types do not say it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from msprobe.precheck.job import Task
from msprobe.precheck.torch.runner import runner
from tests.recorded import record

X = torch.randn(4, 6, 16, generator=torch.Generator().manual_seed(0))


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


#: Modules and calls that round their arguments inside, and some that do not.
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "gru": (lambda: seeded(lambda: nn.GRU(16, 8, batch_first=True)), "Torch.gru.0"),
    "gru of two layers, both ways": (
        lambda: seeded(lambda: nn.GRU(16, 8, num_layers=2, bidirectional=True, batch_first=True)),
        "Torch.gru.0",
    ),
    "gru without biases": (lambda: seeded(lambda: nn.GRU(16, 8, bias=False, batch_first=True)), "Torch.gru.0"),
    "lstm": (lambda: seeded(lambda: nn.LSTM(16, 8, batch_first=True)), "VF.lstm.0"),
    "rnn": (lambda: seeded(lambda: nn.RNN(16, 8, batch_first=True)), "Torch.rnn_tanh.0"),
    "gru cell": (lambda: lambda x: seeded(lambda: nn.GRUCell(16, 8))(x[:, 0]), "Torch.gru_cell.0"),
    "linear": (lambda: seeded(lambda: nn.Linear(16, 8)), "Functional.linear.0"),
    "layer_norm": (lambda: lambda x: F.layer_norm(x, (16,)), "Functional.layer_norm.0"),
}


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A worker takes one thread; this process keeps its own."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


#: torch has no LSTM in float16 on a CPU.
ROWS = [
    (name, autocast)
    for name in CALLS
    for autocast in (torch.bfloat16, torch.float16, None)
    if (name, autocast) != ("lstm", torch.float16)
]


@pytest.mark.parametrize("off", [1.0, 1.1])
@pytest.mark.parametrize(("name", "autocast"), ROWS)
def test_a_recorded_call_is_judged_in_the_type_it_was_computed_in(
    tmp_path: Path, name: str, autocast: torch.dtype | None, off: float
) -> None:
    make, key = CALLS[name]
    run = make()

    def work() -> None:
        x = X.clone().requires_grad_()
        with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
            result = run(x)
        (result[0] if isinstance(result, tuple) else result).float().square().mean().backward()

    found = record(tmp_path, work, task="tensor")
    if off != 1:
        path = found.folder / f"dump_tensor_data/{key}.forward.output.0.pt"
        torch.save(torch.load(path) * off, path)
    checked = runner(Task(str(found.folder / "dump.json"), candidate="recorded")).run(key)
    assert checked.result[1] == ("pass" if off == 1 else "error"), checked.details
    if off == 1:
        assert "error" not in checked.result, checked.details
