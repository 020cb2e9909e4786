"""The text of the JSON files of a dump: lines down to the arguments of a call, each of which is one line."""

from __future__ import annotations

import json
from typing import Any

LINES = 4


def written(tree: Any, depth: int = 0) -> str:
    """The text of a tree that stands ``depth`` objects deep, made by the standard library."""
    if not isinstance(tree, (dict, list, tuple)) or not tree or depth >= LINES:
        return in_one_line(tree)
    if isinstance(tree, dict):
        marks = "{}"
        items = [json.dumps(key, ensure_ascii=False) + ": " + written(one, depth + 1) for key, one in tree.items()]
    else:
        marks = "[]"
        items = [written(one, depth + 1) for one in tree]
    line = "\n" + " " * depth
    return marks[0] + ",".join(f"{line} {item}" for item in items) + line + marks[1]


def in_one_line(tree: Any) -> str:
    """The text of what stands inside of an argument."""
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
