"""Whole tensors on their way to a file: copied at the moment of recording, written in the background."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from msprobe import log
from msprobe.capture import native
from msprobe.capture.session import Session
from msprobe.capture.torch.statistics_framework import Quiet
from msprobe.capture.torch.statistics_unusual import ORDINARY, unwrap
from msprobe.config.settings import TensorSlice
from msprobe.store.tensor_files import safe_file_name

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
)


@dataclass(frozen=True)
class TensorPayload:
    """The values of one tensor: ``shape`` elements of ``dtype_name`` in C order, little-endian."""

    dtype_name: str
    shape: tuple[int, ...]
    data: memoryview


class Kept:
    """A tensor whose values are held until it is known whether they are wanted (overflow check)."""

    __slots__ = ("info", "payload", "text")

    def __init__(self, info: Any, payload: TensorPayload | None) -> None:
        self.info = info
        self.payload = payload
        self.text: bytes = info.text


def payload_of(tensor: torch.Tensor) -> TensorPayload | None:
    """The values of a tensor as they are now, in host memory; None for tensors without values of their own.

    Layouts that are not strided are written dense. Nothing here is seen by modes or by the autograd graph.
    """
    with Quiet(), torch.no_grad():
        values: torch.Tensor | None = tensor
        if type(tensor) not in ORDINARY or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            # What a distributed tensor holds here, what a collective has filled; nothing where there is nothing yet.
            values = unwrap(tensor).values
        if values is None:
            return None
        if values.device.type == "meta":
            return None
        if values.is_sparse or values.layout != torch.strided:
            values = values.to_dense()
        if values.is_quantized:
            values = values.dequantize()
        if values.is_conj() or values.is_neg():
            values = values.resolve_conj().resolve_neg()
        values = values.detach()
        if values.device.type != "cpu":
            values = values.to("cpu")
        elif not values.is_contiguous():
            values = values.contiguous()
        size = values.numel() * values.element_size()
        if not size:
            data = b""
        elif native.memory is not None:
            data = bytes(native.memory(values.data_ptr(), size))
        else:
            data = values.reshape(-1).view(torch.uint8).numpy().tobytes()
        return TensorPayload(str(values.dtype).removeprefix("torch."), tuple(values.shape), memoryview(data))


class TensorKeeper:
    """Hands tensors to the files of the step, and decides in an overflow check which records are kept."""

    def __init__(self, session: Session) -> None:
        self.session = session
        settings = session.settings
        self.task = settings.task
        self.overflow = settings.task in ("overflow_check", "nan_check")
        self.slices: Sequence[TensorSlice] = settings.slice
        self.hits = 0
        self._saved: dict[int, tuple[Any, str]] = {}

    def keep(self, tensor: torch.Tensor, info: Any, path: str) -> Any:
        """Save the values of ``tensor`` under ``path``; the description that names the file."""
        if tensor is None or not self.session.can_save():
            return info
        name = safe_file_name(f"{path}.pt")
        known = self._saved.get(id(info))
        if known is not None and not self.overflow:
            # The same elements at the same version: one file under two names.
            self.session.files().link(name, known[1])
            return info.with_file(name)
        try:
            payload = payload_of(self._cut(tensor))
        except Exception as error:
            self.session.fault(path, error)
            return info
        if payload is None:
            return info
        named = info.with_file(name)
        if self.overflow:
            return Kept(named, payload)
        self.session.files().save(name, payload)
        # The description is held with the name, so that its identity stays its own.
        self._saved[id(info)] = (info, name)
        return named

    def begin_step(self) -> None:
        """A new step has files of its own."""
        self._saved.clear()

    def _cut(self, tensor: torch.Tensor) -> torch.Tensor:
        for part in self.slices:
            if part.dim < tensor.dim() and (part.size is None or tensor.shape[part.dim] == part.size):
                with torch._C.DisableTorchFunction(), torch.no_grad():
                    tensor = tensor.narrow(part.dim, part.begin, min(part.end, tensor.shape[part.dim]) - part.begin)
        return tensor

    def overflowed(self, name: str, tree: dict[str, Any]) -> bool:
        """True if the record has an infinity or NaN in it that tells something; then its tensors are saved."""
        if self.session.ended or not self._is_hit(name, tree):
            return False
        for held in _held(tree):
            if held.payload is not None:
                self.session.files().save(_file_of(held), held.payload)
        log.warning(f"Overflow detected in {name}.")
        self.hits += 1
        limit = self.session.settings.overflow_nums
        if limit != -1 and self.hits >= limit:
            log.info(f"{self.hits} overflows were recorded, as asked for (overflow_nums); recording ends here.")
            # This record is still written; the end comes behind it.
            self.session.end_after_record = True
        return True

    def _is_hit(self, name: str, tree: dict[str, Any]) -> bool:
        ignore_output = name.startswith(IGNORED_OUTPUTS)
        ignore_first = name.startswith(IGNORED_FIRST_INPUTS)
        for part in ("input_args", "input_kwargs", "input", "output", "parameters"):
            if part not in tree or (part == "output" and ignore_output):
                continue
            value = tree[part]
            if part == "input_args" and ignore_first:
                value = value[1:]
            if any(_nonfinite(leaf) for leaf in _leaves(value)):
                return True
        return False


def _nonfinite(leaf: Any) -> bool:
    info = leaf.info if type(leaf) is Kept else leaf
    return bool(getattr(info, "nonfinite", False))


def _file_of(held: Kept) -> str:
    return str(held.info.data_name)


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _leaves(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _leaves(value)
    elif tree is not None and not isinstance(tree, (bytes, str, int, float)):
        yield tree


def _held(tree: Any) -> Iterator[Kept]:
    for leaf in _leaves(tree):
        if type(leaf) is Kept:
            yield leaf
