"""Frames through a folder that both sides see: a file for each, there at once and whole, and gone when read."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from msprobe import log
from msprobe.errors import PathError
from msprobe.paths import write_atomically
from msprobe.precheck.online import frames
from msprobe.precheck.online.frames import Frame, FrameError

_FILE = re.compile(r"rank(\d{1,9})_(\d{1,20})\.frame")
_MARK = re.compile(r"(start|end)_(\d{1,20}_\d{1,20})")


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
        write_atomically(self._folder / f"start_{self._mark}", b"", fsync=False)

    def send(self, frame: Frame) -> None:
        """Write one frame. Raises PathError if it cannot be written, or nobody reads."""
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

    ``idle``: it is over when nothing has come for so many seconds, or when each rank that began has ended.
    """

    def __init__(self, folder: str, senders: int = 1, idle: float = 600.0) -> None:
        self._folder = Path(folder)
        self._senders = senders
        self._idle = idle
        if not self._folder.is_dir():
            raise PathError(f'nfs_path: "{folder}" is no folder.')
        self._forget_old()

    def _forget_old(self) -> None:
        """Remove the marks of ranks that ended before, and whose frames have been read, so that they do not count."""
        names = os.listdir(self._folder)
        marks = [mark for name in names if (mark := _MARK.fullmatch(name))]
        began, ended = ({mark[2] for mark in marks if mark[1] == word} for word in ("start", "end"))
        if ended and began <= ended and not any(map(_FILE.fullmatch, names)):
            log.info(f'online check: "{self._folder}" has the marks of {len(ended)} ranks of an earlier run; removed.')
            self._sweep(ended)

    def frames(self) -> Iterator[Frame]:
        """All frames, until every rank that began has ended."""
        last = time.monotonic()
        ended: set[str] = set()
        while True:
            names = sorted(os.listdir(self._folder))
            found = sorted((name for name in names if _FILE.fullmatch(name)), key=_order)
            for name in found:
                frame = self._take(name)
                last = time.monotonic()
                if frame is not None:
                    yield frame
                    last = time.monotonic()
            ended |= {mark[2] for name in names if (mark := _MARK.fullmatch(name)) and mark[1] == "end"}
            if not found and len(ended) >= self._senders:
                self._sweep(ended)
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

    def _sweep(self, ended: set[str]) -> None:
        for one in ended:
            for word in ("start", "end"):
                (self._folder / f"{word}_{one}").unlink(missing_ok=True)


def _order(name: str) -> tuple[int, int]:
    match = _FILE.fullmatch(name)
    assert match is not None
    return int(match[2]), int(match[1])


def _exactly(file: io.BufferedReader, length: int) -> bytes:
    found = file.read(length)
    if len(found) < length:
        raise EOFError(f"{len(found)} of {length} bytes are there")
    return found
