from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions, raising

from msprobe import log
from msprobe.errors import PathError
from msprobe.store import durable, file_systems, heartbeat, journal, layout, locks, ownership, processes, recycling
from msprobe.store.writer import DumpWriter

HEADER: dict[str, object] = {
    "task": "statistics",
    "level": "L1",
    "framework": "pytorch",
    "dump_data_dir": None,
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    log.forget_once()
    ownership._busy.clear()
    yield tmp_path / "step0" / "rank"
    ownership._busy.clear()
    durable.drain()


@contextmanager
def other_process(folder: Path, finish: bool = False) -> Iterator[int]:
    """A process that writes a record into ``folder`` and lives on; it has finished the step if ``finish``."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        writer = DumpWriter(folder, HEADER)
        writer.put("other", 1)
        if finish:
            writer.publish(final=True)
            durable.drain()
        os.write(tell, b"x")
        time.sleep(60)
        os._exit(1)
    try:
        os.read(told, 1)
        yield child
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tell)


def write_one(folder: Path) -> Path:
    writer = DumpWriter(folder, HEADER)
    writer.put("mine", 1)
    writer.publish(final=True)
    durable.drain()
    assert not writer.failed
    assert list(json.loads((writer.folder / "dump.json").read_text())["data"]) == ["mine"]
    return writer.folder


def test_two_living_processes_never_share_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with other_process(folder) as pid:
        assert write_one(folder) == folder.parent / f"proc{os.getpid()}"
        (journal,) = layout.journals(folder)
        assert journal.name.startswith(f"dump-{pid}-")
        assert b"other" in journal.read_bytes()
    said = capsys.readouterr().out
    assert mentions(said, "folder-of-other-process", pid=pid)
    assert "RANK" in said


def test_a_finished_dump_of_a_living_process_is_not_taken_either(folder: Path) -> None:
    """Ranks that all call start() before there is a process group come one after the other."""
    with other_process(folder, finish=True):
        assert not layout.journals(folder)
        assert write_one(folder) == folder.parent / f"proc{os.getpid()}"
        assert list(json.loads((folder / "dump.json").read_text())["data"]) == ["other"]


def test_the_folder_of_a_dead_process_is_taken_over(folder: Path) -> None:
    with other_process(folder):
        pass
    assert layout.journals(folder)
    assert write_one(folder) == folder
    assert sorted(path.name for path in folder.iterdir()) == ["construct.json", "dump.json", "stack.json"]


def test_the_finished_dump_of_a_dead_process_is_replaced(folder: Path) -> None:
    with other_process(folder, finish=True):
        pass
    assert write_one(folder) == folder


def test_a_zombie_is_dead(folder: Path) -> None:
    child = os.fork()
    if child == 0:
        DumpWriter(folder, HEADER).put("other", 1)
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert write_one(folder) == folder
    finally:
        os.waitpid(child, 0)


def journal_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **owner: Any) -> Path:
    """The journal that a process had begun here, which is not this one."""
    with monkeypatch.context() as patch:
        other = replace(processes.this_process(), **owner)
        patch.setattr(processes, "this_process", lambda: other)
        DumpWriter(folder, HEADER).put("other", 1)
    ownership.release(folder)
    (path,) = layout.journals(folder)
    return path


def finished_by(folder: Path, monkeypatch: pytest.MonkeyPatch, **owner: Any) -> Path:
    """The finished dump of a process that is not this one."""
    with monkeypatch.context() as patch:
        other = replace(processes.this_process(), **owner)
        patch.setattr(processes, "this_process", lambda: other)
        writer = DumpWriter(folder, HEADER)
        writer.put("other", 1)
        writer.publish(final=True)
    durable.drain()
    return folder / "dump.json"


def ago(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_process_number_that_was_given_to_a_new_process_does_not_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_of(folder, monkeypatch, pid=os.getppid(), started=1)
    assert write_one(folder) == folder


ELSEWHERE = {"host": "another", "boot": "another start of another machine", "pid": 1}


def test_a_job_gets_its_folder_back_when_its_container_or_machine_was_started_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that no other machine writes, at once: the host has another name, the process number lives again."""
    monkeypatch.setattr(heartbeat, "_changes", lambda *_: pytest.fail("there is nothing to wait for"))
    for owner in ({"host": "pod-x7f2", "namespace": 1, "pid": os.getppid()}, {"boot": "before"}, ELSEWHERE):
        journal_of(folder, monkeypatch, **owner)
        assert write_one(folder) == folder, owner


def test_a_process_of_another_container_keeps_its_folder_while_it_lives(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number means nothing here, or a process that died long ago."""
    with monkeypatch.context() as patch:
        other = replace(processes.this_process(), namespace=1, pid=(1 << 22) - 1)
        patch.setattr(processes, "this_process", lambda: other)
        writer = DumpWriter(folder, HEADER)
        writer.put("other", 1)
    ownership.release(folder)
    assert write_one(folder) != folder
    assert len(layout.journals(folder)) == 1
    journal = writer._journal
    assert journal is not None
    journal.close()
    assert write_one(folder) == folder


def test_finished_steps_of_a_process_of_another_container_stay_while_it_writes_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are older than this process, as those of a run that crashed are."""
    later = folder.parent.parent / "step1" / "rank"
    path = finished_by(folder, monkeypatch, namespace=1, pid=7)
    ago(path, 24 * 3600)
    with monkeypatch.context() as patch:
        other = replace(processes.this_process(), namespace=1, pid=7)
        patch.setattr(processes, "this_process", lambda: other)
        writer = DumpWriter(later, HEADER)
        writer.put("other", 1)
    ownership.release(later)
    assert not ownership.remove_old_dump(folder)
    assert write_one(folder) != folder
    journal = writer._journal
    assert journal is not None
    journal.close()
    ownership._busy.clear()  # another process looks
    assert write_one(folder) == folder


def test_two_real_containers(folder: Path) -> None:
    """Process 1 of one is not process 1 of the other."""
    program = """
import sys, time
from pathlib import Path
from msprobe.store.writer import DumpWriter
writer = DumpWriter(Path(sys.argv[1]), {})
writer.put(sys.argv[2], 1)
print(writer.folder.name, flush=True)
if sys.argv[2] == "stays":
    time.sleep(60)
"""

    def begin(what: str) -> tuple[subprocess.Popen[str], str]:
        # The process that is begun is process 1 of numbers of its own; it dies with the one that began it.
        container = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        process = subprocess.Popen(
            [*container, sys.executable, "-c", program, str(folder), what],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        return process, next((line.strip() for line in lines if "[" not in line), "")

    living, name = begin("stays")
    try:
        if not name:
            pytest.skip("this user may not make containers")
        assert name == "rank"
        second, name = begin("second")
        assert second.wait() == 0
        assert name == "proc1"
        beside, name = begin("stays")
        assert name == "proc1"
        fourth, name = begin("fourth")
        assert fourth.wait() == 0
        assert name == "proc4194305"
        beside.kill()
        beside.wait()
        assert b"stays" in layout.journals(folder)[0].read_bytes()
    finally:
        living.kill()
        living.wait()
    # Its child, which has the file, is killed by the system a moment later.
    until = time.monotonic() + 30
    while locks.is_held(layout.journals(folder)[0]) and time.monotonic() < until:
        time.sleep(0.01)
    third, name = begin("third")
    assert third.wait() == 0
    assert name == "rank"


@pytest.fixture
def shared_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every folder is on a disk that other machines write; the signs of life come fast."""
    monkeypatch.setattr(file_systems, "is_local", lambda _: False)
    monkeypatch.setattr(file_systems, "can_be_mapped", lambda _: False)
    monkeypatch.setattr(heartbeat, "SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "_WATCHED_SECONDS", 1.0)
    monkeypatch.setattr(heartbeat, "_SECONDS_BETWEEN_LOOKS", 0.02)
    heartbeat._seen.clear()
    heartbeat.forget_after_fork()
    yield
    heartbeat._seen.clear()
    heartbeat.forget_after_fork()


def test_on_a_shared_disk_a_job_that_died_on_another_machine_gets_its_folders_back(
    folder: Path, shared_disk: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seconds after the crash; waited for once, however many steps there are."""
    steps = [folder.parent.parent / f"step{step}" / "rank3" for step in range(4)]
    for step in steps:
        with monkeypatch.context() as patch:
            patch.setattr(heartbeat, "keep", lambda _: None)  # it is dead
            journal_of(step, monkeypatch, **ELSEWHERE)
    waited = []
    changes = heartbeat._changes
    monkeypatch.setattr(heartbeat, "_changes", lambda *given: waited.append(1) or changes(*given))
    assert [write_one(step) for step in steps] == steps
    assert len(waited) == 1
    assert "process 1 on another; waiting up to 1 seconds" in capsys.readouterr().out


def test_on_a_shared_disk_a_living_process_of_another_machine_keeps_its_folder(
    folder: Path, shared_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = journal_of(folder, monkeypatch, **ELSEWHERE)
    assert write_one(folder) == folder.parent / f"proc{os.getpid()}"
    assert b"other" in path.read_bytes()


def test_a_journal_on_a_shared_disk_is_touched_until_it_is_gone(folder: Path, shared_disk: None) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.put("a", 1)
    (path,) = layout.journals(folder)
    ago(path, 1000)
    until = time.monotonic() + 30
    while time.time() - path.stat().st_mtime > 500 and time.monotonic() < until:
        time.sleep(0.01)
    assert time.time() - path.stat().st_mtime < 500
    thread = heartbeat._heart._thread
    assert thread is not None
    writer.publish(final=True)
    durable.drain()
    thread.join(30)
    assert not thread.is_alive(), "nothing is left to touch"


def test_who_was_taken_for_dead_writes_nothing_into_the_folder_of_the_other(
    folder: Path, shared_disk: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stood still for longer than another machine waited."""
    late = DumpWriter(folder, HEADER)
    late.put("late", 1)
    (path,) = layout.journals(folder)
    path.unlink()
    (folder / "dump.json").write_text("theirs")
    late.put("later", 1)
    late.publish(final=True)
    assert late.failed
    assert (folder / "dump.json").read_text() == "theirs"
    assert mentions(capsys.readouterr().out, "journal-removed")


def test_a_finished_dump_of_another_machine_is_replaced_if_it_is_older_than_this_process(
    folder: Path, shared_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is younger was written by a process that ran beside this one, and may still run."""
    path = finished_by(folder, monkeypatch, **ELSEWHERE)
    assert write_one(folder) != folder
    ago(path, processes.seconds_since_start() + 5)
    assert write_one(folder) == folder


def test_a_journal_of_an_earlier_version_on_another_host_counts_for_a_day(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was neither locked nor touched, so nothing can tell."""
    path = journal_of(folder, monkeypatch, host="another", pid=1, boot="", namespace=0)
    assert write_one(folder) != folder
    ago(path, 25 * 3600)
    assert write_one(folder) == folder


def test_how_long_this_process_has_been_running() -> None:
    first = processes.seconds_since_start()
    assert 0.0 < first < 24 * 3600
    assert first <= processes.seconds_since_start() < first + 60


@pytest.mark.parametrize("content", [b"", bytes(5000), b"MSPJRNL2", b"[[[[ not what we write"])
def test_a_journal_that_says_no_owner_has_none(folder: Path, content: bytes) -> None:
    """It was being made when its process died."""
    folder.mkdir(parents=True)
    (folder / f"dump-{os.getppid()}-1.journal").write_bytes(content)
    assert write_one(folder) == folder
    assert not layout.journals(folder)


@pytest.mark.parametrize("is_there", [False, True])
def test_who_announced_itself_looks_who_else_came(
    folder: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other comes at the worst of moments: when we have made the folder, or looked into it."""
    if is_there:
        folder.mkdir(parents=True)
    others = []
    began = recycling.start

    def while_another_comes(*arguments: Any) -> Any:
        if not others:
            child = other_process(folder)
            others.append(child)
            child.__enter__()
        return began(*arguments)

    monkeypatch.setattr(recycling, "start", while_another_comes)
    try:
        assert write_one(folder) == folder.parent / f"proc{os.getpid()}"
        assert [path.name.split("-")[1] for path in layout.journals(folder)] != [str(os.getpid())]
    finally:
        others[0].__exit__(None, None, None)
    assert mentions(capsys.readouterr().out, "folder-of-other-process")


def test_a_folder_that_another_process_clears_of_old_runs_stays_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at the worst of moments: when our journal is there and does not yet tell whose it is."""
    hold = locks.hold
    looked: list[bool] = []

    def while_another_looks(descriptor: int) -> None:
        hold(descriptor)
        if not looked:
            child = os.fork()
            if child == 0:
                os._exit(ownership.remove_old_dump(folder))
            looked.append(os.waitpid(child, 0)[1] == 0)

    monkeypatch.setattr(journal.locks, "hold", while_another_looks)
    assert write_one(folder) == folder
    assert len(looked) == 1


def test_a_folder_that_cannot_be_ours_keeps_no_journal_of_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone_in = ownership._alone_in

    @contextmanager
    def and_the_next_looks(asked: Path) -> Iterator[None]:
        with alone_in(asked):
            yield
            if asked == folder:
                (left,) = layout.journals(asked)
                assert left.name.startswith(f"dump-{pid}-"), "of two that wait each would make way for the other"

    monkeypatch.setattr(ownership, "_alone_in", and_the_next_looks)
    with other_process(folder) as pid:
        mine = DumpWriter(folder, HEADER)
        mine.put("a", 1)
        (theirs,) = layout.journals(folder)
        assert theirs.name.startswith(f"dump-{pid}-")
        (ours,) = layout.journals(mine.folder)
        assert ours.name.startswith(f"dump-{os.getpid()}-")


def test_two_writers_of_one_process_share_a_folder_and_the_last_gives_it_back(folder: Path) -> None:
    dump, debug = DumpWriter(folder, HEADER), DumpWriter(folder, HEADER, kind="debug")
    dump.put("a", 1)
    debug.put("b", 2)
    dump.publish(final=True)
    durable.drain()
    assert [path.name.split("-")[0] for path in layout.journals(folder)] == ["debug"]
    debug.publish(final=True)
    durable.drain()
    assert sorted(path.suffix for path in folder.iterdir()) == [".json"] * 4
    assert dump.folder == debug.folder == folder


def test_the_same_process_may_write_a_folder_again_at_once(folder: Path) -> None:
    for _ in range(20):
        writer = DumpWriter(folder, HEADER)
        writer.put("a", 1)
        (folder / "dump_tensor_data").mkdir(exist_ok=True)
        assert list((folder / "dump_tensor_data").iterdir()) == []
        (folder / "dump_tensor_data" / "a.pt").touch()
        assert not (folder / "dump.json").exists(), "nothing of the run before may be taken for this one"
        assert len(layout.journals(folder)) == 1
        writer.publish(final=True)
        assert writer.folder == folder


def test_one_of_many_that_come_at_once_gets_the_folder(folder: Path) -> None:
    start = time.monotonic() + 0.3
    written, all_have_written = os.pipe(), os.pipe()
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            os.close(all_have_written[1])
            time.sleep(max(0.0, start - time.monotonic()))
            writer = DumpWriter(folder, HEADER)
            writer.put("a", os.getpid())
            os.write(written[1], b".")
            os.read(all_have_written[0], 1)  # who comes late must find the owner alive
            os._exit(0 if writer.folder == folder else 3)
        children.append(child)
    os.close(written[1])
    for _ in children:
        os.read(written[0], 1)
    os.close(all_have_written[1])
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    os.close(written[0])
    os.close(all_have_written[0])
    assert codes == [0] + [3] * 7
    assert len(list(folder.parent.iterdir())) == 8


def old_dump(folder: Path) -> list[str]:
    (folder / "dump_tensor_data").mkdir(parents=True)
    ours = [
        "dump.json",
        "stack.json",
        "construct.json",
        "debug.json",
        "dump_error_info.log",
        "dump-1-0.journal",
        "debug-77-3.journal",
        ".msprobe-12-3.tmp",
        "dump_tensor_data/a.pt",
    ]
    for name in [*ours, "notes.txt", "my-dump.journal"]:
        (folder / name).write_text("{}")
    return ours


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_old_files_are_removed_and_nothing_else(folder: Path) -> None:
    old_dump(folder)
    (folder / "subfolder").mkdir()
    (folder / "subfolder" / "dump.json").write_text("{}")
    write_one(folder)
    assert files(folder) == {
        *("dump.json", "stack.json", "construct.json", "notes.txt", "my-dump.journal", "subfolder/dump.json")
    }


def test_overwriting_leaves_old_tensors_and_nothing_that_could_be_taken_for_new(folder: Path) -> None:
    old_dump(folder)
    writer = DumpWriter(folder, HEADER, existing="overwrite")
    writer.put("a", 1)
    writer.publish(final=True)
    durable.drain()
    assert files(folder) == {
        *(
            "dump.json",
            "stack.json",
            "construct.json",
            "notes.txt",
            "my-dump.journal",
            "dump_tensor_data/a.pt",
        )
    }


def test_refusing_leaves_everything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = old_dump(folder)
    before = files(folder)
    writer = DumpWriter(folder, HEADER, existing="refuse")
    writer.put("a", 1)
    writer.publish(final=True)
    assert writer.failed
    assert files(folder) == before
    said = capsys.readouterr().out
    assert mentions(said, "dump-exists", found=len(ours))
    assert mentions(said, "dump-refused")
    assert "incomplete" not in said


def test_old_dumps_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "step3" / "rank1"
    old_dump(folder)
    before = files(folder)
    with pytest.raises(PathError, match='"existing" is "refuse"'):
        ownership.refuse_old_dumps(tmp_path, 1, lambda step: True)
    ownership.refuse_old_dumps(tmp_path, 1, lambda step: step < 3)
    ownership.refuse_old_dumps(tmp_path, 0, lambda step: True)
    ownership.refuse_old_dumps(tmp_path / "none", 1, lambda step: True)
    assert files(folder) == before


def test_cleaning_follows_no_link(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.pt").write_text("precious")
    (elsewhere / "dump.json").write_text("precious")
    folder.mkdir(parents=True)
    (folder / "dump_tensor_data").symlink_to(elsewhere)
    (folder / "dump.json").symlink_to(elsewhere / "dump.json")
    write_one(folder)
    assert (elsewhere / "a.pt").read_text() == "precious"
    assert (elsewhere / "dump.json").read_text() == "precious"
    assert not (folder / "dump.json").is_symlink()


def test_a_linked_folder_is_not_cleaned(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = tmp_path / "elsewhere"
    old_dump(elsewhere)
    before = files(elsewhere)
    folder.parent.mkdir()
    folder.symlink_to(elsewhere)
    writer = DumpWriter(folder, HEADER)
    writer.put("a", 1)
    assert writer.failed
    assert files(elsewhere) == before
    assert mentions(capsys.readouterr().out, "dump-folder-is-link")


def test_a_file_in_place_of_the_folder_is_one_clear_error(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("")
    with raising(PathError, "parent-is-no-folder"):
        ownership.claim(folder, "clean", lambda _: pytest.fail("there is no folder to begin a journal in"))


def test_names_of_folders() -> None:
    assert layout.rank_folder(layout.step_folder("dump", 3), 12) == Path("dump/step3/rank12")
    assert layout.rank_folder(layout.step_folder("dump", 0), None) == Path("dump/step0/rank")
    assert layout.process_folder("step1") == Path(f"step1/proc{os.getpid()}")
