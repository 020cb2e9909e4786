"""A recorded call under autocast is judged in the type that it was computed in, also where its types do not say it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.prechecked import kernels_that_are_here
from support.recorded import record
from torch import nn

from msprobe.precheck.job import Task
from msprobe.precheck.torch.runner import runner

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
    "gru whose layers are dropped out between": (
        lambda: seeded(lambda: nn.GRU(16, 8, num_layers=2, dropout=0.3, batch_first=True)),
        "Torch.gru.0",
    ),
    "gru with a state": (
        lambda: lambda x: seeded(lambda: nn.GRU(16, 8, batch_first=True))(x, torch.ones(1, 4, 8)),
        "Torch.gru.0",
    ),
    "gru over time": (lambda: seeded(lambda: nn.GRU(16, 8)), "Torch.gru.0"),
    "lstm with a projection": (lambda: seeded(lambda: nn.LSTM(16, 8, proj_size=4, batch_first=True)), "VF.lstm.0"),
    "rnn of relu": (lambda: seeded(lambda: nn.RNN(16, 8, nonlinearity="relu", batch_first=True)), "Torch.rnn_relu.0"),
    "bilinear": (lambda: lambda x: seeded(lambda: nn.Bilinear(16, 16, 4))(x, x), "Functional.bilinear.0"),
    "einsum": (lambda: lambda x: torch.einsum("bij,bkj->bik", x, x), "Torch.einsum.0"),
    "attention": (
        lambda: lambda x: F.scaled_dot_product_attention(x, x, x),
        "Functional.scaled_dot_product_attention.0",
    ),
    "cosine_similarity": (
        lambda: lambda x: F.cosine_similarity(x, x.flip(0), dim=-1),
        "Functional.cosine_similarity.0",
    ),
    "lstm": (lambda: seeded(lambda: nn.LSTM(16, 8, batch_first=True)), "VF.lstm.0"),
    "rnn": (lambda: seeded(lambda: nn.RNN(16, 8, batch_first=True)), "Torch.rnn_tanh.0"),
    "gru cell": (lambda: lambda x: seeded(lambda: nn.GRUCell(16, 8))(x[:, 0]), "Torch.gru_cell.0"),
    "linear": (lambda: seeded(lambda: nn.Linear(16, 8)), "Functional.linear.0"),
    "layer_norm": (lambda: lambda x: F.layer_norm(x, (16,)), "Functional.layer_norm.0"),
}


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A worker takes one thread; this process keeps its own. All processors have these kernels."""
    count = torch.get_num_threads()
    with kernels_that_are_here():
        yield
    torch.set_num_threads(count)


#: torch has no LSTM in float16 on a CPU.
ROWS = [
    (name, autocast)
    for name in CALLS
    for autocast in (torch.bfloat16, torch.float16, None)
    if not (name.startswith("lstm") and autocast is torch.float16)
]


@pytest.mark.parametrize(
    ("name", "autocast", "off"),
    # Of random results a factor of 1.1 says nothing.
    [(*row, off) for row in ROWS for off in (1.0, 1.1) if off == 1.0 or "dropped out" not in row[0]],
)
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


#: Calls that take one tensor in several places, whose gradient is that of all of them.
SEVERAL_TIMES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "attention": lambda y: F.scaled_dot_product_attention(y, y, y),
    "cosine_similarity": lambda y: F.cosine_similarity(y, y, -1),
    "product": lambda y: y * y,
    "matmul": lambda y: torch.matmul(y, y.transpose(1, 2)),
    "einsum": lambda y: torch.einsum("bij,bkj->bik", y, y),
    "cat": lambda y: torch.cat([y, y, y], -1),
    "addcmul": lambda y: torch.addcmul(y, y, y),
    "bilinear": lambda y: F.bilinear(y, y, torch.ones(4, 16, 16)),
    "where": lambda y: torch.where(y > 0, y, y * 2),
    "lerp": lambda y: torch.lerp(y, y, y),
    "cdist": lambda y: torch.cdist(y, y),
    "add": lambda y: torch.add(y, y, alpha=3),
}


@pytest.mark.parametrize("autocast", [torch.bfloat16, None])
@pytest.mark.parametrize("name", SEVERAL_TIMES)
def test_a_call_that_takes_one_tensor_several_times_is_no_error_of_its_own_record(
    tmp_path: Path, name: str, autocast: torch.dtype | None
) -> None:
    def work() -> None:
        x = X.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast is not None):
            result = SEVERAL_TIMES[name](x * 2)
        result.float().square().mean().backward()

    found = record(tmp_path, work, task="tensor")
    checked = runner(Task(str(found.folder / "dump.json"), candidate="recorded"))
    results = {key: checked.run(key) for key in found.forward()}
    assert {key: one.details for key, one in results.items() if "error" in one.result} == {}
