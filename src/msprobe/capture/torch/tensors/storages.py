"""Which storage a tensor lies in, asked so that nothing notices.

Newer versions of torch count a storage object of Python's as a user of the storage for good, also when the
object is long gone (measured on 2.13). Of a gradient the engine then believes that somebody else holds it: it
no longer adds to it in place, and a weight that is used k times costs k gradients. So the address is asked
for directly, and a gradient on its way is remembered by the tensors that have its storage, not by torch's
weak reference, which takes a storage object.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from msprobe.capture.torch import private

# Before it could be asked for, a storage object that was let go of left no trace.
storage_of = private.storage_address
is_expired = private.is_expired
# Where nothing says: as if every tensor were a gradient on its way.
in_backward: Callable[[], int] = (lambda: 0) if private.missing("threads of autograd") else private.graph_task

_MOST_HOLDERS = 3


def address_of_storage(tensor: torch.Tensor) -> int:
    """The address of the StorageImpl. Raises what torch raises for a tensor that has none."""
    if storage_of is not None:
        return storage_of(tensor)
    storage: Any = tensor.untyped_storage()
    return int(storage._cdata)


def may_be_passing(tensor: torch.Tensor) -> bool:
    """Whether this may be a gradient on its way through the backward pass of this thread."""
    return storage_of is not None and not tensor.requires_grad and in_backward() != -1


class StorageHold:
    """Says whether the storage at some address is still the one it was."""

    __slots__ = ("_holders", "_weak")

    def __init__(self) -> None:
        self._weak = 0
        self._holders: list[weakref.ref[torch.Tensor]] = []

    def lives(self, address: int, tensor: torch.Tensor) -> bool:
        """True if ``address``, where ``tensor`` has its storage now, was never given to another one."""
        if self._weak:
            return True
        for reference in self._holders:
            holder = reference()
            # A tensor may have been given another storage meanwhile.
            if holder is tensor or (holder is not None and address_of_storage(holder) == address):
                return True
        return False

    def add(self, tensor: torch.Tensor) -> None:
        """From now on, as long as ``tensor`` lives; or until :meth:`release`, where torch can promise that."""
        if self._weak:
            return
        if may_be_passing(tensor) or not private.has("memory"):
            others = [reference for reference in self._holders if reference() is not None and reference() is not tensor]
            self._holders = [weakref.ref(tensor), *others[: _MOST_HOLDERS - 1]]
        else:
            storage: Any = tensor.untyped_storage()
            self._weak = storage._weak_ref()
            self._holders = []

    def is_certain(self) -> bool:
        """True if the storage lives, and its address cannot come to mean another."""
        return bool(self._weak) and is_expired is not None and not is_expired(self._weak)

    def is_gone(self) -> bool:
        """True if the storage is known to live no more."""
        if self._weak:
            return is_expired is not None and is_expired(self._weak)
        return all(reference() is None for reference in self._holders)

    def release(self) -> None:
        """Let go: the address may be used again."""
        weak, self._weak = self._weak, 0
        self._holders = []
        if weak:
            private.free_weak_reference(weak)
