from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.diagnose.training import Plan
from unit.view.pages import LARGER, opened, pair

from msprobe.diagnose import one_step
from msprobe.diagnose.runs import compare_runs
from msprobe.view import dumps
from msprobe.view.kept import Kept


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
    kept = Kept(10**6)
    compare_runs(*runs, keep=kept)
    assert [step for step, _ in kept._found] == [3, 4]
    kept.close()
    few = Kept(1)
    compare_runs(*runs, keep=few)
    assert [step for step, _ in few._found] == [4]
    few.close()


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
    kept = Kept(10**6)
    compare_runs(*runs, keep=kept)
    assert len(closed) == 2
    kept.close()
    assert len(closed) == 4
    assert kept.take((0, "rank")) is None


def test_keeping_changes_no_verdict(tmp_path: Path) -> None:
    runs = pair(tmp_path)
    assert compare_runs(*runs, keep=Kept(10**6)) == compare_runs(*runs)
