"""The step of an optimizer: its settings, what it works on, and what it makes of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.differences.records import Comparer, Difference
from msprobe.diagnose.steps.timeline import Event, is_tensor

_FIELDS = ("weight", "grad")
#: Settings that choose how a step is computed, not what; and which parameters it is for, which is reported by these.
IDLE_SETTINGS = frozenset(("foreach", "fused", "capturable", "differentiable", "params", "param_names"))

#: What schedules of the learning rate write beside the settings, and which of these they make: a step reads none of it.
_OF_SCHEDULES = {
    **dict.fromkeys(("initial_lr", "max_lr", "min_lr", "swa_lr"), ("lr",)),
    **dict.fromkeys(("base_momentum", "max_momentum"), ("momentum", "betas")),
}


def settings_by_parameter(event: Event) -> dict[str, dict[str, Any]]:
    """The hyper-parameters that hold for each parameter."""
    settings: dict[str, dict[str, Any]] = {}
    groups = event.record.get("groups")
    for group in groups if isinstance(groups, list) else ():
        if isinstance(group, dict):
            own = {key: value for key, value in group.items() if key != "params"}
            for name in group.get("params") or ():
                settings[str(name)] = own
    return settings


def changed_settings(
    event: Event, partner: Event, common: bool = False, in_parts: bool = False
) -> dict[str, list[tuple[str, Any, Any]]]:
    """Hyper-parameters that differ: field -> (parameter, here, there), in the order of the optimizer.

    What a schedule notes, as ``initial_lr``, is one of them only where the setting that it makes agrees: else both are
    one mistake.

    ``common``: only numbers and words that both sides have, as between two frameworks. ``in_parts``: the sides have
    other parameters, and what holds for all of a side is compared.
    """
    ours, other = settings_by_parameter(event), settings_by_parameter(partner)
    if in_parts and ours and other:
        name = next(iter(ours))
        ours, other = {name: _common_settings(ours)}, {name: _common_settings(other)}
        keys = ours[name].keys() & other[name].keys()
        ours, other = ({name: {key: side[name][key] for key in keys}} for side in (ours, other))
    changes: dict[str, list[tuple[str, Any, Any]]] = {}
    for name, own in ours.items():
        theirs = other.get(name)
        if theirs is None:
            continue
        for key in {**own, **theirs}:
            left, right = value_of(own.get(key)), value_of(theirs.get(key))
            if common and not (_is_plain(left) and _is_plain(right)):
                continue
            single = _is_single(own.get(key)) or _is_single(theirs.get(key))
            if key not in IDLE_SETTINGS and not _are_equal(left, right, single):
                changes.setdefault(key, []).append((name, left, right))
    for key in changes.keys() & _OF_SCHEDULES.keys():
        named = {name for made in _OF_SCHEDULES[key] for name, *_ in changes.get(made, ())}
        changes[key] = [change for change in changes[key] if change[0] not in named]
    return {key: parts for key, parts in changes.items() if parts}


def _common_settings(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The hyper-parameters that are one for all parameters."""
    first = next(iter(settings.values()))
    return {
        key: leaf
        for key, leaf in first.items()
        if all(value_of(own.get(key)) == value_of(leaf) for own in settings.values())
    }


def value_of(leaf: Any) -> Any:
    """The plain value of a hyper-parameter, which may be recorded with its type."""
    if isinstance(leaf, dict):
        if "value" in leaf:
            return leaf["value"]
        if "Max" in leaf:
            return leaf["Max"]
        return {key: value_of(value) for key, value in leaf.items()}
    if isinstance(leaf, list):
        return [value_of(item) for item in leaf]
    return leaf


def _is_plain(value: Any) -> bool:
    parts = value if isinstance(value, list) else [value]
    return bool(parts) and all(isinstance(part, (bool, int, float, str)) for part in parts)


def _is_single(leaf: Any) -> bool:
    """True if a number was kept in a tensor of single precision, or one of several."""
    parts = leaf if isinstance(leaf, list) else [leaf]
    return any(isinstance(part, dict) and str(part.get("dtype", "")).lower().endswith("float32") for part in parts)


def _are_equal(left: Any, right: Any, single: bool) -> bool:
    """``single``: one of them was rounded to single precision."""
    if left == right:
        return True
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_are_equal(*pair, single) for pair in zip(left, right, strict=True))
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (left, right))
    return single and numbers and _rounded(left) == _rounded(right)


def _rounded(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<d", value)


def learning_rate_of(settings: Mapping[str, Any]) -> Any:
    """The learning rate among settings; that of a schedule is not known."""
    return value_of(settings.get("lr", settings.get("learning_rate")))


def parameters_of(event: Event) -> dict[str, dict[str, Any]]:
    """What each parameter is before the step: ``weight``, ``grad`` and the optimizer's states."""
    parameters = event.record.get("input_kwargs")
    return parameters if isinstance(parameters, dict) else {}


def gradients_taken(event: Event) -> dict[str, Any]:
    """The gradients that an optimizer gets in a step, by the plain names of their parameters."""
    held = {plain_path(name): fields for name, fields in parameters_of(event).items() if isinstance(fields, dict)}
    return {name: fields["grad"] for name, fields in held.items() if is_tensor(fields.get("grad"))}


def results_of(event: Event) -> dict[str, dict[str, Any]]:
    """What each parameter is after the step."""
    results = event.record.get("output")
    if isinstance(results, list):
        results = results[0] if results else None
    return results if isinstance(results, dict) else {}


def renamed(record: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The record of a step with other names of parameters. ``names``: the name in the record -> the other."""

    def keys(tensors: Any) -> Any:
        return {names.get(key, key): value for key, value in tensors.items()} if isinstance(tensors, dict) else tensors

    copy = dict(record)
    if "input_kwargs" in copy:
        copy["input_kwargs"] = keys(copy["input_kwargs"])
    output = copy.get("output")
    if output is not None:
        copy["output"] = [keys(states) for states in output] if isinstance(output, list) else keys(output)
    groups = copy.get("groups")
    if isinstance(groups, list):
        copy["groups"] = [
            {**group, "params": [names.get(str(name), name) for name in group.get("params") or ()]}
            if isinstance(group, dict)
            else group
            for group in groups
        ]
    return copy


def differences(
    comparer: Comparer, ours: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]]
) -> Iterator[tuple[str, str, Difference]]:
    """Parameter, field and difference for all parameters that both sides have."""
    for name, fields in ours.items():
        theirs = other.get(name)
        if theirs is None:
            continue
        for field in [*_FIELDS, *(key for key in fields if key not in _FIELDS)]:
            if field in fields and field in theirs:
                for difference in comparer.leaf(f"{name}.{field}", fields[field], theirs[field]):
                    yield name, field, difference
