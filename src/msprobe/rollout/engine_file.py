"""``engine.json`` in the folder of a step: whose rows each forward pass had, and what the engine's modules hold.

``steps``: for each forward pass ``{"call": n, "rows": [[request, tokens], ...]}``, in the order of the rows.
``modules``: path -> ``{"numbers": {name: number}, "weights": {name: digests}, "unread": {name: why}}``, a reason
being a text, or the name of a piece of the catalogue with its values. Digests are 64
bits for each row of a weight as it is applied (one for a vector), in the type of the engine, as whole numbers; ``sets``
has those of the numbers of each expert in any order, as kernels pack them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msprobe.errors import InvalidInputError
from msprobe.foreign.json_text import read_json
from msprobe.messages import ENTRIES, said
from msprobe.paths import make_folder, write_atomically

ENGINE_FILE = "engine.json"
#: The requests of a step with their tokens and log-probs, beside it.
RESPONSES_FILE = "responses.jsonl"


@dataclass(frozen=True)
class EngineModule:
    """What a module of the engine holds: plain numbers, and the digests of its weights by name."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, list[int]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    sets: Mapping[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Engine:
    """An ``engine.json``. ``rows``: number of the pass -> the request of each row."""

    rows: Mapping[int, list[str]] = field(default_factory=dict)
    modules: Mapping[str, EngineModule] = field(default_factory=dict)


def write_engine(folder: str, content: Mapping[str, Any]) -> None:
    """Write the file of a step. Raises PathError."""
    make_folder(folder)
    write_atomically(Path(folder) / ENGINE_FILE, json.dumps(content).encode() + b"\n", fsync=False)


def read_engine(folder: Path) -> Engine:
    """The file of a step. Raises PathError, and InvalidInputError for what is no such file."""
    path = folder / ENGINE_FILE
    tree = read_json(path)
    try:
        rows = {
            int(step["call"]): [str(name) for name, count in step["rows"] for _ in range(min(int(count), 1 << 20))]
            for step in tree["steps"]
        }
        modules = read_modules(tree["modules"])
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise InvalidInputError(said("engine-file-broken", path, problem)) from problem
    return Engine(rows, modules)


def read_modules(tree: Mapping[str, Any]) -> dict[str, EngineModule]:
    """What modules hold, as an engine's worker says it."""
    return {
        str(name): EngineModule(
            {str(key): float(value) for key, value in module_fields.get("numbers", {}).items()},
            {str(key): [int(digest) for digest in value] for key, value in module_fields.get("weights", {}).items()},
            {str(key): str(value) for key, value in module_fields.get("dtypes", {}).items()},
            {str(key): _reason(value) for key, value in module_fields.get("unread", {}).items()},
            {str(key): [int(digest) for digest in value] for key, value in module_fields.get("sets", {}).items()},
        )
        for name, module_fields in tree.items()
    }


def _reason(value: Any) -> str:
    """Why a weight was not read, as a worker says it."""
    if not isinstance(value, Mapping):
        return str(value)
    name, values = str(value["name"]), [str(argument) for argument in value["values"]]
    entry = ENTRIES.get(name)
    return said(name, *values) if entry is not None and len(entry.names) == len(values) else name
