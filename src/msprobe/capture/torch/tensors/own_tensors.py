"""Parameters and buffers of the model itself, by the name that it has for them.

Those of the modules inside it are known by the records of their passes. The model itself has no record unless that is
asked for (``record_root``), so each call says which of its arguments they are. Where no pass has a record (L2), those
of all modules are reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from msprobe.capture.identity import IdentityMap
from msprobe.capture.torch import private
from msprobe.capture.torch.modules.user_modules import named_buffers, named_parameters, storage_of


class OwnTensors:
    """What the models that are recorded hold themselves. Asked for at each call: a buffer may be assigned anew.
    Nothing is kept alive.
    """

    def __init__(self) -> None:
        # Of each model: what stands before each name, and what the model has under such names.
        self._held: IdentityMap[list[tuple[str, Mapping[str, Any]]]] = IdentityMap()
        # The names of those of all modules.
        self._all: IdentityMap[str] = IdentityMap()

    def __bool__(self) -> bool:
        return len(self._held) > 0 or len(self._all) > 0

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
                    for name, tensor in tensors:
                        self._all[tensor] = f"{word}.{lead}{name}"
                continue
            stored = [(f"{word}.{lead}", storage_of(model, f"_{word}")) for word in ("buffers", "parameters")]
            stored = [(before, held) for before, held in stored if held]
            if stored:
                self._held[model] = stored

    def forget(self) -> None:
        """Let go of the models."""
        self._held.clear()
        self._all.clear()

    def among(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
        """Which arguments are such tensors: ``{"input.1": "buffers.running_mean"}``."""
        named = {
            id(tensor): before + name
            for stored in self._held.values()
            for before, held in stored
            for name, tensor in held.items()
        }
        named.pop(id(None), None)
        if len(self._all):
            found_names = ((arg, self._all.get(arg)) for arg in (*args, *kwargs.values()))
            named = {id(item): name for item, name in found_names if name is not None}
        places = {f"input.{place}": name for place, value in enumerate(args) if (name := named.get(id(value)))}
        places.update((f"input.{word}", name) for word, value in kwargs.items() if (name := named.get(id(value))))
        return places
