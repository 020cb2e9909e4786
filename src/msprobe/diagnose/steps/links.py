"""Which call made a tensor: by its digest, or by its statistics where it has none."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import fingerprint, numel, statistics
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.tensor_info import tensors_of
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor

#: Recomputation takes what the forward pass made, the optimizer what was made before it, and a forward pass behind it
#: the weights that it made.
_HANDED_ON = frozenset((("recompute", "forward"), ("optimizer", "forward"), ("forward", "optimizer")))


def is_unset(event: Event) -> bool:
    """True if the result of a call is whatever was in memory."""
    return event.parts.kind == "api" and operation(event.stem) in operators.UNSET


class Producers:
    """Finds who made a tensor that a call takes."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._users: dict[str, list[Event]] | None = None
        self._made: dict[Hashable, list[Event]] = {}
        self._modules: dict[Hashable, list[Event]] = {}
        self._parameters: dict[Hashable, list[str]] = {}
        for event in timeline:
            if event.direction in ("gradient",):
                continue
            made = self._made if event.layer or not event.is_module else self._modules
            for leaf in tensors_of(event.outputs()):
                mark = leaf.fingerprint
                if mark is not None:
                    made.setdefault(mark, []).append(event)
            for slot, leaf in event.parameters():
                mark = fingerprint(leaf)
                if mark is not None:
                    names = self._parameters.setdefault(mark, [])
                    full = parameter_name(event, slot)
                    if full not in names:
                        names.append(full)
        self._weights: dict[Hashable, str] = {}
        self._add_weights_of_optimizers()

    def _add_weights_of_optimizers(self) -> None:
        """Where modules are not recorded, what an optimizer is about to change gives the names of the weights."""
        for event in self.timeline:
            if event.parts.kind == "optimizer":
                for name, fields in parameters_of(event).items():
                    weight: Any = fields.get("weight")
                    if is_tensor(weight):
                        self._weights.setdefault(_look(weight), name)

    def of(self, leaf: Any, before: Event) -> Event | None:
        """The last call before ``before`` that made this tensor; a module where no call is known."""
        mark = fingerprint(leaf)
        if mark is None:
            return None
        for made in (self._made, self._modules):
            events = made.get(mark, [])
            place = bisect_left(events, before.index, key=lambda event: event.index)
            for maker in reversed(events[max(0, place - 8) : place]):
                if maker.direction == before.direction or (before.direction, maker.direction) in _HANDED_ON:
                    return maker
        return None

    @property
    def knows_parameters(self) -> bool:
        """True if modules with parameters were recorded."""
        return bool(self._parameters)

    def users(self, module: str) -> list[Event]:
        """The calls of the forward pass (and of recomputation) that take a parameter of the module ``module``."""
        if self._users is None:
            self._users = self._read_users()
        return self._users.get(module, [])

    def _read_users(self) -> dict[str, list[Event]]:
        owners: dict[Hashable, set[str]] = {}
        for event in self.timeline:
            for _, leaf in event.parameters():
                mark = fingerprint(leaf)
                if mark is not None:
                    owners.setdefault(mark, set()).add(event.parts.path)
        users: dict[str, dict[Event, None]] = {}
        for event in self.timeline:
            if event.direction not in ("forward", "recompute") or event.parts.kind not in ("api", "module"):
                continue
            if event.is_module:
                users.setdefault(event.parts.path, {})[event] = None
            elif event.parent is not None:
                users.setdefault(event.parent.parts.path, {})[event] = None
            for leaf in tensors_of(event.inputs()):
                for path in owners.get(leaf.fingerprint, ()):
                    users.setdefault(path, {})[event] = None
        return {path: list(events) for path, events in users.items()}

    def parameters(self, leaf: Any) -> list[str]:
        """The names of all parameters and buffers that have the values of a tensor."""
        mark = fingerprint(leaf)
        if mark is None:
            return []
        weight = self._weights.get(_look(leaf))
        return self._parameters.get(mark, [weight] if weight is not None else [])


def _look(leaf: dict[str, Any]) -> Hashable:
    """What was recorded of a tensor at every place; digests and values are not, in an optimizer's step."""
    return (*statistics(leaf), numel(leaf))


def consumers_of(events: Iterable[Event]) -> dict[Hashable, list[Event]]:
    """The calls of the forward pass that take a tensor, by what identifies the tensor."""
    consumers: dict[Hashable, list[Event]] = {}
    for event in events:
        if event.direction in ("forward", "recompute") and event.is_call:
            for leaf in tensors_of(event.inputs()):
                mark = leaf.fingerprint
                if mark is not None:
                    consumers.setdefault(mark, []).append(event)
    return consumers
