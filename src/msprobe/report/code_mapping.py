"""Writes code mappings: ``code_mapping_{time}.csv`` for files of values, two more columns in a ``statistic.csv``."""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msprobe import log
from msprobe.coverage import Coverage, NotRead
from msprobe.diagnose.code_mapping.dumped_kernels import VALUES, find_dump_files
from msprobe.diagnose.code_mapping.graph_texts import read_graphs
from msprobe.diagnose.code_mapping.joining import Join, Tally, check_statistics
from msprobe.diagnose.code_mapping.kernel_lookup import KernelCode
from msprobe.foreign import csv_cells
from msprobe.messages import said
from msprobe.paths import StrPath, check_output_folder, make_folder, write_atomically
from msprobe.report.csv_table import write_csv
from msprobe.report.workbook import Column

FILE_PATH, CODE_STACK, SCOPE_NAME = "File Path", "Code Stack", "Scope Name"
_BLOCK_ROWS = 256


@dataclass(frozen=True)
class CodeMapping:
    """What was written, and what was found."""

    written: tuple[Path, ...]
    tally: Tally
    #: Graphs whose text ends in their midst.
    cut_off: tuple[str, ...] = ()

    @property
    def coverage(self) -> Coverage:
        """What got its lines, and what the texts of the graphs do not have."""
        missing = [NotRead(said("rest-of-text", path), said("ends-in-a-graph")) for path in self.cut_off]
        for count, why in (
            (self.tally.not_found, said("graph-lacks-kernels")),
            (self.tally.other_graphs, said("kernels-of-other-graphs")),
        ):
            if count:
                missing.append(NotRead(said("so-many-kernels", count) if count > 1 else said("one-kernel"), why))
        return Coverage({"kernels": self.tally.mapped}, tuple(missing))


def map_code(ir: StrPath, dump_data: StrPath, output: StrPath = "./") -> CodeMapping:
    """Join a kernel dump of a MindSpore graph with the text of the graph, and write the result.

    ``ir`` is a text of a graph, or a folder with one for each graph or rank; ``dump_data`` a ``.npy`` file, a
    ``statistic.csv`` or a folder. Files of values give ``code_mapping_{time}.csv`` in ``output``; statistics files are
    extended in place, each as a whole. Raises PathError and InvalidInputError, and has written nothing then.
    """
    files = find_dump_files(dump_data)
    folder = check_output_folder(output) if files.kind == VALUES else None
    check_statistics(files)
    texts = read_graphs(ir)
    join = Join(texts, files)
    cut_off = []
    for graph in (graph for graphs in texts.values() for graph in graphs):
        if not graph.whole:
            cut_off.append(str(graph.path))
            log.warning(said("graph-text-cut-off", graph.path))
    if not join.names_kernels:
        log.warning(said("graph-of-early-pass", ir))
    if folder is None:
        written = tuple(_extend(file, rows) for file, rows in join.statistics())
    else:
        path = _new_file(make_folder(folder))
        write_csv(path, (FILE_PATH, CODE_STACK, SCOPE_NAME), _blocks(join.values()))
        written = (path,)
    if not join.tally.mapped and join.tally.not_found:
        log.warning(said("graph-of-different-network", ir, dump_data))
    return CodeMapping(written, join.tally, tuple(dict.fromkeys(cut_off)))


def _new_file(folder: Path) -> Path:
    """A name with the time; a result of the same second keeps its own."""
    for seconds in itertools.count(int(time.time())):
        path = folder / f"code_mapping_{time.strftime('%Y%m%d%H%M%S', time.localtime(seconds))}.csv"
        if not path.exists():
            break
    return path


def _blocks(kernels: Iterator[tuple[Path, KernelCode | None]]) -> Iterator[list[Column]]:
    paths: list[str] = []
    codes: list[str] = []
    scopes: list[str] = []
    cells = _cells()
    for path, code in kernels:
        paths.append(str(path))
        stack, scope = cells(code)
        codes.append(stack)
        scopes.append(scope)
        if len(paths) == _BLOCK_ROWS:
            yield [paths, codes, scopes]
            paths, codes, scopes = [], [], []
    yield [paths, codes, scopes]


class _cells:
    """The two cells of a kernel; its inputs and outputs follow each other, so the last text is kept."""

    def __init__(self) -> None:
        self._last: tuple[KernelCode | None, tuple[str, str]] = (None, ("", ""))

    def __call__(self, code: KernelCode | None) -> tuple[str, str]:
        if code is not self._last[0]:
            self._last = code, ("", "") if code is None else (code.text(), code.scope)
        return self._last[1]


def _extend(file: Path, rows: Iterator[tuple[list[str], KernelCode | None]]) -> Path:
    write_atomically(file, _extended(rows), fsync=False)
    return file


def _extended(rows: Iterator[tuple[list[str], KernelCode | None]]) -> Iterator[bytes]:
    """The file with the two columns; those of an earlier mapping are replaced."""
    text = io.StringIO()
    writer = csv_cells.writer(text, lineterminator="\n")
    header, _ = next(rows)
    mapped = [cell.strip() for cell in header[-2:]] == [CODE_STACK, SCOPE_NAME]
    width = len(header) - 2 if mapped else len(header)
    writer.writerow([*header[:width], CODE_STACK, SCOPE_NAME])
    cells = _cells()
    for number, (row, code) in enumerate(rows):
        writer.writerow([*row[:width], *cells(code)])
        if number % _BLOCK_ROWS == 0:
            yield text.getvalue().encode("utf-8")
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode("utf-8")
