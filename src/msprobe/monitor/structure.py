"""The structure of a model (``print_struct``): what each module is given and gives, forward and backward."""

from __future__ import annotations

import json
from typing import Any

from msprobe.capture.events import Direction, EventKind, Gradient
from msprobe.capture.listeners import Observer, Wants
from msprobe.monitor.state import ConfiguredState

_KINDS: frozenset[EventKind] = frozenset(("pass",))
_FORWARD: frozenset[Direction] = frozenset(("forward",))


class MonitorStop(Exception):
    """The training is ended because the configuration of the monitor asked for one look only."""


class Structure(Observer):
    """Notes containers, shapes and types of the first pass of each module."""

    is_careful = True
    wants = Wants(kinds=_KINDS, modules=("*",))

    def __init__(self, state: ConfiguredState) -> None:
        self.state = state
        self.modules: dict[str, dict[str, Any]] = {}
        self._by_key: dict[str, dict[str, Any]] = {}

    def before(self, event: Any) -> None:
        """A module is about to run."""
        module = self.state.watched.modules.get(event.key)
        if module is None or event.key in self._by_key:
            return
        with self.state.framework.unwatched():
            tensor = self.state.framework.tensor
            inputs = [value for value in (*event.args, *event.kwargs.values()) if isinstance(value, tensor)]
            entry = {"input": self._described(inputs), "output": {}, "input_grad": {}, "output_grad": {}}
        self._by_key[event.key] = entry

    def after(self, event: Any, result: Any) -> None:
        """It has run."""
        module, entry = self.state.watched.modules.get(event.key), self._by_key.get(event.key)
        name = "" if module is None else f"{module.stage}:{module.full}"
        if entry is None or name in self.modules or module is None:
            return
        with self.state.framework.unwatched():
            entry["output"] = self._described(result)
        for side, count in (("input_grad", len(entry["input"]) - 1), ("output_grad", len(entry["output"]) - 1)):
            entry[side] = {"config": f"tuple[{count}]", **{str(i): _NONE for i in range(count)}}
        self.modules[name] = entry

    def gradient(self, event: Any) -> None:
        """A gradient has come back through a pass."""
        assert isinstance(event, Gradient)
        entry = self._by_key.get(event.key)
        if entry is None or event.number or event.gradient is None:
            return
        side = "input_grad" if event.side == "argument" else "output_grad"
        with self.state.framework.unwatched():
            entry[side][event.place.split(".")[1]] = self._tensor(event.gradient)

    def text(self) -> str:
        """What was found, as JSON."""
        return json.dumps(self.modules, indent=2, ensure_ascii=False)

    def _described(self, value: Any) -> dict[str, str]:
        if isinstance(value, self.state.framework.tensor):
            return {"config": "tensor", "tensor": self._tensor(value)}
        if isinstance(value, (list, tuple)):
            kind = "tuple" if isinstance(value, tuple) else "list"
            description = {"config": f"{kind}[{len(value)}]"}
            description.update((str(i), self._tensor(element)) for i, element in enumerate(value))
            return description
        return {"config": str(type(value))}

    def _tensor(self, value: Any) -> str:
        kind: type[Any] = self.state.framework.tensor
        if not isinstance(value, kind):
            return str(type(value))
        return f"size={tuple(value.shape)}, dtype={value.dtype}"


class Stacks(Observer):
    """Notes from where each module was called first (``stack_info``), in the first step that is measured."""

    is_careful = True
    wants = Wants(kinds=_KINDS, modules=("*",), directions=_FORWARD)

    def __init__(self, state: ConfiguredState) -> None:
        self.state = state
        # In the order in which the modules returned.
        self.modules: dict[str, tuple[str, ...]] = {}
        self._running: dict[str, tuple[str, ...]] = {}

    def before(self, event: Any) -> None:
        """A module is about to run."""
        module = self.state.watched.modules.get(event.key)
        if module is not None and module.name not in self._running:
            self._running[module.name] = event.stack

    def after(self, event: Any, result: Any) -> None:
        """It has run."""
        module = self.state.watched.modules.get(event.key)
        if module is not None and module.name in self._running:
            self.modules.setdefault(module.name, self._running[module.name])


_NONE = "<class 'NoneType'>"
