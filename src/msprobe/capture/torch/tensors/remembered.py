"""What was said of the elements in each storage, and whether it may be said again.

Torch counts what it writes itself. Kernels that other code compiled, numpy and other processes write without its
knowledge, so two things are asked before something is used again: nothing that may run such code happened since
(:meth:`Memory.forget_all`, :meth:`Memory.distrust`), and the elements are still the same. Of a tensor on the CPU
all of them are hashed, or many places of a large one by the native memo; of one on an accelerator some elements
are compared on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from msprobe.capture.torch.devices.device_statistics import LateComparison
from msprobe.capture.torch.tensors import digest
from msprobe.capture.torch.tensors.statistics_unusual import is_plain
from msprobe.capture.torch.tensors.storages import StorageHold, address_of_storage
from msprobe.capture.torch.tensors.unwritten import Unwritten, Write

# Whether torch knows of all that is written to a storage.
COUNTED = 0
# Nobody has written what is meant to stand there: so until torch counts a write.
UNSET = 1
# Others know the address, or have written there already.
EXPOSED = 2

_FIRST_SWEEP = 64


class Remembered:
    """What is known of the elements in one storage at one version."""

    __slots__ = ("blocks", "epoch", "fingerprints", "hold", "rows", "trust", "unwritten", "version", "views")

    def __init__(self, version: int, epoch: int) -> None:
        self.hold = StorageHold()
        self.trust = COUNTED
        self.unwritten: Unwritten | None = None
        self.renew(version, epoch)

    def renew(self, version: int, epoch: int) -> None:
        """Forget all: the elements are those of another version."""
        self.version = version
        self.epoch = epoch
        # exact view -> its description; elements whatever their order -> their statistics, and a fingerprint
        self.views: dict[Any, Any] = {}
        self.blocks: dict[Any, Any] = {}
        self.fingerprints: dict[Any, Any] = {}
        # of adjacent elements in row-major order: their rows, or the numbers of these
        self.rows: dict[Any, Any] = {}

    def expose(self) -> None:
        """Something wrote there that torch does not know of: nothing is remembered any more."""
        self.trust = EXPOSED
        self.unwritten = None
        self.renew(self.version, self.epoch)


class KnownElements(NamedTuple):
    """What is known by the elements it is of."""

    blocks: dict[Any, dict[str, Any]]
    block: Any  # the elements of this tensor
    # Of a tensor on the CPU rows, by ``block``, if its elements are adjacent and in row-major order; of one on a device
    # what was begun, by ``place``, the elements in their order.
    rows: dict[Any, Any] | None = None
    place: Any = None
    written: LateComparison | None = None  # says whether memory that nobody had written has been


class Memory:
    """What is known of all storages, of ``limit`` at most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._storages: dict[int, Remembered] = {}
        # With so many, those that are gone are looked for.
        self._sweep_at = _FIRST_SWEEP
        self._epoch = 0

    def of(self, storage: int, version: int, tensor: torch.Tensor) -> Remembered:
        """What is known of the storage of ``tensor``. Where nothing is, something empty, which :meth:`keep` keeps."""
        remembered = self._storages.get(storage)
        if remembered is None:
            return Remembered(version, self._epoch)
        lives = remembered.hold.lives(storage, tensor)
        if not lives or remembered.version != version or remembered.epoch != self._epoch:
            if not lives or (remembered.trust == UNSET and remembered.version != version):
                remembered.trust = COUNTED
                remembered.unwritten = None
            remembered.renew(version, self._epoch)
        return remembered

    def keep(self, storage: int, remembered: Remembered, tensor: torch.Tensor) -> None:
        """Find ``remembered`` again as long as the storage of ``tensor`` lives."""
        if storage not in self._storages:
            if len(self._storages) >= self._limit:
                self.clear()
            elif len(self._storages) >= self._sweep_at:
                self._sweep()
            self._storages[storage] = remembered
        remembered.hold.add(tensor)

    def _sweep(self) -> None:
        """Let go of storages that are gone. A weak reference of torch's keeps a few bytes for each, in the midst of the
        memory of tensors: what was freed around them is of no use for the next ones.
        """
        storages, self._storages = self._storages, {}
        for storage, remembered in storages.items():
            if remembered.hold.is_gone():
                remembered.hold.release()
            else:
                self._storages[storage] = remembered
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._storages))

    def distrust(self, tensor: torch.Tensor, for_good: bool, written: bool = True) -> None:
        """Remember nothing of the storage of ``tensor``: as long as it lives, or until torch counts a write to it.
        ``written``: it may have been written now, if nobody had before.
        """
        storage, version = address_of_storage(tensor), tensor._version
        remembered = self.of(storage, version, tensor)
        remembered.renew(version, self._epoch)
        remembered.trust = max(remembered.trust, EXPOSED if for_good else UNSET)
        if written:
            remembered.unwritten = None
        self.keep(storage, remembered, tensor)

    def leave_unwritten(self, tensor: torch.Tensor, written: Sequence[torch.Tensor], later: bool) -> None:
        """Nobody has written ``tensor`` but for the parts of it in ``written``. ``later``: it will get its memory."""
        self.distrust(tensor, for_good=False)
        remembered = self.of(address_of_storage(tensor), tensor._version, tensor)
        if tensor.numel():
            remembered.unwritten = Unwritten(tensor, self._epoch, written, later)

    def is_unwritten(self, remembered: Remembered) -> bool:
        """Whether some of the storage is not written yet, for all that is known."""
        return remembered.unwritten is not None and remembered.unwritten.epoch == self._epoch

    def forget(self, storage: int, tensor: torch.Tensor, write: Write | None = None) -> bool:
        """The elements of ``tensor``, which lies there, were written, or those that ``write`` says. True if others
        there still are not.
        """
        remembered = self._storages.get(storage)
        if remembered is None:
            return False
        unwritten = remembered.unwritten
        known = unwritten is not None and remembered.hold.lives(storage, tensor) and is_plain(tensor)
        if unwritten is None or not known or not unwritten.wrote(tensor, write):
            remembered.renew(remembered.version, remembered.epoch)
            remembered.unwritten = None
            return False
        remembered.renew(tensor._version, self._epoch)
        return True

    def forget_all(self) -> None:
        """Code that torch does not know may have written anywhere."""
        self._epoch += 1

    def clear(self, keep_exposed: bool = False) -> None:
        """Forget everything, or all but the storages that are exposed and live."""
        storages, self._storages = self._storages, {}
        for storage, remembered in storages.items():
            if keep_exposed and remembered.trust == EXPOSED and remembered.hold.is_certain():
                self._storages[storage] = remembered
            else:
                remembered.hold.release()
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._storages))


def is_shared(tensor: torch.Tensor) -> bool:
    """Whether the elements belong to somebody else, who may write them: an array of numpy, a file. Weights that were
    loaded lie in memory of others as well, which nobody writes.
    """
    return type(tensor) is not torch.nn.Parameter and not tensor.untyped_storage().resizable()


def fingerprint(tensor: torch.Tensor, pattern: tuple[int, ...]) -> bytes:
    """A hash of all elements of a CPU tensor that holds those of ``pattern``, whatever their order."""
    sizes = [size if step else 1 for size, step in zip(pattern[::2], pattern[1::2], strict=True)][::-1]
    steps = [step or 1 for step in pattern[1::2]][::-1]
    whole = len(sizes) == 1 and steps[0] == 1
    return digest.xxh3(
        digest.elements(digest.address_of(tensor), tuple(sizes), tuple(steps), tensor.element_size(), whole)
    )
