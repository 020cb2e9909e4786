"""Steps are judged once, and what is kept of them does not grow with their number."""

from __future__ import annotations

import gc
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.training import Plan, train

from msprobe.diagnose import all_steps, compare_runs
from msprobe.diagnose.check import check_run
from msprobe.diagnose.check.sight import Sight
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.verdict.running import MOST_HARMLESS, Running
from msprobe.messages import said
from msprobe.report.verdict_file import verdict_bytes
from msprobe.store.part import DumpPart

QUIET = {"arguments": {"blocks.1.dropout": {1: 0.1000001}}}  # an argument that differs, and changes nothing
LATER = {"updated": {"head.bias": lambda array: array * np.float32(1.1)}}


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[Any, Any]]:
    """How often each step of each rank was judged."""
    found: Counter[tuple[Any, Any]] = Counter()
    run = all_steps.run

    def counted(function: Any, jobs: Sequence[all_steps.Task], *more: Any) -> Any:
        found.update((task.candidate.steps[0], task.candidate.ranks()[0]) for task in jobs)
        return run(function, jobs, *more)

    monkeypatch.setattr(all_steps, "run", counted)
    return found


@pytest.mark.parametrize(
    ("planted", "ranks", "jobs"),
    [(QUIET, 1, None), (QUIET, 2, None), (QUIET, 2, 2), ({}, 1, None)],
    ids=["one rank", "two ranks", "two at once", "nothing planted"],
)
def test_each_step_of_each_rank_is_judged_once(
    tmp_path: Path, judged: Counter[tuple[Any, Any]], planted: dict[str, Any], ranks: int, jobs: int | None
) -> None:
    one = train(tmp_path / "one", *[Plan(steps=4, **planted)] * ranks)
    other = train(tmp_path / "other", *[Plan(steps=4)] * ranks)
    verdict = compare_runs(one, other, jobs=jobs)
    assert verdict.status == ("harmless" if planted else "agree")
    assert len(judged) == 4 * ranks
    assert set(judged.values()) == {1}


def test_a_step_that_was_judged_ahead_is_judged_as_in_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = train(tmp_path / "one", *[Plan(steps=3, **QUIET, **LATER)] * 2)
    other = train(tmp_path / "other", *[Plan(steps=3)] * 2)
    told: list[str] = []
    found = compare_runs(one, other, told.append)
    # As if nothing was kept.
    judge = all_steps.Steps._judged

    def anew(self: all_steps.Steps, step: Any) -> Any:
        self._ahead = None
        return judge(self, step)

    monkeypatch.setattr(all_steps.Steps, "_judged", anew)
    expected = compare_runs(one, other)
    assert verdict_bytes(found) == verdict_bytes(expected)
    places = [(f"step {step}, rank {rank}", 2 * step + rank + 1) for step in range(2) for rank in range(2)]
    assert told == [said("job-of-jobs", place, number, 6) for place, number in places]


def repeated(folder: Path, steps: int, plan: Plan) -> Path:
    """A dump of which all steps are the same."""
    train(folder, plan)
    for step in range(1, steps):
        shutil.copytree(folder / "step0", folder / f"step{step}")
    return folder


@pytest.mark.parametrize("planted", [{}, QUIET, {"noise": 2e-7}], ids=["nothing", "an argument", "rounding"])
def test_nothing_of_a_step_is_kept_when_the_next_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: dict[str, Any]
) -> None:
    """Counted are the objects that live on between steps: as many after 30 as after 10, but for findings."""
    one = repeated(tmp_path / "one", 31, Plan(**planted))
    other = repeated(tmp_path / "other", 31, Plan())
    alive: dict[int, int] = {}
    compare = all_steps.Steps.compare

    def counted(self: all_steps.Steps, step: Any) -> Any:
        if step.candidate in (10, 30):
            gc.collect()
            alive[step.candidate] = len(gc.get_objects())
        return compare(self, step)

    monkeypatch.setattr(all_steps.Steps, "compare", counted)
    verdict = compare_runs(one, other)
    assert verdict.summary["steps_compared"] == 31
    # A finding with its evidence is some ten objects, a step of this size some thousands.
    assert alive[30] - alive[10] <= 20 * (10 if verdict.findings else 1)


def test_no_file_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = repeated(tmp_path / "one", 4, Plan(**QUIET)), repeated(tmp_path / "other", 4, Plan())
    parts: list[DumpPart] = []
    begin = DumpPart._begin
    monkeypatch.setattr(DumpPart, "_begin", lambda self: (parts.append(self), begin(self))[1])
    compare_runs(one, other)
    assert len(parts) >= 8
    assert not any(part._sources for part in parts)


def test_harmless_findings_of_endless_runs_are_not_all_kept() -> None:
    running = Running()
    harmless = Finding("argument", "an argument", "a call", harmless=True)
    for step in range(MOST_HARMLESS):
        running.keep(step, [harmless, harmless])
    running.keep(MOST_HARMLESS, [Finding("computation", "a result", "a call")])
    assert len(running.findings) == MOST_HARMLESS + 1
    assert running.findings[-1].kind == "computation"
    assert running.notes_on_gaps() == [said("harmless-left-out", MOST_HARMLESS)]


class TestCheck:
    def test_keeps_nothing_of_a_step_when_the_next_begins(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = repeated(tmp_path / "one", 31, Plan(results={"blocks.1.tanh": lambda array: array / 0}))
        alive: dict[int, int] = {}
        add = Sight.add

        def counted(self: Sight, timeline: Timeline) -> None:
            if timeline.step in (10, 30):
                gc.collect()
                alive[timeline.step] = len(gc.get_objects())
            add(self, timeline)

        monkeypatch.setattr(Sight, "add", counted)
        with np.errstate(all="ignore"):
            result = check_run(folder)
        assert result.status == "found"
        assert alive[30] - alive[10] <= 20

    @pytest.mark.parametrize("fails", [False, True])
    def test_closes_all_that_it_has_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
        folder = train(tmp_path / "one", *[Plan(steps=2)] * 2)
        timelines: list[Timeline] = []
        add = Sight.add

        def kept(self: Sight, found: Timeline) -> None:
            timelines.append(found)
            add(self, found)
            if fails:
                raise ValueError("a check that fails")

        monkeypatch.setattr(Sight, "add", kept)
        with pytest.raises(ValueError, match="a check") if fails else nullcontext():
            check_run(folder)
        assert len(timelines) == (1 if fails else 4)
        assert not any(timeline.events or timeline.part._sources for timeline in timelines)

    def test_remarks_of_many_steps_are_counted(self, tmp_path: Path) -> None:
        def without_backward(data: dict[str, Any]) -> dict[str, Any]:
            return {name: record for name, record in data.items() if "backward" not in name}

        folder = repeated(tmp_path / "one", 31, Plan(edit=without_backward))
        notes = check_run(folder).notes
        assert f"step 0: {said('no-backward-pass')}" in notes
        assert said("more-steps-or-ranks", "11", said("no-backward-pass")) in notes
        assert len(notes) < 25

    def test_tensor_files_that_cannot_be_read_are_told(self, tmp_path: Path) -> None:
        folder = train(tmp_path / "one", Plan(steps=2, values=True, digests=False))
        missing, broken = sorted(folder.glob("*/*/dump_tensor_data/Torch.tanh.0.forward.output.0*"))
        missing.unlink()
        broken.write_bytes(b"nothing")
        result = check_run(folder)
        assert (result.status, result.exit_code) == ("clean", 2)
        files = f"step 0: {missing.name}; step 1: {broken.name}"
        assert result.unread == (said("cannot-be-read", said("tensor-files", 2), files),)
