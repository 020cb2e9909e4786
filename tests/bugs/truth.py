"""Which entries of the recorded pair the right answers name, and whether a finding is one of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from bugs.planting import Answer, line_number
from bugs.record import Pair


@dataclass(frozen=True)
class Resolved:
    """An answer in terms of the recorded dumps: findings of ``kinds`` at one of ``entries`` are right.

    ``entries``: step, rank ("" with a single process) and entry name. Without a line, any entry counts, as long as the
    finding names ``parameter``.
    """

    kinds: frozenset[str]
    entries: frozenset[tuple[int, str, str]]
    step: int
    parameter: str | None

    def accepts(self, finding: Mapping[str, Any]) -> bool:
        """True if the finding says this; one of no kind is judged by its place alone."""
        if finding.get("kind") is not None and finding["kind"] not in self.kinds:
            return False
        if self.parameter is not None and not _names_parameter(finding, self.parameter):
            return False
        if not self.entries:
            return self.parameter is not None and finding.get("step") in (self.step, None)
        entry = str(finding.get("entry") or "")
        step, rank = finding.get("step"), _rank(finding.get("rank"))
        return any(
            (entry == name or entry.startswith(f"{name}."))
            and step in (its_step, None)
            and (rank == its_rank or "" in (rank, its_rank))
            for its_step, its_rank, name in self.entries
        )


def resolve(pair: Pair) -> list[Resolved]:
    """The right answers of a recorded pair; ValueError if one of them names nothing that was recorded."""
    return [resolve_one(pair, one) for one in pair.pattern.truth]


def is_right(finding: Mapping[str, Any], answers: list[Resolved]) -> bool:
    """True if one of the answers accepts the finding."""
    return any(one.accepts(finding) for one in answers)


def resolve_one(pair: Pair, one: Answer) -> Resolved:
    """One right answer; ValueError if it names nothing that was recorded."""
    fill = pair.draw.fill
    parameter = fill(one.parameter) if one.parameter else None
    if one.line is None and one.api is None and one.module is None:
        return Resolved(one.kinds, frozenset(), one.step, parameter)
    found: set[tuple[int, str, str]] = set()
    for rank, data, parents in _parts(pair.dump(one.side), one.step):
        if one.ranks is not None and rank != fill(one.ranks):
            continue
        names = [name for name in _in_order(data) if _fits(pair, one, name, data[name], parents)]
        found.update((one.step, rank, name) for name in _occurring(names, fill(one.occurrence), data))
    if not found:
        raise ValueError(f"{pair.pattern.id}: no recorded call answers to {one}")
    return Resolved(one.kinds, frozenset(found), one.step, parameter)


def _occurring(names: list[str], occurrence: str, data: Mapping[str, Any]) -> list[str]:
    """Of the names of the same API, those of these places; ``chained``: a call and the one that gets its result."""
    if occurrence == "any":
        return names
    if occurrence == "chained":
        pairs = pairwise(names)
        chained = {
            pair for pair in pairs if _values(data[pair[0]]["output"][0]) == _values(data[pair[1]]["input_args"][0])
        }
        return [name for name in names if any(name in pair for pair in chained)]
    by_api: dict[str, list[str]] = {}
    for name in names:
        by_api.setdefault(re.sub(r"\.\d+(?=\.|$)", "", name), []).append(name)
    places = [int(place) for place in occurrence.split()]
    return [group[place] for group in by_api.values() for place in places if len(group) > place]


def _values(tensor: Mapping[str, Any]) -> list[Any]:
    return [tensor.get(key) for key in ("shape", "Max", "Min", "Mean", "Norm")]


def _fits(pair: Pair, one: Answer, name: str, record: Any, parents: Mapping[str, Any]) -> bool:
    fill = pair.draw.fill
    forward_name = re.sub(r"\.backward(?=\.\d+$|$)", ".forward", name)
    direction = "forward" if forward_name == name else "backward"
    if one.direction not in (direction, "any"):
        return False
    if one.api is not None and not re.search(fill(one.api), name):
        return False
    if one.recompute is not None and record.get("is_recompute") is not one.recompute:
        return False
    if one.module is not None and fill(one.module) not in _modules(forward_name, parents):
        return False
    if one.line is None:
        return True
    number = _line(pair, one.side, fill(one.line))
    until = _line(pair, one.side, fill(one.until)) if one.until else number
    forward = _record(pair, one, forward_name) if direction == "backward" else record
    source = ((forward or {}).get("msprobe") or {}).get("source", "")
    file, _, line = source.rpartition(":")
    return file.endswith("program.py") and number <= int(line) <= until


def _record(pair: Pair, one: Answer, name: str) -> Any:
    for _, data, _parents in _parts(pair.dump(one.side), one.step):
        if name in data:
            return data[name]
    return None


def _line(pair: Pair, side: str, snippet: str) -> int:
    return line_number(pair.program(side), snippet)


def _modules(name: str, parents: Mapping[str, Any]) -> set[str]:
    """The paths of the modules that an entry ran in, and its own if it is a module's."""
    found = set()
    current: Any = name
    while isinstance(current, str):
        match = re.match(r"Module\.(.+)\.\w+\.(forward|backward)\.\d+$", current)
        if match:
            path = match.group(1)
            found.add(path)
            while "." in path:
                path = path.rpartition(".")[0]
                found.add(path)
        current = parents.get(current)
        if isinstance(current, list):
            current = current[0]
    return found


def _parts(dump: Path, step: int) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Rank, records and hierarchy of each rank of a step."""
    folders = sorted((dump / f"step{step}").iterdir())
    return [(folder.name.removeprefix("rank"), *_read(folder)) for folder in folders]


@lru_cache(maxsize=32)
def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return json.loads((folder / "dump.json").read_text())["data"], json.loads((folder / "construct.json").read_text())


def _in_order(data: Mapping[str, Any]) -> list[str]:
    """The names of all entries that have a place in the order of execution, in this order."""
    place = {name: record["msprobe"]["order"] for name, record in data.items() if "order" in record.get("msprobe", {})}
    return sorted(place, key=lambda name: int(place[name]))


def _names_parameter(finding: Mapping[str, Any], parameter: str) -> bool:
    """True if the finding names a parameter that the expression ``parameter`` describes, with or without its module."""
    entry = str(finding.get("entry") or "")
    modules = {str(finding.get("module") or ""), _module_of(entry)} - {""}
    for word in re.findall(r"[\w.]+", f"{finding.get('where') or ''} {entry}"):
        # A tensor of a record is named by its place: ``weight.0``.
        name = re.sub(r"(\.\d+)?\.?$", "", word)
        if any(re.fullmatch(parameter, full) for full in (name, *(f"{module}.{name}" for module in modules))):
            return True
    return False


def _module_of(entry: str) -> str:
    match = re.match(r"Module\.(.+)\.\w+\.(forward|backward|parameters_grad)", entry)
    return match.group(1) if match else ""


def _rank(rank: Any) -> str:
    return "" if rank is None or rank == "rank" else str(rank).removeprefix("rank")
