"""What a module keeps from step to step without an optimizer: running averages and other buffers.

They go into checkpoints, and evaluation uses them, so a difference of theirs counts as one of weights does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msprobe.compare.entry_names import operation, plain_path, writes_in_place
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, fingerprint, is_floating, numbers, rms
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.parameter_names import plain_name
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor
from msprobe.diagnose.tolerance.effect import state_limit
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said

#: Where calls that average (PyTorch and MindSpore) take the averages by position: the functions of the
#: bare framework take weight and bias before.
_BARE = ("Torch", "VF", "Aten")
_PLACES = {True: ("input.3", "input.4"), False: ("input.1", "input.2")}
_MEAN, _VARIANCE = "running_mean", "running_var"


@dataclass(frozen=True)
class ModuleState:
    """One state that a call takes or leaves behind.

    ``slot``: where it stands in the record; ``name``: with the path of its module; ``sized``: it is known what size
    it is measured by; ``words``: what it is called where its name was not recorded.
    """

    slot: str
    name: str
    sized: bool = True
    words: str = ""


def states_of(event: Event, makers: Producers | None = None) -> list[ModuleState]:
    """The states in the record of a call: the inputs as a running average, what was written to that comes
    from outside (``makers`` must be given for that), and the buffers of a module.
    """
    if event.is_module and not event.layer:
        return [
            ModuleState(slot, plain_name(event, slot), slot.endswith((_MEAN, _VARIANCE)))
            for slot, leaf in event.parameters()
            if slot.startswith("buffers.") and is_floating(leaf)
        ]
    if event.direction not in ("forward", "recompute") or not event.is_call:
        return []
    if makers is not None and writes_in_place(event.stem):
        return _written(event, makers)
    return _averages(event)


def changes_state(event: Event) -> bool:
    """True for a call that averages what comes in over the steps."""
    evaluates = any(isinstance(leaf, dict) and leaf.get("value") is False for _, leaf in event.inputs())
    return event.is_call and not evaluates and bool(_averages(event))


def _averages(event: Event) -> list[ModuleState]:
    if operation(event.stem) not in operators.AVERAGING:
        return []
    places = dict(zip(_PLACES[event.parts.owner in _BARE], (_MEAN, _VARIANCE), strict=True))
    places |= {f"input.{word}": word for word in (_MEAN, _VARIANCE)}
    return [
        ModuleState(slot, _own_name(event, slot) or f"{_module(event)}.{places[slot]}")
        for slot, leaf in event.inputs()
        if slot in places and is_floating(leaf) and leaf.get("requires_grad") is not True
    ]


def _written(event: Event, makers: Producers) -> list[ModuleState]:
    """The target of a write in a module's forward pass, if it was there before the step and is not trained; a buffer of
    the model itself that the recorder noted.
    """
    if not event.inputs() or event.stem.endswith("requires_grad_"):
        return []
    slot, target = event.inputs()[0]
    own = _own_name(event, slot)
    if event.parent is None and not own:
        return []
    result = next((leaf for _, leaf in event.outputs() if is_tensor(leaf)), None)
    if not is_floating(target) or any(
        leaf is not None and leaf.get("requires_grad") is True for leaf in (target, result)
    ):
        return []
    # Of a constant it is not known who made it.
    if fingerprint(target) is None or makers.of(target, event) is not None or makers.parameters(target):
        return []
    word = event.stem.rpartition(".")[2]
    name = own or said("target-of", _module(event), event.name)
    states = [ModuleState(place, name, False) for place, leaf in event.outputs()[:1] if is_floating(leaf)]
    return states if word in operators.BEGIN else [ModuleState(slot, name, False), *states]


def _own_name(event: Event, slot: str) -> str:
    """The name of a buffer of the model itself; empty if the slot holds none that was noted."""
    return plain_path((event.held(slot) or "").partition("buffers.")[2])


def _module(event: Event) -> str:
    return plain_path(event.module) if event.module is not None else event.name


def apart(
    judged: Iterable[Judged], before: Mapping[str, float], unit: float, makers: Producers | None = None
) -> tuple[float, dict[str, float]]:
    """How far states are apart beyond what calls of their modules explain, at most (infinite where nothing does); and
    what those of this step explain in the next one, by module: 0 if its calls have agreed in all steps so far.
    ``before``: what the step before explains. ``unit``: that of rounding in this run.
    """
    rows = [
        (call, states_of(call.event, makers)) for call in judged if call.event.direction in ("forward", "recompute")
    ]
    modules = {_module(call.event) for call, states in rows if states}
    explains: dict[str, float] = {}
    for call, _ in rows:
        module = _module(call.event)
        if module in modules:
            explains[module] = max(explains.get(module, 0.0), explained_by(call, makers))
    most = 0.0
    carried: dict[str, float] = {}
    for call, states in rows:
        module = _module(call.event)
        for state in states:
            difference = _difference(call, state.slot)
            if difference is None:
                continue
            delta = weighted(call.event, call.partner, difference)
            carried[module] = max(carried.get(module, 0.0), delta)
            now = explains.get(module, 0.0)
            if not is_explained(call, state, difference, before, unit, now):
                agreed = now == 0.0 == before.get(module)
                most = math.inf if agreed and state.sized else max(most, delta)
    agreed_so_far = {module for module in modules if explains.get(module) == 0.0 == before.get(module, 0.0)}
    return most, {
        module: 0.0 if module in agreed_so_far else max(explains.get(module, 0.0), carried.get(module, 0.0))
        for module in modules
    }


def explained_by(judged: Judged, makers: Producers | None = None) -> float:
    """What a call explains of the states that it leaves: 0 if nothing but its states differs."""
    own = {state.slot for state in states_of(judged.event, makers)}
    others = [
        difference for difference in (*judged.changed_inputs, *judged.changed_outputs) if difference.slot not in own
    ]
    return judged.allowed if others else 0.0


def is_explained(
    judged: Judged,
    state: ModuleState,
    difference: Difference,
    before: Mapping[str, float],
    unit: float,
    now: float = 0.0,
) -> bool:
    """True if a state is apart by no more than rounding does, or than follows from the step before. What a step
    explains may itself be a mistake, so there is an end to it. ``now``: what the calls of this step explain.
    """
    # Of this step: a module may be called many times in it.
    earlier = before.get(_module(judged.event))
    came = max(earlier or 0.0, now)
    agreed = earlier is not None and not came
    return weighted(judged.event, judged.partner, difference) <= state_limit(came, unit, state.sized, agreed)


def first_changes(events: Iterable[Event]) -> dict[str, Event]:
    """The first call of each module that averages, of the calls of a step in order."""
    events_by_module: dict[str, Event] = {}
    for event in events:
        if event.direction == "forward" and changes_state(event):
            events_by_module.setdefault(_module(event), event)
    return events_by_module


def is_changed_before(event: Event, changes: Mapping[str, Event]) -> bool:
    """True if another call of the module has averaged before. ``changes``: see :func:`first_changes`."""
    first = changes.get(_module(event))
    return first is not None and first.index < event.index


def weighted(event: Event, partner: Event, difference: Difference) -> float:
    """The relative difference of a state. That of a running mean is measured by the deviation beside it: of data that
    is centred, the mean itself is nothing but rounding.
    """
    if difference.what != "value" or not math.isfinite(difference.delta):
        return math.inf
    size = max(rms(difference.left), rms(difference.right))
    deviation = max(_deviation(call, difference.slot) for call in (event, partner))
    return difference.delta * min(1.0, size / deviation) if deviation else difference.delta


def _deviation(event: Event, slot: str) -> float:
    """The deviation that belongs to the running mean in this slot; 0 for other slots."""
    slots: list[Slot] = [*event.inputs(), *event.parameters()]
    places = _PLACES[event.parts.owner in _BARE]
    twin = slot.replace(_MEAN, _VARIANCE) if slot.endswith(_MEAN) else dict([places]).get(slot)
    if twin is None or (event.is_module and not slot.endswith(_MEAN)):
        return 0.0
    leaf = dict(slots).get(twin)
    statistics = numbers(leaf) if leaf is not None and is_tensor(leaf) else None
    return (
        math.sqrt(statistics[2])
        if statistics is not None and statistics[2] > 0 and math.isfinite(statistics[2])
        else 0.0
    )


def _difference(judged: Judged, slot: str) -> Difference | None:
    for difference in (*judged.inputs, *judged.parameters, *judged.outputs):
        if difference.slot == slot and difference.what in ("value", "not_finite"):
            return difference
    return None
