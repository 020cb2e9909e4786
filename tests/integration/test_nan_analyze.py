"""The first bad value of real runs: two gloo ranks with collectives and messages, and one process at all levels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from distributed_ranks import launch
from support.coded_texts import mentions
from torch import nn

from msprobe.diagnose.check.first_overflow import OverflowAnswer, find_first_overflow
from msprobe.pytorch import PrecisionDebugger


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    launch(folder, ["going_bad"])
    return folder


def nodes(answer: OverflowAnswer) -> list[tuple[object, str, str]]:
    return [(node.rank, node.name, node.how) for node in answer.nodes]


def test_a_division_by_zero_before_a_collective(runs: Path) -> None:
    answer = find_first_overflow(runs / "going_bad_divided" / "step0")
    assert nodes(answer) == [(1, "Tensor.__truediv__.0.forward", "compute")]
    assert [one.rank for one in answer.nodes[0].arrivals] == [0]
    assert answer.unmatched == ()


@pytest.mark.parametrize(("run", "through"), [("root", "Distributed.all_gather.0.forward"), ("batch", "Distributed.")])
def test_a_root_of_a_negative_number_and_what_spreads_it(runs: Path, run: str, through: str) -> None:
    answer = find_first_overflow(runs / f"going_bad_{run}" / "step0")
    assert nodes(answer) == [(0, "Torch.sqrt.0.forward", "compute")]
    (arrival,) = answer.nodes[0].arrivals
    assert arrival.rank == 1
    assert arrival.through.startswith(through)
    assert mentions(answer.nodes[0].finding.message, "root-of-negative")
    assert any("test_nan" in line or "distributed_ranks" in line for line in answer.nodes[0].stack)


def test_a_sound_run_has_none(runs: Path) -> None:
    assert find_first_overflow(runs / "going_bad_sound" / "step0").nodes == ()


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x - 5.0)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.i = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.i(x) + 1.0


@pytest.mark.parametrize(
    ("level", "name"),
    [("L0", "Module.i.Inner.forward.0"), ("L1", "Torch.log.0.forward"), ("mix", "Torch.log.0.forward")],
)
def test_one_process_at_every_level(tmp_path: Path, level: str, name: str) -> None:
    model = Outer()
    recorder = PrecisionDebugger(dump_path=str(tmp_path / "dump"), task="statistics", level=level)
    try:
        recorder.start(model)
        model(torch.ones(2, 3))
        recorder.stop()
        recorder.step()
    finally:
        PrecisionDebugger.reset()
    (node,) = find_first_overflow(tmp_path / "dump").nodes
    assert node.name == name
    if level == "mix":
        assert node.construct[-2:] == ("Module.i.Inner.forward.0", "Torch.log.0.forward")
