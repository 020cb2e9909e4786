from __future__ import annotations

import os
import time
from pathlib import Path

from msprobe.store import locks


def test_a_held_file_is_seen_as_held_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    assert locks.is_held(path) is False
    locks.hold(descriptor)
    assert locks.is_held(path) is True
    assert locks.is_held(path) is True, "looking takes nothing away"
    path.read_bytes()
    assert locks.is_held(path) is True, "nor does reading it in the same process"
    os.close(descriptor)
    assert locks.is_held(path) is False


def test_a_child_that_closes_the_file_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "j", os.O_RDWR | os.O_CREAT)
    locks.hold(descriptor)
    child = os.fork()
    if child == 0:
        os.close(descriptor)
        os._exit(0 if locks.is_held(tmp_path / "j") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert locks.is_held(tmp_path / "j")
    os.close(descriptor)


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        locks.hold(os.open(tmp_path / "j", os.O_RDWR | os.O_CREAT))
        os.write(tell, b"x")
        time.sleep(60)
        os._exit(1)
    os.read(told, 1)
    assert locks.is_held(tmp_path / "j") is True
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert locks.is_held(tmp_path / "j") is False


def test_of_a_file_that_cannot_be_opened_nothing_is_known(tmp_path: Path) -> None:
    assert locks.is_held(tmp_path / "none") is None
