"""What a dump says of its structure: child to parent, as ``construct.json`` and the names of the records say.

``construct.json`` maps a child to its parent, to null, or (26.x with Megatron) to ``[parent, micro_step]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msprobe.compare.entry_names import read_name
from msprobe.errors import InvalidInputError
from msprobe.foreign.letters import short_repr
from msprobe.messages import said
from msprobe.store.layout import CONSTRUCT_FILE
from msprobe.store.part import DumpPart

_MICRO_STEPS = "megatron_micro_step_number"


@dataclass(frozen=True)
class Structure:
    """Child to parent in the order of the file (None: at the top), without gradients of parameters.

    ``gradients``: record of the gradients of a module's parameters -> backward pass that they belong to, None if
    there is none. ``micro_steps``: what the file itself says of nodes; ``micro_step_count`` is 0 where it says nothing.
    """

    parents: Mapping[str, str | None]
    gradients: Mapping[str, str | None]
    micro_steps: Mapping[str, int]
    micro_step_count: int
    is_flat: bool
    notices: tuple[str, ...]


def read_structure(part: DumpPart) -> Structure:
    """Read child and parent of all nodes. Raises InvalidInputError, naming file and entry."""
    given = dict(part.parents())
    count = given.pop(_MICRO_STEPS, 0)
    path = part.folder / CONSTRUCT_FILE
    parents: dict[str, str | None] = {}
    steps: dict[str, int] = {}
    for name, parent in given.items():
        if isinstance(parent, list) and len(parent) == 2 and type(parent[1]) is int:
            parent, steps[name] = parent
        if parent is not None and not isinstance(parent, str):
            raise InvalidInputError(said("parent-is-no-name", path, name, short_repr(parent)))
        parents[name] = parent or None
    notices: list[str] = []
    if not part.complete:
        notices.append(said("graph-of-interrupted"))
    is_flat = not any(parents.values())
    found_in_dump = part.names()
    # Those that construct.json itself has a place for stay there.
    gradients = [name for name in found_in_dump if _is_gradient(name) and not parents.get(name)]
    for name in gradients:
        parents.pop(name, None)
    known = set(gradients)
    missing = [name for name in found_in_dump if name not in parents and name not in known]
    if is_flat and missing:
        notices.append(said("graph-without-modules"))
    elif missing:
        notices.append(said("records-without-place", len(missing)))
    if missing and not parents:
        parents = dict.fromkeys(missing)
    else:
        parents.update(dict.fromkeys(missing))
    _place_backward(parents)
    return Structure(
        parents=parents,
        gradients=_backward_passes(gradients, parents),
        micro_steps=steps,
        micro_step_count=count if type(count) is int else 0,
        is_flat=is_flat,
        notices=tuple(notices),
    )


def _place_backward(parents: dict[str, str | None]) -> None:
    """Put backward nodes without parent where their forward node has its own: in the backward pass of that module."""
    for name, parent in parents.items():
        if parent is not None or "backward" not in name:
            continue
        around = parents.get(_swapped(name, "backward", "forward"))
        if around is not None:
            twin = _swapped(around, "forward", "backward")
            if twin in parents and twin != name:
                parents[name] = twin


def _swapped(name: str, first: str, other: str) -> str:
    """The name in the other direction.

    >>> _swapped("Module.backward.Fc.backward.0", "backward", "forward")
    'Module.backward.Fc.forward.0'
    """
    words = name.split(".")
    for place in (-1, -2):
        if len(words) >= 2 and words[place] == first:
            words[place] = other
            break
    return ".".join(words)


def _is_gradient(name: str) -> bool:
    return "parameters_grad" in name and read_name(name).kind == "parameters"


def _backward_passes(gradients: list[str], parents: Mapping[str, Any]) -> dict[str, str | None]:
    """The backward pass of each record of gradients: the one it names, else the last of its module."""
    if not gradients:
        return {}
    last: dict[str, int] = {}
    for name in parents:
        if ".backward." in name:
            stem, _, number = name.rpartition(".backward.")
            if number.isdigit():
                last[stem] = max(last.get(stem, 0), int(number))
    passes: dict[str, str | None] = {}
    for name in gradients:
        parts = read_name(name)
        number_of = last.get(parts.stem) if parts.number is None else parts.number
        backward = f"{parts.stem}.backward.{number_of}"
        passes[name] = backward if backward in parents else None
    return passes
