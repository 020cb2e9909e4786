"""All rows of two dumps, for each step and rank that both have: the known sheet as xlsx, CSV or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msprobe import log
from msprobe.compare.comparison import Comparison, compare_parts
from msprobe.compare.mapping import Mappings, apply_mappings
from msprobe.compare.matching import NameMapping
from msprobe.compare.problems import ComparisonError
from msprobe.compare.rows import Rows
from msprobe.compare.table import table_of
from msprobe.diagnose.runs import parts_in_common
from msprobe.paths import StrPath, make_folder
from msprobe.report.comparing import crosses_frameworks, sheets_of
from msprobe.report.csv_table import write_csv
from msprobe.report.workbook import write_workbook
from msprobe.store.part import DumpPart

Format = Literal["xlsx", "csv", "parquet"]


@dataclass(frozen=True)
class Wanted:
    """Where the tables go, in which formats, and how names answer to each other."""

    folder: Path
    formats: Sequence[Format]
    fuzzy: bool = False
    mappings: Mappings = field(default_factory=Mappings)
    jobs: int = 1


def write_row_tables(
    candidate: StrPath, reference: StrPath, wanted: Wanted, progress: Callable[[str], None] = lambda text: None
) -> Iterator[Path]:
    """Write ``compare_result_{step}_{rank}.{format}`` for all steps and ranks in common; gives each path when the
    file is whole.

    A part whose rows cannot be compared (dumps of different tasks) is said and passed over. Raises what the reader
    and PathError say.
    """
    for first, second in parts_in_common(candidate, reference):
        try:
            name = _name(first)
            progress(f"rows of {name}")
            comparison = _compare(first, second, wanted)
        except ComparisonError as problem:
            log.warning(f"no table of {name}: {problem.message}")
        else:
            yield from _write(comparison, wanted, name)
        finally:
            first.close()
            second.close()


def _name(part: DumpPart) -> str:
    step = "" if part.step is None else f"_step{part.step}"
    rank = f"rank{part.rank}" if isinstance(part.rank, int) else "rank"
    return f"{step}_{rank}".lstrip("_")


def _compare(first: DumpPart, second: DumpPart, wanted: Wanted) -> Comparison:
    def find_names(ours: Rows, theirs: Rows, one: DumpPart, other: DumpPart) -> NameMapping:
        return apply_mappings(wanted.mappings, ours, theirs, one, other).names

    return compare_parts(
        first,
        second,
        fuzzy=wanted.fuzzy,
        find_names=find_names if wanted.mappings else None,
        cross_framework=crosses_frameworks(first, second),
        jobs=wanted.jobs,
    )


def _write(comparison: Comparison, wanted: Wanted, name: str) -> Iterator[Path]:
    part = comparison.parts[0]
    stacks = part.stack if any(part.stack(entry) for entry in part.names()) else None
    make_folder(wanted.folder)
    for kind in wanted.formats:
        table = table_of(comparison, stacks=stacks)
        path = wanted.folder / f"compare_result_{name}.{kind}"
        if kind == "xlsx":
            write_workbook(path, sheets_of(comparison, table, "8.1.1"))
        elif kind == "csv":
            write_csv(path, table.header, table.blocks())
        else:
            from msprobe.report.parquet_table import write_parquet

            write_parquet(path, table.header, table.blocks())
        yield path
