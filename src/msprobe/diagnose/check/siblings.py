"""One layer calls the same operation with another setting than the other layers of its class.

Only settings that have no reason to differ from layer to layer: the epsilon of a norm, the form of an activation, the
dimension of a softmax, whether a dropout is active.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.argument_names import argument
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said

#: Operation -> (position, keyword) of each setting.
_SETTINGS: dict[str, tuple[tuple[int, str], ...]] = {
    "layer_norm": ((4, "eps"),),
    "rms_norm": ((3, "eps"),),
    "group_norm": ((4, "eps"),),
    "batch_norm": ((7, "eps"),),
    "instance_norm": ((7, "eps"),),
    "normalize": ((3, "eps"),),
    "gelu": ((1, "approximate"),),
    "leaky_relu": ((1, "negative_slope"),),
    "elu": ((1, "alpha"),),
    "celu": ((1, "alpha"),),
    "softplus": ((1, "beta"),),
    "softmax": ((1, "dim"),),
    "log_softmax": ((1, "dim"),),
    "dropout": ((2, "training"),),
}


def check(moment: CheckedStep) -> Iterable[Finding]:
    """Each layer that is alone with a setting."""
    for place, calls in _alike(moment.timeline).items():
        if place[1] == "dropout" and moment.timeline.part.ours:
            continue  # Where the mode of modules was recorded, the check of dropouts knows better.
        for position, keyword in _SETTINGS[str(place[1])]:
            yield from _odd(moment, calls, position, keyword)


def peers(event: Event, words: Iterable[str]) -> list[Event]:
    """The calls of these operations that a module makes itself, in order."""
    return [
        child
        for child in event.children
        if child.parts.kind == "api" and child.direction == event.direction and operation(child.stem) in words
    ]


def relative_place(event: Event) -> tuple[str, str] | None:
    """The module's class and its path without the numbers of layers: what layers of one stack have in common."""
    parts = plain_path(event.parts.path).split(".")
    if not any(part.isdigit() for part in parts):
        return None
    return event.parts.owner, ".".join("*" if part.isdigit() else part for part in parts)


def _alike(timeline: Timeline) -> dict[tuple[Hashable, ...], dict[str, Event]]:
    """Calls at the same place of layers of one stack: (place, operation, number) -> path of the module -> call."""
    calls_by_place: dict[tuple[Hashable, ...], dict[str, Event]] = {}
    for event in timeline:
        if not event.is_module or event.direction != "forward" or event.record.get("training") is False:
            continue
        place = relative_place(event)
        if place is None:
            continue
        counts: Counter[str] = Counter()
        for call in peers(event, _SETTINGS):
            word = operation(call.stem)
            calls_by_place.setdefault((place, word, counts[word]), {}).setdefault(event.parts.path, call)
            counts[word] += 1
    return calls_by_place


def _odd(moment: CheckedStep, calls: dict[str, Event], position: int, keyword: str) -> Iterable[Finding]:
    values: dict[str, Any] = {path: argument(call, position, keyword) for path, call in calls.items()}
    counts = Counter(repr(value) for value in values.values())
    if len(counts) < 2 or len(values) < 3:
        return
    (usual, many), *_ = counts.most_common()
    alone = [path for path, value in values.items() if repr(value) != usual]
    # A pattern of its own (every second layer, say) is meant.
    if len(alone) > 1 or many < 2:
        return
    path = alone[0]
    call = calls[path]
    word = operation(call.stem)
    yield moment.finding(
        call,
        "argument",
        said("layer-setting-differs", word, path, keyword, values[path], many, usual),
        evidence={"argument": keyword, "value": values[path], "others": usual, "layers": len(values)},
    )
