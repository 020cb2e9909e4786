"""Which call of the forward pass a recomputed call repeats (activation checkpointing)."""

from __future__ import annotations

from collections.abc import Hashable

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.differences.records import fingerprint, is_floating
from msprobe.diagnose.steps.timeline import Event, Slot, Timeline, is_tensor


def repeats(timeline: Timeline) -> dict[Event, Event]:
    """Each recomputed call with the call of the forward pass that it repeats."""
    again = [event for event in timeline if event.direction == "recompute"]
    if not again:
        return {}
    partners: dict[Event, Event] = {}
    for region in repeated(timeline):
        partners.update(region)
    again = [event for event in again if event not in partners]
    by_place: dict[Hashable, list[Event]] = {}
    for event in timeline:
        if event.direction == "forward":
            by_place.setdefault(_place(event), []).append(event)
    todo: dict[Hashable, list[Event]] = {}
    for event in again:
        todo.setdefault(_place(event), []).append(event)
    for place, events in todo.items():
        first = by_place.get(place, [])
        if not first:
            continue
        # Calls of the same kind in the same module, several passes of it one after the other.
        by_key: dict[str, list[Event]] = {}
        for event in first:
            by_key.setdefault(event.key, []).append(event)
        count: dict[str, int] = {}
        for event in events:
            originals = by_key.get(event.key)
            if originals:
                number = count.get(event.key, 0)
                count[event.key] = number + 1
                partners[event] = originals[number % len(originals)]
    return partners


def _place(event: Event) -> Hashable:
    if event.is_module:
        return event.key
    parent = event.parent
    return plain_path(parent.parts.path) if parent is not None else None


def repeated(timeline: Timeline) -> list[dict[Event, Event]]:
    """For each recomputed region, its calls with those of the forward pass that they repeat.

    A region may end before its last call, as soon as all is there that the backward pass needs; so calls are counted
    within their module's pass, not over all passes.
    """
    tops = [
        event
        for event in timeline
        if event.direction == "recompute" and (event.parent is None or event.parent.direction != "recompute")
    ]
    if not tops:
        return []
    passes: dict[str, list[Event]] = {}
    for event in timeline:
        if event.direction == "forward":
            passes.setdefault(event.key, []).append(event)
    used: set[Event] = set()
    regions: list[dict[Event, Event]] = []
    for top in tops:
        region: dict[Event, Event] = {}
        if top.is_module:
            free = [earlier for earlier in passes.get(top.key, ()) if earlier not in used and earlier.index < top.index]
            first = _repeated_pass(free, top)
            if first is not None:
                used.add(first)
                _pair(top, first, region)
        elif distinct_inputs(top):
            # A recomputed function: which pass it repeats is known only by the inputs.
            first = next((earlier for earlier in passes.get(top.key, ()) if earlier.inputs() == top.inputs()), None)
            if first is not None:
                region[top] = first
        if region:
            regions.append(region)
    return regions


def distinct_inputs(event: Event) -> bool:
    """True if what goes into a call can distinguish it from others."""
    return any(is_tensor(leaf) and "digest" in leaf and fingerprint(leaf) is not None for _, leaf in event.inputs())


def _repeated_pass(passes: list[Event], again: Event) -> Event | None:
    """Which of these passes of a module is repeated: one that takes the same; of several one whose result is the same.
    Where none did, one that keeps a graph, the last: backward passes run in the reverse order of forward passes.
    """
    alike = [pass_ for pass_ in passes if _begins_alike(pass_, again)] or passes
    results = _marks(again.outputs())
    same = [pass_ for pass_ in alike if _marks(pass_.outputs()) == results]
    chosen = same or [pass_ for pass_ in alike if _keeps_graph(pass_)] or alike
    return chosen[-1] if chosen else None


def _keeps_graph(event: Event) -> bool:
    return any(leaf.get("requires_grad") is True for _, leaf in event.outputs() if is_tensor(leaf))


def _marks(slots: list[Slot]) -> list[Hashable]:
    return [fingerprint(leaf) for _, leaf in slots if is_floating(leaf)]


def _begins_alike(first: Event, again: Event) -> bool:
    return _marks(first.inputs()) == _marks(again.inputs())


def _pair(again: Event, first: Event, region: dict[Event, Event]) -> None:
    region[again] = first
    waiting: dict[str, list[Event]] = {}
    for child in first.children:
        if child.direction == first.direction:
            waiting.setdefault(child.key, []).append(child)
    for child in again.children:
        if child.direction == "recompute" and waiting.get(child.key):
            _pair(child, waiting[child.key].pop(0), region)
