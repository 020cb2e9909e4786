"""All rows of two dumps, for each step and rank that both have: the known sheet as xlsx, CSV or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from msprobe import log
from msprobe.compare.comparison import RowComparison, compare_parts
from msprobe.compare.mapping import Mappings
from msprobe.compare.problems import ComparisonError
from msprobe.compare.table import table_of
from msprobe.diagnose.runs import parts_in_common
from msprobe.engine import ALONE, Workers, run
from msprobe.messages import said
from msprobe.paths import StrPath, make_folder
from msprobe.report.comparing import sheets_of
from msprobe.report.formats import Format
from msprobe.report.row_partners import (
    crosses_frameworks,
    find_as_verdict,
    find_by_mappings,
    names_differ,
    records_as_verdict,
)
from msprobe.store.part import DumpPart
from msprobe.store.reader import Dump


@dataclass(frozen=True)
class WantedTables:
    """Where the tables go, in which formats, which names answer to each other where the verdict's pairs are not taken,
    and of which steps of the candidate tables are written; None for all.
    """

    folder: Path
    formats: Sequence[Format]
    mappings: Mappings = field(default_factory=Mappings)
    workers: Workers = ALONE
    steps: Collection[int | None] | None = None


def write_row_tables(
    candidate: StrPath, reference: StrPath, wanted: WantedTables, progress: Callable[[str], None] = lambda text: None
) -> Iterator[Path]:
    """Write ``compare_result_{step}_{rank}.*`` for the wanted steps and all their ranks in common, as many at
    once as there are workers; gives each path when the files of its part are whole.

    A part whose rows cannot be compared (dumps of different tasks) is said and passed over. Raises what the reader
    and PathError say.
    """
    pairs = parts_in_common(candidate, reference)
    if wanted.steps is not None:
        pairs = [pair for pair in pairs if pair[0].steps[0] in wanted.steps]

    def show_part(number: int) -> None:
        what = said("table-of-rank", _name(pairs[number][0]))
        progress(said("job-of-jobs", what, number + 1, len(pairs)))

    work = partial(_write_part, wanted=wanted, threads=wanted.workers.inside(len(pairs)))
    for paths in run(work, pairs, wanted.workers, show_part):
        yield from paths


def _write_part(pair: tuple[Dump, Dump], wanted: WantedTables, threads: int) -> list[Path]:
    name = _name(pair[0])
    first, second = pair[0].part(), pair[1].part()
    try:
        comparison = _compare(first, second, wanted, threads)
        return list(_write(comparison, wanted, name))
    except ComparisonError as problem:
        log.warning(said("no-table-of", name, problem.message))
        return []
    finally:
        first.close()
        second.close()


def _name(dump: Dump) -> str:
    """A name for the only part of a dump."""
    number, only = dump.steps[0], dump.ranks()[0]
    step = "" if number is None else f"_step{number}"
    rank = f"rank{only}" if isinstance(only, int) else "rank"
    return f"{step}_{rank}".lstrip("_")


def _compare(first: DumpPart, second: DumpPart, wanted: WantedTables, threads: int) -> RowComparison:
    find_names = None
    if wanted.mappings.layer is None and names_differ(first, second):
        find_names = find_as_verdict(wanted.mappings)
    elif wanted.mappings:
        find_names = find_by_mappings(wanted.mappings)
    return compare_parts(
        first,
        second,
        find_records=records_as_verdict,
        find_names=find_names,
        cross_framework=crosses_frameworks(first, second),
        jobs=threads,
    )


def _write(comparison: RowComparison, wanted: WantedTables, name: str) -> Iterator[Path]:
    part = comparison.parts[0]
    stacks = part.stack if any(part.stack(entry) for entry in part.names()) else None
    make_folder(wanted.folder)
    for kind in wanted.formats:
        table = table_of(comparison, stacks=stacks)
        path = wanted.folder / kind.file.format(part=f"_{name}")
        kind.render()(path, sheets_of(comparison, table, "8.1.1"))
        yield path
