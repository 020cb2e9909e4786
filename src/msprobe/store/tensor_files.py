"""Tensor files, written by threads of their own while the training goes on."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import queue
import re
import shutil
import threading
import weakref
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from msprobe import log
from msprobe.errors import PathError
from msprobe.paths import FILE_MODE, MAX_NAME_LENGTH, make_folder
from msprobe.store import pt_format
from msprobe.store.tensor_buffers import Room, TensorBuffers

_DIGEST_BYTES = 8
_SAFE = re.compile(r"[\w\-+=@%,:;()\[\] ][\w\-+=@%,:;()\[\] .]{0,254}", re.ASCII)


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


def safe_file_name(name: str) -> str:
    """``name`` as a file name that every system takes: no ``/``, no leading dot, at most 255 bytes.

    A name that is safe comes back as it is. A long one is cut and keeps its ending (``.pt``); a digest of the
    whole name keeps it apart from its neighbours. Characters that file names cannot hold become ``_``.
    """
    if _SAFE.fullmatch(name):
        return name
    clean = "".join("_" if one in "/\\" or not one.isprintable() else one for one in name)
    if not clean or clean[0] == ".":
        clean = "_" + clean[1:]
    data = clean.encode()
    if len(data) <= MAX_NAME_LENGTH:
        return clean
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    stem, dot, ending = clean.rpartition(".")
    suffix = f"{dot}{ending}" if stem and len(ending) <= 8 else ""
    room = MAX_NAME_LENGTH - len(f"~{digest}{suffix}".encode())
    return data[:room].decode(errors="ignore") + f"~{digest}{suffix}"


@dataclass
class _Job:
    writer: TensorFileWriter
    name: str
    payload: Payload
    nbytes: int
    crc32: int | None = None
    room: Room | None = None
    links: list[str] = field(default_factory=list)
    written: bool = False
    follower: _Job | None = None  # the next tensor of the same name, so that the last one saved is the last written


class TensorFileWriter:
    """Writes tensors to ``.pt`` files in ``folder``, which is created with the first.

    ``save`` gives the work to ``threads`` threads (shared by all writers) and returns; it, or ``room``, waits
    only while more than ``max_bytes_in_flight`` are on their way. Files appear under their names when they are whole. A
    failure is logged once, and the writer is quiet from then on (``failed``): nothing is raised. In a forked
    child the writer is quiet too.
    """

    def __init__(self, folder: Path, *, max_bytes_in_flight: int = 256 << 20, threads: int = 1) -> None:
        self.folder = Path(folder)
        self._limit = max_bytes_in_flight
        self._thread_count = max(1, threads)
        self._changed = threading.Condition(threading.Lock())
        self._bytes = 0
        self._waiting: dict[str, _Job] = {}
        self._count = 0
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
        with self._changed:
            while self._bytes and self._bytes + nbytes > self._limit:
                self._changed.wait()
            self._bytes += nbytes
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
        job = _Job(self, name, payload, payload.data.nbytes, crc32, room)
        with self._changed:
            if room is None:
                while self._bytes and self._bytes + job.nbytes > self._limit:
                    self._changed.wait()
                self._bytes += job.nbytes
            self._count += 1
            earlier = self._waiting.get(name)
            self._waiting[name] = job
            if earlier is not None:
                earlier.follower = job
                return
        _crew.hand(job, self._thread_count)

    def link(self, name: str, existing_name: str) -> None:
        """Give the tensor saved as ``existing_name`` a second name: a hard link, or a copy where there are
        none.
        """
        if self._off or self._problem is not None:
            return
        name, existing_name = safe_file_name(name), safe_file_name(existing_name)
        if name == existing_name:
            return
        with self._changed:
            job = self._waiting.get(existing_name)
            if job is not None:
                job.links.append(name)
                return
        try:
            self._link(name, existing_name)
        except (OSError, PathError) as problem:
            self._fail(problem)

    def flush(self) -> None:
        """Wait until everything saved so far is written."""
        with self._changed:
            while self._count and not self._off:
                self._changed.wait()

    def close(self) -> None:
        """``flush``, and let go of the folder; a later ``save`` opens it again."""
        self.flush()
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    def _write(self, job: _Job) -> None:
        """Write a tensor, and what came under the same name meanwhile."""
        next_job: _Job | None = job
        while next_job is not None:
            next_job = self._write_one(next_job)

    def _write_one(self, job: _Job) -> _Job | None:
        try:
            if self._problem is None:
                self._write_payload(job)
        except Exception as problem:  # a thread that dies would let the training wait for it
            self._fail(problem)
        with self._changed:
            if self._waiting.get(job.name) is job:
                # From here on a link finds the file itself.
                del self._waiting[job.name]
        try:
            for name in job.links if job.written else ():
                self._link(name, job.name)
        except Exception as problem:
            self._fail(problem)
        if job.room is not None:
            _buffers.give_back(job.room)
        with self._changed:
            self._bytes -= job.nbytes
            self._count -= 1
            self._changed.notify_all()
        return job.follower

    def _release(self, nbytes: int) -> None:
        with self._changed:
            self._bytes -= nbytes
            self._changed.notify_all()

    def _write_payload(self, job: _Job) -> None:
        payload = job.payload
        try:
            parts = pt_format.pieces(payload.dtype_name, payload.shape, payload.data, job.crc32)
        except ValueError as problem:
            # This tensor cannot be written; the next one can.
            log.once(
                ("tensor not written", payload.dtype_name),
                "warning",
                f'"{job.name}" is not written: {problem}',
            )
            return
        self._write_file(job.name, parts)
        job.written = True

    def _write_file(self, name: str, parts: tuple[bytes, memoryview, bytes]) -> None:
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
        except OSError:
            pass  # no hard links here, or too many of this file
        temporary = self.folder / f".msprobe-{os.getpid()}-{next(self._temporary)}.tmp"
        shutil.copyfile(self.folder / existing_name, temporary)
        temporary.chmod(FILE_MODE)
        temporary.rename(self.folder / name)

    def _open_folder(self) -> int:
        if self._directory < 0:
            with self._changed:
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
            reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
            self._problem = f'cannot write tensor files in "{self.folder}": {reason.lower()}.'
        cause = problem.__cause__ if isinstance(problem, PathError) else problem
        log.once(
            ("tensor files failed", getattr(cause, "errno", None), self.folder.parent.name),
            "error",
            f"{self._problem} The training goes on; tensors of this dump are missing,"
            " and further failures of this kind are not reported.",
        )

    def _forked(self) -> None:
        """In a child: the threads and what they have to do are the parent's."""
        self._off = True
        self._changed = threading.Condition(threading.Lock())
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1


class _Crew:
    """The threads that write: shared by all writers, and kept from step to step."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0

    def hand(self, job: _Job, threads: int) -> None:
        self._jobs.put(job)
        if self._count < threads:
            with self._lock:
                while self._count < threads:
                    self._count += 1
                    name = f"msprobe-tensors-{self._count}"
                    threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        jobs = self._jobs
        while True:
            job = jobs.get()
            job.writer._write(job)
            del job  # its tensor goes now, not when the next job comes


_crew = _Crew()
_buffers = TensorBuffers()


def _write_all(descriptor: int, parts: tuple[bytes, memoryview, bytes]) -> None:
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
        writer._forked()


def _flush_at_exit() -> None:
    for writer in list(_live):
        writer.flush()


atexit.register(_flush_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
