from __future__ import annotations

from pathlib import Path

import pytest
from unit.diagnose.dumps import Recording

from msprobe.diagnose.verdict.common import Common, StepPair, in_common
from msprobe.messages import said
from msprobe.store.reader import open_dump


def dump(folder: Path, *places: str) -> Path:
    """A dump with empty parts in these folders."""
    for place in places:
        Recording().write(folder / place)
    return folder


def common(tmp_path: Path, one: list[str], other: list[str]) -> Common:
    return in_common(open_dump(dump(tmp_path / "one", *one)), open_dump(dump(tmp_path / "other", *other)))


def test_steps_and_ranks_pair_by_number(tmp_path: Path) -> None:
    places = [f"step{step}/rank{rank}" for step in (0, 2, 10) for rank in (0, 1)]
    found = common(tmp_path, places, places)
    ranks = ((0, 0), (1, 1))
    assert found.steps == tuple(StepPair(step, step, ranks) for step in (0, 2, 10))
    assert (found.notes, found.findings) == ((), ())


def test_what_one_side_alone_has_is_told_once(tmp_path: Path) -> None:
    one = [f"step{step}/rank{rank}" for step in (0, 1) for rank in (0, 1, 2)]
    found = common(tmp_path, one, ["step0/rank0", "step0/rank1", "step3/rank0", "step4/rank0"])
    assert [step.candidate for step in found.steps] == [0]
    assert found.steps[0].ranks == ((0, 0), (1, 1))
    assert found.notes == (
        said("steps-on-one-side", "step", "1 is", "candidate"),
        said("steps-on-one-side", "steps", "3, 4 are", "reference"),
        said("ranks-on-one-side", "2", "candidate", ""),
    )
    assert {finding.kind for finding in found.findings} == {"step_count"}
    assert all(finding.harmless for finding in found.findings)
    assert [finding.step for finding in found.findings] == [1, 3, 0]


def test_single_steps_answer_to_each_other(tmp_path: Path) -> None:
    found = common(tmp_path, ["step4/rank"], ["step0/rank"])
    assert found.steps == (StepPair(4, 0, (("rank", "rank"),)),)
    assert found.findings == ()


@pytest.mark.parametrize(("one", "other"), [("rank", "rank0"), ("rank0", "rank3"), ("proc17", "rank")])
def test_single_ranks_answer_to_each_other(tmp_path: Path, one: str, other: str) -> None:
    found = common(tmp_path, [f"step0/{one}"], [f"step0/{other}"])
    (pair,) = found.steps
    assert len(pair.ranks) == 1
    assert found.findings == ()


def test_no_rank_in_common_is_another_layout(tmp_path: Path) -> None:
    found = common(tmp_path, ["step0/rank0", "step0/rank1"], ["step0/rank"])
    assert found.steps == (StepPair(0, 0, ()),)
    assert found.findings == ()


def test_no_step_in_common(tmp_path: Path) -> None:
    found = common(tmp_path, ["step0/rank", "step1/rank"], ["step7/rank"])
    assert found.steps == ()
    assert len(found.findings) == 2


def test_a_folder_without_step_answers_to_a_single_step(tmp_path: Path) -> None:
    dump(tmp_path / "one", "rank")
    dump(tmp_path / "other", "step3/rank")
    found = in_common(open_dump(tmp_path / "one" / "rank"), open_dump(tmp_path / "other"))
    assert found.steps == (StepPair(None, 3, (("rank", "rank"),)),)


def test_many_steps_are_not_all_named(tmp_path: Path) -> None:
    found = common(tmp_path, [f"step{step}/rank" for step in range(15)], ["step0/rank", "step99/rank"])
    assert found.notes[0] == said(
        "steps-on-one-side", "steps", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 4 more are", "candidate"
    )
    assert found.findings[0].where == "step 1"
