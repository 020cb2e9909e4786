"""``-da``: the first difference of two dumps as JSON, and in words.

Source of the files: mindstudio-probe 26.2.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe import log
from msprobe.compare.comparison import RowComparison, compare_parts
from msprobe.compare.first_difference import FirstDifference, differing_rows, first_differences
from msprobe.compare.problems import DamagedDataError, TaskMismatchError
from msprobe.compare.rows import DEBUG, INPUT, STATES, STATISTICS
from msprobe.compare.sides import cut_short, files_of, is_folder_pair, open_pair, pair_ranks
from msprobe.compare.table import table_of
from msprobe.coverage import Coverage, NotRead, write
from msprobe.messages import joined, said
from msprobe.paths import StrPath, check_output_folder, make_folder, write_atomically


@dataclass(frozen=True)
class FirstDifferences:
    """``first``: the first difference of each rank that has one, ``coverage``: what was compared and what not."""

    first: list[FirstDifference]
    coverage: Coverage


def find_first_difference(
    candidate: StrPath, reference: StrPath, output: StrPath, progress: Callable[[str], None] = lambda text: None
) -> FirstDifferences:
    """Compare all ranks, write ``compare_result_*.json`` for each and, if something differs, ``diff_analyze_*.json``.

    Two files are one rank. Tensor dumps are compared by their statistics. ``progress`` gets the rank that is compared.
    What is named may be a call behind the cause: the first whose result is off by so much, as
    mindstudio-probe counts it. Raises the errors of :mod:`msprobe.compare.problems`.
    """
    check_output_folder(output)
    missing: list[NotRead] = []
    comparisons = dict(_compare_ranks(candidate, reference, progress, missing))
    try:
        folder = make_folder(output)
        stamp = time.strftime("%Y%m%d%H%M%S")
        for rank, comparison in comparisons.items():
            _write(folder / f"compare_result_{rank}_{stamp}.json", _rank_content(comparison))
            missing += cut_short(*comparison.parts)
        covered = Coverage({"ranks": len(comparisons), "rows": sum(map(len, comparisons.values()))}, tuple(missing))
        differences = first_differences(comparisons)
        if differences:
            content = {_key(item.rank): [_call_content(comparisons[item.rank], item.name)] for item in differences}
            _write(folder / f"diff_analyze_{time.time_ns()}.json", content)
    finally:
        for comparison in comparisons.values():
            for part in comparison.parts:
                part.close()
    if not differences:
        alone = "" if covered.is_complete else said("in-what-was-compared")
        log.info(said("no-call-differs-by-half", alone))
    for item in differences:
        log.info(said("first-difference-of-rank", item.rank, item.name, item.time))
    if differences:
        log.info(said("what-first-difference-is", candidate, reference))
    if not covered.is_complete:
        path = write(covered, folder / f"coverage_{stamp}.json")
        log.warning(said("all-not-read-in-file", covered.sentence(), path))
    return FirstDifferences(differences, covered)


def _compare_ranks(
    candidate: StrPath, reference: StrPath, progress: Callable[[str], None], missing: list[NotRead]
) -> Iterator[tuple[str, RowComparison]]:
    if not is_folder_pair(candidate, reference, ("-tp", "-gp")):
        yield Path(candidate).absolute().parent.name, _compare(candidate, reference)
        return
    problems = []
    done = 0
    pairs, lone = pair_ranks(Path(candidate), Path(reference), strict=False)
    missing += [NotRead(name, said("only-in", f'"{side}"')) for name, side in lone]
    for number, pair in enumerate(pairs, 1):
        progress(said("job-of-jobs", pair.name, number, len(pairs)))
        ours, theirs = files_of(pair.candidate), files_of(pair.reference)
        try:
            if "dump" not in ours or "dump" not in theirs:
                raise DamagedDataError(said("pair-without-dump-json", pair.candidate, pair.reference))
            yield pair.name, _compare(ours["dump"], theirs["dump"])
            done += 1
        except (DamagedDataError, TaskMismatchError) as problem:
            problems.append(problem.message)
            missing.append(NotRead(pair.name, problem.message))
            log.error(said("rank-not-compared", pair.name, problem.message))
    if not done:
        raise DamagedDataError(joined(" ", problems))


def _compare(candidate: StrPath, reference: StrPath) -> RowComparison:
    return compare_parts(*open_pair(candidate, reference), by_statistics=True)


def _key(rank: str) -> str:
    number = rank.removeprefix("rank")
    return f"rank_{number}" if number else "rank"


def _rank_content(comparison: RowComparison) -> dict[str, Any]:
    """For each call whether it is the same, and its rows."""
    ours = comparison.candidate
    differ = differing_rows(comparison)
    table = table_of(comparison, "26.2")
    content: dict[str, Any] = {}
    row = 0
    for block in table.blocks():
        for cells in zip(*block, strict=True):
            name = ours.entries[int(ours.entry[row])]
            call = content.setdefault(name, {"is_same": True, "op_items": []})
            call["is_same"] &= not differ[row]
            state = "input" if ours.state[row] == DEBUG else STATES[int(ours.state[row])]
            item = {**dict(zip(table.header, cells, strict=True)), "state": state, "api_origin_name": name}
            call["op_items"].append(item)
            row += 1
    return content


def _call_content(comparison: RowComparison, name: str) -> dict[str, Any]:
    """What the target has of one call."""
    ours = comparison.candidate
    data: dict[str, dict[str, Any]] = {"input": {}, "output": {}}
    for row in (ours.entry == ours.entries.index(name)).nonzero()[0].tolist():
        part = "input" if ours.state[row] == INPUT else "output" if STATES[ours.state[row]] == "output" else None
        if part is None:
            continue
        if comparison.mode == "md5":
            data[part][ours.name[row]] = {"md5": ours.md5[row]}
        else:
            values = [ours.texts.get(row, float(ours.numbers[statistic, row])) for statistic in range(4)]
            data[part][ours.name[row]] = dict(zip((word.capitalize() for word in STATISTICS), values, strict=True))
    return {"op_name": name, "data_info": data, "stack_info": comparison.parts[0].stack(name)}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(content, indent=1).encode(), fsync=False)
    log.info(f"written: {os.fspath(path)}")
