"""A recording session without any framework: which steps and ranks, numbers, order, files, and what fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions

from msprobe import log
from msprobe.capture import native
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStacks
from msprobe.config.settings import Settings
from msprobe.store.writer import DumpWriter


@pytest.fixture(autouse=True)
def _fresh_log() -> Iterator[None]:
    log.forget_once()
    yield
    log.set_rank(None)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return make(tmp_path)


def make(folder: Path, rank: int | None = None, **settings: Any) -> Session:
    stacks = CallStacks(lambda file: False, lambda code: False, lambda code: False)
    chosen = replace(Settings(), dump_path=str(folder / "dump"), **settings)
    return Session(chosen, "pytorch", lambda: rank, stacks)


def read(folder: Path, step: int = 0, rank: str = "rank", name: str = "dump.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"dump/step{step}/{rank}/{name}").read_text())
    return found


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "dump").glob("step*"))


def record_one(session: Session, name: str = "Torch.add.0.forward", **more: Any) -> None:
    session.put(name, {"input_args": [], "output": [more or 1]})


def run_step(session: Session, *names: str) -> bool:
    """One step of a training."""
    started = session.start()
    if started:
        for name in names or ("Torch.add.0.forward",):
            record_one(session, name)
    session.stop()
    session.next_step()
    return started


# ---------------------------------------------------------------- steps and ranks


def test_only_steps_that_are_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = make(tmp_path, steps=(1, 3))
    assert [run_step(session) for _ in range(6)] == [False, True, False, True, False, False]
    session.close()
    assert steps(tmp_path) == ["step1", "step3"]
    # Behind the last wanted step the recording is over, and says so once.
    assert mentions(capsys.readouterr().out, "all-recorded") == 1
    assert session.ended


@pytest.mark.parametrize(
    ("rank", "ranks", "wanted", "folder"),
    [
        (None, (), True, "rank"),
        (None, (0,), True, "rank"),
        (None, (1,), False, ""),
        (0, (), True, "rank0"),
        (3, (1, 3), True, "rank3"),
        (2, (1, 3), False, ""),
    ],
)
def test_only_ranks_that_are_wanted(
    tmp_path: Path, rank: int | None, ranks: tuple[int, ...], wanted: bool, folder: str
) -> None:
    session = make(tmp_path, rank, ranks=ranks)
    assert run_step(session) is wanted
    session.close()
    assert [path.name for path in (tmp_path / "dump").glob("step0/*")] == ([folder] if wanted else [])


def test_a_rank_that_is_given_at_start_goes_first(tmp_path: Path) -> None:
    session = make(tmp_path, 0)
    session.start(rank=7)
    record_one(session)
    session.stop()
    session.next_step()
    assert run_step(session)
    assert list(read(tmp_path, 0, "rank7")["data"])
    assert list(read(tmp_path, 1, "rank7")["data"])


def test_stopped_and_started_again_the_step_goes_on(tmp_path: Path, session: Session) -> None:
    session.start()
    assert session.number("Torch.add") == 0
    record_one(session, "Torch.add.0.forward")
    session.stop()
    # Readable as soon as it is stopped.
    assert list(read(tmp_path)["data"]) == ["Torch.add.0.forward"]
    session.start()
    assert session.number("Torch.add") == 1
    record_one(session, "Torch.add.1.forward")
    session.stop()
    session.next_step()
    assert list(read(tmp_path)["data"]) == ["Torch.add.0.forward", "Torch.add.1.forward"]
    assert session.number("Torch.add") == 0


def test_a_recorded_step_has_files_even_if_nothing_came_of_it(
    tmp_path: Path, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.start()
    session.stop()
    session.next_step()
    session.start()
    session.stop()
    session.close()
    assert read(tmp_path, 0)["data"] == {}
    assert read(tmp_path, 1)["data"] == {}
    assert mentions(capsys.readouterr().out, "nothing-recorded-in-step", step=0) == 1


def test_a_step_that_was_never_started_has_none(tmp_path: Path, session: Session) -> None:
    session.stop()
    session.next_step()
    session.close()
    assert steps(tmp_path) == []


def test_a_clean_overflow_check_is_no_reason_for_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = make(tmp_path, task="overflow_check")
    session.start()
    session.close()
    assert read(tmp_path)["data"] == {}
    assert not mentions(capsys.readouterr().out, "nothing-recorded-in-step")


# ---------------------------------------------------------------- numbers, order, parents


def test_numbers_count_each_key_and_order_counts_all(session: Session) -> None:
    assert [session.number("a"), session.number("b"), session.number("a")] == [0, 0, 1]
    assert [session.next_order() for _ in range(3)] == [1, 2, 3]
    session.next_step()
    assert session.next_order() == 1


def test_numbers_of_several_threads_are_each_given_once(session: Session) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(session.number("a") for _ in range(2000))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(16_000))


def test_without_extra_files_when_they_are_not_asked_for(tmp_path: Path) -> None:
    session = make(tmp_path, level="mix", extra_info=False)
    session.start()
    session.put("a", {}, session.stacks.here(), "parent")
    session.stop()
    assert [path.name for path in (tmp_path / "dump/step0/rank").glob("*.json")] == ["dump.json"]


# ---------------------------------------------------------------- stacks


# ---------------------------------------------------------------- values that come late


class Late:
    text = b'"not yet"'


def test_records_wait_for_values_that_are_still_on_the_device(tmp_path: Path, session: Session) -> None:
    waiting: list[Late] = []
    session.has_late = lambda: bool(waiting)

    def flush() -> None:
        for value in waiting:
            value.text = b'"there"'
        waiting.clear()

    session.before_publish.append(flush)
    session.start()
    record_one(session, "early")
    value = Late()
    waiting.append(value)
    session.put("late", {"output": [value]})
    # In their order, although this one has all it needs.
    waiting.clear()
    record_one(session, "behind")
    waiting.append(value)
    session.stop()
    data = read(tmp_path)["data"]
    assert list(data) == ["early", "late", "behind"]
    assert data["late"]["output"] == ["there"]


def test_work_before_the_files_may_still_put_records(tmp_path: Path, session: Session) -> None:
    session.before_publish.append(lambda: record_one(session, "last"))
    run_step(session, "first")
    assert list(read(tmp_path)["data"]) == ["first", "last"]


# ---------------------------------------------------------------- what fails


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if "[ERROR]" in line]


def test_a_fault_is_one_line_for_each_kind_and_reported_in_full_beside_the_dump(
    tmp_path: Path, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.start()
    record_one(session)
    for number in range(5):
        session.fault(f"Torch.add.{number}.forward", ValueError(f"bad {number}"))
    session.fault("Torch.add.9.forward", TypeError("worse"))
    session.close()
    (first, second) = errors(capsys)
    assert mentions(first, "not-recorded", what="Torch.add.0.forward", kind="ValueError", error="bad 0")
    assert "TypeError: worse" in second
    text = (tmp_path / "dump/step0/rank/dump_error_info.log").read_text()
    assert text.count("ValueError: bad") == 5
    assert "Torch.add.9.forward failed" in text
    assert read(tmp_path)["data"]


def test_guarded_work_that_fails_answers_none(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    def careless(n: int) -> int:
        return 1 // n

    assert session.guard(careless, 1) == 1
    assert session.guard(careless, 0) is None
    (line,) = errors(capsys)
    assert "careless" in line


def test_an_interrupt_of_the_user_is_no_fault(session: Session) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.guard(interrupted)


@pytest.mark.parametrize("method", ["open", "put_call", "publish", "define_stack", "put_parent", "error"])
def test_a_writer_that_fails_spoils_no_other_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    session = make(tmp_path, level="mix")
    original: Callable[..., Any] = getattr(DumpWriter, method)

    def failing(self: DumpWriter, *args: Any) -> Any:
        if session.step == 0:
            raise OSError("no more")
        return original(self, *args)

    monkeypatch.setattr(DumpWriter, method, failing)

    def work() -> None:
        session.guard(session.put, "a", {"output": []}, session.stacks.here(), "parent")
        session.guard(session.put_parent, "child", "parent")
        session.fault("something", ValueError("odd"))

    for _ in range(2):
        session.start()
        work()
        session.stop()
        session.next_step()
    session.close()
    assert list(read(tmp_path, 1)["data"]) == ["a"]
    if method != "error":
        assert any("no more" in line for line in errors(capsys))


def test_a_late_record_that_cannot_be_written_costs_itself_only(
    tmp_path: Path, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.has_late = lambda: True
    session.start()
    record_one(session, "first")
    session.put("Torch.bad.0.forward", {"output": [object()]})
    record_one(session, "last")
    session.has_late = lambda: False
    session.stop()
    session.next_step()
    assert list(read(tmp_path)["data"]) == ["first", "last"]
    (line,) = errors(capsys)
    assert "Torch.bad.0.forward" in line


def test_work_at_the_end_of_a_step_that_fails_stops_nothing(tmp_path: Path, session: Session) -> None:
    def fails() -> None:
        raise RuntimeError("not today")

    done: list[int] = []
    session.before_publish += [fails, lambda: done.append(1)]
    session.at_step_end += [fails, lambda: done.append(2)]
    run_step(session)
    assert done == [1, 1, 2]
    assert list(read(tmp_path)["data"])


# ---------------------------------------------------------------- the end


def test_the_end_comes_behind_the_record_that_brings_it(
    tmp_path: Path, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.start()
    session.end_after_record = True
    record_one(session)
    assert session.ended
    assert not session.recording
    session.stop()
    session.next_step()
    assert not session.start()
    session.close()
    assert list(read(tmp_path)["data"]) == ["Torch.add.0.forward"]
    assert steps(tmp_path) == ["step0"]
    assert mentions(capsys.readouterr().out, "all-recorded") == 1


def test_after_a_fork_the_child_writes_nothing_that_was_waiting(tmp_path: Path, session: Session) -> None:
    session.before_publish.append(lambda: record_one(session, "waiting"))
    session.start()
    session.leave_to_parent()
    session.stop()
    session.close()
    assert not (tmp_path / "dump").exists()


def test_whole_tensors_are_kept_of_the_entries_that_are_named(tmp_path: Path) -> None:
    assert make(tmp_path, task="tensor").saves("anything")
    assert not make(tmp_path).saves("anything")
    some = make(tmp_path, tensor_list=("relu",))
    assert some.saves("Functional.relu.0.forward")
    assert not some.saves("Functional.gelu.0.forward")
    run_step(some)
    assert read(tmp_path)["dump_data_dir"] == str(tmp_path / "dump/step0/rank/dump_tensor_data")


def test_a_run_with_fewer_steps_leaves_none_of_the_run_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = make(tmp_path)
    for _ in range(4):
        run_step(first)
    second = make(tmp_path)
    for _ in range(2):
        run_step(second)
    assert steps(tmp_path) == ["step0", "step1"]
    out = capsys.readouterr().out
    assert mentions(out, "earlier-runs-removed") == 1
    assert mentions(out, "earlier-runs-removed", steps="steps 0 to 3", folder=f"{tmp_path}/dump")


def test_nothing_is_removed_before_a_step_is_recorded_nor_where_that_is_not_asked_for(tmp_path: Path) -> None:
    for _ in range(2):
        run_step(first := make(tmp_path, existing="overwrite"))
        first.close()
    assert not make(tmp_path, steps=(7,)).start()
    for existing in ("overwrite", "refuse"):
        other = make(tmp_path, existing=existing, steps=(1, 2))
        for _ in range(3):
            run_step(other)
    assert steps(tmp_path) == ["step0", "step1", "step2"]


def test_steps_of_this_run_stay_when_its_settings_change(tmp_path: Path) -> None:
    """As a debugger does it whose configuration file has changed."""
    before = make(tmp_path)
    run_step(before)
    run_step(before)
    after = make(tmp_path, task="tensor")
    after.number_steps_from(before.step)
    run_step(after)
    assert steps(tmp_path) == ["step0", "step1", "step2"]


def test_an_old_dump_in_the_folder_goes_also_where_a_part_of_it_is_recorded(tmp_path: Path) -> None:
    """As with compiled cells of MindSpore: whoever opens the folder would find the old dump, not the two new ones."""
    run_step(make(tmp_path))
    for _ in range(2):
        parts = make(tmp_path)
        parts.settings = replace(parts.settings, dump_path=str(tmp_path / "dump" / "pynative"))
        run_step(parts)
    assert steps(tmp_path) == []
    assert [path.name for path in (tmp_path / "dump" / "pynative").iterdir()] == ["step0"]


def test_whether_the_c_extension_is_used_is_said_once_to_those_who_look_for_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make(tmp_path)
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "0")
    for _ in range(2):
        run_step(session)
    assert capsys.readouterr().out.count(f"[DEBUG] {native.status()}\n") == 1
