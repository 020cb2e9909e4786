"""Whatever lies in the folder of an online check: only frames are read, and marks of strangers end nothing."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import raising

from hostile.receiver import BEGIN, RECORD, frame
from msprobe.errors import PathError
from msprobe.precheck.online.frames import WireFrame
from msprobe.precheck.online.shared_folder import FolderReceiver, FolderSender
from msprobe.precheck.online.spool import ReceivedStep, Spool
from msprobe.store import processes

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes and links as POSIX has them")

CALL = b'{"input_args": [], "input_kwargs": {}, "output": []}'


def honest(folder: Path) -> None:
    """A rank that sends one step and says that no more comes."""
    sender = FolderSender(str(folder))
    for what, data, content in (("begin", b"", BEGIN), ("record", CALL, RECORD), ("end", b"", {"is_complete": True})):
        sender.send(WireFrame(what, 0, 0, content, data))
    sender.close()


def checked(tmp_path: Path, attack: Callable[[Path], object]) -> list[ReceivedStep]:
    """The steps that a check takes out of a folder in which a stranger is at work before and while a rank sends."""
    shared = tmp_path / "shared"
    shared.mkdir()
    attack(shared)
    found: list[ReceivedStep] = []
    receiver = FolderReceiver(str(shared))
    spool = Spool(tmp_path / "spool", refuse=receiver.refuse)
    thread = threading.Thread(target=lambda: found.extend(spool.steps(receiver.frames())), daemon=True)
    thread.start()
    thread.join(1)
    assert thread.is_alive(), "the check has ended before its rank came"
    honest(shared)
    thread.join(60)
    assert not thread.is_alive(), "the check has not ended"
    return found


def sign(rank: Any = 5, **more: Any) -> str:
    return json.dumps({"rank": rank, "process": {**processes.this_process().as_dict(), **more}})


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def link(path: Path, text: str) -> None:
    (path.parent / "secret").write_text(text)
    path.symlink_to(path.parent / "secret")


FRAME = frame("begin", 10, step=3, rank=5, **BEGIN)
ATTACKS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda shared: None,
    "a pipe for a frame": lambda shared: os.mkfifo(shared / "rank0_10.frame"),
    "a folder for a frame": lambda shared: (shared / "rank0_10.frame").mkdir(),
    "a link for a frame": lambda shared: link(shared / "rank0_10.frame", "x"),
    "a link to nothing": lambda shared: (shared / "rank0_10.frame").symlink_to(shared / "none"),
    "a device for a frame": lambda shared: (shared / "rank0_10.frame").symlink_to("/dev/zero"),
    "a huge file": lambda shared: huge(shared / "rank0_10.frame"),
    "half a frame": lambda shared: (shared / "rank5_10.frame").write_bytes(FRAME[:-9]),
    "more than a frame": lambda shared: (shared / "rank5_10.frame").write_bytes(FRAME + b"x"),
    "a frame under the name of a different rank": lambda shared: (shared / "rank0_10.frame").write_bytes(FRAME),
    "a frame with a different number": lambda shared: (shared / "rank5_11.frame").write_bytes(FRAME),
    "a number of 20 digits": lambda shared: (shared / f"rank0_{'9' * 20}.frame").write_bytes(b"no frame"),
    "names that are none": lambda shared: [(shared / name).write_text("") for name in ("rank_1.frame", "rank1_.frame")],
    "ends of nobody": lambda shared: [(shared / f"end_1_{n}").write_text("") for n in range(5)],
    "an end and a beginning": lambda shared: [
        (shared / "start_1_5").write_text(sign()),
        (shared / "end_1_5").write_text(""),
    ],
    "an end, a beginning and a frame that is none": lambda shared: [
        (shared / "start_1_5").write_text(sign()),
        (shared / "rank5_10.frame").write_bytes(b"no frame"),
        (shared / "end_1_5").write_text(""),
    ],
    "a folder for an end": lambda shared: (shared / "end_1_5").mkdir(),
    "a pipe for a sign of life": lambda shared: os.mkfifo(shared / "start_1_5"),
    "a link for a sign of life": lambda shared: link(shared / "start_1_5", sign()),
    "a sign that is nested deep": lambda shared: (shared / "start_1_5").write_text("[" * 4000),
    "a sign of 5000 digits": lambda shared: (shared / "start_1_5").write_text("1" * 4096),
    "a sign of no rank": lambda shared: (shared / "start_1_5").write_text(sign(10**30)),
    "a sign of a list": lambda shared: (shared / "start_1_5").write_text("[1]"),
    "a sign of a process that is none": lambda shared: (shared / "start_1_5").write_text(sign(pid=10**30)),
    "a sign of a group of processes": lambda shared: (shared / "start_1_5").write_text(sign(pid=-1)),
    "a sign of a dead process": lambda shared: (shared / "start_1_5").write_text(sign(started=1)),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_whatever_lies_there_an_honest_step_is_taken(tmp_path: Path, name: str) -> None:
    steps = checked(tmp_path, ATTACKS[name])
    assert [(one.rank, one.step, one.is_whole) for one in steps if not one.rank] == [(0, 0, True)]
    data = json.loads((steps[-1].folder / "dump.json").read_text())["data"]
    assert list(data) == ["Functional.relu.0.forward"]


def test_a_link_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    checked(tmp_path, lambda shared: link(shared / "rank0_10.frame", "of somebody"))
    assert (tmp_path / "shared" / "secret").read_text() == "of somebody"
    assert not (tmp_path / "shared" / "rank0_10.frame").is_symlink()


def test_of_what_was_not_kept_the_rank_hears(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "spool").write_bytes(b"")  # where a folder should be
    receiver = FolderReceiver(str(tmp_path / "shared"), idle=0.5)
    sender = FolderSender(str(tmp_path / "shared"))
    sender.send(WireFrame("begin", 0, 0, BEGIN))
    sender.send(WireFrame("record", 0, 0, RECORD, CALL))
    list(Spool(tmp_path / "spool", refuse=receiver.refuse).steps(receiver.frames()))
    with raising(PathError, "nfs-path-not-kept"):
        sender.send(WireFrame("end", 0, 0, {"is_complete": True}))
    assert not list((tmp_path / "shared").glob("refused_*"))


def test_a_folder_that_vanishes_ends_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    receiver = FolderReceiver(str(tmp_path / "shared"))
    (tmp_path / "shared").rmdir()
    with raising(PathError, "nfs-path-unreadable"):
        next(receiver.frames())
