"""Tensor files, written by threads of their own while the training goes on.

Files are handed over some at a time: to wake a thread, and to take turns with it, costs more than to write a
small file.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import queue
import shutil
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msprobe import log
from msprobe.errors import PathError, in_one_line, reason_of
from msprobe.messages import said
from msprobe.paths import FILE_MODE, make_folder
from msprobe.store import pt_format
from msprobe.store.tensor_buffers import Room, TensorBuffers
from msprobe.store.tensor_names import safe_file_name

__all__ = ["Payload", "TensorFileWriter", "safe_file_name"]


class Payload(Protocol):
    """The values of one tensor; they must not change until they are written."""

    @property
    def dtype_name(self) -> str:
        """torch's name of the element type without ``torch.``, as in ``float32``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""

    @property
    def data(self) -> memoryview:
        """The elements in C order, contiguous, little-endian."""


# A thread is woken for so many files or bytes; what waits for more of them is lost if the process is killed.
_FILES_AT_ONCE = 32
_BYTES_AT_ONCE = 4 << 20

Parts = tuple[bytes, memoryview, bytes]
# (open folder, mode, beginning of names that nobody else uses, [(name, *parts) or (name, existing name)]) -> how many
# were written, and the number of the error of the next, or 0
WriteFiles = Callable[[int, int, str, list[tuple[Any, ...]]], tuple[int, int]]


class _Job:
    """A tensor on its way to its file."""

    __slots__ = ("crc32", "follower", "links", "name", "nbytes", "payload", "room", "written")

    def __init__(self, name: str, payload: Payload, nbytes: int, crc32: int | None, room: Room | None) -> None:
        self.name = name
        self.payload = payload
        self.nbytes = nbytes
        self.crc32 = crc32
        self.room = room
        self.links: tuple[str, ...] = ()
        self.written = False
        # The next tensor of the same name: the last one saved is the last one written.
        self.follower: _Job | None = None


class _Link(NamedTuple):
    """A further name of a file that is there."""

    name: str
    existing: str


_Work = _Job | _Link


class TensorFileWriter:
    """Writes tensors to ``.pt`` files in ``folder``, which is created with the first.

    ``save`` gives the work to ``threads`` threads (shared by all writers) and returns; it, or ``room``, waits
    only while more than ``max_bytes_in_flight`` are on their way. Files appear under their names when they are
    whole. A failure is logged once, and the writer is quiet from then on (``failed``): nothing is raised. In a
    forked child the writer is quiet too. ``write_files`` writes several files without Python in between; None:
    one by one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes_in_flight: int = 256 << 20,
        threads: int = 1,
        write_files: WriteFiles | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._limit = max_bytes_in_flight
        self._thread_count = max(1, threads)
        self._write_files = write_files
        # The same lock: to enter it through the condition costs twice as much.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._bytes = 0
        self._waiting: dict[str, _Job] = {}
        self._count = 0
        # Not handed over yet.
        self._gathered: list[_Work] = []
        self._gathered_bytes = 0
        self._problem: str | None = None
        self._off = False
        self._directory = -1
        self._temporary = itertools.count()
        _live.add(self)

    @property
    def failed(self) -> bool:
        """True if a write failed: some tensors are missing."""
        return self._problem is not None

    def room(self, nbytes: int) -> Room | None:
        """Memory for the values of a tensor that is to be saved next; None if nothing is written any more.

        It belongs to the caller until it is given to ``save`` or ``give_back``.
        """
        if self._off or self._problem is not None:
            return None
        with self._lock:
            self._reserve(nbytes)
        try:
            return _buffers.take(nbytes)
        except BaseException:
            self._release(nbytes)
            raise

    def give_back(self, room: Room) -> None:
        """A room that is not used after all."""
        nbytes = room.data.nbytes
        _buffers.give_back(room)
        self._release(nbytes)

    def save(self, name: str, payload: Payload, crc32: int | None = None, room: Room | None = None) -> None:
        """Write ``payload`` to the file ``safe_file_name(name)`` soon; a file of that name is replaced.

        ``crc32``: the checksum of its data, if it is known already. ``room``: where the data lies, if in a room
        of this writer; the writer gives it back.
        """
        if self._off or self._problem is not None:
            if room is not None:
                self.give_back(room)
            return
        name = safe_file_name(name)
        job = _Job(name, payload, payload.data.nbytes, crc32, room)
        with self._lock:
            if room is None:
                self._reserve(job.nbytes)
            earlier = self._waiting.get(name)
            self._waiting[name] = job
            if earlier is not None:
                earlier.follower = job
                self._count += 1
            else:
                self._gather(job, job.nbytes)

    def link(self, name: str, existing_name: str) -> None:
        """Give the tensor saved as ``existing_name`` a second name: a hard link, or a copy where there are
        none.
        """
        if self._off or self._problem is not None:
            return
        name, existing_name = safe_file_name(name), safe_file_name(existing_name)
        if name == existing_name:
            return
        with self._lock:
            job = self._waiting.get(existing_name)
            if job is not None:
                job.links += (name,)
            else:
                self._gather(_Link(name, existing_name), 0)

    def flush(self) -> None:
        """Wait until everything saved so far is written."""
        with self._lock:
            self._hand_over()
            while self._count and not self._off:
                self._changed.wait()

    def close(self) -> None:
        """``flush``, and let go of the folder; a later ``save`` opens it again."""
        self.flush()
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    # ---- with the lock held ----

    def _reserve(self, nbytes: int) -> None:
        while self._bytes and self._bytes + nbytes > self._limit:
            self._hand_over()
            self._changed.wait()
        self._bytes += nbytes

    def _gather(self, work: _Work, nbytes: int) -> None:
        self._count += 1
        self._gathered.append(work)
        self._gathered_bytes += nbytes
        if len(self._gathered) >= _FILES_AT_ONCE or self._gathered_bytes >= _BYTES_AT_ONCE:
            self._hand_over()

    def _hand_over(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if gathered:
            _crew.hand(self, gathered, self._thread_count)

    # ---- in a thread that writes ----

    def _work(self, todo: list[_Work]) -> None:
        """Do this, and what comes up meanwhile: further names, further tensors of the same name."""
        while todo:
            try:
                if self._problem is None:
                    self._write(todo)
            except Exception as problem:  # a thread that dies would let the training wait for it
                self._fail(problem)
            todo = self._finish(todo)

    def _write(self, todo: list[_Work]) -> None:
        entries: list[tuple[_Work, Parts | None]] = []
        for work in todo:
            if isinstance(work, _Link):
                entries.append((work, None))
                continue
            parts = self._parts(work)
            if parts is not None:
                entries.append((work, parts))
                with self._lock:
                    names, work.links = work.links, ()
                entries += [(_Link(name, work.name), None) for name in names]
        while entries:
            done = self._write_at_once(entries)
            for work, _ in entries[:done]:
                if isinstance(work, _Job):
                    work.written = True
            entries = entries[done:]

    def _write_at_once(self, entries: list[tuple[_Work, Parts | None]]) -> int:
        """Write some; how many. Raises OSError where a file cannot be written."""
        if self._write_files is not None:
            given: list[tuple[Any, ...]] = [
                (work.name.encode(), work.existing.encode())
                if isinstance(work, _Link)
                else (work.name.encode(), *(parts or ()))
                for work, parts in entries
            ]
            prefix = f".msprobe-{os.getpid()}-{next(self._temporary)}-"
            done, problem = self._write_files(self._open_folder(), FILE_MODE, prefix, given)
            if not problem:
                return done
            for work, _ in entries[:done]:
                if isinstance(work, _Job):
                    work.written = True
            work, _ = entries[done]
            if isinstance(work, _Job):
                raise OSError(problem, os.strerror(problem), work.name)
            self._link(work.name, work.existing)
            return done + 1
        work, parts = entries[0]
        if isinstance(work, _Link):
            self._link(work.name, work.existing)
        elif parts is not None:
            self._write_file(work.name, parts)
        return 1

    def _finish(self, todo: list[_Work]) -> list[_Work]:
        """Let go of what is done; what came up meanwhile."""
        more: list[_Work] = []
        with self._lock:
            for work in todo:
                self._count -= 1
                if isinstance(work, _Link):
                    continue
                if self._waiting.get(work.name) is work:
                    # From here on a link finds the file itself.
                    del self._waiting[work.name]
                if work.written:
                    more += [_Link(name, work.name) for name in work.links]
                    self._count += len(work.links)
                if work.follower is not None:
                    more.append(work.follower)
                if work.room is not None:
                    _buffers.give_back(work.room)
                self._bytes -= work.nbytes
            self._changed.notify_all()
        return more

    def _release(self, nbytes: int) -> None:
        with self._lock:
            self._bytes -= nbytes
            self._changed.notify_all()

    def _parts(self, job: _Job) -> Parts | None:
        payload = job.payload
        try:
            return pt_format.pieces(payload.dtype_name, payload.shape, payload.data, job.crc32)
        except ValueError as problem:
            # This tensor cannot be written; the next one can.
            log.once(
                ("tensor not written", payload.dtype_name),
                "warning",
                said("tensor-not-written", job.name, problem),
            )
            return None

    def _write_file(self, name: str, parts: Parts) -> None:
        directory = self._open_folder()
        temporary = f".msprobe-{os.getpid()}-{next(self._temporary)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, FILE_MODE, dir_fd=directory)
        try:
            try:
                os.fchmod(descriptor, FILE_MODE)
                _write_all(descriptor, parts)
            finally:
                os.close(descriptor)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise

    def _link(self, name: str, existing_name: str) -> None:
        directory = self._open_folder()
        try:
            os.link(existing_name, name, src_dir_fd=directory, dst_dir_fd=directory)
            return
        except FileExistsError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)
                os.link(existing_name, name, src_dir_fd=directory, dst_dir_fd=directory)
                return
        except FileNotFoundError:
            return  # it was one that cannot be written; that was said
        except OSError:
            pass  # no hard links here, or too many of this file
        temporary = self.folder / f".msprobe-{os.getpid()}-{next(self._temporary)}.tmp"
        shutil.copyfile(self.folder / existing_name, temporary)
        temporary.chmod(FILE_MODE)
        temporary.rename(self.folder / name)

    def _open_folder(self) -> int:
        if self._directory < 0:
            with self._lock:
                if self._directory < 0:
                    make_folder(self.folder)
                    self._directory = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._directory

    def _fail(self, problem: Exception) -> None:
        if self._problem is not None:
            return
        if isinstance(problem, PathError):
            self._problem = problem.message
        else:
            reason = reason_of(problem) if isinstance(problem, OSError) else in_one_line(problem)
            self._problem = said("tensor-files-not-written", self.folder, reason)
        cause = problem.__cause__ if isinstance(problem, PathError) else problem
        log.once(
            ("tensor files failed", getattr(cause, "errno", None), self.folder.parent.name),
            "error",
            said("tensor-files-failed", self._problem),
        )

    def _forked(self) -> None:
        """In a child: the threads and what they have to do are the parent's."""
        self._off = True
        self._gathered = []
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1


class _Crew:
    """The threads that write: shared by all writers, and kept from step to step."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[TensorFileWriter, list[_Work]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0

    def hand(self, writer: TensorFileWriter, todo: list[_Work], threads: int) -> None:
        self._jobs.put((writer, todo))
        if self._count < threads:
            with self._lock:
                while self._count < threads:
                    self._count += 1
                    name = f"msprobe-tensors-{self._count}"
                    threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        jobs = self._jobs
        while True:
            writer, todo = jobs.get()
            writer._work(todo)
            del writer, todo  # the tensors go now, not when the next ones come


_crew = _Crew()
_buffers = TensorBuffers()


def _write_all(descriptor: int, parts: Parts) -> None:
    total = len(parts[0]) + parts[1].nbytes + len(parts[2])
    # One call takes 2 GiB at most, and none where a signal comes in between.
    written = os.writev(descriptor, parts)
    if written == total:
        return
    position = 0
    for part in parts:
        data = memoryview(part).cast("B")
        start = min(max(written - position, 0), len(data))
        position += len(data)
        while start < len(data):
            count = os.write(descriptor, data[start:])
            start += count
            written += count


_live: weakref.WeakSet[TensorFileWriter] = weakref.WeakSet()


def _forked() -> None:
    global _crew, _buffers
    _crew = _Crew()
    _buffers = TensorBuffers()
    for writer in list(_live):
        with contextlib.suppress(Exception):
            writer._forked()


def _flush_at_exit() -> None:
    try:
        for writer in list(_live):
            writer.flush()
    except Exception as error:
        log.error(said("tensor-files-not-all-written", type(error).__name__, error))


atexit.register(_flush_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
