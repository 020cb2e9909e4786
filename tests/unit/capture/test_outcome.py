"""The line that tells what came of a recording."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from msprobe.capture.outcome import Outcome, numbers_text
from msprobe.config.settings import Settings


def run(
    outcome: Outcome, settings: Settings, steps: int, rank: int | None = None, world: int = 1, first: int = 0
) -> None:
    """What a session tells while a program of so many steps runs."""
    for step in range(first, steps):
        outcome.reached(step, rank, world)
        if settings.wants_step(step) and settings.wants_rank(rank or 0):
            outcome.begun(step)
            outcome.written(settings.dump_path, step, 10, failed=False)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([4], "4"),
        ([2, 1], "1, 2"),
        ([0, 4, 5, 6, 10], "0, 4 to 6, 10"),
        (range(0, 40, 2), "0, 2, 4, 6, 8, 10, 12, 12 more and 38"),
    ],
)
def test_numbers_are_told_in_few_words(numbers: list[int], text: str) -> None:
    assert numbers_text(numbers) == text


def test_nothing_is_said_twice(tmp_path: Path) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path))
    run(outcome, settings, 2)
    assert outcome.lines(settings) == [(False, f'The dump is in "{tmp_path}": 2 steps (0, 1), 20 records.')]
    assert outcome.lines(settings) == []
    run(outcome, settings, 3, first=2)
    assert outcome.lines(settings)[0][1].endswith("3 steps (0 to 2), 30 records.")


def test_a_step_that_could_not_be_written_does_not_count(tmp_path: Path) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path))
    run(outcome, settings, 2)
    outcome.reached(2, None, 1)
    outcome.written(str(tmp_path), 2, 4, failed=True)
    ((is_warning, line),) = outcome.lines(settings)
    assert is_warning
    assert line.endswith(
        "2 steps (0, 1), 20 records; of step 2, which failed, 4 records can be read (an error above says why)."
    )


def test_what_can_be_read_of_failed_steps_is_told(tmp_path: Path) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path))
    for step, records in enumerate([30, 12, 0, 0]):
        outcome.reached(step, None, 1)
        outcome.written(str(tmp_path), step, 0, failed=True)
        outcome.written(str(tmp_path), step, records, failed=True)
    (told,) = outcome.lines(settings)
    assert told[0]
    assert told[1] == (
        f'The dump is in "{tmp_path}": no step is whole; of steps 0, 1, which failed, 42 records can be read; of steps'
        " 2, 3, which failed, nothing can be read (an error above says why)."
    )


def test_missing_tensor_files_are_told(tmp_path: Path) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path), task="tensor")
    for step, lacks in enumerate([False, True]):
        outcome.reached(step, None, 1)
        outcome.written(str(tmp_path), step, 5, failed=False, lacks_tensors=lacks)
    ((is_warning, line),) = outcome.lines(settings)
    assert is_warning
    assert line.endswith("2 steps (0, 1), 10 records; tensor files of step 1 are missing (an error above says why).")


def test_a_check_that_found_nothing_says_so(tmp_path: Path) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path), task="overflow_check")
    outcome.reached(0, None, 1)
    outcome.written(str(tmp_path), 0, 0, failed=False)
    assert outcome.lines(settings)[0][1].endswith("1 step (0), 0 records; no overflow was found.")


def test_if_every_step_failed_there_is_no_dump(tmp_path: Path) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path))
    for step in range(3):
        outcome.reached(step, None, 1)
        outcome.written(str(tmp_path), step, 0, failed=True)
    assert outcome.lines(settings) == [
        (True, f'No dump was written to "{tmp_path}": steps 0 to 2 failed, as the error above says.')
    ]


def test_a_step_that_fails_after_a_part_of_it_was_written(tmp_path: Path) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path))
    run(outcome, settings, 2)
    outcome.written(str(tmp_path), 2, 4, failed=False)
    outcome.written(str(tmp_path), 2, 7, failed=True)
    outcome.written(str(tmp_path), 3, 4, failed=False)
    outcome.written(str(tmp_path), 3, 6, failed=False)
    ((_, line),) = outcome.lines(settings)
    assert line.endswith(
        "3 steps (0, 1, 3), 26 records; of step 2, which failed, 7 records can be read (an error above says why)."
    )


def test_records_that_were_written_over_count_and_are_told(tmp_path: Path) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path))
    run(outcome, settings, 3)
    run(outcome, settings, 2)
    ((_, line),) = outcome.lines(settings)
    assert line.endswith("3 steps (0 to 2), 50 records with those that were written over.")


@pytest.mark.parametrize("every", [1, 7])
def test_many_steps_take_no_more_room_than_few(tmp_path: Path, every: int) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path))

    def grow(steps: range) -> int:
        tracemalloc.start()
        try:
            for step in steps:
                outcome.reached(step, None, 1)
                outcome.begun(step)
                outcome.written(str(tmp_path), step, 10 + step, failed=step >= 9_000 * every)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    grow(range(0, 100 * every, every))
    assert grow(range(100 * every, 10_000 * every, every)) < 2_000
    ((_, line),) = outcome.lines(settings)
    assert "9000 steps" in line


def test_steps_of_earlier_runs_are_named(tmp_path: Path) -> None:
    for name in ("step1/rank", "step7/rank", "step8/rank4", "step9/rank", "steps/rank"):
        (tmp_path / name).mkdir(parents=True)
        if name != "step9/rank":
            (tmp_path / name / "dump.json").touch()
    (tmp_path / "step9" / "rank" / "dump-1-a.journal").touch()
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path))
    run(outcome, settings, 2)
    assert outcome.lines(settings)[0][1].endswith("records; of earlier runs the folder still has steps 7, 9.")


def test_steps_that_never_came(tmp_path: Path) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path), steps=(100,))
    run(outcome, settings, 5)
    assert outcome.lines(settings) == [
        (True, '"step" asks for step 100 only, which did not come: the last step of the program was 4.')
    ]


def test_after_as_many_hits_as_were_asked_for_no_step_is_missed(tmp_path: Path) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path), steps=(0, 100))
    run(outcome, settings, 1)
    outcome.is_enough = True
    assert [is_warning for is_warning, _ in outcome.lines(settings)] == [False]


def test_ranks_that_there_are_not(tmp_path: Path) -> None:
    settings = Settings(dump_path=str(tmp_path), ranks=(0, 8))
    line = '"rank" asks for rank 8, which there is not: the program has the ranks 0 to 3.'
    for rank in range(4):
        outcome = Outcome()
        run(outcome, settings, 1, rank, world=4)
        told = outcome.lines(settings)
        assert ((True, line) in told) == (rank == 0)
        assert len(told) == (2 if rank == 0 else 0)


def test_a_single_process_is_rank_0(tmp_path: Path) -> None:
    outcome, settings = Outcome(), Settings(dump_path=str(tmp_path), ranks=(3,))
    run(outcome, settings, 1)
    assert outcome.lines(settings) == [
        (True, '"rank" asks for rank 3 only, which there is not: the program is a single process, which is rank 0.')
    ]


def test_a_recording_that_never_began() -> None:
    outcome = Outcome()
    assert outcome.lines(Settings()) == [(True, "No dump was written: start() was never called.")]
    debug = Outcome().lines(Settings(level="debug"))
    assert debug[0][1].endswith("level debug records what save() is given, and save() was not called.")
