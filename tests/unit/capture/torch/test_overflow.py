"""The overflow check: only calls that produce infinities or NaN, with their tensors; ended after so many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.coded_texts import mentions
from support.recorded import Dump, record, record_steps
from torch import nn

INF, NAN = float("inf"), float("nan")


def check(place: Path, work: Callable[[], Any], model: Any = None, **settings: Any) -> Dump:
    return record(place, work, model, **{"task": "overflow_check", "overflow_nums": -1, **settings})


def test_a_hit_has_its_inputs_and_results_whole(tmp_path: Path) -> None:
    x = torch.tensor([0.0, 1.0])
    dump = check(tmp_path, lambda: torch.log(x))
    assert dump.names == ["Torch.log.0.forward"]
    entry = dump.data["Torch.log.0.forward"]
    assert entry["output"][0]["Min"] == -INF
    assert dump.files == {"Torch.log.0.forward.input.0.pt", "Torch.log.0.forward.output.0.pt"}
    assert entry["output"][0]["data_name"] == "Torch.log.0.forward.output.0.pt"
    assert torch.equal(dump.load("Torch.log.0.forward.output.0.pt"), torch.log(x))
    assert dump.file["task"] == "overflow_check"


HITS: dict[str, Callable[[], Any]] = {
    "inf in a result": lambda: torch.exp(torch.tensor([1000.0])),
    "minus inf": lambda: torch.log(torch.zeros(1)),
    "nan in a result": lambda: torch.sqrt(torch.tensor([-1.0])),
    "inf in an input": lambda: torch.sigmoid(torch.tensor([INF])),
    "nan in a list of tensors": lambda: torch.stack([torch.ones(1), torch.tensor([NAN])]),
    "inf in a keyword": lambda: torch.add(torch.ones(1), other=torch.tensor([INF])),
    "half precision": lambda: torch.mul(torch.tensor([60000.0], dtype=torch.float16), 2),
    "bfloat16": lambda: torch.mul(torch.tensor([3e38], dtype=torch.bfloat16), 10),
    "double": lambda: torch.mul(torch.tensor([1e308], dtype=torch.float64), 10),
    "complex": lambda: torch.conj_physical(torch.tensor([complex(0, INF)])),
    "float8": lambda: torch.clone(torch.tensor([NAN]).to(torch.float8_e5m2)),
    "0-dim": lambda: torch.exp(torch.tensor(1000.0)),
    "one of many": lambda: torch.relu(torch.cat([torch.zeros(100_000), torch.tensor([NAN])])),
    "not contiguous": lambda: torch.relu(torch.tensor([[1.0, NAN], [2.0, 3.0]]).t()[1:]),
    "sparse": lambda: torch.abs(torch.tensor([0.0, INF]).to_sparse()),
}
CLEAN: dict[str, Callable[[], Any]] = {
    "plain": lambda: torch.exp(torch.ones(2)),
    "integers": lambda: torch.add(torch.tensor([2**62]), 2**62),
    "bool": lambda: torch.logical_not(torch.tensor([True])),
    "double beyond single": lambda: torch.add(torch.tensor([1e300], dtype=torch.float64), 1),
    # Their norm is infinite, they are not.
    "large numbers": lambda: torch.relu(torch.full((4,), 3e38)),
    "half precision whose norm overflows": lambda: torch.relu(torch.full((8,), 60000.0, dtype=torch.float16)),
    "empty": lambda: torch.relu(torch.ones(0)),
    "meta": lambda: torch.relu(torch.ones(2, device="meta")),
    "memory without values": lambda: torch.empty(2).fill_(1.0),
    "a filled mask": lambda: torch.ones(2).masked_fill_(torch.tensor([True, False]), 1.0),
    "a scalar argument": lambda: torch.clamp(torch.ones(2), max=INF),
    "text": lambda: torch.tensor([1.0]).to("cpu"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", HITS)
def test_what_is_an_overflow(tmp_path: Path, name: str) -> None:
    assert check(tmp_path, HITS[name]).names != []
    assert not list(tmp_path.rglob("dump_error_info.log"))


@pytest.mark.parametrize("name", CLEAN)
def test_what_is_none(tmp_path: Path, name: str) -> None:
    dump = check(tmp_path, CLEAN[name])
    assert dump.data == {}
    assert dump.files == set()


def test_memory_without_values_and_buffers_about_to_be_filled_are_none(tmp_path: Path) -> None:
    x = torch.full((2,), NAN)
    assert check(tmp_path / "a", lambda: x.masked_fill_(torch.tensor([True, True]), 0.0)).names == []
    # Whatever memory holds that nobody has written to.
    left_behind = torch.full((1000,), NAN)
    del left_behind
    for number in range(20):
        assert check(tmp_path / str(number), lambda: torch.empty(1000)).names == []


def test_the_backward_is_checked_too(tmp_path: Path) -> None:
    x = torch.zeros(2, requires_grad=True)
    dump = check(tmp_path, lambda: torch.sqrt(x).sum().backward())
    assert dump.names == ["Torch.sqrt.0.backward"]
    assert torch.isinf(dump.load("Torch.sqrt.0.backward.output.0.pt")).all()


def test_a_call_of_several_nodes_is_checked_at_its_arguments(tmp_path: Path) -> None:
    x = torch.zeros(2, 3, 4, requires_grad=True)
    weight = torch.full((5, 4), 1e38, requires_grad=True)
    dump = check(tmp_path, lambda: (F.linear(x, weight) * 1e38).sum().backward())
    assert "Functional.linear.0.backward" in dump.names
    assert torch.isinf(dump.load("Functional.linear.0.backward.input_grads.input.0.pt")).all()


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_modules_and_gradients_of_parameters(tmp_path: Path, level: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh())
    nn.init.constant_(model[0].weight, 1.0)

    def work() -> None:
        (model(torch.full((1, 2), 1e-3)) * 1e38).sum().mul(1e38).backward()

    dump = check(tmp_path, work, model, level=level)
    assert "Module.1.Tanh.backward.0" in dump.names
    assert "Module.0.Linear.parameters_grad" in dump.data
    assert "Module.0.Linear.forward.0" not in dump.names


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (3, 3), (-1, 5)])
def test_it_ends_after_so_many(tmp_path: Path, limit: int, expected: int, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        for _ in range(5):
            torch.exp(torch.full((1,), 1000.0))
            torch.relu(torch.ones(1))

    dump = check(tmp_path, work, overflow_nums=limit)
    assert dump.names == [f"Torch.exp.{n}.forward" for n in range(expected)]
    said = capsys.readouterr().out
    assert said.count("Overflow detected") == expected
    assert said.count("ends successfully") == int(limit != -1)


def test_parameter_gradients_that_come_one_by_one_are_one_hit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Linear(2, 2))

    def work() -> None:
        for _ in range(2):
            (model(torch.ones(1, 2)) * 1e38).sum().mul(1e38).backward()

    dump = check(tmp_path, work, model, level="L0")
    assert "Module.0.Linear.parameters_grad" in dump.data
    said = capsys.readouterr().out
    assert mentions(said, "overflow-detected", name="Module.0.Linear.parameters_grad", place="step 0") == 1


def test_hits_are_counted_over_steps(tmp_path: Path) -> None:
    work = lambda: torch.exp(torch.full((1,), 1000.0))  # noqa: E731
    first, second = record_steps(tmp_path, [work, work], task="overflow_check", overflow_nums=2)
    assert [dump.names for dump in (first, second)] == [["Torch.exp.0.forward"]] * 2


def test_after_the_end_the_training_goes_on_unrecorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.full((1,), 1000.0, requires_grad=True)

    def work() -> None:
        y = torch.exp(x * 2)
        (y * 0 + x * 3).sum().backward()

    dump = check(tmp_path, work, overflow_nums=1)
    assert dump.names == ["Torch.exp.0.forward"]
    assert mentions(capsys.readouterr().out, "overflows-recorded", count="1 overflow was")
    assert x.grad is not None
    assert torch.isnan(x.grad).all()


def test_nan_check_says_what_it_found_without_tensors(tmp_path: Path) -> None:
    dump = check(tmp_path, lambda: torch.log(torch.tensor([-1.0])), task="nan_check")
    assert dump.names == ["Torch.log.0.forward"]
    assert dump.files == set()


def test_an_infinite_value_is_found_again_after_it_was_written_over(tmp_path: Path) -> None:
    """Statistics are looked up for tensors seen before; a write in between counts."""
    x = torch.ones(4)

    def work() -> None:
        torch.relu(x)
        x[2] = INF
        torch.relu(x)
        x.fill_(1.0)
        torch.relu(x)

    names = check(tmp_path, work).names
    assert "Torch.relu.1.forward" in names
    assert "Torch.relu.0.forward" not in names
    assert "Torch.relu.2.forward" not in names
