"""Graph files (``.vis``, ``.vis.db``), ours and of mindstudio-probe, as a source of the page.

Their nodes become records again, and these are judged as those of dumps are; which of them answer to each other is what
the file says. Nothing in the file is a verdict, so there is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.timeline import Slot, Timeline
from msprobe.errors import InvalidInputError, PathError
from msprobe.graph.graph_files import FileGraph, FileNode, GraphFile, read_graph_file
from msprobe.messages import joined, said
from msprobe.report.phrases import clean
from msprobe.statistics_table import USUAL_KEYS
from msprobe.store.part import DumpPart
from msprobe.store.rows import StoredRows
from msprobe.view.by_hand import put_in
from msprobe.view.judged import JudgedStep, judge_one, judge_pairing
from msprobe.view.matches import SUFFIX, Matches
from msprobe.view.places import StepAndRank
from msprobe.view.protocol import RunHead
from msprobe.view.steps_source import StepsSource

SUFFIXES = (".vis", ".vis.db")
#: Step and rank; None and ``rank`` where a file does not name them.
_At = tuple[int | None, int | str]
_SOURCES = ("NPU", "Bench")
_MODULE, _CALL = 0, 1
_TASKS = {"summary": "statistics", "md5": "statistics", "all": "tensor", "structure": "structure"}


def open_graph_files(path: Path) -> GraphFiles:
    """Open a graph file, or all of a folder. Raises PathError or InvalidInputError if one cannot be read."""
    if path.is_dir():
        paths = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES) and file.is_file())
    else:
        paths = [path]
    if not all(file.is_file() for file in paths):
        raise PathError(said("graph-file-missing", path))
    return GraphFiles(path, [read_graph_file(file) for file in paths])


class GraphFiles(StepsSource):
    """One graph file or several: all steps and ranks in them."""

    def __init__(self, path: Path, files: Sequence[GraphFile]) -> None:
        self._graphs: dict[_At, dict[str, tuple[GraphFile, FileGraph]]] = {}
        for file in files:
            for graph in file.graphs:
                at = graph.step, "rank" if graph.rank is None else graph.rank
                place = self._graphs.setdefault(at, {})
                if graph.source not in _SOURCES:
                    raise InvalidInputError(
                        said("graph-source-unknown", file.path, graph.source[:60], joined(" and ", _SOURCES))
                    )
                if graph.source in place:
                    raise InvalidInputError(
                        said("graph-there-twice", file.path, place[graph.source][0].path, _words(*at))
                    )
                place[graph.source] = file, graph
        if not self._graphs:
            raise InvalidInputError(said("graph-file-empty", path))
        is_pair = any(file.is_comparison for file in files)
        places = [_place(*at, self._graphs[at], is_pair) for at in sorted(self._graphs, key=_order)]
        sides = [_side(path, files, label) for label in (("candidate", "reference") if is_pair else ("run",))]
        super().__init__(
            places, sides, None, [file.path for file in files], notes=[said("graph-without-verdict")] if is_pair else []
        )

    def _judge(self, index: int, place: StepAndRank) -> JudgedStep:
        graphs = self._graphs[place.step, place.rank]
        with no_collection():
            timelines = {source: _timeline(graph, place, file.task) for source, (file, graph) in graphs.items()}
            candidate, reference = timelines.get("NPU"), timelines.get("Bench")
            if candidate is None or reference is None:
                alone = reference if candidate is None else candidate
                assert alone is not None
                return judge_one(alone, is_reference=candidate is None)
            pairing = Pairing(candidate, reference)
            for name, node in graphs["NPU"][1].nodes.items():
                left = candidate.by_name.get(name)
                right = reference.by_name.get(node.partner) if node.partner is not None else None
                if left is not None and right is not None:
                    pairing.add(left, right)
            notes = put_in(self._matches(index).read(), pairing)
            return judge_pairing(pairing, Comparer(candidate.part, reference.part), tuple(notes))

    def _files_of(self, place: StepAndRank) -> list[Path]:
        return [file.path for file, _ in self._graphs[place.step, place.rank].values()]

    def _matches(self, index: int) -> Matches:
        """Beside the file, under the name by which the TensorBoard plugin finds it, too."""
        place = self._place(index)
        path = self._files_of(place)[0]
        if path.name.endswith(".vis.db"):
            return Matches(path.with_name(f"{path.name.removesuffix('.vis.db')}_{place.step}_{place.rank}{SUFFIX}"))
        return Matches(path.with_name(f"{path.name.removesuffix('.vis')}{SUFFIX}"))

    def _status_of(self, place: StepAndRank) -> str:
        return ("not_compared", "candidate_only", "reference_only")[0 if self.is_single else place.side]


def _order(at: _At) -> tuple[int, int]:
    """By number; what has no number in its file comes first."""
    step, rank = at
    return -1 if step is None else step, rank if isinstance(rank, int) else -1


def _words(step: int | None, rank: int | str) -> str:
    words = [] if step is None else [said("step", step)]
    words += [said("rank", rank)] if isinstance(rank, int) else []
    return joined(", ", words) or said("place-without-name")


def _place(step: int | None, rank: int | str, graphs: Mapping[str, Any], is_pair: bool) -> StepAndRank:
    at = step, rank
    return StepAndRank(step, rank, at if "NPU" in graphs else None, at if is_pair and "Bench" in graphs else None)


def _side(path: Path, files: Sequence[GraphFile], label: str) -> RunHead:
    source = "Bench" if label == "reference" else "NPU"
    graphs = [graph for file in files for graph in file.graphs if graph.source == source]
    folder = next((graph.dump_data_dir for graph in graphs if graph.dump_data_dir), None)
    task = next((file.task for file in files if file.task), "")
    return {
        "label": label,
        "path": clean(folder or path),
        "framework": _framework(graphs),
        "level": None,
        "task": _TASKS.get(task),
        "interrupted": False,
    }


def _framework(graphs: Sequence[FileGraph]) -> str | None:
    for graph in graphs:
        for name in graph.nodes:
            if name.startswith(("Cell.", "Mint.", "Primitive.")):
                return "mindspore"
            if name.startswith(("Module.", "Torch.")):
                return "pytorch"
    return None


class _FilePart:
    """The nodes of one graph, in the form in which a timeline reads a dump: those inside a node before it."""

    kind = "dump"
    complete = True
    lost = 0

    def __init__(self, graph: FileGraph, place: StepAndRank, task: str) -> None:
        self.step, self.rank = place.step, place.rank
        self.header = {"framework": _framework([graph]), "task": _TASKS.get(task, "statistics"), "level": "mix"}
        self.ours: dict[str, Any] = {}
        self.unread: dict[str, None] = {}
        self.folder = Path()
        self.rows = StoredRows(self.folder)
        self._graph = graph
        self._names = list(_as_they_ended(graph.nodes))

    def __len__(self) -> int:
        return len(self._names)

    def names(self) -> list[str]:
        return self._names

    def records(self) -> Iterator[tuple[str, Any]]:
        for name in self._names:
            node = self._graph.nodes[name]
            # What a timeline does not read: slots are given to its events below.
            yield name, {"node": [node.inputs(), node.outputs()]}

    def parents(self) -> dict[str, Any]:
        nodes = self._graph.nodes
        parents: dict[str, Any] = {}
        for name in self._names:
            if read_name(name).kind == "parameters":
                # As of a dump, they come after the last backward pass, where their values are whole: inside of an
                # earlier one they would stand out of the order of execution.
                parents[name] = None
                continue
            above = nodes[name].parent
            seen: set[str] = set()
            while above is not None and above in nodes and above not in seen:
                if nodes[above].kind in (_MODULE, _CALL):
                    break
                seen.add(above)
                above = nodes[above].parent
            is_there = above is not None and above in nodes and not _is_root(nodes[above])
            parents[name] = above if is_there else None
        return parents

    def parent(self, name: str) -> Any:
        return self.parents().get(name)

    def stack(self, name: str) -> list[str]:
        node = self._graph.nodes.get(name)
        return list(node.stack) if node is not None else []

    def array(self, name: str) -> None:
        return None

    def close(self) -> None:
        """Nothing is open."""


def _timeline(graph: FileGraph, place: StepAndRank, task: str) -> Timeline:
    timeline = Timeline(cast(DumpPart, _FilePart(graph, place, task)))
    for event in timeline:
        node = graph.nodes[event.name]
        given, made = _slots(node.name, node.inputs()), _slots(node.name, node.outputs())
        own = [slot for slot in given if slot[0].startswith(("parameters.", "buffers."))]
        event.arrange([slot for slot in given if slot not in own], made)
        event.call(event.parts.path, parameters=own)
    return timeline


def _as_they_ended(nodes: Mapping[str, FileNode]) -> Iterator[str]:
    """The names of all records, what ran inside a node before it; nodes that no other holds stand at the end."""
    walked: set[str] = set()
    for start in nodes:
        if nodes[start].parent in nodes and start not in walked and not _is_root(nodes[start]):
            continue
        todo = [(start, False)]
        while todo:
            name, is_done = todo.pop()
            if is_done:
                if nodes[name].kind in (_MODULE, _CALL) and not _is_root(nodes[name]):
                    yield name
            elif name in nodes and name not in walked:
                walked.add(name)
                todo.append((name, True))
                todo += [(child, False) for child in reversed(nodes[name].children)]
    for name in nodes:
        if name not in walked and nodes[name].kind in (_MODULE, _CALL):
            yield name


def _is_root(node: FileNode) -> bool:
    return node.parent is None and node.name == "DefaultModel"


def _slots(name: str, fields: object) -> list[Slot]:
    """Of what a file says of a node's inputs or outputs; nothing where that is no object."""
    if not isinstance(fields, Mapping):
        return []
    return [
        (slot.removeprefix(f"{name}."), _leaf(field)) for slot, field in fields.items() if isinstance(field, Mapping)
    ]


def _leaf(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """A tensor, or an argument, as a dump has it; a graph file has all values as texts."""
    kind, dtype = str(fields.get("type")), str(fields.get("dtype"))
    if kind in ("None", "NoneType"):
        return None
    if "Tensor" not in kind and "Parameter" not in kind:
        return {"type": kind, "value": fields.get("value", fields.get("Max"))}
    leaf: dict[str, Any] = {"type": kind, "dtype": dtype, "shape": _shape(fields.get("shape"))}
    for key in USUAL_KEYS:
        number = _number(fields.get(key))
        leaf[key] = number
    if isinstance(fields.get("md5"), str) and fields["md5"] not in ("", "None"):
        leaf["md5"] = fields["md5"]
    return leaf


def _shape(text: Any) -> list[int]:
    try:
        numbers = json.loads(str(text).replace("(", "[").replace(",)", "]").replace(")", "]"))
    except (ValueError, RecursionError):
        return []
    return [number for number in numbers if type(number) is int] if isinstance(numbers, list) else []


def _number(text: Any) -> float | None:
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        return None
    try:
        return float(text)
    except (ValueError, OverflowError):
        return None
