"""Whole tensors on their way to a file: copied at the moment of recording, written in the background."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from msprobe import log
from msprobe.capture.overflow import KeptTensor, OverflowCheck
from msprobe.capture.session import Session
from msprobe.capture.torch.devices.device_chunks import is_capturing
from msprobe.capture.torch.devices.device_statistics import CopiedElements
from msprobe.capture.torch.tensors import digest
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.capture.torch.tensors.statistics_unusual import ORDINARY, unwrap
from msprobe.messages import said
from msprobe.store.pt_format import can_hold
from msprobe.store.tensor_buffers import Room
from msprobe.store.tensor_files import TensorFileWriter, safe_file_name

# A sparse gradient may be a thousandth of what it is when dense.
MOST_DENSE_BYTES = 1 << 30

# Values that an overflow check holds until it knows, of tensors on a device, whether they are wanted.
MOST_HELD_BYTES = 256 << 20

# What a random memory content, or a buffer that is about to be filled, holds is no overflow.
IGNORED_OUTPUTS = ("Torch.empty.", "Torch.empty_like.", "Torch.empty_strided.", "Tensor.new_empty.")
IGNORED_FIRST_INPUTS = (
    "Distributed.recv.",
    "Distributed.all_gather.",
    "Distributed.reduce_scatter.",
    "Distributed._reduce_scatter_base.",
    "Distributed.all_gather_into_tensor.",
    "Distributed.reduce_scatter_tensor.",
    "Tensor.masked_fill_.",
    # These only write to what they are given.
    *(
        f"{prefix}.{name}."
        for prefix in ("Tensor", "Torch", "Aten")
        for name in (
            "bernoulli_",
            "cauchy_",
            "copy_",
            "exponential_",
            "fill_",
            "geometric_",
            "log_normal_",
            "normal_",
            "random_",
            "uniform_",
            "zero_",
        )
    ),
)


class TensorPayload(NamedTuple):
    """The values of one tensor: ``shape`` elements of ``dtype_name`` in C order, little-endian."""

    dtype_name: str
    shape: tuple[int, ...]
    data: memoryview


class HeldPayload(NamedTuple):
    """The same, of a tensor of the host that holds the memory."""

    dtype_name: str
    shape: tuple[int, ...]
    data: memoryview
    values: torch.Tensor


def _held(values: torch.Tensor) -> HeldPayload:
    """The values of a contiguous tensor of the host."""
    data = memoryview(digest.tensor_digest(values))
    return HeldPayload(str(values.dtype).removeprefix("torch."), tuple(values.shape), data, values)


def values_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """A plain tensor of the values that a file has of a tensor of any kind; None where it has no values, or none a file
    can hold.

    Of a distributed tensor these are what this rank holds, of a collective that nobody waited for there are none
    yet. Sparse tensors are written dense, quantised ones as what they stand for. Call inside ``OwnWork``.
    """
    unwrapped = unwrap(tensor)
    values = unwrapped.values
    if values is None:
        return None
    if unwrapped.sparse is not None:
        size = math.prod(unwrapped.sparse.shape) * values.element_size()
        if size > MOST_DENSE_BYTES:
            _not_saved("sparse-too-large", MOST_DENSE_BYTES >> 20)
            return None
        values = unwrapped.sparse.detach().to_dense()
    elif values.is_complex() and unwrapped.stored is not None:
        values = unwrapped.stored
    name = str(values.dtype).removeprefix("torch.")
    if not can_hold(name):
        _not_saved("type-without-file", name)
        return None
    return values


def copy_values(tensor: torch.Tensor, allocate: Callable[[int], memoryview]) -> TensorPayload | None:
    """The values of a tensor of any kind as they are now; None where there are none: see :func:`values_of`.
    ``allocate`` gives the memory for so many bytes. No mode, subclass or graph sees any of this.
    """
    with OwnWork():
        values = values_of(tensor)
        if values is None:
            return None
        if values.device.type != "cpu":
            values = values.cpu()
        data = allocate(values.numel() * values.element_size())
        data[:] = digest.tensor_digest(values)
        return TensorPayload(str(values.dtype).removeprefix("torch."), tuple(values.shape), data)


def _not_saved(what: str, value: object) -> None:
    """``what``: the name in the catalogue of what tensors these are."""
    log.once(("not saved", what, value), "warning", lambda: said("values-not-saved", said(what, value)))


# The description of a tensor that has a file, its name, and the values if they come from a device.
_Saved = tuple[Any, str, CopiedElements | None]


class TensorKeeper:
    """Hands tensors to the files of the step, and decides in an overflow check which records are kept."""

    def __init__(self, session: Session, statistics: TensorStatistics) -> None:
        self.session = session
        self.statistics = statistics
        settings = session.settings
        self.task = settings.task
        self.overflow = settings.task in ("overflow_check", "nan_check")
        self.overflowed = OverflowCheck(session, _conclusive)
        self._saved: dict[int, _Saved] = {}
        self._held_bytes = 0

    def keep(self, tensor: torch.Tensor, info: Any, path: str) -> Any:
        """Save the values of ``tensor`` under ``path``; the description that names the file."""
        if tensor is None or info.unset or not self.session.can_save():
            return info
        if not tensor.is_cpu and is_capturing(tensor.device):
            return info
        name = safe_file_name(f"{path}.pt")
        known = self._saved.get(id(info))
        try:
            if known is not None and not self.overflow:
                # The same elements at the same version: one file under two names.
                self._link(name, known)
                return info.with_file(name)
            values = None
            if self.statistics.is_late(tensor):
                values = self._copied(tensor, info)
                if values is None:
                    return info
            if self.overflow:
                return self._keep_checked(tensor, info, name, values)
            if values is not None:
                values.then(functools.partial(self._save_copied, name, info))
            elif not self._save(name, tensor):
                return info
        except Exception as error:
            self.session.fault(path, error)
            return info
        # The description is held with the name, so that its identity stays its own.
        self._saved[id(info)] = (info, name, values)
        return info.with_file(name)

    def _copied(self, tensor: torch.Tensor, info: Any) -> CopiedElements | None:
        """The values of a tensor on a device, on their way; None where there are none."""
        with OwnWork():
            values = values_of(tensor)
        return None if values is None else self.statistics.late.copied(info, values)

    def _link(self, name: str, known: _Saved) -> None:
        info, existing, values = known
        if values is not None and values.values is not None:
            # Its file is not there yet.
            values.then(lambda _: None if info.unset else self.session.files().link(name, existing))
        elif not info.unset:
            self.session.files().link(name, existing)

    def _save_copied(self, name: str, info: Any, values: torch.Tensor) -> None:
        if not info.unset:
            self.session.files().save(name, _held(values))

    def _keep_checked(self, tensor: torch.Tensor, info: Any, name: str, values: CopiedElements | None) -> Any:
        """Hold the values until the record is decided on."""
        if values is not None:
            kept = KeptTensor(info.with_file(name), None)
            values.then(lambda array: setattr(kept, "payload", None if info.unset else _held(array)))
            self._hold(values.nbytes)
            return kept
        payload = copy_values(tensor, _memory)
        if payload is None:
            return info
        self._hold(payload.data.nbytes)
        return KeptTensor(info.with_file(name), payload)

    def _hold(self, size: int) -> None:
        """Values are held until their record is decided on; those of too many are decided on now."""
        if not self.statistics.has_late():
            self._held_bytes = 0
            return
        self._held_bytes += size
        if self._held_bytes > MOST_HELD_BYTES:
            self._held_bytes = 0
            self.session.guard(self.statistics.flush)
            self.session.write_late()

    def _save(self, name: str, tensor: torch.Tensor) -> bool:
        """Copy the values and hand them on; False if there are none."""
        files = self.session.files()
        if type(tensor) in ORDINARY and tensor.is_cpu and tensor.layout == torch.strided:
            room = files.room(tensor.numel() * tensor.element_size())
            if room is None:
                return True
            try:
                copied = self.statistics.copy(tensor, room.data)
            except BaseException:
                files.give_back(room)
                raise
            if copied is not None:
                dtype_name, shape, crc32 = copied
                files.save(name, TensorPayload(dtype_name, shape, room.data), crc32, room)
                return True
            files.give_back(room)
        return self._save_unusual(name, tensor, files)

    def _save_unusual(self, name: str, tensor: torch.Tensor, files: TensorFileWriter) -> bool:
        rooms: list[Room] = []

        def allocate(nbytes: int) -> memoryview:
            room = files.room(nbytes)
            if room is None:
                return _memory(nbytes)
            rooms.append(room)
            return room.data

        try:
            payload = copy_values(tensor, allocate)
        except BaseException:
            for room in rooms:
                files.give_back(room)
            raise
        if payload is None:
            return False
        files.save(name, payload, room=rooms[0] if rooms else None)
        return True

    def begin_step(self) -> None:
        """A new step has files of its own."""
        self._saved.clear()
        self.overflowed.begin_step()


def _memory(nbytes: int) -> memoryview:
    return memoryview(bytearray(nbytes))


def _conclusive(name: str, part: str, value: Any) -> Any:
    """What of a part of a record says something if it holds an infinity: not memory that is yet to be written."""
    if part == "output" and name.startswith(IGNORED_OUTPUTS):
        return None
    if part == "input_args" and name.startswith(IGNORED_FIRST_INPUTS):
        return value[1:]
    if part == "input_kwargs" and "out" in value:
        # What a result is about to be written over.
        return {word: item for word, item in value.items() if word != "out"}
    return value
