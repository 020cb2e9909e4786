"""Layer mapping: records answer to each other by their place in the model, whatever framework named them.

The place of a record is the path of the modules around it, then its own name. A mapping says which child of a
class answers to which child on the other side; all others answer to the child of their name. The records at a
place are paired in order of their calls; a backward call goes with its forward.

Source: the rules of mindstudio-probe 8.1.1 for reading names, with two differences: backward calls are not
counted by themselves, and a function of MindSpore is found under PyTorch's name for it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msprobe.compare.entry_names import EntryName, read_name
from msprobe.compare.mapping_files import TOP_LAYER, LayerMapping
from msprobe.compare.name_table import torch_name
from msprobe.compare.renaming import in_direction

Path = tuple[str, ...]

_FRAME = re.compile(r"File (?P<file>.+?), line \d+, in (?P<function>[^,\n]+)")
_FRAMEWORK_FILE = re.compile(r"[/\\](?:torch|torch_npu|mindspore)[/\\]")
# What stands between a module's code and a function of the framework without meaning anything.
_MACHINERY = re.compile(
    r"msprobe|MindSpeed|[/\\]nn[/\\]cell\.py|check_jit_forbidden_api|[/\\]nn[/\\]modules[/\\]module\.py|"
    r"[/\\]utils[/\\]hooks\.py|[/\\]utils[/\\]_contextlib\.py|api_registry\.py"
)
_OF_MODULES = ("module", "parameters")
_MODULE_CODE = ("forward", "backward", "construct")
# Its layers are numbered from the first of this pipeline stage.
_PIPELINE_CLASS = "ParallelTransformer"


class Names(Protocol):
    """What is read of one part of a dump: :class:`msprobe.store.part.DumpPart` has it."""

    def names(self) -> list[str]: ...

    def parents(self) -> dict[str, object]: ...

    def stack(self, name: str) -> list[str]: ...


@dataclass
class _Tree:
    """The places of one side: what class each has, and which records lie there, by state."""

    place: dict[str, Path] = field(default_factory=dict)
    classes: dict[Path, str] = field(default_factory=lambda: {(): TOP_LAYER})
    records: dict[tuple[Path, str], list[str]] = field(default_factory=lambda: defaultdict(list))


def pair_entries(candidate: Names, reference: Names, mapping: LayerMapping) -> dict[str, str]:
    """Record of the candidate -> record of the reference at the same place; those without one are not in it."""
    mine, theirs = _tree(candidate), _tree(reference)
    walk = _Walk(mine, theirs, mapping)
    reached: Counter[tuple[Path, str]] = Counter()
    pairs: dict[str, str] = {}
    followers: list[tuple[str, EntryName]] = []
    for entry in mine.place:
        name = read_name(entry)
        if name.direction == "backward" and in_direction(name, "forward") in mine.place:
            followers.append((entry, name))
            continue
        key = (walk.to(mine.place[entry], name), name.direction)
        number = reached[key]
        reached[key] += 1
        there = theirs.records.get(key, ())
        if number < len(there):
            pairs[entry] = there[number]
    for entry, name in followers:
        partner = pairs.get(in_direction(name, "forward"))
        other = None if partner is None else in_direction(read_name(partner), "backward")
        if other is not None and other in theirs.place:
            pairs[entry] = other
    return pairs


class _Walk:
    """Goes from a place of the candidate to that of the reference, level by level."""

    def __init__(self, mine: _Tree, theirs: _Tree, mapping: LayerMapping) -> None:
        self._mine = mine
        self._there = {path[:length] for path in theirs.place.values() for length in range(len(path) + 1)}
        self._known: dict[Path, Path] = {(): ()}
        self._rules = {
            class_name: sorted(
                ((tuple(layer.split(".")), tuple(other.split("."))) for layer, other in layers.items()),
                key=lambda rule: -len(rule[0]),
            )
            for class_name, layers in mapping.classes.items()
        }

    def to(self, path: Path, name: EntryName) -> Path:
        """The reference's place for a record at ``path``."""
        return self._to(path) if name.kind in _OF_MODULES else self._call(path, name)

    def _to(self, path: Path) -> Path:
        """The reference's place for a place; names without a rule stay."""
        target = self._known.get(path)
        if target is None:
            rule = next(self._rules_ending_at(path), None)
            target = (*self._to(path[:-1]), path[-1]) if rule is None else (*self._to(rule[0]), *rule[1])
            self._known[path] = target
        return target

    def _rules_ending_at(self, path: Path) -> Iterator[tuple[Path, Path]]:
        """The rules that end at this place: the place they begin at, and what they lead to; longest keys first."""
        for start in range(len(path)):
            class_name = self._mine.classes.get(path[:start], "")
            for key, other in self._rules.get(class_name, ()):
                if path[start:] == key:
                    yield path[:start], other

    def _call(self, path: Path, name: EntryName) -> Path:
        """As :meth:`_to`; a function that is not there under its own name is looked for under the other's."""
        target = self._to(path)
        if target in self._there or target[-1] != path[-1]:
            return target
        words = name.stem.split(".")
        for word in (torch_name(name.stem).rpartition(".")[2], words[1] if len(words) > 2 else "", path[-1].lower()):
            other = (*target[:-1], word)
            if word and other in self._there:
                return other
        return target


def _tree(part: Names) -> _Tree:
    tree = _Tree()
    parents = part.parents()
    for entry in part.names():
        name = read_name(entry)
        if name.kind in _OF_MODULES:
            path: Path = tuple(name.path.split(".")) if name.path else ()
            tree.classes[path] = name.owner if path else TOP_LAYER
        elif name.kind in ("api", "optimizer"):
            path = _call_path(part, entry, name, parents)
            tree.classes.setdefault(path, path[-1])
        else:
            continue
        tree.place[entry] = path
    _renumber(tree)
    for entry, path in tree.place.items():
        tree.records[path, read_name(entry).direction].append(entry)
    return tree


def _call_path(part: Names, entry: str, name: EntryName, parents: Mapping[str, object]) -> Path:
    words = name.stem.split(".")
    forward = in_direction(name, "forward")
    around = _module_path(entry, parents) or _module_path(forward, parents)
    if words[0] in ("Primitive", "Jit"):
        return (*around, words[-1])
    function = called_function(part.stack(forward), words[-1])
    return (*around, function, words[-1]) if function else (*around, words[-1])


def _module_path(entry: str, parents: Mapping[str, object]) -> Path:
    """The path of the module that a call ran in; () where it is not known."""
    for _ in range(len(parents) + 1):
        parent = parents.get(entry)
        if isinstance(parent, list) and parent:
            parent = parent[0]
        if not isinstance(parent, str):
            return ()
        name = read_name(parent)
        if name.kind in _OF_MODULES:
            return tuple(name.path.split(".")) if name.path else ()
        entry = parent
    return ()


def called_function(stack: Sequence[str], own: str) -> str | None:
    """The framework's function that a module's code called and in which the call ``own`` happened; None if it
    made the call itself. ``stack`` begins at the innermost frame.
    """
    wrappers = [number for number, line in enumerate(stack) if "Template" in line]
    called = None
    for line in stack[wrappers[-1] + 1 if wrappers else 0 :]:
        match = _FRAME.match(line)
        if match is None or _MACHINERY.search(match["file"]):
            continue
        function = match["function"].strip()
        if function in _MODULE_CODE or not _FRAMEWORK_FILE.search(match["file"]):
            break
        if function != own and "construct" not in function and "__call__" not in function:
            called = function
    return called


def _renumber(tree: _Tree) -> None:
    """Count the layers of a pipeline stage from 0."""
    stages = [path for path, class_name in tree.classes.items() if class_name == _PIPELINE_CLASS]
    for stage in stages:
        at = len(stage)
        numbers = [
            int(path[at + 1])
            for path in tree.classes
            if path[:at] == stage and len(path) > at + 1 and path[at] == "layers" and path[at + 1].isdigit()
        ]
        first = min(numbers, default=0)
        if not first:
            continue

        def moved(path: Path, at: int = at, stage: Path = stage, first: int = first) -> Path:
            if path[:at] == stage and len(path) > at + 1 and path[at] == "layers" and path[at + 1].isdigit():
                return (*path[: at + 1], str(int(path[at + 1]) - first), *path[at + 2 :])
            return path

        tree.place = {entry: moved(path) for entry, path in tree.place.items()}
        tree.classes = {moved(path): class_name for path, class_name in tree.classes.items()}
