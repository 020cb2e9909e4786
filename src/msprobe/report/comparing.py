"""Compare files or folders of ranks and write the sheets: what the command and the Python functions do."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from msprobe import log
from msprobe.compare.colours import RED, YELLOW
from msprobe.compare.comparison import RowComparison, compare_parts
from msprobe.compare.mapping import Mappings, write_data_mapping
from msprobe.compare.mapping_files import DataMapping
from msprobe.compare.measures_tensor import UNSUPPORTED, Form
from msprobe.compare.multiplications import GOLDEN, TARGET, Multiplications
from msprobe.compare.own_metrics import OwnMetrics
from msprobe.compare.problems import DamagedDataError, StackMissingError, TaskMismatchError
from msprobe.compare.sides import RankPair, cut_short, files_of, open_pair, pair_ranks
from msprobe.compare.stacks import StackOf, read_stacks
from msprobe.compare.table import SheetTable, table_of
from msprobe.coverage import Coverage, NotRead, together, write
from msprobe.engine import ALONE, Workers, run
from msprobe.messages import joined, said
from msprobe.paths import StrPath, check_output_folder, make_folder, write_atomically
from msprobe.report.advisor import unmatched_lines
from msprobe.report.formats import always, sheet_format
from msprobe.report.row_partners import (
    crosses_frameworks,
    find_as_verdict,
    find_by_mappings,
    names_differ,
    records_as_verdict,
)
from msprobe.report.workbook import Column, Sheet
from msprobe.store.part import DumpPart

_LEAST_MATCHED = 0.5
_UNMATCHED_HEADER = ("Side", "Name", "Dtype", "Tensor Shape", "API", "Place")


@dataclass(frozen=True)
class SheetRequest:
    """What is wanted of a comparison.

    ``stack`` is False for no column of call stacks, a path for those of one file, None for those beside the
    candidate, if there are any. ``file_format`` is the word of a format of sheets. ``suffix`` stands in the names of
    the files. ``workers`` compare ranks side by side, and the tensors of a single file in threads. ``fuzzy``: rows
    answer to each other as the verdict pairs their records, and not by name.
    """

    output: StrPath
    form: Form = "8.1.1"
    file_format: str = "xlsx"
    stack: StrPath | Literal[False] | None = None
    advise: bool = True
    fuzzy: bool = False
    mappings: Mappings = field(default_factory=Mappings)
    suffix: str = ""
    log_rows: bool = False
    workers: Workers = ALONE
    multiplications: Multiplications | None = None
    own_metrics: OwnMetrics | None = None


@dataclass(frozen=True)
class PairOutcome:
    """What came of one pair of files: the files written, and how many rows have a partner of how many. ``not_read``:
    what was not compared; one without files says that alone.
    """

    files: tuple[Path, ...]
    rows: int
    matched: int
    not_read: tuple[NotRead, ...] = ()

    @property
    def nothing_matches(self) -> bool:
        """True if there are rows, and not one of them has a partner."""
        return self.rows > 0 and self.matched == 0


def compare_files(
    candidate: StrPath, reference: StrPath, request: SheetRequest, rank: str = "", threads: int | None = None
) -> PairOutcome:
    """Compare two ``dump.json`` or two ``debug.json`` and write sheet, advice and mapping. ``threads`` read tensors, as
    many as there are workers if nothing else is said.

    Raises the errors of :mod:`msprobe.compare.problems`, PathError and InvalidInputError; then nothing was written.
    """
    output = check_output_folder(request.output)
    if isinstance(request.stack, (str, os.PathLike)) and not os.path.isfile(request.stack):
        raise StackMissingError(said("stack-file-missing", request.stack))
    first, second = open_pair(candidate, reference)
    try:
        return _compare_open(first, second, request, rank, output, threads or request.workers.inside(1))
    finally:
        first.close()
        second.close()


def compare_folders(
    candidate: StrPath, reference: StrPath, request: SheetRequest, progress: Callable[[str], None] = lambda text: None
) -> list[PairOutcome]:
    """Compare two folders of ranks, rank by rank. ``progress`` gets the rank that is waited for.

    A rank whose data are damaged, or of tasks that cannot be compared, is said and passed over. Raises
    InvalidPathError where the folders do not answer to each other.
    """
    pairs, lone = pair_ranks(Path(candidate), Path(reference), strict=request.form == "8.1.1")
    # Functions of users and matrices that were read stay in their process; their tensors are read in threads.
    here = request.own_metrics is not None or request.multiplications is not None
    threads = (request.workers.count or 1) if here else request.workers.inside(len(pairs))
    work = partial(_compare_rank, request=replace(request, workers=ALONE), threads=threads)
    outcomes: list[PairOutcome] = []
    problems: list[NotRead] = []

    def show_rank(number: int) -> None:
        progress(said("job-of-jobs", pairs[number].name, number + 1, len(pairs)))

    for done, failed in run(work, pairs, ALONE if here else request.workers, show_rank):
        outcomes += done
        problems += failed
    if problems and not outcomes:
        raise DamagedDataError(joined(" ", (problem.why for problem in problems)))
    not_read = (*(NotRead(name, said("only-in", side)) for name, side in lone), *problems)
    return [*outcomes, PairOutcome((), 0, 0, not_read)] if not_read else outcomes


def say_what_was_not(outcomes: Sequence[PairOutcome], output: StrPath) -> Coverage:
    """What was compared and what not; that is logged, and in ``coverage_{stamp}.json``. Raises PathError."""
    done = [outcome for outcome in outcomes if outcome.files]
    numbers = {
        "files": len(done),
        "rows": sum(outcome.rows for outcome in done),
        "pairs": sum(outcome.matched for outcome in done),
    }
    covered = together([Coverage(numbers), *(Coverage({}, outcome.not_read) for outcome in outcomes)])
    if not covered.is_complete:
        folder = make_folder(output)
        path = write(covered, folder / f"coverage_{time.strftime('%Y%m%d%H%M%S')}.json")
        log.warning(said("all-not-read-in-file", covered.sentence(), path))
    return covered


def _compare_rank(pair: RankPair, request: SheetRequest, threads: int) -> tuple[list[PairOutcome], list[NotRead]]:
    """What came of the files of one rank, and what went wrong."""
    ours, theirs = files_of(pair.candidate), files_of(pair.reference)
    outcomes: list[PairOutcome] = []
    problems: list[NotRead] = []
    common = [kind for kind in ours if kind in theirs]
    if not common:
        why = said("no-common-file", pair.candidate, pair.reference)
        problems.append(NotRead(pair.name, why))
        log.error(said("rank-not-compared", pair.name, why))
    for kind in common:
        try:
            outcomes.append(compare_files(ours[kind], theirs[kind], request, pair.name, threads))
        except (DamagedDataError, TaskMismatchError) as problem:
            problems.append(NotRead(pair.name, problem.message))
            log.error(said("rank-not-compared", pair.name, problem.message))
    lone = [
        (kind, side)
        for side, record_kind, other in ((pair.candidate, ours, theirs), (pair.reference, theirs, ours))
        for kind in record_kind
        if common and kind not in other
    ]
    problems += [NotRead(f"{pair.name}, {kind}.json", said("only-in", f'"{side}"')) for kind, side in lone]
    return outcomes, problems


def _compare_open(
    first: DumpPart, second: DumpPart, request: SheetRequest, rank: str, output: Path, threads: int
) -> PairOutcome:
    not_read = _warn_incomplete(first, second)
    if not len(first) or not len(second):
        empty = first if not len(first) else second
        log.warning(said("data-field-empty", empty.path))
        return PairOutcome((), 0, 0, (*not_read, NotRead(str(empty.path), said("without-records"))))
    generated: list[DataMapping] = []
    find_names = None
    if request.mappings:
        find_names = find_by_mappings(request.mappings, generated.append)
    elif not request.fuzzy and names_differ(first, second):
        find_names = find_as_verdict(request.mappings)
    comparison = compare_parts(
        first,
        second,
        find_records=records_as_verdict if request.fuzzy else None,
        find_names=find_names,
        cross_framework=crosses_frameworks(first, second),
        jobs=threads,
        form=request.form,
        prepare=None if request.multiplications is None else request.multiplications.apply,
        own=request.own_metrics,
    )
    if request.multiplications is not None:
        _warn_multiplications(comparison, request.multiplications)
    if request.log_rows:
        _log_rows(comparison)
    stacks = _stacks(first, request)
    files = _write(comparison, stacks, request, rank, make_folder(output), generated)
    matched = int(comparison.pairing.matched.sum())
    as_verdict = find_names is not None and not request.mappings
    _say_outcome(comparison, files, matched, said("calls-of-one-framework" if as_verdict else "are-programs-the-same"))
    return PairOutcome(tuple(files), len(comparison), matched, not_read)


def _warn_multiplications(comparison: RowComparison, asked: Multiplications) -> None:
    if comparison.tensors is None:
        log.warning(said("values-missing-to-multiply"))
        return
    for side, rows, word in (
        (TARGET, comparison.candidate, "target-side"),
        (GOLDEN, comparison.reference, "bench-side"),
    ):
        unknown = asked.unknown(side, {name for name in rows.data_name if name is not None})
        if unknown:
            log.warning(said("multiplied-data-missing", said(word), ", ".join(unknown[:5]), len(unknown)))


def _warn_incomplete(*parts: DumpPart) -> tuple[NotRead, ...]:
    for part in parts:
        if not part.complete:
            log.warning(said("dump-not-finished", part.path))
    return cut_short(*parts)


def _stacks(part: DumpPart, request: SheetRequest) -> StackOf | None:
    if request.stack is False or part.kind == "debug":
        return None
    if request.stack is not None:
        return read_stacks(Path(request.stack))
    if any(part.stack(name) for name in part.names()):
        return part.stack
    log.warning(said("stack-column-left-out", part.path))
    return None


def _write(
    comparison: RowComparison,
    stacks: StackOf | None,
    request: SheetRequest,
    rank: str,
    output: Path,
    generated: list[DataMapping],
) -> list[Path]:
    middle = "".join(f"_{word}" for word in (rank, request.suffix) if word)
    debug = "debug_" if comparison.parts[0].kind == "debug" else ""
    table = table_of(comparison, request.form, stacks)
    if request.own_metrics is not None:
        table = _with_own(table, comparison, request.own_metrics.columns)
    stamp = _free_stamp(output, middle)
    part = f"{middle}_{stamp}"
    kind = sheet_format(request.file_format)
    sheet = output / f"{debug}{kind.file.format(part=part)}"
    kind.render()(sheet, sheets_of(comparison, table, request.form))
    files = [sheet]
    for advice in always("advice") if request.advise and request.form == "8.1.1" else ():
        files.append(output / advice.file.format(part=part))
        write_atomically(files[-1], advice.content(comparison, request.mappings), fsync=False)
    for mapping in generated:
        path = output / f"data_mapping{part}.yaml"
        write_data_mapping(path, mapping)
        files.append(path)
    return files


def _with_own(table: SheetTable, comparison: RowComparison, names: tuple[str, ...]) -> SheetTable:
    """The table with the columns of the user's metrics behind all others; there are none without values."""
    tensors = comparison.tensors
    if tensors is None:
        log.warning(said("values-missing-for-own-metrics"))
        return table

    def make(start: int, stop: int) -> list[Column]:
        rows = [measured.own or (UNSUPPORTED,) * len(names) for measured in tensors[start:stop]]
        return [*table.make(start, stop), *(list(column) for column in zip(*rows, strict=True))]

    return SheetTable((*table.header, *names), table.rows, make)


def _free_stamp(folder: Path, middle: str) -> str:
    """The time in the names of new files; a later second where those of an earlier comparison have this one."""
    seconds = time.time()
    while True:
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(seconds))
        if not any(folder.glob(f"*{glob.escape(middle)}_{stamp}.*")):
            return stamp
        seconds += 1


def sheets_of(comparison: RowComparison, table: SheetTable, form: Form) -> Iterator[Sheet]:
    """The sheets of a workbook: the table, and the rows that one side alone has, if there are any."""
    colours = comparison.colouring.colour.tolist() if form == "8.1.1" else ()
    yield Sheet("Sheet", table.header, table.blocks(), table.rows, colours)
    unmatched = _unmatched(comparison)
    if unmatched[0]:
        yield Sheet("Unmatched", _UNMATCHED_HEADER, [unmatched], len(unmatched[0]))


def _unmatched(comparison: RowComparison) -> list[Column]:
    """The rows that one side alone has, of both sides."""
    cells: list[list[str]] = [[] for _ in _UNMATCHED_HEADER]
    for side, rows, unmatched in (
        ("NPU", comparison.candidate, (~comparison.pairing.matched).nonzero()[0]),
        ("Bench", comparison.reference, comparison.pairing.reference_only),
    ):
        for row in unmatched.tolist():
            values = (
                side,
                rows.name[row],
                rows.dtypes[rows.dtype[row]],
                rows.shapes[rows.shape[row]],
                rows.entries[rows.entry[row]],
                rows.slot[row],
            )
            for column, value in zip(cells, values, strict=True):
                column.append(value)
    return list(cells)


def _say_outcome(comparison: RowComparison, files: list[Path], matched: int, why_few: str) -> None:
    if len(comparison) and matched < _LEAST_MATCHED * len(comparison):
        log.warning(said("few-rows-have-partner", matched, len(comparison), why_few))
    for line in unmatched_lines(comparison):
        log.info(line)
    log.info(_in_a_line(comparison, matched))
    for file in files:
        log.info(said("file-written", file))


def _in_a_line(comparison: RowComparison, matched: int) -> str:
    """The result: how many rows were compared, and how many stand out."""
    colours = comparison.colouring.colour
    red, yellow = (int(np.count_nonzero(colours == colour)) for colour in (RED, YELLOW))
    failed = int(np.count_nonzero(comparison.failing))
    ending = said("did-not-pass", failed) if failed else said("none-failed")
    return said("rows-compared", matched, len(comparison), red, yellow, ending)


def _log_rows(comparison: RowComparison) -> None:
    """One line for each tensor that was compared, as ``is_print_compare_log`` asks for."""
    for row, measured in enumerate(comparison.tensors or []):
        if comparison.candidate.data_name[row] is not None:
            log.info(said("tensor-measured", comparison.candidate.name[row], measured.cosine, measured.max_absolute))
