from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from msprobe.store import durable, journal, layout
from msprobe.store.journal_reader import JournalReader
from msprobe.store.reader import open_dump
from msprobe.store.writer import DumpWriter

HEADER: dict[str, object] = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    durable.drain()
    yield
    durable.drain()


def begin(dump_path: Path, step: int, records: int = 5) -> DumpWriter:
    writer = DumpWriter(layout.rank_folder(layout.step_folder(dump_path, step), 0), HEADER)
    for number in range(records):
        writer.put(f"Torch.add.{number}.forward", {"step": step, "text": "x" * 200})
    assert not writer.failed
    return writer


def finish(writer: DumpWriter) -> None:
    writer.publish(final=False)
    writer.publish(final=True)
    assert not writer.failed


def number_of(folder: Path) -> int:
    """The inode of the one journal in ``folder``."""
    (found,) = layout.journals(folder)
    return found.stat().st_ino


def check(dump_path: Path, steps: int, records: int = 5) -> None:
    for step in range(steps):
        part = open_dump(dump_path).part(step)
        assert part.complete
        assert [record for _, record in part.records()] == [{"step": step, "text": "x" * 200}] * records


def test_one_journal_serves_step_after_step(tmp_path: Path) -> None:
    used = set()
    for step in range(50):
        writer = begin(tmp_path, step, records=1 + step % 7)
        used.add(number_of(writer.folder))
        part = open_dump(writer.folder).part()
        assert len(part) == 1 + step % 7, "nothing of the step before shows"
        assert part.lost == 0
        finish(writer)
    assert len(used) <= 3
    assert sum(len(layout.journals(folder)) for folder in tmp_path.glob("step*/rank0")) <= 2
    durable.drain()
    assert not list(tmp_path.rglob("*.journal"))


def test_a_finished_step_reads_as_such_while_its_journal_waits_for_the_next(tmp_path: Path) -> None:
    for step in range(3):
        finish(begin(tmp_path, step))
        check(tmp_path, step + 1)


def test_what_one_step_holds_open_another_does_not_get(tmp_path: Path) -> None:
    finish(begin(tmp_path, 0))
    first, second = begin(tmp_path, 1), begin(tmp_path, 2)
    assert number_of(first.folder) != number_of(second.folder)
    finish(first)
    finish(second)
    check(tmp_path, 3)


def test_a_journal_that_went_with_its_folder_is_made_anew(tmp_path: Path) -> None:
    for step in range(5):
        finish(begin(tmp_path, step))
        shutil.rmtree(tmp_path / f"step{step}")
    finish(begin(tmp_path, 0))
    check(tmp_path, 1)


def test_a_journal_stays_on_its_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(begin(tmp_path, 0))

    def elsewhere(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("msprobe.store.journal.os.rename", elsewhere)
    for step in range(1, 4):
        finish(begin(tmp_path, step))
    check(tmp_path, 4)
    assert len(list(tmp_path.rglob("*.journal"))) <= 2, "what cannot be moved is removed"


def test_a_step_that_is_finished_while_it_is_read_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(begin(tmp_path, 0))
    writer = begin(tmp_path, 1)

    def and_meanwhile(path: Path) -> JournalReader:
        if not writer._closed:
            finish(writer)
            begin(tmp_path, 2)
        return JournalReader(path)

    monkeypatch.setattr("msprobe.store.part.JournalReader", and_meanwhile)
    part = open_dump(tmp_path).part(1)
    assert part.complete
    assert len(part) == 5


def test_an_unusually_large_journal_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LARGEST_RECYCLED", 1 << 17)
    begin(tmp_path, 0, records=2000).publish(final=True)
    durable._syncer.drain(ending=False)
    assert layout.journals(tmp_path / "step0" / "rank0") == []


def test_a_journal_that_no_step_takes_is_removed_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_SECONDS_IDLE", 0.2)
    for step in range(5):
        finish(begin(tmp_path, step))
    end = time.monotonic() + 10
    while any(layout.journals(folder) for folder in tmp_path.glob("step*/rank0")) and time.monotonic() < end:
        time.sleep(0.02)
    assert not list(tmp_path.rglob("*.journal"))
    finish(begin(tmp_path, 5))
    check(tmp_path, 6)


def test_no_journal_outlives_the_process(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; import test_recycling as t\n"
        "for step in range(4): t.finish(t.begin(Path(sys.argv[1]), step))"
    )
    here = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=here, check=True)
    assert not list(tmp_path.rglob("*.journal"))
    check(tmp_path, 4)


def test_a_forked_child_leaves_the_journals_of_its_parent_alone(tmp_path: Path) -> None:
    for step in range(3):
        finish(begin(tmp_path, step))
    before = sorted(tmp_path.rglob("*.journal"))
    assert before
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for step in range(3):
                finish(begin(tmp_path / "of the child", step))
            durable.drain()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(tmp_path.rglob("*.journal")) == before
    writer = begin(tmp_path, 3)
    finish(writer)
    check(tmp_path, 4)
    check(tmp_path / "of the child", 3)


def test_a_failed_step_keeps_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(begin(tmp_path, 0))
    writer = begin(tmp_path, 1)
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("msprobe.store.record_files.write_atomically", lambda *_, **__: (_ for _ in ()).throw(full))
    writer.publish(final=True)
    assert writer.failed
    monkeypatch.undo()
    finish(begin(tmp_path, 2))
    part = open_dump(tmp_path).part(1)
    assert not part.complete
    assert len(part) == 5


def test_steps_of_a_millisecond_keep_the_thread_idle(tmp_path: Path) -> None:
    """It waits for the disk once in a second, whatever the number of steps."""
    synced = 0
    original = durable._sync

    def counted(paths: list[str]) -> None:
        nonlocal synced
        synced += 1
        original(paths)

    durable._sync = counted
    try:
        started = time.monotonic()
        steps = 0
        while time.monotonic() - started < 1.5:
            finish(begin(tmp_path, steps))
            steps += 1
    finally:
        durable._sync = original
    assert steps > 100
    assert 1 <= synced <= 3
