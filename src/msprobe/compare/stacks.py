"""Call stacks from a ``stack.json`` that was named by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msprobe.compare.problems import DamagedDataError, StackMissingError
from msprobe.errors import PathError
from msprobe.messages import said
from msprobe.store.json_index import load_json

StackOf = Callable[[str], list[str]]


def read_stacks(path: Path) -> StackOf:
    """Find the frames of a record by its name. Raises StackMissingError if there is no such file."""
    try:
        content = load_json(path)
    except PathError as problem:
        raise StackMissingError(problem.message) from problem
    if not isinstance(content, dict):
        raise DamagedDataError(said("stacks-are-no-object", path, type(content).__name__))
    frames: dict[str, list[str]] = {}
    for key, group in content.items():
        newer = "0" in content
        whole = isinstance(group, list) and (
            not newer or (len(group) == 2 and all(isinstance(half, list) for half in group))
        )
        if not whole:
            raise DamagedDataError(said("stacks-field-wrong", path, key))
        if newer:
            frames.update(dict.fromkeys((name for name in group[0] if isinstance(name, str)), group[1]))
        else:
            frames[key] = group
    return lambda name: frames.get(name, [])
