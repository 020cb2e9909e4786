"""Memory for the values of tensors between the training and their files, used again and again.

Memory fresh from the system is the dearest part of a copy: its pages are made one at a time, which takes many
times as long as filling them.
"""

from __future__ import annotations

import contextlib
import mmap
import threading

_ALIGNMENT = 64


class _Chunk:
    __slots__ = ("filled", "memory", "rooms", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = _fresh(size)
        self.filled = 0
        self.rooms = 0


class Room:
    """Memory for one tensor: ``data``, writable. Its owner gives it back when the values are written."""

    __slots__ = ("_chunk", "data")

    def __init__(self, chunk: _Chunk, data: memoryview) -> None:
        self._chunk = chunk
        self.data = data


class TensorBuffers:
    """Gives out rooms from chunks of ``chunk_bytes``; a larger room is a chunk of its own.

    Chunks in which nothing lies any more are used again, up to ``kept_bytes`` of them; what is beyond goes
    back to the system. May be used from several threads.
    """

    def __init__(self, chunk_bytes: int = 4 << 20, kept_bytes: int = 64 << 20) -> None:
        self._chunk_bytes = chunk_bytes
        self._most_kept = kept_bytes
        self._lock = threading.Lock()
        self._current: _Chunk | None = None
        self._free: list[_Chunk] = []
        self._kept = 0

    def take(self, nbytes: int) -> Room:
        """A room of ``nbytes``; what is in it is undefined. Raises MemoryError (or OSError) if there is none."""
        with self._lock:
            chunk = self._current
            start = 0
            if nbytes > self._chunk_bytes:
                chunk = self._find(nbytes)
            elif chunk is not None and chunk.filled + nbytes <= chunk.size:
                start = chunk.filled
            else:
                if chunk is not None and not chunk.rooms:
                    self._put_aside(chunk)
                chunk = self._current = self._find(self._chunk_bytes)
            chunk.filled = start + nbytes + -nbytes % _ALIGNMENT
            chunk.rooms += 1
        return Room(chunk, chunk.memory[start : start + nbytes])

    def give_back(self, room: Room) -> None:
        """The values are written; nobody reads ``room`` any more."""
        chunk = room._chunk
        with self._lock:
            chunk.rooms -= 1
            if chunk.rooms == 0:
                chunk.filled = 0
                if chunk is not self._current:
                    self._put_aside(chunk)

    def _find(self, nbytes: int) -> _Chunk:
        """The smallest free chunk that is large enough and not much too large, or a new one."""
        # The one used last first: it may still be in the processor's cache.
        fitting = [
            chunk for chunk in reversed(self._free) if nbytes <= chunk.size <= 2 * max(nbytes, self._chunk_bytes)
        ]
        if fitting:
            chunk = min(fitting, key=lambda chunk: chunk.size)
            self._free.remove(chunk)
            self._kept -= chunk.size
            return chunk
        return _Chunk(nbytes + -nbytes % self._chunk_bytes)

    def _put_aside(self, chunk: _Chunk) -> None:
        self._free.append(chunk)
        self._kept += chunk.size
        while self._kept > self._most_kept:
            # The one that was not used for the longest time: sizes that do not come again make room.
            self._kept -= self._free.pop(0).size


def _fresh(size: int) -> memoryview:
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return memoryview(bytearray(size))
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)
