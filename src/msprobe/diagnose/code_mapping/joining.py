"""The kernels of a dump and the texts of their graphs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from msprobe.diagnose.code_mapping.dumped_kernels import (
    OP_NAME,
    STATISTICS,
    DumpFiles,
    OpNames,
    graph_of,
    statistics_rows,
)
from msprobe.diagnose.code_mapping.graph_texts import GraphTexts, rank_of
from msprobe.diagnose.code_mapping.ir_text import IrGraph
from msprobe.diagnose.code_mapping.kernel_lookup import KernelCode, KernelLookup

_PARAMETER = "Parameter"

_Find = Callable[[str], "KernelCode | None"]


@dataclass
class Tally:
    """What came of it: kernels are files of values or rows of statistics."""

    kernels: int = 0
    mapped: int = 0
    without_code: int = 0
    parameters: int = 0
    other_graphs: int = 0

    def note(self, code: KernelCode | None, parameter: bool, other_graph: bool) -> None:
        """Count one kernel."""
        self.kernels += 1
        if code is not None:
            self.mapped += 1
            self.without_code += not code.stack
        elif parameter:
            self.parameters += 1
        elif other_graph:
            self.other_graphs += 1

    @property
    def not_found(self) -> int:
        """Kernels that the graphs should have and have not."""
        return self.kernels - self.mapped - self.parameters - self.other_graphs


class _Rank:
    """The graphs of one rank."""

    def __init__(self, graphs: Sequence[IrGraph], dumped: set[int | None]) -> None:
        self._lookups = [KernelLookup(graph) for graph in graphs]
        pairs = zip(graphs, self._lookups, strict=True)
        self._by_number = {graph.number: lookup for graph, lookup in pairs if graph.number is not None}
        # A text that names its graph is asked for that graph only, if the folders of the dump name theirs.
        self._numbers_agree = len(self._by_number) == len(graphs) and not dumped.isdisjoint(self._by_number)
        self.names_kernels = any(lookup.names_kernels for lookup in self._lookups)

    def texts_of_graph(self, number: int | None) -> Sequence[KernelLookup]:
        """The texts to ask for the kernels of a graph, the first one first."""
        if not self._numbers_agree:
            return self._lookups
        return [self._by_number[number]] if number in self._by_number else []


class Join:
    """Finds the code of every kernel of a dump; ``tally`` counts while the rows are asked for."""

    def __init__(self, texts: GraphTexts, files: DumpFiles) -> None:
        self.tally = Tally()
        self._files = files
        dumped = {graph_of(folder) for folder in files.folders}
        self._ranks = {rank: _Rank(graphs, dumped) for rank, graphs in texts.items()}

    @property
    def names_kernels(self) -> bool:
        """False if all texts name cells only."""
        return any(rank.names_kernels for rank in self._ranks.values())

    def values(self) -> Iterator[tuple[Path, KernelCode | None]]:
        """Each file of values and where it comes from, graph by graph in the order of execution."""
        for folders in self._by_graph():
            find, other = self._finder(folders, self._names_of_files(folders))
            names = OpNames()
            for folder in folders:
                for file in self._files.files(folder):
                    code = find(names.kernel_in_file(file))
                    self.tally.note(code, file.name.startswith(f"{_PARAMETER}."), other)
                    yield file, code

    def statistics(self) -> Iterator[tuple[Path, Iterator[tuple[list[str], KernelCode | None]]]]:
        """Each statistics file with its rows; that of the header, the first, has no code."""
        for folders in self._by_graph():
            find, other = self._finder(folders, self._names_in_rows(folders))
            for folder in folders:
                for file in self._files.files(folder):
                    yield file, self._rows(file, find, other)

    def _rows(self, file: Path, find: _Find, other_graph: bool) -> Iterator[tuple[list[str], KernelCode | None]]:
        rows = statistics_rows(file)
        header = next(rows)
        place = [cell.strip() for cell in header].index(OP_NAME)
        yield header, None
        for row in rows:
            code = find(row[place].strip())
            self.tally.note(code, row[0].strip() == _PARAMETER, other_graph)
            yield row, code

    def _by_graph(self) -> Iterator[list[Path]]:
        """The folders of the iterations of each graph."""
        for _, folders in groupby(self._files.folders, lambda folder: folder.parent):
            yield list(folders)

    def _names_of_files(self, folders: Iterable[Path]) -> Iterator[str]:
        names = OpNames()
        return (names.kernel_in_file(file) for folder in folders for file in self._files.files(folder))

    def _names_in_rows(self, folders: Iterable[Path]) -> Iterator[str]:
        for folder in folders:
            for file in self._files.files(folder):
                rows = statistics_rows(file)
                place = [cell.strip() for cell in next(rows)].index(OP_NAME)
                yield from (row[place].strip() for row in rows)

    def _finder(self, folders: Sequence[Path], names: Iterable[str]) -> tuple[_Find, bool]:
        """What finds the kernels of these folders, and True if they are of a graph that has no text here."""
        rank = self._ranks.get(rank_of(folders[0])) or self._ranks.get(None)
        lookups = rank.texts_of_graph(graph_of(folders[0])) if rank is not None else []
        wanted = set(names) if lookups else set()
        codes: dict[str, KernelCode] = {}
        for lookup in reversed(lookups):
            codes.update(lookup.find(wanted))
        return codes.get, not lookups


def check_statistics(files: DumpFiles) -> None:
    """Read all statistics files to their ends, so that none is changed if one is wrong."""
    if files.kind == STATISTICS:
        for folder in files.folders:
            for file in files.files(folder):
                for _ in statistics_rows(file):
                    pass
