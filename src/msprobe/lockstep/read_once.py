"""Tensor files of the reference, each content read once: what one call returns is what the next ones take."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from msprobe.store.part import DumpPart

#: So many bytes of the last arrays that were asked for are kept.
_MOST_BYTES = 256 << 20


class ReadOnce:
    """The arrays of a part of a dump. Files that are one file by several names, as those of a tensor that several calls
    take, are read once; ``most_bytes`` of the arrays that were asked for last are kept.
    """

    def __init__(self, part: DumpPart, most_bytes: int = _MOST_BYTES) -> None:
        self._part = part
        self._most_bytes = most_bytes
        self._bytes = 0
        # By what a file is, whatever its name; a name that cannot be looked up stands for itself.
        self._keys: dict[str, Any] = {}
        self._arrays: OrderedDict[Any, Any] = OrderedDict()
        # Gradients come in threads of their own.
        self._lock = threading.Lock()

    def array(self, name: str) -> Any:
        with self._lock:
            key = self._keys.get(name)
            if key is None:
                key = self._keys[name] = self._key(name)
            array = self._arrays.get(key)
            if array is not None:
                self._arrays.move_to_end(key)
                return array
            array = self._part.array(name)
            if array is not None:
                self._arrays[key] = array
                self._bytes += array.nbytes
                while self._bytes > self._most_bytes:
                    self._bytes -= self._arrays.popitem(last=False)[1].nbytes
            return array

    def forget(self) -> None:
        """Let go of all arrays."""
        with self._lock:
            self._arrays.clear()
            self._keys.clear()
            self._bytes = 0

    def _key(self, name: str) -> Any:
        place = self._part.tensor_place(name)
        return name if place is None or not place[1] else place
