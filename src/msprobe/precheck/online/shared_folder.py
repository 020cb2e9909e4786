"""Frames through a folder that both sides see: a file for each, there at once and whole, and gone when read.

Each sender has a file ``start_NUMBERS``, its sign of life (:mod:`life`), and at its end one ``end_NUMBERS``. What could
not be kept of it is said in ``refused_NAME``, which the sender removes when it has read it.

Whoever may write into the folder may put anything there: only regular files are read, links are not followed, and marks
count for senders of which frames have come.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from msprobe import log
from msprobe.errors import MsprobeError, PathError
from msprobe.foreign.opening import open_regular
from msprobe.messages import said
from msprobe.paths import write_atomically
from msprobe.precheck.online import frames
from msprobe.precheck.online.frames import FrameError, WireFrame
from msprobe.precheck.online.life import Life, leave_sign

_FILE = re.compile(r"rank(\d{1,9})_(\d{1,20})\.frame")
_MARK = re.compile(r"(start|end)_(\d{1,20}_\d{1,20})")
_MOST_REASON_BYTES = 500
#: How often a receiver looks whether the senders live, in seconds.
_LOOK = 1.0
# Who sends records at this moment, while enough others have ended, is waited for until it is silent for so long.
_GRACE_SECONDS = 20.0
# So many lines of the log are about files that are no frames.
_MOST_LINES = 100


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
        # By this the other side knows the frames of this sender from those of all others, whatever rank they name.
        self._name = secrets.token_hex(16)
        self._own: set[str] = set()
        if not self._folder.is_dir():
            raise PathError(said("nfs-path-is-no-folder", folder))
        self._has_begun = False

    def send(self, frame: WireFrame) -> None:
        """Write one frame. Raises PathError if it cannot be written, nobody reads, or an earlier one was not kept."""
        if frame.what in ("begin", "end"):
            self._look_for_refusal()
        if not self._has_begun:
            self._has_begun = True
            leave_sign(self._folder / f"start_{self._mark}", frame.rank)
        until = time.monotonic() + self._patience
        while len(self._own) >= self._most:
            self._own.intersection_update(os.listdir(self._folder))
            if len(self._own) < self._most:
                break
            if time.monotonic() > until:
                raise PathError(said("nfs-path-without-reader", self._folder))
            time.sleep(0.02)
        self._sequence += 1
        name = f"rank{frame.rank}_{self._sequence:020d}.frame"
        self._own.add(name)
        write_atomically(self._folder / name, map(bytes, self._packed(frame)), fsync=False)

    def _packed(self, frame: WireFrame) -> list[frames.Data]:
        return frames.pack(frame, self._sequence, self._name)

    def _look_for_refusal(self) -> None:
        path = self._folder / f"refused_{self._name}"
        with contextlib.suppress(FileNotFoundError), open_regular(path, follow_links=False) as file:
            reason = file.read(_MOST_REASON_BYTES).decode("utf-8", "replace")
            path.unlink(missing_ok=True)
            raise PathError(said("nfs-path-not-kept", self._folder, reason))

    def close(self) -> None:
        """Say that no more comes."""
        write_atomically(self._folder / f"end_{self._mark}", b"", fsync=False)


class FolderReceiver:
    """The other end: reads what ranks have written, each rank's in its order, and removes it.

    It is over when ``senders`` ranks of which frames have come have ended or died, or when nothing has come for
    ``idle`` seconds. ``ranks``: those that are wanted; empty for all.
    """

    def __init__(self, folder: str, senders: int = 1, idle: float = 600.0, ranks: Collection[int] = ()) -> None:
        self._folder = Path(folder)
        self._senders = min(senders, len(ranks)) if ranks else senders
        self._idle = idle
        # What cannot be removed is not read again.
        self._unremovable: set[str] = set()
        self._lines = 0
        if not self._folder.is_dir():
            raise PathError(said("nfs-path-is-no-folder", folder))
        self._crowd = _Crowd(self._folder, ranks)
        names = self._names()
        self._crowd.see(names)
        self._crowd.look(any(map(_FILE.fullmatch, names)))

    def frames(self) -> Iterator[WireFrame]:
        """All frames, until so many ranks have ended or died. Raises PathError if the folder can be read no more."""
        last = looked = time.monotonic()
        crowd = self._crowd
        while True:
            names = self._names()
            files = sorted(
                (name for name in names if _FILE.fullmatch(name) and name not in self._unremovable), key=_order
            )
            crowd.see(names)
            for name in files:
                frame = self._take(name)
                if frame is not None:
                    crowd.hear(*_order(name))
                    yield frame
                    last = time.monotonic()
            if time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                crowd.look(bool(files))
            if not files and crowd.gone >= self._senders and not crowd.is_busy:
                crowd.sweep()
                return
            if time.monotonic() - last > self._idle:
                log.warning(said("online-nothing-comes", self._idle))
                return
            if not files:
                time.sleep(0.05)

    def refuse(self, sender: str, why: str, is_of_disk: bool) -> None:
        """Say that a frame of ``sender`` cannot be kept, as it is none, or as the disk does not take it."""
        if sender:
            with contextlib.suppress(PathError):
                text = why.encode("utf-8", "backslashreplace")[:_MOST_REASON_BYTES]
                write_atomically(self._folder / f"refused_{sender}", text, fsync=False)

    def close(self) -> None:
        """Nothing is held."""

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._folder))
        except OSError as error:
            raise PathError(said("nfs-path-unreadable", self._folder, error.strerror)) from error

    def _take(self, name: str) -> WireFrame | None:
        path = self._folder / name
        frame = None
        try:
            with open_regular(path, follow_links=False) as file:
                frame, sequence = frames.unpack(lambda length: _exactly(file, length))
                is_more = bool(file.read(1))
            if is_more or (sequence, frame.rank) != _order(name):
                frame = None
                raise FrameError(said("frame-of-different-file"))
        except (FrameError, EOFError, OSError, MemoryError, MsprobeError) as error:
            self._complain(said("online-file-is-no-frame", name, self._folder, _reason(error)))
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._unremovable.add(name)
            self._complain(said("online-file-not-removed", name, self._folder, error.strerror))
        return frame

    def _complain(self, text: str) -> None:
        self._lines += 1
        if self._lines <= _MOST_LINES:
            log.warning(text)
        if self._lines == _MOST_LINES:
            log.warning(said("online-files-not-named"))


class _Crowd:
    """The senders of a folder, by their marks."""

    def __init__(self, folder: Path, ranks: Collection[int]) -> None:
        self._folder = folder
        self._ranks = frozenset(ranks)
        self._ended: set[str] = set()
        self._dead: set[str] = set()
        # None: the file is no sign of life.
        self._lives: dict[str, Life | None] = {}
        # Those of which frames were taken, and when the last one came.
        self._last_signs: dict[str, float] = {}
        self._had_frames = False

    @property
    def gone(self) -> int:
        """How many ranks of which frames have come have ended or died, with all that sent for them."""
        all_gone: dict[int, bool] = {}
        for mark in self._last_signs:
            life = self._lives.get(mark)
            if life and (not self._ranks or life.rank in self._ranks):
                all_gone[life.rank] = all_gone.get(life.rank, True) and self._is_gone(mark)
        return sum(all_gone.values())

    @property
    def is_busy(self) -> bool:
        """True while one that lives has sent a frame a moment ago."""
        now = time.monotonic()
        return any(now - last < _GRACE_SECONDS and not self._is_gone(mark) for mark, last in self._last_signs.items())

    def _is_gone(self, mark: str) -> bool:
        return mark in self._ended or mark in self._dead

    def see(self, names: Sequence[str]) -> None:
        """Take notice of what there is."""
        for mark in filter(None, map(_MARK.fullmatch, names)):
            if mark[1] == "end":
                self._ended.add(mark[2])
            elif mark[2] not in self._lives:
                try:
                    self._lives[mark[2]] = Life(self._folder / mark[0])
                except (OSError, ValueError, KeyError, TypeError, MsprobeError):
                    self._lives[mark[2]] = None

    def hear(self, sequence: int, rank: int) -> None:
        """A frame was taken. It is of the last sender of its rank that began before it was numbered."""
        self._had_frames = True
        began = [mark for mark, life in self._lives.items() if life and life.rank == rank]
        earlier = [mark for mark in began if _beginning(mark) < sequence]
        if earlier:
            self._last_signs[max(earlier, key=_beginning)] = time.monotonic()

    def look(self, are_frames_waiting: bool) -> None:
        """Name once each that has died, and one that lives after all. What an earlier run has left is removed."""
        self._had_frames |= are_frames_waiting
        for mark, life in list(self._lives.items()):
            if mark in self._ended:
                continue
            why = life.end() if life else ""
            if life and why and not life.was_alive and mark not in self._last_signs:
                if are_frames_waiting:
                    continue  # they may be of this one
                log.info(said("rank-of-earlier-run", life.rank, why))
                self.sweep({mark})
            elif life and why and mark not in self._dead:
                self._dead.add(mark)
                log.warning(said("rank-died", life.rank, why))
            elif life and not why and mark in self._dead:
                self._dead.discard(mark)
                log.warning(said("rank-is-back", life.rank))
        # Nobody has begun or left anything but the marks of a run that is over.
        if self._ended and not set(self._lives) - self._ended and not self._had_frames:
            log.info(said("marks-of-earlier-run-removed", self._folder, len(self._ended)))
            self.sweep(self._ended)
            self._ended = set()

    def sweep(self, marks: Collection[str] | None = None) -> None:
        """Remove marks, by default of all that have ended or died."""
        for mark in list(self._ended | self._dead if marks is None else marks):
            self._lives.pop(mark, None)
            for word in ("start", "end"):
                with contextlib.suppress(OSError):
                    (self._folder / f"{word}_{mark}").unlink(missing_ok=True)


def _reason(error: BaseException) -> str:
    return error.message if isinstance(error, MsprobeError) else str(error) or type(error).__name__


def _beginning(mark: str) -> int:
    return int(mark.partition("_")[2])


def _order(name: str) -> tuple[int, int]:
    match = _FILE.fullmatch(name)
    assert match is not None
    return int(match[2]), int(match[1])


def _exactly(file: BinaryIO, length: int) -> bytes:
    remaining = os.fstat(file.fileno()).st_size - file.tell()
    data = file.read(length) if length <= remaining else b""
    if len(data) < length:
        raise EOFError(said("bytes-missing", len(data) or remaining, length))
    return data
