"""What is inside of a module, and sets of modules. Asks modules nothing that they may answer in their own way."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn


def modules_inside(root: nn.Module) -> Iterator[nn.Module]:
    """``root`` and all modules in it, each once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield module
            children = vars(module).get("_modules") or {}
            waiting += [child for child in reversed(list(children.values())) if isinstance(child, nn.Module)]


def parameters_inside(root: nn.Module) -> Iterator[torch.Tensor]:
    """The parameters of ``root`` and all modules in it, as they are now; shared ones more than once."""
    for module in modules_inside(root):
        for parameter in list((vars(module).get("_parameters") or {}).values()):
            if isinstance(parameter, torch.Tensor):
                yield parameter


class ModuleSet:
    """Modules by their identity, each for as long as it lives."""

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[nn.Module]] = {}

    def __contains__(self, module: object) -> bool:
        reference = self._references.get(id(module))
        return reference is not None and reference() is module

    def __iter__(self) -> Iterator[nn.Module]:
        for key, reference in list(self._references.items()):
            module = reference()
            if module is not None:
                yield module
            else:
                self._references.pop(key, None)

    def add(self, module: nn.Module) -> None:
        """``module`` is one of them."""
        self._references[id(module)] = weakref.ref(module)

    def clear(self) -> None:
        """None is."""
        self._references.clear()


def all_modules() -> Iterator[nn.Module]:
    """Every module that is alive in this process."""
    for thing in gc.get_objects():
        # Not isinstance, which would ask objects of all kinds for their __class__.
        if issubclass(type(thing), nn.Module):
            yield thing


def models_of(parameters: Iterable[Any]) -> list[nn.Module]:
    """The modules that hold ``parameters`` and are in no other module, in the order of these parameters."""
    places = {id(parameter): place for place, parameter in enumerate(parameters)}
    modules = list(all_modules())
    inside = {id(child) for module in modules for child in modules_inside(module) if child is not module}
    found: list[tuple[int, int, nn.Module]] = []
    for module in modules:
        if id(module) not in inside:
            held = [places[id(p)] for p in parameters_inside(module) if id(p) in places]
            if held:
                found.append((min(held), len(found), module))
    return [module for *_, module in sorted(found, key=lambda one: one[:2])]
