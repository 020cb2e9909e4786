"""Frames through a folder that both sides see: a file for each, there at once and whole, and gone when read.

Each sender has a file ``start_NUMBERS``, its sign of life (:mod:`life`), and at its end one ``end_NUMBERS``.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msprobe import log
from msprobe.errors import PathError
from msprobe.paths import write_atomically
from msprobe.precheck.online import frames
from msprobe.precheck.online.frames import Frame, FrameError
from msprobe.precheck.online.life import Life, leave_sign

_FILE = re.compile(r"rank(\d{1,9})_(\d{1,20})\.frame")
_MARK = re.compile(r"(start|end)_(\d{1,20}_\d{1,20})")
#: How often a receiver looks whether the senders live, in seconds.
_LOOK = 1.0


class FolderSender:
    """The training's end: writes files. ``most``: it waits while so many have not been read.

    ``patience``: seconds to wait then. Raises PathError if the folder cannot be written to.
    """

    def __init__(self, folder: str, most: int = 200, patience: float = 60.0) -> None:
        self._folder = Path(folder)
        self._most = most
        self._patience = patience
        # Greater than that of any sender before.
        self._sequence = time.time_ns()
        self._mark = f"{os.getpid()}_{self._sequence}"
        self._own: set[str] = set()
        if not self._folder.is_dir():
            raise PathError(f'nfs_path: "{folder}" is no folder.')
        self._has_begun = False

    def send(self, frame: Frame) -> None:
        """Write one frame. Raises PathError if it cannot be written, or nobody reads."""
        if not self._has_begun:
            self._has_begun = True
            leave_sign(self._folder / f"start_{self._mark}", frame.rank)
        until = time.monotonic() + self._patience
        while len(self._own) >= self._most:
            self._own.intersection_update(os.listdir(self._folder))
            if len(self._own) < self._most:
                break
            if time.monotonic() > until:
                raise PathError(f'nfs_path: nobody reads what is in "{self._folder}".')
            time.sleep(0.02)
        self._sequence += 1
        name = f"rank{frame.rank}_{self._sequence:020d}.frame"
        self._own.add(name)
        write_atomically(self._folder / name, map(bytes, frames.pack(frame, self._sequence)), fsync=False)

    def close(self) -> None:
        """Say that no more comes."""
        write_atomically(self._folder / f"end_{self._mark}", b"", fsync=False)


class FolderReceiver:
    """The other end: reads what ranks have written, each rank's in its order, and removes it.

    It is over when ``senders`` ranks have ended or died, or when nothing has come for ``idle`` seconds.
    """

    def __init__(self, folder: str, senders: int = 1, idle: float = 600.0) -> None:
        self._folder = Path(folder)
        self._senders = senders
        self._idle = idle
        if not self._folder.is_dir():
            raise PathError(f'nfs_path: "{folder}" is no folder.')
        self._crowd = _Crowd(self._folder)
        self._crowd.see(os.listdir(folder))
        self._crowd.look()

    def frames(self) -> Iterator[Frame]:
        """All frames, until so many ranks have ended or died."""
        last = looked = time.monotonic()
        crowd = self._crowd
        while True:
            names = sorted(os.listdir(self._folder))
            found = sorted((name for name in names if _FILE.fullmatch(name)), key=_order)
            crowd.see(names)
            for name in found:
                frame = self._take(name)
                last = time.monotonic()
                if frame is not None:
                    yield frame
                    last = time.monotonic()
            if time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                crowd.look()
            if not found and crowd.gone >= self._senders:
                crowd.sweep()
                return
            if time.monotonic() - last > self._idle:
                log.warning(f"nothing has come for {self._idle:g} seconds: the check ends with what is there.")
                return
            if not found:
                time.sleep(0.05)

    def close(self) -> None:
        """Nothing is held."""

    def _take(self, name: str) -> Frame | None:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                frame, _ = frames.unpack(lambda length: _exactly(file, length))
        except (FrameError, EOFError, OSError) as error:
            log.warning(f'"{name}" in "{self._folder}" is no frame and is left out: {error}')
            frame = None
        path.unlink(missing_ok=True)
        return frame


class _Crowd:
    """The senders of a folder, by their marks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ended: set[str] = set()
        self._dead: set[str] = set()
        # Those that have not ended; None: the file is no sign of life.
        self._lives: dict[str, Life | None] = {}
        # Those of which frames were there.
        self._heard: set[str] = set()
        self._had_frames = False

    @property
    def gone(self) -> int:
        """How many have ended or died."""
        return len(self._ended | self._dead)

    def see(self, names: Sequence[str]) -> None:
        """Take notice of what there is."""
        for mark in filter(None, map(_MARK.fullmatch, names)):
            if mark[1] == "end":
                self._ended.add(mark[2])
                self._lives.pop(mark[2], None)
            elif mark[2] not in self._ended and mark[2] not in self._lives:
                try:
                    self._lives[mark[2]] = Life(self._folder / mark[0])
                except (OSError, ValueError, KeyError, TypeError):
                    self._lives[mark[2]] = None
        numbers = [_order(name) for name in names if _FILE.fullmatch(name)]
        self._had_frames |= bool(numbers)
        silent = {life.rank for mark, life in self._lives.items() if life and mark not in self._heard}
        for sequence, rank in numbers:
            if rank in silent:
                # It is of the last sender of this rank that began before it was numbered.
                began = [mark for mark, life in self._lives.items() if life and life.rank == rank]
                earlier = [mark for mark in began if _beginning(mark) < sequence]
                self._heard.update(sorted(earlier, key=_beginning)[-1:])

    def look(self) -> None:
        """Tell once of each that has died, and of one that lives after all. What an earlier run has left is removed."""
        for mark, life in list(self._lives.items()):
            why = life.end() if life else ""
            if life and why and not life.was_alive and mark not in self._heard:
                log.info(f"online check: rank {life.rank} of an earlier run ({why}) is not waited for.")
                self.sweep({mark})
            elif life and why and mark not in self._dead:
                self._dead.add(mark)
                log.warning(f"online check: rank {life.rank} has died: {why}. What came of it until then is judged.")
            elif life and not why and mark in self._dead:
                self._dead.discard(mark)
                log.warning(f"online check: rank {life.rank} gives signs of life again.")
        # Nobody has begun or left anything but the marks of a run that is over.
        if self._ended and not self._lives and not self._had_frames:
            log.info(
                f'online check: "{self._folder}" has the marks of {len(self._ended)} ranks of an earlier run; removed.'
            )
            self.sweep(self._ended)
            self._ended = set()

    def sweep(self, marks: Collection[str] | None = None) -> None:
        """Remove marks, by default of all that have ended or died."""
        for one in self._ended | self._dead if marks is None else marks:
            self._lives.pop(one, None)
            for word in ("start", "end"):
                (self._folder / f"{word}_{one}").unlink(missing_ok=True)


def _beginning(mark: str) -> int:
    return int(mark.partition("_")[2])


def _order(name: str) -> tuple[int, int]:
    match = _FILE.fullmatch(name)
    assert match is not None
    return int(match[2]), int(match[1])


def _exactly(file: io.BufferedReader, length: int) -> bytes:
    found = file.read(length)
    if len(found) < length:
        raise EOFError(f"{len(found)} of {length} bytes are there")
    return found
