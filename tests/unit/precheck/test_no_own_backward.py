"""A healthy training has no error by its own record, also where calls do nothing and have no backward of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.recorded import record
from torch import nn

from msprobe.precheck.job import Task
from msprobe.precheck.torch.runner import runner

NOTHING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda y: y.contiguous(),
    "float": lambda y: y.float() if y.dtype is torch.float32 else y.bfloat16(),
    "type": lambda y: y.type(y.dtype),
    "type_as": lambda y: y.type_as(y),
    "cpu": lambda y: y.cpu(),
    "dropout": lambda y: F.dropout(y, 0.5, training=False),
    "alpha_dropout": lambda y: F.alpha_dropout(y, 0.5, training=False),
    "positive": lambda y: +y,
    "flatten": lambda y: y.flatten(1),
    "atleast_2d": lambda y: torch.atleast_2d(y),
    "three in a row": lambda y: y.contiguous().type_as(y).flatten(1),
    "two arms": lambda y: y.contiguous() + y.contiguous(),
}


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A worker takes one thread; this process keeps its own."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NOTHING)
def test_no_call_that_does_nothing_is_an_error_of_its_own_record(
    tmp_path: Path, name: str, dtype: torch.dtype, marked: bool
) -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(8, 16).to(dtype), nn.Linear(16, 4).to(dtype)

    def work() -> None:
        y = NOTHING[name](F.gelu(first(torch.ones(6, 8, dtype=dtype).cumsum(0))))
        F.cross_entropy(last(y).float(), torch.arange(6) % 4).backward()

    found = record(tmp_path, work, task="tensor")
    if not marked:  # as other recorders write it
        path = found.folder / "dump.json"
        content = json.loads(path.read_text())
        for entry in content["data"].values():
            entry.pop("handed_through", None)
            entry.pop("msprobe", None)
        path.write_text(json.dumps(content))
    checked = runner(Task(str(found.folder / "dump.json"), candidate="recorded"))
    results = {key: checked.run(key).result for key in (one for one in found.forward())}
    assert {key: row for key, row in results.items() if "error" in row or "Warning" in row} == {}
    nothing = [key for key, row in results.items() if "call before" in row[3]]
    assert nothing
    assert all(results[key][2] == "SKIP" for key in nothing)
    assert any(row[2] == "pass" for row in results.values())


@pytest.mark.parametrize("off", [1.0, 1.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_recorded_dropout_is_judged_by_what_it_drew(tmp_path: Path, dtype: torch.dtype, off: float) -> None:
    x = torch.randn(40, 40, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    found = record(tmp_path, lambda: F.dropout(x * 1, 0.3).square().sum().backward(), task="tensor")
    if off != 1:
        path = found.folder / "dump_tensor_data" / "Functional.dropout.0.forward.output.0.pt"
        torch.save(torch.load(path) * off, path)
    checked = runner(Task(str(found.folder / "dump.json"), candidate="recorded")).run("Functional.dropout.0")
    assert checked.result[1] == ("pass" if off == 1 else "error"), checked.details
    if off == 1:
        assert checked.result[2] == "pass", checked.details


def test_a_call_that_returns_nothing_is_no_error_of_its_record(tmp_path: Path) -> None:
    def work() -> None:
        x = torch.zeros(4, 5)
        x[1:3] = torch.ones(2, 5)

    found = record(tmp_path, work, task="tensor")
    checked = runner(Task(str(found.folder / "dump.json"), candidate="recorded")).run("Tensor.__setitem__.0")
    assert checked.result[1] == "SKIP"
