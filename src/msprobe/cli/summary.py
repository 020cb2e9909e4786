"""``msprobe summary``: what a dump contains, in a few lines."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.cli import answers
from msprobe.errors import MsprobeError
from msprobe.foreign.budget import BudgetError
from msprobe.foreign.console import say
from msprobe.foreign.letters import printable_name
from msprobe.messages import Wording, both, joined, said, translated

if TYPE_CHECKING:
    from msprobe.coverage import Coverage
    from msprobe.store.columns import Columns, FurtherColumn
    from msprobe.store.part import DumpPart
    from msprobe.store.reader import Dump

KINDS = ("forward", "backward", "parameters_grad", "debug")
#: Calls that write minus infinity where a mask says so.
_MASKING = frozenset("masked_fill where full full_like fill triu tril".split())
_INDENT = " " * 8
_HEAD = "  step  rank        records   forward  backward  parameters   tensors   NaN/Inf       size"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe summary``."""
    parser.epilog = both(
        "One line for each step and rank: its records (forward and backward calls, parameter gradients), "
        "the tensors in them, how many of those hold a NaN or an infinity and where the first one is.",
        "每个 step 与 rank 一行：记录数（前向与反向调用、参数梯度）、其中的张量数、含 NaN 或无穷的张量数"
        "，以及第一个在哪里。",
    )
    parser.add_argument(
        "dump",
        metavar="DUMP",
        help=both(
            "folder of a dump, of a step or of a rank, or a dump.json", "dump、step 或 rank 的文件夹，或 dump.json"
        ),
    )


def execute(args: argparse.Namespace) -> int:
    """Print the summary; 1 if a part of the dump cannot be read or a rank is missing, 2 if there is no dump."""
    from msprobe.store.damage import lost_parts, missing_ranks
    from msprobe.store.reader import open_dump

    def print_line(line: str) -> None:
        say(translated(line))

    dump = open_dump(args.dump)
    parts, unread = _printed_parts(dump, print_line)
    lost = lost_parts(dump)
    missing = missing_ranks(dump)
    for text in (*lost, *missing):
        print_line("  " + printable_name(translated(text)))
    covered = _covered(parts, [*unread, *lost, *missing])
    if not covered.is_complete:
        print_line(printable_name(translated(covered.sentence("read"))))
    _print_origins(parts, print_line)
    if args.json:
        about = {"version": 1, "dump": str(args.dump), "coverage": covered.as_json()}
        answers.whole(json.dumps({**about, "parts": [_as_json(part) for part in parts]}, indent=1))
    return 1 if unread or lost or missing else 0


def _printed_parts(dump: Dump, print_line: Callable[[str], None]) -> tuple[list[PartSummary], list[str]]:
    """What is in each part, reported line by line, and what to say of those that cannot be read."""
    from msprobe.store.damage import in_words

    parts: list[PartSummary] = []
    unread: list[str] = []
    shown: tuple[str, str, str] | None = None
    for step in dump.steps:
        for rank in dump.ranks(step):
            try:
                part = dump.part(step, rank)
                try:
                    summary = summarise(part)
                finally:
                    part.close()
            except BudgetError:
                raise
            except MsprobeError as problem:
                print_line(said("place-and-problem", _place(step, rank), problem.message))
                unread.append(in_words(step, rank, problem.message))
                continue
            parts.append(summary)
            about = (summary.task, summary.level, summary.framework)
            if about != shown:
                task, level, framework = map(printable_name, about)
                print_line(said("dump-recorded-as", printable_name(str(dump.path)), task, level, framework))
                print_line(_HEAD)
                shown = about
            for line in lines(summary):
                print_line(line)
    return parts, unread


def _covered(parts: Sequence[PartSummary], unread: Sequence[str]) -> Coverage:
    from msprobe.diagnose.covered import dump_coverage
    from msprobe.store.damage import place_in_words

    numbers = {"parts": len(parts), "records": sum(part.records for part in parts)}
    short: list[str] = []
    for part in parts:
        if not part.complete:
            why = said("was-interrupted-losing", part.lost) if part.lost else said("was-interrupted")
            short.append(Wording("{}: {}", place_in_words(part.step, part.rank), why))
    return dump_coverage(numbers, [*unread, *short])


def _print_origins(parts: Sequence[PartSummary], print_line: Callable[[str], None]) -> None:
    """Say of each rank whose steps come from several runs of the program which of them do."""
    origins: dict[int | str, dict[tuple[str, object], list[int]]] = {}
    for summary in parts:
        if summary.process and summary.step is not None:
            origins.setdefault(summary.rank, {}).setdefault(summary.process, []).append(summary.step)
    for rank, steps in origins.items():
        if len(steps) > 1:
            runs = joined(
                "; ", (said("steps-of-process", _numbers(own), process) for (process, _), own in steps.items())
            )
            print_line("  " + said("steps-of-several-runs", _rank(rank), len(steps), runs))


def _as_json(part: PartSummary) -> dict[str, object]:
    """Numbers that JSON does not know become their words."""
    from msprobe.diagnose.findings import plain

    record: dict[str, object] = plain({**asdict(part), "process": part.process and list(map(str, part.process))})
    return record


@dataclass(frozen=True)
class PartSummary:
    """What one step of one rank contains.

    ``kinds`` counts records by what they are (:data:`KINDS`), ``families`` the forward ones by the first
    word of their name. ``not_finite`` counts tensors with a NaN or an infinity in a statistic, and
    ``first_not_finite`` says where the first of them is (``masked``: all of them are minus infinity, from a mask).
    ``size`` is in bytes, tensor files included, and without the journal of a finished step, which is about to go.
    ``process`` is the process that wrote it, its name
    and the moment of its start, where the dump has them.
    """

    step: int | None
    rank: int | str
    task: str
    level: str
    framework: str
    records: int
    kinds: dict[str, int]
    families: dict[str, int]
    tensors: int
    not_finite: int
    first_not_finite: str | None
    masked: bool
    complete: bool
    lost: int
    size: int
    process: tuple[str, object] | None = None
    further: tuple[FurtherSummary, ...] = ()


@dataclass(frozen=True)
class FurtherSummary:
    """A statistic beyond the usual ones over the tensors of a part: how many have it, and its range over the finite
    ones (None if there are none). ``place``: where the greatest is.
    """

    name: str
    tensors: int
    least: float | None
    median: float | None
    greatest: float | None
    place: str | None


def summarise(part: DumpPart) -> PartSummary:
    """Count what is in a part. Raises PathError or InvalidInputError where its files are broken."""
    names = part.names()
    kinds = Counter(map(kind_of, names))
    families = Counter(name.split(".", 1)[0] for name in names if kind_of(name) == "forward")
    tensors = part.tensors()
    bad = _data_rows(part, tensors, not_finite_rows(tensors))
    in_order = _in_order(tensors, bad)
    wrong = _beyond_masks(tensors, in_order)
    return PartSummary(
        step=part.step,
        rank=part.rank,
        task=str(part.header.get("task", "unknown")),
        level=str(part.header.get("level", "unknown")),
        framework=str(part.header.get("framework", "unknown framework")),
        records=len(names),
        kinds={kind: kinds[kind] for kind in KINDS},
        families=dict(families.most_common()),
        tensors=len(tensors),
        not_finite=len(bad),
        first_not_finite=_first(tensors, wrong or in_order),
        masked=bool(in_order) and not wrong,
        complete=part.complete,
        lost=part.lost,
        size=_size_of(part.folder, with_journals=not part.complete),
        process=_process_of(part),
        further=tuple(_further(tensors, column) for column in tensors.further),
    )


def kind_of(name: str) -> str:
    """One of :data:`KINDS`, or the empty text for names that follow no rule.

    >>> kind_of("Functional.linear.0.forward"), kind_of("Module.fc.Linear.backward.0")
    ('forward', 'backward')
    """
    for word in reversed(name.split(".")[-2:]):
        if word in KINDS:
            return word
    return ""


def not_finite_rows(tensors: Columns) -> list[int]:
    """The rows that have a NaN or an infinity among their statistics; a statistic that is null is neither."""
    import numpy as np

    bad = np.zeros(len(tensors), dtype=bool)
    for bit, column in enumerate((tensors.max, tensors.min, tensors.mean, tensors.norm)):
        bad |= ~np.isfinite(column) & (tensors.nulls & (1 << bit) == 0)
    for further in tensors.further:
        bad |= ~np.isfinite(further.values) & further.known
    return [int(row) for row in np.flatnonzero(bad)]


def _further(tensors: Columns, column: FurtherColumn) -> FurtherSummary:
    import numpy as np

    name, recorded = column.statistic.word, int(np.count_nonzero(column.known))
    rows = np.flatnonzero(column.known & np.isfinite(column.values))
    if not len(rows):
        return FurtherSummary(name, recorded, None, None, None, None)
    values = column.values[rows]
    top = int(rows[values.argmax()])
    least, median, greatest = float(values.min()), float(np.median(values)), float(values.max())
    return FurtherSummary(name, recorded, least, median, greatest, _first(tensors, [top]))


def _data_rows(part: DumpPart, tensors: Columns, rows: list[int]) -> list[int]:
    """The rows whose tensor somebody has written: what stood in memory before is no data."""
    if not rows:
        return rows
    from msprobe.diagnose.steps.timeline import Timeline

    timeline = Timeline(part)
    unset = {
        (event.name, slot)
        for event in map(timeline.by_name.get, {tensors.entry[row] for row in rows})
        if event is not None
        for slot, leaf in (*event.inputs(), *event.outputs())
        if isinstance(leaf, dict) and leaf.get("unset")
    }
    timeline.close()
    return [row for row in rows if (tensors.entry[row], tensors.slot[row]) not in unset]


def _in_order(tensors: Columns, rows: list[int]) -> list[int]:
    # Parameter gradients stand behind their module's forward but are filled when backward is over.
    return [row for row in rows if kind_of(tensors.entry[row]) != "parameters_grad"] or rows


def _beyond_masks(tensors: Columns, rows: list[int]) -> list[int]:
    """Rows that are not finite for another reason than a mask; all, unless the first minus infinity is filled in."""
    import numpy as np

    from msprobe.compare.entry_names import operation, read_name

    low = [
        row
        for row in rows
        if np.isneginf(tensors.min[row]) and not np.isnan(tensors.max[row]) and not np.isposinf(tensors.max[row])
    ]
    if not low or operation(read_name(tensors.entry[low[0]]).stem).rstrip("_") not in _MASKING:
        return rows
    masked = set(low)
    return [row for row in rows if row not in masked]


def _first(tensors: Columns, rows: list[int]) -> str | None:
    return f"{tensors.entry[rows[0]]} {tensors.slot[rows[0]]}".rstrip() if rows else None


def lines(summary: PartSummary) -> Iterator[str]:
    """The row of the table, and below it what is worth knowing of this part."""
    counts = summary.kinds
    numbers = [(summary.records, 8), (counts["forward"], 8), (counts["backward"], 8)]
    numbers += [(counts["parameters_grad"], 10), (summary.tensors, 8), (summary.not_finite, 8)]
    row = "  ".join(f"{number:>{width}}" for number, width in numbers)
    yield f"{_place(summary.step, summary.rank)} {row}  {_size_text(summary.size):>9}"
    if counts["debug"]:
        yield _INDENT + said("saved-variables", counts["debug"])
    if summary.families:
        parts = ", ".join(f"{printable_name(name)} {count}" for name, count in summary.families.items())
        yield _INDENT + said("forward-families", parts)
    if summary.first_not_finite is not None and summary.masked:
        yield _INDENT + said("masked-on-purpose", printable_name(summary.first_not_finite))
    elif summary.first_not_finite is not None:
        yield _INDENT + said("first-nan-or-inf", printable_name(summary.first_not_finite))
    for statistic in summary.further:
        spread = said("none-of-them-finite")
        if statistic.place is not None:
            spread = said(
                "spread-of-statistic",
                statistic.least,
                statistic.greatest,
                statistic.median,
                printable_name(statistic.place),
            )
        yield _INDENT + said("statistic-of-tensors", statistic.name, statistic.tensors, spread)
    if not summary.complete:
        yield _INDENT + (said("part-interrupted-losing", summary.lost) if summary.lost else said("part-interrupted"))


def _place(step: int | None, rank: int | str) -> str:
    return f"  {'-' if step is None else step:>4}  {printable_name(str(rank)):<10}"


def _process_of(part: DumpPart) -> tuple[str, object] | None:
    owner = part.ours.get("process")
    if not isinstance(owner, dict) or "pid" not in owner:
        return None
    # A number that was given to a new process differs by the moment of its start.
    return printable_name(f"{owner['pid']} on {owner.get('host', 'an unknown host')}"), str(owner.get("started"))


def _numbers(steps: list[int]) -> str:
    """Ascending step numbers: ``steps 0 to 2, 5``."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and runs[-1][1] == step - 1:
            runs[-1][1] = step
        else:
            runs.append([step, step])
    spans = (str(first) if first == last else said("numbers-from-to", first, last) for first, last in runs)
    return said("step", steps[0]) if len(steps) == 1 else said("step-numbers", joined(", ", spans))


def _rank(rank: int | str) -> str:
    return said("rank", rank) if isinstance(rank, int) else printable_name(rank)


def _size_of(folder: Path, with_journals: bool) -> int:
    """Bytes of all files in the folder and below; files that vanish meanwhile do not count."""
    from msprobe.store import layout

    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            if not with_journals and layout.is_journal(name):
                continue
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
    return total


def _size_text(size: int) -> str:
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
