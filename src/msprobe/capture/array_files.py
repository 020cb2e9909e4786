"""Values of tensors in ``.npy`` files: for adapters that read tensors as numpy arrays."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msprobe import log
from msprobe.capture import native
from msprobe.capture.array_statistics import ArrayInfo, HostArray
from msprobe.capture.session import Session
from msprobe.config.settings import TensorSlice
from msprobe.store.dtypes import Array
from msprobe.store.tensor_files import TensorFileWriter, safe_file_name

_CHECKED_PARTS = ("input_args", "input_kwargs", "input", "output", "parameters", "kwargs_grads")


@dataclass(frozen=True)
class ArrayPayload:
    """The values of one tensor, which nobody writes to any more: ``shape`` elements in C order."""

    dtype_name: str
    shape: tuple[int, ...]
    data: memoryview


class ArrayFileWriter(TensorFileWriter):
    """Writes ``.npy`` files where its base writes ``.pt`` files."""

    def _parts(self, job: Any) -> tuple[bytes, memoryview, bytes] | None:
        payload = job.payload
        return _header(payload.dtype_name, payload.shape), payload.data, b""


def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    described = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    return header.getvalue()


def npy_header(array: Array) -> bytes:
    """What stands in a ``.npy`` file before the elements in C order."""
    return _header(array.dtype.str, tuple(array.shape))


def array_file_writer(folder: Path) -> ArrayFileWriter:
    """For :attr:`msprobe.capture.session.Session.file_writer`."""
    return ArrayFileWriter(folder, write_files=native.write_files)


class _Kept:
    """A tensor whose values are held until it is known whether they are wanted (overflow check)."""

    __slots__ = ("info", "payload", "text")

    def __init__(self, info: ArrayInfo, payload: ArrayPayload) -> None:
        self.info = info
        self.payload = payload
        self.text = info.text


class ArrayKeeper:
    """Hands values to the files of the step, and decides in an overflow check which records are kept."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.overflow = session.settings.task in ("overflow_check", "nan_check")
        self.slices: Sequence[TensorSlice] = session.settings.slice
        self.hits = 0
        self._told: set[str] = set()

    def keep(self, values: HostArray, info: ArrayInfo, path: str) -> Any:
        """Save the values under ``path``; the description that names the file."""
        named = self.name(info, path)
        if named is info:
            return info
        payload = _payload(self._cut(values.meant))
        if self.overflow:
            return _Kept(named, payload)
        self.session.files().save(str(named.data_name), payload)
        return named

    def name(self, info: ArrayInfo, path: str) -> ArrayInfo:
        """The description that names the file for ``path``; itself if nothing can be saved."""
        return info.with_file(safe_file_name(f"{path}.npy")) if self.session.can_save() else info

    def save(self, values: HostArray, name: str) -> None:
        """Save the values that :meth:`name` has named a file for."""
        self.session.files().save(name, _payload(self._cut(values.meant)))

    def _cut(self, array: Array) -> Array:
        for part in self.slices:
            if part.dim < array.ndim and (part.size is None or array.shape[part.dim] == part.size):
                place = [slice(None)] * array.ndim
                place[part.dim] = slice(part.begin, part.end)
                array = array[tuple(place)]
        return array

    def begin_step(self) -> None:
        """A new step has entries of its own."""
        self._told.clear()

    def overflowed(self, name: str, tree: dict[str, Any]) -> bool:
        """True if the record has an infinity or NaN in it; then its tensors are saved."""
        if self.session.ended:
            return False
        leaves = [leaf for part in _CHECKED_PARTS if part in tree for leaf in _leaves(tree[part])]
        if not any(_is_nonfinite(leaf) for leaf in leaves):
            return False
        for leaf in leaves:
            if type(leaf) is _Kept:
                self.session.files().save(str(leaf.info.data_name), leaf.payload)
        if name in self._told:
            # Gradients of parameters come one by one, and their record is written anew.
            return True
        self._told.add(name)
        log.warning(f"Overflow detected in {name}, {self.session.place()}.")
        self.hits += 1
        limit = self.session.settings.overflow_nums
        if limit != -1 and self.hits >= limit:
            log.info(f"{self.hits} overflows were recorded, as asked for (overflow_nums); recording ends here.")
            # This record is still written; the end comes behind it.
            self.session.end_after_record = True
        return True


def _payload(array: Array) -> ArrayPayload:
    copy = np.array(array, order="C", copy=True)
    flat = copy.reshape(-1).view(np.uint8)
    return ArrayPayload(copy.dtype.str, tuple(copy.shape), flat.data)


def _is_nonfinite(leaf: Any) -> bool:
    info = leaf.info if type(leaf) is _Kept else leaf
    return bool(getattr(info, "nonfinite", False))


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _leaves(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _leaves(value)
    elif tree is not None and not isinstance(tree, (bytes, str, int, float)):
        yield tree
