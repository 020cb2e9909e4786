"""Disks that are full, read-only, gone: the training goes on, says so once; what was written is readable."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.coded_texts import mentions
from support.mounted import mounted, small_disk_of

from msprobe import log
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStacks
from msprobe.cli import main
from msprobe.config.settings import Settings
from msprobe.messages import said
from msprobe.store import durable, journal
from msprobe.store.reader import open_dump
from msprobe.store.tensor_files import TensorFileWriter
from msprobe.store.writer import DumpWriter

NO_SPACE = os.strerror(errno.ENOSPC).lower()

HEADER: dict[str, object] = {
    "task": "statistics",
    "level": "L1",
    "framework": "pytorch",
    "dump_data_dir": None,
}
RECORD = {"input_args": [{"type": "torch.Tensor", "Max": 1.0, "text": "x" * 500}]}


class Payload:
    dtype_name = "float32"
    shape = (100, 100)
    data = memoryview(np.ones((100, 100), np.float32))


@pytest.fixture(autouse=True)
def _speaks_again() -> Iterator[None]:
    log.forget_once()
    yield
    durable.drain()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    with small_disk_of("1m", tmp_path / "disk") as place:
        yield place


@pytest.fixture
def small_overlay(small_disk: Path, tmp_path: Path) -> Iterator[Path]:
    """The file system of a container, on a disk of one megabyte."""
    for name in ("lower", "upper", "work"):
        (small_disk / name).mkdir()
    options = f"lowerdir={small_disk}/lower,upperdir={small_disk}/upper,workdir={small_disk}/work"
    with mounted(tmp_path / "container", "-t", "overlay", "-o", options, "overlay") as place:
        yield place


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if "[ERROR]" in line]


def train(folder: Path, records: int = 5000) -> DumpWriter:
    """What a training does to its writer; nothing of it may raise."""
    writer = DumpWriter(folder, HEADER)
    writer.define_stack(0, ["frame"])
    for number in range(records):
        name = f"Torch.add.{number}.forward"
        writer.put(name, RECORD)
        writer.put_stack(name, 0)
        writer.put_parent(name, None)
        if number % 1000 == 500:
            writer.publish(final=False)
    writer.error("something else went wrong")
    writer.publish(final=False)
    writer.publish(final=True)
    return writer


def check_incomplete(folder: Path, at_least: int) -> None:
    """What reached the disk is there, in order, unchanged, and says that it is not all."""
    part = open_dump(folder).part()
    assert not part.complete
    names = part.names()
    assert names == [f"Torch.add.{number}.forward" for number in range(len(names))]
    assert len(names) >= at_least
    assert all(record == RECORD for _, record in part.records())


@pytest.mark.parametrize("mapped", [True, False])
def test_a_full_disk(
    small_disk: Path, mapped: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not mapped:
        monkeypatch.setattr(journal, "_can_be_mapped", lambda _: False)
    writer = train(small_disk / "step0" / "rank")
    assert writer.failed
    (error,) = errors(capsys)
    assert NO_SPACE in error
    assert mentions(error, "tensor-files-failed") or mentions(error, "dump-failed") or mentions(error, "dump-refused")
    check_incomplete(small_disk / "step0" / "rank", at_least=500)


@pytest.mark.parametrize("mapped", [True, False])
def test_the_last_line_on_a_full_disk_says_what_summary_finds(
    small_disk: Path, mapped: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not mapped:
        monkeypatch.setattr(journal, "_can_be_mapped", lambda _: False)
    stacks = CallStacks(lambda file: False, lambda code: False, lambda code: False)
    session = Session(Settings(dump_path=str(small_disk / "dump")), "pytorch", lambda: None, stacks)
    for _ in range(6):
        session.start()
        for number in range(600):
            session.put(f"Torch.add.{number}.forward", RECORD)
        session.stop()
        session.next_step()
    session.close()
    durable.drain()
    last = capsys.readouterr().out.splitlines()[-1]
    assert "[WARNING]" in last
    found = re.search(
        r"\": (\d) steps? \((.*?)\), (\d+) records; steps? ([^;]*) failed, (\d+) records of it can be read"
        r"(; steps? ([^;]*) failed, nothing of it can be read)? \(an error above says why\)\.",
        last,
    )
    assert found, last
    assert main(["summary", str(small_disk / "dump")]) == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if line.strip()[:1].isdigit()]
    numbers = [int(row[2]) for row in rows]
    whole = int(found[1])
    assert int(found[3]) == sum(numbers[:whole]) == 600 * whole
    assert found[6], "steps of which nothing is there are told, and summary has no line for them"
    assert all(numbers)
    assert int(found[5]) == sum(numbers[whole:]) > 0
    assert shown.count(said("part-interrupted")) == len(numbers) - whole
    assert main(["check", str(small_disk / "dump")]) in (0, 1)


def test_a_full_disk_below_a_container(small_overlay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of ours there is mapped memory: where the layer copies what is written, a full disk ends no process."""
    writer = DumpWriter(small_overlay / "step1" / "rank", HEADER)
    writer.put("a", 1)
    assert isinstance(writer._journal, journal.PlainJournal)
    writer.publish(final=True)
    durable.drain()
    writer = train(small_overlay / "step0" / "rank")
    assert writer.failed
    (error,) = errors(capsys)
    assert NO_SPACE in error
    check_incomplete(small_overlay / "step0" / "rank", at_least=500)


def test_a_full_disk_under_tensor_files(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = small_disk / "dump_tensor_data"
    writer = TensorFileWriter(folder)
    for number in range(100):
        writer.save(f"{number}.pt", Payload())
        writer.link(f"{number}.link.pt", f"{number}.pt")
    writer.close()
    assert writer.failed
    (error,) = errors(capsys)
    assert NO_SPACE in error
    from msprobe.store.values import read_pt

    whole = sorted(folder.iterdir())
    assert 10 < len(whole) < 60
    assert all((read_pt(path).array == 1).all() for path in whole), "only whole files have a name"


def test_a_limit_on_file_size(tmp_path: Path) -> None:
    """As a quota does it: the write fails with an error of its own."""
    program = """
import resource, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2], str(Path(sys.argv[2]).parent)]
import test_disk_failures as t
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
writer = t.train(Path(sys.argv[1]))
assert writer.failed
files = t.TensorFileWriter(Path(sys.argv[1]) / "tensors")
class Large(t.Payload):
    shape = (1000, 1000)
    data = memoryview(t.np.ones((1000, 1000), t.np.float32))
files.save("large.pt", Large())
files.close()
assert files.failed
print("training done")
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "rank"), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.rstrip().endswith("training done")
    assert run.stdout.count("[ERROR]") == 2, run.stdout
    assert "file too large" in run.stdout
    check_incomplete(tmp_path / "rank", at_least=500)


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    read_only = tmp_path / "read_only"
    read_only.mkdir()
    (tmp_path / "out").mkdir()
    read_only.chmod(0o555)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o011)

    def as_nobody() -> None:
        writer = train(read_only / "step0" / "rank")
        assert writer.failed
        files = TensorFileWriter(read_only / "step0" / "rank" / "dump_tensor_data")
        files.save("a.pt", Payload())
        files.close()
        assert files.failed

    assert in_a_child(as_nobody, user=65534 if os.getuid() == 0 else None) == 0
    assert list(read_only.iterdir()) == []


def in_a_child(work: Callable[[], None], user: int | None) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if user is not None:
                os.setuid(user)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_file_in_place_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "step0").write_text("")
    writer = train(tmp_path / "step0" / "rank")
    assert writer.failed
    (error,) = errors(capsys)
    assert mentions(error, "parent-is-no-folder")


def test_a_folder_that_is_removed_while_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "step0" / "rank"
    writer = DumpWriter(folder, HEADER)
    files = TensorFileWriter(folder / "dump_tensor_data")
    writer.put("a", 1)
    files.save("a.pt", Payload())
    files.flush()
    shutil.rmtree(tmp_path / "step0")
    writer.put("b", 1)
    files.save("b.pt", Payload())
    files.close()
    writer.publish(final=False)
    writer.publish(final=True)
    assert writer.failed
    assert files.failed
    assert len(errors(capsys)) == 2


def test_the_next_step_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "step0").write_text("")
    assert train(tmp_path / "step0" / "rank", 10).failed
    assert not train(tmp_path / "step1" / "rank", 10).failed
    assert len(errors(capsys)) == 1
    assert open_dump(tmp_path / "step1").part().complete


def test_the_same_failure_in_every_step_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in range(5):
        (tmp_path / f"step{step}").write_text("")
        assert train(tmp_path / f"step{step}" / "rank", 10).failed
    assert len(errors(capsys)) == 1
