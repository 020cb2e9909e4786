"""Parameters and buffers of the model itself, by the name that it has for them.

Those of the modules inside it are known by the records of their passes. The model itself has no record unless that is
asked for (``record_root``), so each call tells which of its arguments they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from msprobe.capture.torch import private


class OwnTensors:
    """What the models that are recorded hold themselves. Asked for at each call: a buffer may be assigned anew."""

    def __init__(self) -> None:
        # What stands before each name, and what the model has under such names.
        self._held: list[tuple[str, Mapping[str, Any]]] = []

    def __bool__(self) -> bool:
        return bool(self._held)

    def watch(self, models: Any, leads: Sequence[str] | None) -> None:
        """Know these models, which were given to start. ``leads``: what their names begin with, if it is not the index
        of the model.
        """
        several = isinstance(models, (list, tuple))
        self.forget()
        if not private.has("modules"):
            return
        for index, model in enumerate(models if several else [models]):
            if not isinstance(model, nn.Module):
                continue
            lead = leads[index] if leads is not None else f"{index}." if several else ""
            for word, held in (("buffers", model._buffers), ("parameters", model._parameters)):
                if held:
                    self._held.append((f"{word}.{lead}", held))

    def forget(self) -> None:
        """Let go of the models."""
        self._held = []

    def among(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
        """Which arguments are such tensors: ``{"input.1": "buffers.running_mean"}``."""
        named = {id(tensor): before + name for before, held in self._held for name, tensor in held.items()}
        named.pop(id(None), None)
        found = {f"input.{place}": name for place, value in enumerate(args) if (name := named.get(id(value)))}
        found.update((f"input.{word}", name) for word, value in kwargs.items() if (name := named.get(id(value))))
        return found
