"""The hyper-parameters of the running program: arguments, whatever holds them, as names and values."""

from __future__ import annotations

import dataclasses
import enum
import os
import sys
from collections.abc import Mapping
from typing import Any

from msprobe.errors import InvalidInputError
from msprobe.messages import said

_MOST_DEPTH = 12
_MOST_VALUES = 20_000
#: Where Megatron, older and newer, keeps its arguments.
_MEGATRON = ("megatron.training", "megatron.training.global_vars", "megatron.global_vars", "megatron")


def as_settings(given: Any) -> dict[str, Any]:
    """Names joined with ``.`` and their values; what is no text, number, truth or list of those becomes text or None.

    ``given``: a dict, a namespace of argparse, a dataclass (``TrainingArguments``), a configuration of OmegaConf or
    pydantic, any object with attributes; or a list of several, of which later ones count more.

    Raises InvalidInputError for what has no names.
    """
    if given is None:
        return {}
    settings: dict[str, Any] = {}
    for source in given if isinstance(given, (list, tuple)) else [given]:
        tree = _mapping(source)
        if tree is None:
            raise InvalidInputError(said("settings-of-wrong-class", type(source).__name__))
        _put(settings, "", tree, 0)
    return settings


def without_path(settings: Mapping[str, Any], path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings without those that name this file: where a run's pack goes is no difference of two runs."""
    place = os.path.abspath(path)
    return {
        name: value
        for name, value in settings.items()
        if not (isinstance(value, str) and value and os.path.abspath(os.path.expanduser(value)) == place)
    }


def megatron_settings() -> dict[str, Any] | None:
    """The arguments that Megatron has parsed; None where it is not used, or has parsed none yet."""
    for name in _MEGATRON:
        get = getattr(sys.modules.get(name), "get_args", None)
        if callable(get):
            try:
                return as_settings(get())
            except Exception:  # it asserts that they are there
                continue
    return None


def _mapping(value: Any) -> Mapping[Any, Any] | None:
    """The names and values of an object; None if it has none."""
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(value):
        value = omegaconf.OmegaConf.to_container(value, resolve=False)
    if isinstance(value, Mapping):
        return value
    if isinstance(value, (type, str, bytes, int, float, type(None), list, tuple, set, enum.Enum, os.PathLike)):
        return None
    for method in ("to_dict", "model_dump"):
        convert = getattr(value, method, None)
        if callable(convert):
            converted = convert()
            if isinstance(converted, Mapping):
                return converted
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict) and not callable(value):
        return {name: value for name, value in held.items() if not str(name).startswith("_")}
    return None


def _put(settings: dict[str, Any], prefix: str, tree: Mapping[Any, Any], depth: int) -> None:
    for key, value in tree.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if len(settings) >= _MOST_VALUES:
            return
        inner = _mapping(value) if isinstance(value, Mapping) or dataclasses.is_dataclass(value) else None
        if inner and depth < _MOST_DEPTH:
            _put(settings, name, inner, depth + 1)
        else:
            settings[name] = _single(value)


def _single(value: Any, depth: int = 0) -> Any:
    if isinstance(value, (str, bool, int, float, type(None))) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, (list, tuple)) and depth < _MOST_DEPTH:
        return [_single(element, depth + 1) for element in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(element) for element in value)
    if isinstance(value, enum.Enum):
        return _single(value.value, depth + 1)
    # Types of elements and devices have a name that two machines share; other objects have an address in theirs.
    if isinstance(value, os.PathLike) or type(value).__module__.partition(".")[0] in ("torch", "mindspore", "numpy"):
        text = str(value)
        return text if len(text) < 200 else None
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return None
