"""Settings of calls that mean the same in MindSpore and PyTorch, by one name, however each of them is given.

By keyword, by position where the place has a known name, or as an attribute of MindSpore's object. Axes count from the
first one, so that the last one is the same however it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msprobe.compare.name_table import ARGUMENT_NAMES
from msprobe.diagnose.steps.argument_names import argument_word
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor

#: What both frameworks call so means the same in both. Not `momentum`, which one counts from the other end.
_ALIKE = ("dim", "eps", "keepdim")


def settings_of(event: Event) -> list[Slot]:
    """Slots ``input.dim``, ``input.eps``, ... of what a call was given, each once."""
    settings: dict[str, Any] = {}
    for name, leaf in _given(event):
        value = _single(leaf)
        if name in _ALIKE and value is not None:
            settings.setdefault(name, value)
    axes = next((len(leaf["shape"]) for _, leaf in event.inputs() if is_tensor(leaf)), 0)
    dim = settings.get("dim")
    if isinstance(dim, dict) and type(dim.get("value")) is int and axes:
        # The same object: rows of sheets are known by it.
        dim["value"] %= axes
    return [(f"input.{name}", leaf) for name, leaf in settings.items()]


def _given(event: Event) -> Iterator[tuple[str, Any]]:
    record = event.record
    for part in ("input_kwargs", "attributes"):
        named = record.get(part)
        for name, leaf in named.items() if isinstance(named, dict) else ():
            yield ARGUMENT_NAMES.get(str(name), str(name)), leaf
    args = record.get("input_args")
    for place, leaf in enumerate(args if isinstance(args, list) else ()):
        if not is_tensor(leaf):
            yield argument_word(event, f"input.{place}"), leaf


def _single(leaf: Any) -> dict[str, Any] | None:
    """A number or a word by itself; None for several."""
    if isinstance(leaf, list):
        leaf = leaf[0] if len(leaf) == 1 else None
    return leaf if isinstance(leaf, dict) and leaf.get("type") in ("int", "float", "bool") else None
