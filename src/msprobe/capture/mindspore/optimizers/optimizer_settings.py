"""What an optimizer of MindSpore was given, and what it keeps: read from its attributes, nothing is computed.

Optimizers of ``mindspore.mint`` and the experimental ones have ``param_groups``. Those of ``mindspore.nn`` keep what
their constructor was given under the same names, a learning rate and a weight decay for each parameter or for all, and
leave parameters out of weight decay whose names speak of ``beta`` and ``gamma``.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from mindspore import Parameter, Tensor, nn, ops

_ALONE = frozenset(("self", "params", "parameters", "learning_rate", "weight_decay", "args", "kwargs"))
_RATES = frozenset(("learning_rate", "group_lr", "lrs"))
_PLAIN = (bool, int, float, str)
# (places of parameters, settings) of each group
Groups = list[tuple[list[int], dict[str, Any]]]


def groups_of(optimizer: Any) -> Groups:
    """The places of parameters that have the same settings, with these."""
    groups = getattr(optimizer, "param_groups", None)
    return _settings_in_groups(groups) if groups else _settings_in_attributes(optimizer)


def _settings_in_groups(groups: Sequence[dict[str, Any]]) -> Groups:
    own_groups: Groups = []
    first = 0
    for group in groups:
        count = len(group["params"])
        own = {str(key): value for key, value in group.items() if key != "params" and _is_setting(value)}
        own_groups.append((list(range(first, first + count)), own))
        first += count
    return own_groups


def _settings_in_attributes(optimizer: Any) -> Groups:
    shared = _given_to_constructor(optimizer)
    by_settings: dict[tuple[Any, ...], tuple[list[int], dict[str, Any]]] = {}
    for place in range(len(optimizer.parameters)):
        rate, decay = _learning_rate(optimizer, place), _weight_decay(optimizer, place)
        own = {"learning_rate": rate, "weight_decay": decay}
        if _at(getattr(optimizer, "grad_centralization_flags", False), place):
            own["grad_centralization"] = True
        key = tuple(id(value) if isinstance(value, Tensor) else repr(value) for value in own.values())
        by_settings.setdefault(key, ([], {**own, **shared}))[0].append(place)
    return list(by_settings.values())


def _given_to_constructor(optimizer: Any) -> dict[str, Any]:
    """Numbers and words among what the constructor takes, as the optimizer or its operator keeps them."""
    settings: dict[str, Any] = {}
    given = _arguments_of(optimizer)
    operators = [value for value in _flat(vars(optimizer).values()) if isinstance(value, ops.Primitive)]
    for word, value in given.items():
        if word in _ALONE:
            continue
        # What it goes by now, which the program may have changed, and else what it was given.
        kept = (getattr(optimizer, word, None), *(operator.attrs.get(word) for operator in operators), value)
        value = next((setting for setting in kept if _is_setting(setting)), None)
        if value is not None:
            settings[word] = value
    return settings


def _arguments_of(optimizer: Any) -> dict[str, Any]:
    """The arguments of the constructor; values where MindSpore keeps them (``init_args``), else None."""
    words: dict[str, Any] = dict.fromkeys(inspect.signature(type(optimizer).__init__).parameters)
    kept = getattr(optimizer, "init_args", None)
    return {**words, **kept} if isinstance(kept, dict) else words


def _learning_rate(optimizer: Any, place: int) -> Any:
    rate = getattr(optimizer, "learning_rate", None)
    if getattr(optimizer, "is_group_lr", False):
        rates = getattr(optimizer, "group_lr", None) or rate
        rate = _at(list(rates), place) if rates is not None else None
    return _schedule(rate) if isinstance(rate, nn.Cell) else rate


def _schedule(rate: nn.Cell) -> dict[str, Any]:
    """A rate that is computed anew in each step, as its class and what that was given: to compute it here would run
    code of the program once more.
    """
    own = {key: value for key, value in vars(rate).items() if not key.startswith("_") and isinstance(value, _PLAIN)}
    wanted = set(inspect.signature(type(rate).__init__).parameters)
    settings: dict[str, Any] = {key: value for key, value in own.items() if key in wanted}
    held = getattr(rate, "learning_rate", None)
    if isinstance(held, Tensor):
        settings["learning_rate"] = held
    return {"schedule": type(rate).__name__, **settings}


def _weight_decay(optimizer: Any, place: int) -> Any:
    decay = getattr(optimizer, "weight_decay", None)
    decay = _at(decay, place)
    flags = getattr(optimizer, "decay_flags", None)
    if isinstance(flags, (tuple, list)) and place < len(flags) and not flags[place]:
        return 0.0
    return _schedule(decay) if isinstance(decay, nn.Cell) else decay


def counters_of(optimizer: Any) -> dict[str, Any]:
    """What it counts for all parameters together: its own parameters of one element that are no settings."""
    given = {*_arguments_of(optimizer), "learning_rate"}
    known = {id(value) for values in states_of(optimizer).values() for value in values.values()}
    known.update(map(id, optimizer.parameters))
    counters: dict[str, Any] = {}
    for word, value in (getattr(optimizer, "_params", None) or {}).items():
        own = getattr(optimizer, word, None)
        if word not in given and id(value) not in known and isinstance(own, Parameter) and own.size == 1:
            counters[word] = own
    return counters


def states_of(optimizer: Any) -> dict[str, dict[int, Any]]:
    """What it keeps for each parameter, by attribute and place of the parameter."""
    weights = list(optimizer.parameters)
    known = {id(weight) for weight in weights}
    states: dict[str, dict[int, Any]] = {}
    for word, values in vars(optimizer).items():
        if word.startswith("_") or word in _RATES or not isinstance(values, (tuple, list)):
            continue
        if len(values) == len(weights) and all(
            isinstance(parameter, Parameter) and id(parameter) not in known for parameter in values
        ):
            states[word] = dict(enumerate(values))
    first = 0
    for group in getattr(optimizer, "param_groups", None) or ():
        for word, values in group.items():
            if word != "params" and isinstance(values, (tuple, list)):
                for place, value in enumerate(values):
                    if isinstance(value, Parameter):
                        states.setdefault(str(word), {})[first + place] = value
        first += len(group["params"])
    return states


def _is_setting(value: Any) -> bool:
    if isinstance(value, Tensor):
        return bool(value.size == 1)
    if isinstance(value, (tuple, list)):
        return bool(value) and all(isinstance(item, _PLAIN) for item in value)
    return isinstance(value, _PLAIN)


def _at(values: Any, place: int) -> Any:
    """That of one parameter, where each has its own."""
    if isinstance(values, (tuple, list)):
        return values[place] if place < len(values) else None
    return values


def _flat(values: Any) -> list[Any]:
    return [item for value in values for item in (value if isinstance(value, (tuple, list)) else (value,))]
