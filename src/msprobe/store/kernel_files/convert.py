"""Dump files of kernels as ``.npy`` or ``.pt`` files, one for each tensor. Values are written piece by piece."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import make_folder, write_atomically
from msprobe.store import pt_format
from msprobe.store.kernel_files.acl_dump import KernelTensor, read_acl_dump
from msprobe.store.kernel_files.atb_tensor import is_atb, read_atb
from msprobe.store.kernel_files.device_formats import converted
from msprobe.store.kernel_files.element_types import DeviceType

Array = npt.NDArray[Any]
FileType = Literal["npy", "pt"]
_PIECE_ELEMENTS = 1 << 20
_BYTES_ONLY = ("l1buffer", "space")


def convert_file(
    path: Path,
    folder: Path,
    target: str = "auto",
    file_type: FileType = "npy",
    shape: tuple[int, ...] = (),
) -> tuple[list[Path], list[str]]:
    """Write the tensors of a dump file into ``folder``: ``{name}.{input|output}.{i}.npy``; returns files and remarks.

    ``target`` is a format of :data:`msprobe.store.kernel_files.device_formats.TARGETS`, ``shape`` that before the
    device padded the tensors, for files that do not say it. Raises PathError or InvalidInputError.
    """
    if is_atb(path):
        stored = read_atb(path)
        written = folder / f"{path.stem}.{file_type}"
        _write(make_folder(folder) / written.name, stored.stored(), stored.kind, file_type)
        return [written], []
    dump = read_acl_dump(path)
    remarks = [f"{path.name}: {note}" for note in dump.notes]
    files: list[Path] = []
    for tensor in dump.tensors:
        name = f"{path.name}.{tensor.role}.{tensor.index}"
        if not tensor.size and not len(tensor.data) and 0 not in tensor.shape:
            remarks.append(said("kernel-tensor-without-data", name))
        elif tensor.role in _BYTES_ONLY:
            files.append(make_folder(folder) / f"{name}.bin")
            write_atomically(files[-1], [tensor.data], fsync=False)  # type: ignore[list-item]
        else:
            array, remark = in_format(tensor, target, shape)
            if remark:
                remarks.append(f"{name}: {remark}")
            files.append(make_folder(folder) / f"{name}.{file_type}")
            _write(files[-1], array, tensor.kind, file_type)
    return files, remarks


def in_format(tensor: KernelTensor, target: str, shape: tuple[int, ...] = ()) -> tuple[Array, str]:
    """The stored values of a tensor in a format, and a remark if it could not be had."""
    stored = tensor.stored()
    if tensor.kind.raw:
        named = tensor.type_code and said("kernel-type-as-bytes", tensor.kind.name)
        return stored, named or ""
    return converted(stored, tensor.format, target, tensor.original_shape or shape)


def values_of(tensor: KernelTensor, target: str = "auto") -> Array:
    """The values of a tensor, in a type that numpy can calculate with."""
    return tensor.kind.meant(in_format(tensor, target)[0])


def _write(path: Path, array: Array, kind: DeviceType, file_type: FileType) -> None:
    if file_type == "pt":
        whole = np.ascontiguousarray(array)
        name = kind.torch if kind.torch and not kind.raw else whole.dtype.name
        if kind.name == "hifloat8":
            whole, name = kind.meant(whole), "float32"
        if not pt_format.can_hold(name):
            raise InvalidInputError(said("type-not-for-pt", path.name, kind.name))
        data = whole.reshape(-1).view(np.uint8).data
        write_atomically(path, iter(pt_format.pieces(name, array.shape, data)), fsync=False)  # type: ignore[arg-type]
        return
    write_atomically(path, _npy(array, kind), fsync=False)


def _npy(array: Array, kind: DeviceType) -> Iterator[bytes]:
    """The pieces of a ``.npy`` file."""
    meant = kind.meant(np.zeros(1, array.dtype)).dtype
    head = io.BytesIO()
    form = {"descr": np.lib.format.dtype_to_descr(meant), "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(head, form)
    yield head.getvalue()
    flat = array.reshape(-1)
    for start in range(0, flat.size, _PIECE_ELEMENTS):
        yield kind.meant(flat[start : start + _PIECE_ELEMENTS]).tobytes()
