"""Values of tensors in ``.npy`` files: for adapters that read tensors as numpy arrays."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msprobe.capture import native
from msprobe.capture.array_statistics import ArrayInfo, HostArray
from msprobe.capture.overflow import FailureCheck, KeptTensor, OverflowCheck
from msprobe.capture.session import Session
from msprobe.store.dtypes import Array
from msprobe.store.tensor_files import TensorFileWriter, safe_file_name


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
    """For :attr:`msprobe.capture.sinks.DumpFolder.file_writer`."""
    return ArrayFileWriter(folder, write_files=native.write_files)


class ArrayKeeper:
    """Hands values to the files of the step, and decides in an overflow check which records are kept."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.overflow = session.settings.keeps_few
        is_of_failures = session.settings.task == "exception_dump"
        self.overflowed = FailureCheck(session) if is_of_failures else OverflowCheck(session)

    def keep(self, values: HostArray, info: ArrayInfo, path: str) -> Any:
        """Save the values under ``path``; the description that names the file."""
        named = self.name(info, path)
        if named is info:
            return info
        payload = _payload(values.meant)
        if self.overflow:
            return KeptTensor(named, payload)
        self.session.files().save(str(named.data_name), payload)
        return named

    def name(self, info: ArrayInfo, path: str) -> ArrayInfo:
        """The description that names the file for ``path``; itself if nothing can be saved."""
        return info.with_file(safe_file_name(f"{path}.npy")) if self.session.can_save() else info

    def save(self, values: HostArray, name: str) -> None:
        """Save the values that :meth:`name` has named a file for."""
        self.session.files().save(name, _payload(values.meant))


def _payload(array: Array) -> ArrayPayload:
    copy = np.array(array, order="C", copy=True)
    flat = copy.reshape(-1).view(np.uint8)
    return ArrayPayload(copy.dtype.str, tuple(copy.shape), flat.data)
