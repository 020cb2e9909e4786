"""The functions of MindSpore that are recorded as calls: which they are, and what takes their place while recording.

MindSpore has no means to be told of calls, so the functions are replaced between start and stop in the modules and
classes where programs look them up. Whoever imported a function itself earlier calls the original. Of nested calls the
outermost counts.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import mindspore

from msprobe.capture.mindspore.in_place import reading_first, writes
from msprobe.capture.mindspore.patches import Patches
from msprobe.capture.units import UnitRecorder, recorded

LIST_FILE = "support_wrap_ops.yaml"

# Group of the list -> the module or class, and the first part of the entry's name.
_GROUPS = {
    "ops": ("mindspore.ops", "Functional"),
    "tensor": ("mindspore.Tensor", "Tensor"),
    "mint.ops": ("mindspore.mint", "Mint"),
    "mint.nn.functional": ("mindspore.mint.nn.functional", "MintFunctional"),
    "communication.comm_func": ("mindspore.communication.comm_func", "Distributed"),
    "mint.distributed": ("mindspore.mint.distributed", "MintDistributed"),
}
_COLLECTIVES = ("Distributed", "MintDistributed")


def listed_apis() -> Iterator[tuple[Any, str, str]]:
    """(holder, attribute, key of its entries) of each listed function that this MindSpore has."""
    import yaml

    text = resources.files("msprobe.capture.mindspore").joinpath(LIST_FILE).read_text("utf-8")
    groups = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
    for group, (place, prefix) in _GROUPS.items():
        holder = _holder(place)
        if holder is None:
            continue
        for name in groups.get(group) or ():
            found = getattr(holder, str(name), None)
            if callable(found) and not isinstance(found, type):
                yield holder, str(name), f"{prefix}.{str(name).rpartition('.')[2]}"


def _holder(place: str) -> Any:
    if place == "mindspore.Tensor":
        return mindspore.Tensor
    try:
        return importlib.import_module(place)
    except ImportError:
        return None


class ApiRecorder:
    """Replaces the listed functions while recording, and those that users register."""

    def __init__(self, units: UnitRecorder, read: Callable[[], None]) -> None:
        self.units = units
        # Reads what waits to be read: before a call that writes into its arguments.
        self.read = read
        self.patches = Patches()
        self.replaced: set[tuple[int, str]] = set()
        self._is_filled = False

    def attach(self) -> None:
        """Put the recording functions in place."""
        if not self._is_filled:
            self._is_filled = True
            for holder, name, key in listed_apis():
                self.patches.add(holder, name, functools.partial(self._recorded, key))
                self.replaced.add((id(holder), name))
        self.patches.attach()

    def detach(self) -> None:
        """Put the originals back."""
        self.patches.detach()

    def add(self, holder: Any, name: str, key: str) -> None:
        """Record ``holder.name`` too, as ``key``."""
        self.patches.remove(holder, name)
        self.patches.add(holder, name, functools.partial(self._recorded, key))

    def remove(self, holder: Any, name: str) -> bool:
        """Record it no more; False if it was not recorded."""
        return self.patches.remove(holder, name)

    def _recorded(self, key: str, original: Callable[..., Any]) -> Callable[..., Any]:
        if writes(key.rpartition(".")[2]):
            original = reading_first(self.read, original)
        if key.partition(".")[0] in _COLLECTIVES:
            from msprobe.capture.mindspore.collectives import recorded_collective

            return recorded_collective(self.units, key, original, self.read)
        return recorded(self.units, key, original)
