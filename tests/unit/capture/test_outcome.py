"""The line that tells what came of a recording."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from support.coded_texts import pieces_of

from msprobe.capture.outcome import RecordingOutcome, numbers_text
from msprobe.config.settings import Settings
from msprobe.messages import arguments_of, code_of, said


def run(
    outcome: RecordingOutcome, settings: Settings, steps: int, rank: int | None = None, world: int = 1, first: int = 0
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
def test_numbers_are_reported_in_few_words(numbers: list[int], text: str) -> None:
    assert numbers_text(numbers) == text


def test_nothing_is_said_twice(tmp_path: Path) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path))
    run(outcome, settings, 2)
    ((is_warning, line),) = outcome.lines(settings)
    assert not is_warning
    assert arguments_of(line) == {
        "folder": str(tmp_path),
        "steps": "2 steps",
        "numbers": "0, 1",
        "records": "20 records",
        "count": 2,
        "further": "",
    }
    assert outcome.lines(settings) == []
    run(outcome, settings, 3, first=2)
    ((_, line),) = outcome.lines(settings)
    assert code_of(line)[1] == "dump-is-in"
    assert arguments_of(line).items() >= {"numbers": "0 to 2", "records": "30 records"}.items()


def test_a_step_that_could_not_be_written_does_not_count(tmp_path: Path) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path))
    run(outcome, settings, 2)
    outcome.reached(2, None, 1)
    outcome.written(str(tmp_path), 2, 4, failed=True)
    ((is_warning, line),) = outcome.lines(settings)
    assert is_warning
    assert code_of(line)[1] == "dump-with-failures"
    assert arguments_of(line).items() >= {"numbers": "0, 1", "records": "20 records"}.items()
    assert said("failed-steps-readable", "step 2", "4 records") in line


def test_what_can_be_read_of_failed_steps_is_reported(tmp_path: Path) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path))
    for step, records in enumerate([30, 12, 0, 0]):
        outcome.reached(step, None, 1)
        outcome.written(str(tmp_path), step, 0, failed=True)
        outcome.written(str(tmp_path), step, records, failed=True)
    (told,) = outcome.lines(settings)
    assert told[0]
    assert code_of(told[1])[1] == "dump-without-whole-step"
    assert said("failed-steps-readable", "steps 0, 1", "42 records") in told[1]
    assert said("failed-steps-lost", "steps 2, 3") in told[1]


def test_missing_tensor_files_are_reported(tmp_path: Path) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path), task="tensor")
    for step, lacks in enumerate([False, True]):
        outcome.reached(step, None, 1)
        outcome.written(str(tmp_path), step, 5, failed=False, lacks_tensors=lacks)
    ((is_warning, line),) = outcome.lines(settings)
    assert is_warning
    assert arguments_of(line).items() >= {"numbers": "0, 1", "records": "10 records"}.items()
    assert said("error-above-says", said("tensor-files-missing", "step 1")) in line


def test_a_check_that_found_nothing_says_so(tmp_path: Path) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path), task="overflow_check")
    outcome.reached(0, None, 1)
    outcome.written(str(tmp_path), 0, 0, failed=False)
    ((_, line),) = outcome.lines(settings)
    assert arguments_of(line).items() >= {"numbers": "0", "records": "0 records"}.items()
    assert "no-overflow-in-dump" in pieces_of(line)


def test_if_every_step_failed_there_is_no_dump(tmp_path: Path) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path))
    for step in range(3):
        outcome.reached(step, None, 1)
        outcome.written(str(tmp_path), step, 0, failed=True)
    assert outcome.lines(settings) == [(True, said("no-dump-at-folder", tmp_path, "steps 0 to 2"))]


def test_a_step_that_fails_after_a_part_of_it_was_written(tmp_path: Path) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path))
    run(outcome, settings, 2)
    outcome.written(str(tmp_path), 2, 4, failed=False)
    outcome.written(str(tmp_path), 2, 7, failed=True)
    outcome.written(str(tmp_path), 3, 4, failed=False)
    outcome.written(str(tmp_path), 3, 6, failed=False)
    ((_, line),) = outcome.lines(settings)
    assert arguments_of(line).items() >= {"numbers": "0, 1, 3", "records": "26 records"}.items()
    assert said("failed-steps-readable", "step 2", "7 records") in line


def test_records_that_were_written_over_count_and_are_reported(tmp_path: Path) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path))
    run(outcome, settings, 3)
    run(outcome, settings, 2)
    ((_, line),) = outcome.lines(settings)
    assert arguments_of(line).items() >= {"numbers": "0 to 2", "records": "50 records"}.items()
    assert "records-with-overwritten" in pieces_of(line)


@pytest.mark.parametrize("every", [1, 7])
def test_many_steps_take_no_more_room_than_few(tmp_path: Path, every: int) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path))

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
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path))
    run(outcome, settings, 2)
    assert said("steps-of-earlier-runs", "steps 7, 9") in outcome.lines(settings)[0][1]


def test_steps_that_never_came(tmp_path: Path) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path), steps=(100,))
    run(outcome, settings, 5)
    assert outcome.lines(settings) == [(True, said("steps-asked-for-only", "step 100", 4))]


def test_after_as_many_hits_as_were_asked_for_no_step_is_missed(tmp_path: Path) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path), steps=(0, 100))
    run(outcome, settings, 1)
    outcome.is_enough = True
    assert [is_warning for is_warning, _ in outcome.lines(settings)] == [False]


def test_ranks_that_there_are_not(tmp_path: Path) -> None:
    settings = Settings(dump_path=str(tmp_path), ranks=(0, 8))
    line = said("ranks-not-there", "rank 8", said("program-of-ranks", 3))
    for rank in range(4):
        outcome = RecordingOutcome()
        run(outcome, settings, 1, rank, world=4)
        told = outcome.lines(settings)
        assert ((True, line) in told) == (rank == 0)
        assert len(told) == (2 if rank == 0 else 0)


def test_a_single_process_is_rank_0(tmp_path: Path) -> None:
    outcome, settings = RecordingOutcome(), Settings(dump_path=str(tmp_path), ranks=(3,))
    run(outcome, settings, 1)
    assert outcome.lines(settings) == [(True, said("ranks-asked-for-only", "rank 3", said("program-of-one-process")))]


def test_a_recording_that_never_began() -> None:
    outcome = RecordingOutcome()
    assert outcome.lines(Settings()) == [(True, said("no-dump-written", said("never-started")))]
    debug = RecordingOutcome().lines(Settings(level="debug"))
    assert debug == [(True, said("no-dump-written", said("never-saved")))]
