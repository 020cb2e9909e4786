"""What threads say of calls that do nothing, of other types, of seeds and of numbers in a sentence, as small cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.prechecked import TENSOR, answer_of, forward, write_dump
from support.recorded import record
from torch import nn

from msprobe.precheck.control_verdict import beside_control
from msprobe.precheck.job import Task
from msprobe.precheck.torch.runner import runner
from msprobe.pytorch import check_api


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A worker takes one thread; this process keeps its own."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


#: D. Calls that give back their argument, by ways that threads wonder about ("to() returns self", "dropout of 0").
NOTHING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "to of the own type": lambda y: y.to(y.dtype),
    "to of the own device": lambda y: y.to("cpu"),
    "to of a layout it has": lambda y: y.to(memory_format=torch.contiguous_format),
    "the layer Identity": nn.Identity(),
    "a layer Dropout in evaluation": nn.Dropout(0.5).eval(),
    "dropout of channels in evaluation": lambda y: F.dropout1d(y, 0.5, training=False),
    "resolve_conj": lambda y: y.resolve_conj(),
    "resolve_neg": lambda y: y.resolve_neg(),
    "requires_grad_": lambda y: y.requires_grad_(),
    "a pad of nothing": lambda y: F.pad(y, (0, 0)),
    "broadcast to its own shape": lambda y: torch.broadcast_to(y, y.shape),
    "a chain of casts": lambda y: y.to(y.dtype).contiguous().type(y.dtype).cpu(),
}


@pytest.mark.parametrize("name", NOTHING)
def test_no_call_that_does_nothing_is_an_error_of_its_own_record(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(8, 16), nn.Linear(16, 4)

    def work() -> None:
        y = NOTHING[name](F.gelu(first(torch.ones(6, 8).cumsum(0))))
        F.cross_entropy(last(y), torch.arange(6) % 4).backward()

    found = record(tmp_path, work, task="tensor")
    checked = runner(Task(str(found.folder / "dump.json"), candidate="recorded"))
    results = {key: checked.run(key).result for key in found.forward()}
    assert {key: row for key, row in results.items() if "error" in row or "Warning" in row} == {}


RANDOM = torch.Generator().manual_seed(7)


@pytest.fixture(autouse=True)
def _from_the_beginning() -> None:
    """Each test draws the same numbers, whichever ran before it."""
    RANDOM.set_state(torch.Generator().manual_seed(7).get_state())


def some(*shape: int, size: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, generator=RANDOM) * size).requires_grad_()


#: E. Calls whose inputs autocast rounds, or keeps, as its lists say.
OTHER_TYPES: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "addmm": (torch.addmm, [some(16, 12), some(16, 32), some(32, 12)]),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), [some(3, 8, 12), some(3, 12, 6)]),
    "conv_transpose1d": (F.conv_transpose1d, [some(2, 4, 12), some(4, 6, 3, size=0.2)]),
    "bilinear": (F.bilinear, [some(12, 6), some(12, 5), some(4, 6, 5, size=0.2)]),
    "prelu": (F.prelu, [some(12, 6), some(6, size=0.2)]),
    "log_softmax": (lambda x: x.log_softmax(-1), [some(16, 32)]),
    "group_norm": (lambda x: F.group_norm(x, 2), [some(4, 8, 12)]),
    "smooth_l1": (lambda x: F.smooth_l1_loss(x, torch.zeros(16, 32)), [some(16, 32)]),
    "logsumexp": (lambda x: x.logsumexp(-1), [some(16, 32)]),
    "cumsum": (lambda x: x.cumsum(-1), [some(16, 32)]),
    "pow": (lambda x: x.pow(3), [some(16, 32)]),
    "norm": (lambda x: x.norm(dim=-1), [some(16, 32)]),
    "embedding": (lambda w: F.embedding(torch.arange(8), w), [some(16, 6)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"), [some(2, 3, 12)]),
}


@pytest.mark.parametrize("candidate", ["cpu+dtype=bf16", "cpu+autocast=bf16"])
@pytest.mark.parametrize("name", OTHER_TYPES)
def test_a_healthy_call_in_another_type_passes(name: str, candidate: str) -> None:
    function, args = OTHER_TYPES[name]
    found = check_api(function, *args, candidate=candidate)
    assert (found.forward, found.backward) == ("pass", "pass"), str(found)


#: F. Random calls, each with what it takes.
FLOATS = {**TENSOR, "shape": [40, 40], "Min": 0.1, "Max": 0.9, "requires_grad": True}
SEEDED: dict[str, dict[str, Any]] = {
    "Torch.bernoulli": forward(FLOATS, output=FLOATS),
    "Torch.poisson": forward(FLOATS, output=FLOATS),
    "Tensor.normal_": forward(FLOATS, output=FLOATS),
    "Tensor.log_normal_": forward(FLOATS, output=FLOATS),
    "Tensor.uniform_": forward(FLOATS, output=FLOATS),
    "Tensor.exponential_": forward(FLOATS, output=FLOATS),
    "Tensor.cauchy_": forward(FLOATS, output=FLOATS),
    "Functional.dropout1d": forward(FLOATS, output=FLOATS),
    "Functional.alpha_dropout": forward(FLOATS, output=FLOATS, training={"type": "bool", "value": True}),
    "Functional.gumbel_softmax": forward(FLOATS, output=FLOATS),
    "Torch.multinomial": forward(FLOATS, {"type": "int", "value": 5}, output=FLOATS),
    "Torch.randperm": forward({"type": "int", "value": 50}, output=FLOATS),
}


def test_what_random_calls_show_depends_on_seed_and_call_alone(tmp_path: Path) -> None:
    data: dict[str, Any] = {f"{name}.0.forward": record for name, record in SEEDED.items()}
    path = str(write_dump(tmp_path, data))
    keys = [f"{name}.0" for name in SEEDED]
    there = runner(Task(path, candidate="cpu"))
    first = {key: there.run(key) for key in keys}
    assert {key for key, one in first.items() if one.result[1] == "pass"} == set(keys), {
        key: one.result for key, one in first.items() if one.result[1] != "pass"
    }
    torch.manual_seed(5)
    torch.rand(17)
    back = runner(Task(path, candidate="cpu"))
    for key in reversed(keys):
        assert back.run(key).details == first[key].details, key


PLAIN = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [16, 32], "Max": 2.0, "Min": -2.0}
WHOLE = {"type": "torch.Tensor", "dtype": "torch.int64", "shape": [8], "Max": 15, "Min": 0}
#: H. Calls in which a healthy control has no error at all.
EXACT: dict[str, dict[str, Any]] = {
    "Functional.relu": forward(PLAIN, output=PLAIN),
    "Torch.neg": forward(PLAIN, output=PLAIN),
    "Torch.abs": forward(PLAIN, output=PLAIN),
    "Tensor.__mul__": forward(PLAIN, {"type": "int", "value": 2}, output=PLAIN),
    "Torch.amax": forward(PLAIN, {"type": "int", "value": -1}, output=PLAIN),
    "Torch.cat": forward([PLAIN, PLAIN], output=PLAIN),
    "Functional.embedding": forward(WHOLE, PLAIN, output=PLAIN),
    "Torch.maximum": forward(PLAIN, PLAIN, output=PLAIN),
    "Torch.flip": forward(PLAIN, [{"type": "int", "value": 0}], output=PLAIN),
    "Torch.tril": forward(PLAIN, output=PLAIN),
}


@pytest.mark.parametrize("name", EXACT)
def test_no_number_comes_from_a_control_without_error(tmp_path: Path, name: str) -> None:
    found = answer_of(tmp_path, name, EXACT[name], candidate="cpu+inject:scale=1e-2", control="cpu")
    judged = beside_control(found, "strict")
    (row,) = judged.details
    assert row[1] == "error"
    assert "times" not in row[2], row
    numbers = [float(word) for word in row[2].split() if word.replace(".", "").isdigit()]
    assert all(0 < number <= 1 for number in numbers), row
    assert float(row[3]) == 0.0
