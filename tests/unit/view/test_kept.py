from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from support.growth import MOST_EXPONENT, calls_in, exponent_of
from unit.diagnose.training import Plan, train
from unit.view.pages import LARGER, opened, pair

from msprobe.diagnose import one_step
from msprobe.diagnose.runs import compare_runs
from msprobe.view import dumps, opening
from msprobe.view.kept import KeptSteps
from msprobe.view.rows import TreeRow


def test_the_step_of_the_first_finding_is_not_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = pair(tmp_path, Plan(steps=3, results=LARGER), Plan(steps=3))
    with opened(*runs) as shown:
        expected = shown.place(2)
    judged: list[Any] = []

    def judge(*given: Any, **more: Any) -> Any:
        judged.append(given)
        return again(*given, **more)

    again = dumps.judge_pair
    monkeypatch.setattr(dumps, "judge_pair", judge)
    with opened(*runs) as shown:
        place = shown.place(0)
        assert judged == []
        assert shown.overview()["verdict"]["findings"][0]["place"] == 0
        assert shown.place(2) == expected
        assert len(judged) == 1
        # Not the one that was kept: both judge alike.
        shown._steps.forget(0)
        shown._columns.forget(0)
        assert shown.place(0) == place
        assert len(judged) == 2


def test_only_the_last_steps_are_kept(tmp_path: Path) -> None:
    runs = pair(tmp_path, Plan(steps=5), Plan(steps=5))
    kept = KeptSteps(10**6)
    compare_runs(*runs, keep=kept)
    assert [step for step, _ in kept._kept] == [3, 4]
    kept.close()
    few = KeptSteps(1)
    compare_runs(*runs, keep=few)
    assert few.take((4, "rank")) is None
    assert few.layers((4, "rank")) == kept.layers((4, "rank"))
    assert few.layers((2, "rank")) is None


def test_what_nobody_keeps_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = pair(tmp_path)
    closed: list[Any] = []
    close = one_step.Timeline.close

    def noted(timeline: Any) -> None:
        closed.append(timeline)
        close(timeline)

    monkeypatch.setattr(one_step.Timeline, "close", noted)
    compare_runs(*runs, keep=lambda facts, notes: False)
    assert len(closed) == 2
    kept = KeptSteps(10**6)
    compare_runs(*runs, keep=kept)
    assert len(closed) == 2
    kept.close()
    assert len(closed) == 4
    assert kept.take((0, "rank")) is None


def test_no_row_of_a_rank_waits_for_a_search_of_garbage(tmp_path: Path) -> None:
    # Of eight ranks of 43,500 records such searches took a sixth of the time, and the rows a tenth of the memory.
    runs = pair(tmp_path)
    gc.collect()
    before = sum(type(one) is TreeRow for one in gc.get_objects())
    gc.disable()
    try:
        compare_runs(*runs, keep=KeptSteps(1))
        assert sum(type(one) is TreeRow for one in gc.get_objects()) == before
    finally:
        gc.enable()


def test_keeping_changes_no_verdict(tmp_path: Path) -> None:
    runs = pair(tmp_path)
    assert compare_runs(*runs, keep=KeptSteps(10**6)) == compare_runs(*runs)


def _ranks_of(count: int, folder: Path) -> tuple[Path, Path]:
    """Two runs of so many ranks, one of which is wrong in one place."""
    wrong = Plan(results=LARGER)
    return (
        train(folder / "one", *[Plan()] * (count - 1), wrong),
        train(folder / "other", *[Plan()] * count),
    )


@pytest.mark.parametrize("most", [30_000, 1], ids=["kept", "too large to be kept"])
def test_the_grid_of_ranks_is_what_the_comparison_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    runs = _ranks_of(3, tmp_path)
    with opened(*runs) as shown:
        for number in range(3):
            shown.place(number)  # judges it
        expected = shown.ranks(0)
    assert len({str(row) for row in expected["worst"]}) > 1
    monkeypatch.setattr(dumps, "judge_pair", None)
    monkeypatch.setattr(opening, "MOST_OF_RANKS", most)
    with opened(*runs) as shown:
        assert shown.ranks(0) == expected


def test_the_grid_of_ranks_counts_a_pair_made_by_hand(tmp_path: Path) -> None:
    runs = _ranks_of(3, tmp_path)
    matches = tmp_path / "by_hand"
    matches.mkdir()
    with opened(*runs, matches=matches) as shown:
        before = shown.ranks(0)
        shown.match(0, "Functional.linear.0.forward", "Functional.linear.1.forward", False)
        assert shown.ranks(0)["worst"][0] != before["worst"][0]
    with opened(*runs, matches=matches) as shown:
        assert shown.ranks(0)["worst"][0] != before["worst"][0]


def test_keeping_grows_with_the_ranks_and_no_faster(tmp_path: Path) -> None:
    runs = pair(tmp_path)
    found: list[Any] = []
    compare_runs(*runs, keep=lambda facts, notes: [found.append(facts), True][1])
    (facts,) = found

    def keep(ranks: int) -> None:
        kept = KeptSteps(10**9)
        for rank in range(ranks):
            facts.pairing.candidate.rank = rank
            kept(facts, ())

    assert exponent_of(lambda ranks: calls_in(lambda: keep(ranks)), 8, 64) <= MOST_EXPONENT
