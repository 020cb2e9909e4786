"""What is removed of earlier runs when a run begins, and what never is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from msprobe import log
from msprobe.messages import said
from msprobe.store import durable, old_runs, processes
from msprobe.store.old_runs import Duty
from msprobe.store.reader import open_dump
from msprobe.store.tensor_files import TensorFileWriter
from msprobe.store.writer import DumpWriter


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    log.forget_once()
    yield
    durable.drain()


def everyone(rank: int) -> bool:
    return True


ALONE = Duty(None, 1, everyone)


def write(dump: Path, steps: int, *ranks: str) -> None:
    """What a run of so many steps leaves."""
    for step in range(steps):
        for rank in ranks:
            writer = DumpWriter(dump / f"step{step}" / rank, {})
            writer.put("a", 1)
            writer.publish(final=True)
            tensors = dump / f"step{step}" / rank / "dump_tensor_data"
            tensors.mkdir()
            (tensors / "a.pt").write_text("values")
    durable.drain()


def by_another(work: Callable[[], None]) -> None:
    """Done by a process that ends."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def folders(dump: Path) -> list[str]:
    return sorted(str(path.relative_to(dump)) for path in dump.glob("step*/*"))


def test_a_single_process_removes_every_step_and_rank_of_earlier_runs(tmp_path: Path) -> None:
    by_another(lambda: write(tmp_path, 3, "rank0", "rank1", "rank", "proc77"))
    assert old_runs.remove_old_dumps([tmp_path], 0, ALONE) == ([0, 1, 2], "")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_resumed_keeps_the_steps_before_it(tmp_path: Path) -> None:
    by_another(lambda: write(tmp_path, 4, "rank"))
    assert old_runs.remove_old_dumps([tmp_path], 2, ALONE) == ([2, 3], "")
    assert folders(tmp_path) == ["step0/rank", "step1/rank"]


def test_each_rank_removes_its_own_and_the_first_those_that_the_run_has_not(tmp_path: Path) -> None:
    by_another(lambda: write(tmp_path, 1, "rank0", "rank1", "rank2", "rank", "proc9"))
    old_runs.remove_old_dumps([tmp_path], 0, Duty(1, 2, everyone))
    assert folders(tmp_path) == ["step0/proc9", "step0/rank", "step0/rank0", "step0/rank2"]
    old_runs.remove_old_dumps([tmp_path], 0, Duty(0, 2, everyone))
    assert folders(tmp_path) == []


def test_the_first_rank_that_is_recorded_answers_for_those_that_are_not(tmp_path: Path) -> None:
    by_another(lambda: write(tmp_path, 1, "rank0", "rank1", "rank2", "rank3"))
    wanted = Duty(1, 4, lambda rank: rank in (1, 3))
    old_runs.remove_old_dumps([tmp_path], 0, replace(wanted, rank=3))
    assert folders(tmp_path) == ["step0/rank0", "step0/rank1", "step0/rank2"]
    old_runs.remove_old_dumps([tmp_path], 0, wanted)
    assert folders(tmp_path) == []


def test_where_nobody_knows_how_many_ranks_there_are_each_removes_its_own(tmp_path: Path) -> None:
    """Ranks that are run one after the other, each named by hand, add up to one dump."""
    by_another(lambda: write(tmp_path, 2, "rank0", "rank1"))
    old_runs.remove_old_dumps([tmp_path], 0, Duty(0, 0, everyone))
    assert folders(tmp_path) == ["step0/rank1", "step1/rank1"]


def test_what_is_no_dump_stays(tmp_path: Path) -> None:
    by_another(lambda: write(tmp_path, 2, "rank"))
    notes = {
        tmp_path / "step0" / "notes.txt",
        tmp_path / "step1" / "rank" / "plot.png",
        tmp_path / "step1" / "rank" / "dump_tensor_data" / "mine" / "a.pt",
        tmp_path / "step1" / "checkpoint" / "dump.json",
        tmp_path / "step_2" / "rank" / "dump.json",
        tmp_path / "steps" / "rank" / "dump.json",
        tmp_path / "best" / "step0" / "rank" / "dump.json",
    }
    for note in notes:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text("mine")
    assert old_runs.remove_old_dumps([tmp_path], 0, ALONE) == ([0, 1], "")
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == notes


def test_links_are_not_followed(tmp_path: Path) -> None:
    dump, elsewhere = tmp_path / "dump", tmp_path / "elsewhere"
    by_another(lambda: write(elsewhere, 1, "rank"))
    (dump / "step1").mkdir(parents=True)
    (dump / "step0").symlink_to(elsewhere / "step0")
    (dump / "step1" / "rank").symlink_to(elsewhere / "step0" / "rank")
    for duty in (ALONE, Duty(0, 2, everyone)):
        assert old_runs.remove_old_dumps([dump], 0, duty) == ([], "")
    assert open_dump(elsewhere).part().complete


def test_what_a_living_process_writes_or_wrote_stays(tmp_path: Path) -> None:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        write(tmp_path, 2, "rank0")
        DumpWriter(tmp_path / "step2" / "rank0", {}).put("a", 1)
        os.write(tell, b"x")
        time.sleep(60)
        os._exit(1)
    try:
        os.read(told, 1)
        assert old_runs.remove_old_dumps([tmp_path], 0, ALONE) == ([], "")
        assert folders(tmp_path) == ["step0/rank0", "step1/rank0", "step2/rank0"]
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tell)
    assert old_runs.remove_old_dumps([tmp_path], 0, ALONE) == ([0, 1, 2], "")


def test_what_this_process_is_writing_stays(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "step0" / "rank", {})
    writer.put("a", 1)
    assert old_runs.remove_old_dumps([tmp_path], 0, ALONE) == ([], "")
    writer.publish(final=True)
    assert open_dump(tmp_path).part().names() == ["a"]


def test_what_cannot_be_removed_is_reported_and_the_rest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_another(lambda: write(tmp_path, 2, "rank"))
    unlink = Path.unlink

    def refuses(path: Path, missing_ok: bool = False) -> None:
        if path.parent == tmp_path / "step0" / "rank":
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuses)
    steps, problem = old_runs.remove_old_dumps([tmp_path], 0, ALONE)
    assert steps == [1]
    assert problem == said("old-dump-not-removed", tmp_path / "step0/rank/dump.json", "Permission denied")


def rank_of_a_run(dump: Path, rank: int, world: int, steps: int, begin: float) -> None:
    class Payload:
        dtype_name, shape = "float32", (1,)
        data = memoryview(bytes(4))

    time.sleep(max(0.0, begin - time.monotonic()))
    old_runs.remove_old_dumps([dump], 0, Duty(rank, world, everyone))
    for step in range(steps):
        folder = dump / f"step{step}" / f"rank{rank}"
        writer = DumpWriter(folder, {})
        files = TensorFileWriter(folder / "dump_tensor_data")
        for number in range(3):
            writer.put(f"{number}", rank)
            files.save(f"{number}.pt", Payload())
        files.close()
        writer.publish(final=True)
        assert writer.folder == folder
        assert not writer.failed
        assert not files.failed
    durable.drain()


def test_ranks_that_begin_at_once_never_delete_what_another_one_writes(tmp_path: Path) -> None:
    for world in (4, 3, 2):  # each run finds what the one before left, of one more rank and step
        begin = time.monotonic() + 0.2
        children = []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    rank_of_a_run(tmp_path, rank, world, world, begin + 0.01 * rank)
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * world
        assert folders(tmp_path) == [f"step{step}/rank{rank}" for step in range(world) for rank in range(world)]
        dump = open_dump(tmp_path)
        for part in dump.parts():
            assert part.complete
            assert [record for _, record in part.records()] == [part.rank] * 3
            assert sorted(path.name for path in (part.folder / "dump_tensor_data").iterdir()) == [
                *("0.pt", "1.pt", "2.pt")
            ]


def test_a_process_on_another_machine_that_may_still_run_keeps_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared disk: what was written since this process began was written beside it."""
    monkeypatch.setattr("msprobe.store.file_systems.is_local", lambda _: False)
    other = replace(processes.this_process(), boot="another machine", pid=1)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "this_process", lambda: other)
        write(tmp_path, 1, "rank")
    assert old_runs.remove_old_dumps([tmp_path], 0, ALONE) == ([], "")
    then = time.time() - processes.seconds_since_start() - 5
    os.utime(tmp_path / "step0/rank/dump.json", (then, then))
    assert old_runs.remove_old_dumps([tmp_path], 0, ALONE) == ([0], "")
