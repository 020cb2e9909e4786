"""Mistakes of data-parallel programs on two real ranks, named as what they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_mistakes import launch

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict
from msprobe.report.advice import advice_on
from msprobe.report.phrases import leading

pytest.importorskip("torch")

#: Programs whose gradients nothing puts together, and the first step in which that is so.
UNAVERAGED = {"around": 0, "hook": 0, "every_second": 1, "accumulated": 1}
MODES = ("statistics", "digest", "L0")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dumps of all jobs."""
    folder = tmp_path_factory.mktemp("mistakes")
    every = [f"{name}:{mode}" for name in ("right", *UNAVERAGED) for mode in MODES]
    more = ["right", "momentum", "own_averages", "by_hand", "left_out"]
    launch(folder, [*every, *(f"{name}:statistics" for name in more if name != "right")])
    return folder


def verdict(folder: Path, candidate: str, reference: str = "right", mode: str = "statistics") -> Verdict:
    return compare_runs(folder / f"{candidate}:{mode}", folder / f"{reference}:{mode}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("turned", [False, True], ids=["candidate", "reference"])
@pytest.mark.parametrize("name", UNAVERAGED)
def test_gradients_that_nothing_put_together(recorded: Path, name: str, turned: bool, mode: str) -> None:
    pair = ("right", name) if turned else (name, "right")
    found = verdict(recorded, *pair, mode=mode).findings
    assert [(one.kind, one.step, one.evidence.get("cause")) for one in found] == [
        ("replica", UNAVERAGED[name], "not_averaged")
    ]
    side, other = ("reference", "candidate") if turned else ("candidate", "reference")
    assert found[0].code == "D415"
    assert (found[0].arguments["side"], found[0].arguments["other_side"]) == (side, other)
    assert sorted(found[0].evidence["parameters"])[:2] == ["0.bias", "0.weight"]
    assert "ddp.module(x)" in advice_on(found[0])


@pytest.mark.parametrize("mode", MODES)
def test_ranks_that_put_their_gradients_together_agree(recorded: Path, mode: str) -> None:
    assert verdict(recorded, "right", "right", mode).status == "agree"


def test_gradients_that_are_put_together_by_hand_agree_with_those_of_the_wrapper(recorded: Path) -> None:
    """Who calls the module itself leaves the wrapper no moment to send its running averages around."""
    assert verdict(recorded, "by_hand", "own_averages").status == "agree"


def test_an_exchange_left_out_on_one_rank_comes_before_its_partners_time_out(recorded: Path) -> None:
    """Rank 0 waits until it raises; rank 1 is to blame."""
    found = verdict(recorded, "left_out", "by_hand")
    first, second = leading(found)[:2]
    assert (first.kind, first.rank, first.step) == ("structure", 1, 1)
    assert first.entry is not None
    assert first.entry.startswith("Distributed.all_reduce.")
    assert first.evidence["side"] == "reference"
    assert (second.kind, second.rank) == ("error", 0)


def test_running_averages_apart_count_under_a_wrapper(recorded: Path) -> None:
    """With another momentum the averages differ from the first step on, and no loss does."""
    found = verdict(recorded, "momentum")
    assert found.status == "diverged"
    assert (found.findings[0].kind, found.findings[0].module) == ("argument", "module.1")
    assert found.findings[0].name == "argument-differs"
    arguments = found.findings[0].arguments
    assert (arguments["argument"], arguments["candidate"]) == ("input.6 (momentum)", "0.3")


def test_averages_that_a_rank_keeps_for_itself_are_named(recorded: Path) -> None:
    """Without ``broadcast_buffers`` those of rank 1 are its own."""
    found = verdict(recorded, "own_averages")
    assert found.status == "diverged"
    first = found.findings[0]
    assert (first.kind, first.rank, first.step, first.where) == ("weights", 1, 1, "1.running_mean")
