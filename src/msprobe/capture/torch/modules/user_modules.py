"""What a module of the user's consists of, asked without calling anything that the user may have overridden.

A module may override what ``nn.Module`` offers: ``parameters()`` may give a list, ``named_modules`` take no prefix,
``training`` raise, ``==`` compare weights, ``bool`` be ambiguous. So all of msprobe that looks at modules inside a
training asks here. The answers come from the storage that ``nn.Module`` itself keeps (``_modules``, ``_parameters``,
``_buffers``), and modules and tensors are compared by identity alone. A module without that storage (its class does
not call ``super().__init__``) has nothing inside.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from msprobe.guard import pass_on

_attributes = object.__getattribute__
_NOTHING: Mapping[str, Any] = {}


def storage_of(module: Any, name: str) -> Mapping[str, Any]:
    """One of the dictionaries of a module: "_modules", "_parameters" or "_buffers"."""
    try:
        attributes: Mapping[str, Any] | None = _attributes(module, "__dict__").get(name)
    except Exception as error:
        pass_on(error)
        return _NOTHING
    # Of a scripted module it is an object that only looks like a dictionary.
    return _NOTHING if attributes is None else attributes


def class_name(module: Any) -> str:
    """What the class of an object is called."""
    return str(type.__getattribute__(type(module), "__name__"))


def is_training(module: Any) -> bool:
    """The mode of a module; True where it keeps none."""
    try:
        kept = _attributes(module, "__dict__")
        # Where it is a property, it is asked.
        training = kept["training"] if "training" in kept else module.training  # noqa: SIM401
        return True if training is None else bool(training)
    except Exception as error:
        pass_on(error)
        return True


def is_scripted(module: Any) -> bool:
    """True for a module of torch.jit, whose inside runs outside of Python."""
    return issubclass(type(module), torch.jit.ScriptModule)


def named_children(module: Any) -> Iterator[tuple[str, nn.Module]]:
    """The modules right inside of ``module``, each once, and what it calls them."""
    seen: set[int] = set()
    for key, child in storage_of(module, "_modules").items():
        if child is not None and id(child) not in seen:
            seen.add(id(child))
            yield key, child


def children(module: Any) -> Iterator[nn.Module]:
    """The modules right inside of ``module``."""
    for _, child in named_children(module):
        yield child


def named_modules(root: Any) -> list[tuple[str, nn.Module]]:
    """The module itself (its path is empty) and all inside of it, each once under its first path, outer ones first."""
    named: list[tuple[str, nn.Module]] = [("", root)]
    _add_modules(root, "", named, {id(root)})
    return named


def named_modules_inside(root: Any) -> list[tuple[str, nn.Module]]:
    """As :func:`named_modules`, without the module itself."""
    named: list[tuple[str, nn.Module]] = []
    _add_modules(root, "", named, {id(root)})
    return named


def modules(root: Any) -> Iterator[nn.Module]:
    """The module itself and all inside of it, each once, outer ones first."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield module
            inside = [child for _, child in storage_of(module, "_modules").items() if child is not None]
            waiting += reversed(inside)


def _add_modules(module: Any, lead: str, named: list[tuple[str, nn.Module]], seen: set[int]) -> None:
    # No inner function: one that calls itself is a cycle, and keeps the model until the collector comes.
    for key, child in storage_of(module, "_modules").items():
        if child is not None and id(child) not in seen:
            seen.add(id(child))
            named.append((lead + key, child))
            _add_modules(child, f"{lead}{key}.", named, seen)


def own_parameters(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters that the module itself has, each once, and what it calls them."""
    return _once(storage_of(module, "_parameters"), set(), "")


def own_buffers(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The buffers that the module itself has, each once, and what it calls them."""
    return _once(storage_of(module, "_buffers"), set(), "")


def named_parameters(root: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters of a module and of all inside of it, each once under its first path."""
    return _all_tensors(root, "_parameters")


def parameters(root: Any) -> Iterator[torch.Tensor]:
    """The parameters of a module and of all inside of it, each once."""
    seen: set[int] = set()
    for module in modules(root):
        for _, parameter in _once(storage_of(module, "_parameters"), seen, ""):
            yield parameter


def named_buffers(root: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The buffers of a module and of all inside of it, each once under its first path."""
    return _all_tensors(root, "_buffers")


def _all_tensors(root: Any, kind: str) -> Iterator[tuple[str, torch.Tensor]]:
    seen: set[int] = set()
    for path, module in named_modules(root):
        yield from _once(storage_of(module, kind), seen, f"{path}." if path else "")


def _once(stored: Mapping[str, Any], seen: set[int], lead: str) -> Iterator[tuple[str, torch.Tensor]]:
    for key, value in stored.items():
        if value is not None and id(value) not in seen:
            seen.add(id(value))
            yield lead + key, value


def all_modules() -> Iterator[nn.Module]:
    """Every module that is alive in this process."""
    for thing in gc.get_objects():
        # Not isinstance, which would ask objects of all kinds for their __class__.
        if issubclass(type(thing), nn.Module):
            yield thing


def models_of(held: Iterable[Any]) -> list[nn.Module]:
    """The modules that hold these parameters and are in no other module, in the order of the parameters."""
    places = {id(parameter): place for place, parameter in enumerate(held)}
    every = list(all_modules())
    inside = {id(child) for module in every for child in modules(module) if child is not module}
    models: list[tuple[int, int, nn.Module]] = []
    for module in every:
        if id(module) not in inside:
            known = [places[id(p)] for p in parameters(module) if id(p) in places]
            if known:
                models.append((min(known), len(models), module))
    return [module for *_, module in sorted(models, key=lambda item: item[:2])]
