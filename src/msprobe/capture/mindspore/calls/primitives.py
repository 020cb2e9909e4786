"""Primitive objects that cells hold as attributes (``self.matmul = ops.MatMul()``), recorded when they are called.

An object's call goes through its class, so the classes of those objects are patched while recording; objects that no
cell of the model holds pass through.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from mindspore import nn, ops

from msprobe.capture.mindspore.calls.writing_primitives import BATCH_NORM, written_results
from msprobe.capture.mindspore.patches import Replacement
from msprobe.capture.mindspore.tensors import MindSporeTensors
from msprobe.capture.units import UnitRecorder, run_recorded


class PrimitiveRecorder:
    """Watches the primitives of a model between start and stop."""

    def __init__(self, units: UnitRecorder, tensors: MindSporeTensors) -> None:
        self.units = units
        self.tensors = tensors
        # By identity: the key of its entries, the object, which is kept so that its identity stays its own, and what it
        # was reported when it was made.
        self._keys: dict[int, tuple[str, Any, dict[str, Any]]] = {}
        self._patched: list[Replacement] = []

    def watch(self, cells: Iterable[nn.Cell]) -> None:
        """Find the primitives of these cells. One that is held twice has the name of its first place."""
        self._keys.clear()
        for cell in cells:
            for name, value in primitives_of(cell):
                if id(value) not in self._keys:
                    described = {
                        word: self.units.describer.describe(attribute)
                        for word, attribute in attributes_of(value).items()
                    }
                    self._keys[id(value)] = f"Primitive.{name}.{type(value).__name__}", value, described

    def attach(self) -> None:
        """Patch the classes of the primitives that are watched."""
        owners: dict[type, None] = {}
        for _, primitive, _ in self._keys.values():
            for kind in type(primitive).__mro__:
                if "__call__" in vars(kind):
                    owners[kind] = None
                    break
        for owner in owners:
            replacement = Replacement(owner, "__call__", self._recorded(vars(owner)["__call__"]))
            replacement.put()
            self._patched.append(replacement)

    def detach(self) -> None:
        """Leave the classes as they were."""
        patched, self._patched = self._patched, []
        for replacement in patched:
            replacement.take_off()

    def forget(self) -> None:
        """Let go of the model."""
        self._keys.clear()

    def _recorded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        units, keys = self.units, self._keys

        @functools.wraps(original)
        def replacement(primitive: Any, *args: Any, **kwargs: Any) -> Any:
            key = keys.get(id(primitive))
            if key is None:
                return original(primitive, *args, **kwargs)
            if type(primitive).__name__ != BATCH_NORM:
                return run_recorded(units, key[0], original, args, kwargs, (primitive,), attributes=key[2])
            try:
                final = functools.partial(self._note_results, primitive)
                return run_recorded(units, key[0], original, args, kwargs, (primitive,), final, attributes=key[2])
            finally:
                self.tensors.results = {}

        return replacement

    def _note_results(self, primitive: Any, result: Any) -> tuple[Any, Any]:
        self.tensors.results = written_results(primitive.is_training, result)
        return result, None


# Of a random number's beginning, and of the object itself: nothing that two runs have in common.
_NOT_RECORDED = frozenset(("name", "seed", "seed0", "seed1", "Seed0", "Seed1"))
_PLAIN = (bool, int, float, str)


def attributes_of(primitive: Any) -> dict[str, Any]:
    """What a primitive was given when it was made (``epsilon``, ``stride``, ``transpose_b``), as it keeps it."""
    attributes, kept = getattr(primitive, "init_attrs", None), getattr(primitive, "attrs", None)
    if not isinstance(attributes, dict):
        return {}
    known = {**attributes, **{word: value for word, value in (kept or {}).items() if word in attributes}}
    return {word: value for word, value in known.items() if word not in _NOT_RECORDED and _is_plain_value(value)}


def _is_plain_value(value: Any) -> bool:
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return all(isinstance(part, _PLAIN) for part in parts)


def primitives_of(cell: nn.Cell) -> Iterable[tuple[str, Any]]:
    """The primitives among a cell's attributes, by attribute."""
    held = getattr(cell, "_primitives", None)
    primitives = dict(held) if held else {}
    for name, value in vars(cell).items():
        if isinstance(value, ops.Primitive):
            primitives.setdefault(name, value)
    return [(name, value) for name, value in primitives.items() if isinstance(value, ops.Primitive)]
