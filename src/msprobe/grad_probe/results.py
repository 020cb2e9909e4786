"""The files of a comparison: ``similarities.csv`` as mindstudio-probe 8.1.1 writes it, and ours beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from msprobe import log
from msprobe.grad_probe.comparison import RankComparison
from msprobe.grad_probe.page import page
from msprobe.grad_probe.plots import draw
from msprobe.grad_probe.rows import csv_bytes
from msprobe.grad_probe.verdict import Problem
from msprobe.messages import said
from msprobe.paths import create_folder, make_folder_in, write_atomically

VERDICT_FILE = "verdict.csv"
PAGE_FILE = "gradients.html"
_SIMILARITIES = "similarities.csv"
_DETAILS = "details.csv"
_DIFFERENCES = "differences.csv"
# Above so many parameters, their plots are drawn only if they are asked for.
_MOST_PLOTS = 50


def write_results(
    ranks: Sequence[RankComparison],
    problems: Sequence[Problem],
    notes: Sequence[str],
    output: Path,
    folder: Callable[[int], Path],
    plot: Literal["all", "summary", "none"] | None,
) -> list[Path]:
    """Write all files of a comparison; those that people open first come first. Raises PathError."""
    create_folder(output)
    written = [output / PAGE_FILE, output / VERDICT_FILE]
    write_atomically(written[1], csv_bytes(_verdict(problems)), fsync=False)
    write_atomically(written[0], page(ranks, problems, notes).encode("utf-8", "backslashreplace"), fsync=False)
    for rank in ranks:
        own = folder(rank.rank)
        make_folder_in(output, *own.relative_to(output).parts)
        if rank.differences or not any(rank.similarities.values()):
            lines = [["param_name", "step", "column", "first", "second"]]
            lines += [
                [difference.parameter, str(difference.step), difference.column, difference.ours, difference.other]
                for difference in rank.differences
            ]
            written.append(own / _DIFFERENCES)
            write_atomically(written[-1], csv_bytes(lines), fsync=False)
            continue
        written.append(own / _SIMILARITIES)
        if written[-1].exists():
            log.warning(said("similarities-replaced", written[-1]))
        write_atomically(written[-1], csv_bytes(_similarities(rank)), fsync=False)
        write_atomically(own / _DETAILS, csv_bytes(_details(rank)), fsync=False)
        chosen = plot or ("all" if len(rank.parameters) <= _MOST_PLOTS else "summary")
        if chosen != "none":
            draw(rank, own / "similarities_picture", chosen == "all")
    return written


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)


def _similarities(rank: RankComparison) -> Iterator[list[str]]:
    yield ["step", *map(str, rank.steps)]
    for name in rank.parameters:
        yield [name, *(_number(rank.value(name, step)) for step in rank.steps)]
    yield ["summary", *(_number(rank.summary(step)) for step in rank.steps)]


def _details(rank: RankComparison) -> Iterator[list[str]]:
    """A line for each parameter and step; ``nonzero``: elements that are not zero on one side or the other."""
    yield ["param_name", "step", "similarity", "elements", "similarity_nonzero", "elements_nonzero"]
    for name, steps in rank.similarities.items():
        for step, similarity in sorted(steps.items()):
            moving = "" if similarity.moving is None else str(similarity.moving)
            yield [
                name,
                str(step),
                _number(similarity.value),
                str(similarity.count),
                _number(similarity.moving_value),
                moving,
            ]


def _verdict(problems: Sequence[Problem]) -> Iterator[list[str]]:
    yield ["rank", "param_name", "step", "similarity", "previous", "rule"]
    for problem in problems:
        yield [
            str(problem.rank),
            problem.parameter,
            str(problem.step),
            _number(problem.similarity),
            _number(problem.previous),
            problem.rule,
        ]
