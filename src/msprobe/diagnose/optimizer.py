"""The step of an optimizer: its settings, what it works on, and what it makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msprobe.diagnose.differences import Comparer, Difference
from msprobe.diagnose.timeline import Event

_FIELDS = ("weight", "grad")


def settings_by_parameter(event: Event) -> dict[str, dict[str, Any]]:
    """The hyper-parameters that hold for each parameter."""
    found: dict[str, dict[str, Any]] = {}
    groups = event.record.get("groups")
    for group in groups if isinstance(groups, list) else ():
        if isinstance(group, dict):
            own = {key: value for key, value in group.items() if key != "params"}
            for name in group.get("params") or ():
                found[str(name)] = own
    return found


def changed_settings(event: Event, partner: Event) -> dict[str, list[tuple[str, Any, Any]]]:
    """Hyper-parameters that differ: field -> (parameter, here, there), in the order of the optimizer."""
    one, other = settings_by_parameter(event), settings_by_parameter(partner)
    found: dict[str, list[tuple[str, Any, Any]]] = {}
    for name, own in one.items():
        theirs = other.get(name)
        if theirs is None:
            continue
        for key in {**own, **theirs}:
            left, right = value_of(own.get(key)), value_of(theirs.get(key))
            if left != right and key not in ("foreach", "fused", "capturable", "differentiable", "maximize_hint"):
                found.setdefault(key, []).append((name, left, right))
    return found


def value_of(leaf: Any) -> Any:
    """The plain value of a hyper-parameter, which may be recorded with its type."""
    if isinstance(leaf, dict):
        if "value" in leaf:
            return leaf["value"]
        if "Max" in leaf:
            return leaf["Max"]
    if isinstance(leaf, list):
        return [value_of(item) for item in leaf]
    return leaf


def parameters_of(event: Event) -> dict[str, dict[str, Any]]:
    """What each parameter is before the step: ``weight``, ``grad`` and the optimizer's states."""
    found = event.record.get("input_kwargs")
    return found if isinstance(found, dict) else {}


def results_of(event: Event) -> dict[str, dict[str, Any]]:
    """What each parameter is after the step."""
    found = event.record.get("output")
    if isinstance(found, list):
        found = found[0] if found else None
    return found if isinstance(found, dict) else {}


def renamed(record: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The record of a step with other names of parameters. ``names``: the name in the record -> the other."""

    def keys(tensors: Any) -> Any:
        return {names.get(key, key): value for key, value in tensors.items()} if isinstance(tensors, dict) else tensors

    found = dict(record)
    if "input_kwargs" in found:
        found["input_kwargs"] = keys(found["input_kwargs"])
    output = found.get("output")
    if output is not None:
        found["output"] = [keys(one) for one in output] if isinstance(output, list) else keys(output)
    groups = found.get("groups")
    if isinstance(groups, list):
        found["groups"] = [
            {**group, "params": [names.get(str(name), name) for name in group.get("params") or ()]}
            if isinstance(group, dict)
            else group
            for group in groups
        ]
    return found


def differences(
    comparer: Comparer, one: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]]
) -> Iterator[tuple[str, str, Difference]]:
    """Parameter, field and difference for all parameters that both sides have."""
    for name, fields in one.items():
        theirs = other.get(name)
        if theirs is None:
            continue
        for field in [*_FIELDS, *(key for key in fields if key not in _FIELDS)]:
            if field in fields and field in theirs:
                for difference in comparer.leaf(f"{name}.{field}", fields[field], theirs[field]):
                    yield name, field, difference
