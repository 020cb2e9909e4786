"""What of the models is monitored, and what it is called in the files."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msprobe.capture.events import path_of
from msprobe.monitor.config import MonitorConfig
from msprobe.monitor.framework import MonitorFramework, Named
from msprobe.monitor.names import Targets, short_names


@dataclass(frozen=True, eq=False)
class WatchedParameter:
    """A parameter that is measured: ``stage``, the index of its model; ``name`` in files, ``full`` in the model."""

    stage: int
    name: str
    full: str
    reference: weakref.ref[Any]


@dataclass(frozen=True)
class WatchedModule:
    """A module that is measured; the name of a model itself is empty."""

    stage: int
    name: str
    full: str


class WatchedModel:
    """The modules and parameters of one or several models, by what events call them."""

    def __init__(self, framework: MonitorFramework, models: Sequence[Any], config: MonitorConfig) -> None:
        self.targets = targets = Targets(config.targets)
        self.parameters: list[WatchedParameter] = []
        # Of all modules: the key of their events -> the module; and those among them that are measured.
        self.modules: dict[str, WatchedModule] = {}
        self.measured: set[str] = set()
        # (key of the module in events, key of the parameter there) -> the parameter.
        self.by_place: dict[tuple[str, str], WatchedParameter] = {}
        self.roots: set[str] = set()
        self._by_id: dict[int, WatchedParameter] = {}
        named = framework.name_modules(models)
        keys = {id(module): key for key, module in named}
        for stage, model in enumerate(models):
            self._add_parameters(stage, framework.parameters_of(model), config.squash_name, targets)
            self._add_modules(stage, model, config, keys, framework)
        for key, module in named:
            for name, parameter in framework.own_parameters(module):
                known = self._by_id.get(id(parameter))
                if known is not None:
                    self.by_place[key, name] = known

    def _add_parameters(self, stage: int, trained: Named, squashed: bool, targets: Targets) -> None:
        names = [name for name, _ in trained]
        short = short_names(names) if squashed else names
        for (full, parameter), name in zip(trained, short, strict=True):
            if targets.has_parameter(stage, full, name):
                watched = WatchedParameter(stage, name, full, weakref.ref(parameter))
                self.parameters.append(watched)
                self._by_id[id(parameter)] = watched

    def _add_modules(
        self, stage: int, model: Any, config: MonitorConfig, keys: dict[int, str], framework: MonitorFramework
    ) -> None:
        named = [(name, module) for name, module in framework.modules_of(model) if id(module) in keys]
        short = short_names([name for name, _ in named]) if config.squash_name else [name for name, _ in named]
        for (full, module), name in zip(named, short, strict=True):
            key = keys[id(module)]
            self.modules[key] = WatchedModule(stage, name, full)
            if module is model:
                self.roots.add(key)
            is_target = self.targets.has_module(stage, full, name)
            if not framework.is_wrapper(module) and (config.all_modules or is_target):
                self.measured.add(key)

    def paths(self) -> list[str]:
        """Where the measured modules, and the models themselves, are in the names of events."""
        return [path_of(key) for key in (*self.roots, *self.measured)]

    def parameter(self, weight: Any) -> WatchedParameter | None:
        """What is known of a parameter; None if it is not measured."""
        parameter = self._by_id.get(id(weight))
        return parameter if parameter is not None and parameter.reference() is weight else None

    def alive(self) -> Iterator[tuple[WatchedParameter, Any]]:
        """The measured parameters that still exist, in the order of ``named_parameters``."""
        for parameter in self.parameters:
            weight = parameter.reference()
            if weight is not None:
                yield parameter, weight
