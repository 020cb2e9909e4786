"""Parameters and buffers of the model itself, by the name that it has for them.

Those of the modules inside it are known by the records of their passes. The model itself has no record unless that is
asked for (``record_root``), so each call tells which of its arguments they are. Where no pass has a record (L2), those
of all modules are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from msprobe.capture.torch import private
from msprobe.capture.torch.user_modules import named_buffers, named_parameters, storage_of


class OwnTensors:
    """What the models that are recorded hold themselves. Asked for at each call: a buffer may be assigned anew."""

    def __init__(self) -> None:
        # What stands before each name, and what the model has under such names.
        self._held: list[tuple[str, Mapping[str, Any]]] = []
        # Those of all modules, by number; held, so that no other tensor gets their numbers.
        self._all: dict[int, tuple[str, Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._held or self._all)

    def watch(self, models: Any, leads: Sequence[str] | None, inside: bool = False) -> None:
        """Know these models, which were given to start. ``leads``: what their names begin with, if it is not the index
        of the model. ``inside``: those of the modules in them, too.
        """
        several = isinstance(models, (list, tuple))
        self.forget()
        if not private.has("modules"):
            return
        for index, model in enumerate(models if several else [models]):
            if not isinstance(model, nn.Module):
                continue
            lead = leads[index] if leads is not None else f"{index}." if several else ""
            if inside:
                for word, tensors in (("buffers", named_buffers(model)), ("parameters", named_parameters(model))):
                    self._all.update((id(tensor), (f"{word}.{lead}{name}", tensor)) for name, tensor in tensors)
                continue
            for word in ("buffers", "parameters"):
                held = storage_of(model, f"_{word}")
                if held:
                    self._held.append((f"{word}.{lead}", held))

    def forget(self) -> None:
        """Let go of the models."""
        self._held = []
        self._all = {}

    def among(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
        """Which arguments are such tensors: ``{"input.1": "buffers.running_mean"}``."""
        named = {id(tensor): before + name for before, held in self._held for name, tensor in held.items()}
        named.pop(id(None), None)
        if self._all:
            named = {id(one): self._all[id(one)][0] for one in (*args, *kwargs.values()) if id(one) in self._all}
        found = {f"input.{place}": name for place, value in enumerate(args) if (name := named.get(id(value)))}
        found.update((f"input.{word}", name) for word, value in kwargs.items() if (name := named.get(id(value))))
        return found
