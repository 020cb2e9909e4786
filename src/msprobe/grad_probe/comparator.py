"""``GradComparator``: where the gradients of two runs part.

::

    from msprobe import GradComparator

    found = GradComparator.compare_distributed("npu/out", "gpu/out", "compared")
    found.problems[0].line        # rank 0 step 3 layers.2.fc.weight 0.91 -> 0.84
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from msprobe import coverage, log, paths
from msprobe.coverage import Coverage, NotRead
from msprobe.errors import InvalidInputError, PathError
from msprobe.grad_probe import layout
from msprobe.grad_probe.comparison import RankComparison, compare_rank
from msprobe.grad_probe.reading import RankFolder
from msprobe.grad_probe.results import write_results
from msprobe.grad_probe.verdict import DROP, FIRST, Problem, Thresholds, ranked
from msprobe.messages import Wording, joined, said

#: Which plots are drawn: of each parameter and of all together, of all together, or none. None of these: "all" up to
#: 50 parameters, "summary" above.
Plots = Literal["all", "summary", "none"]
Mapped = Mapping[str, str] | str | Path | None


@dataclass
class GradientComparison:
    """What came of a comparison. ``problems``: the most suspicious first; ``notes``: what could not be compared;
    ``written``: files, for people to open.
    """

    ranks: list[RankComparison]
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)
    #: Those of the notes that are of gradients that were not read, or that only one run has.
    not_compared: list[NotRead] = field(default_factory=list)

    @property
    def coverage(self) -> Coverage:
        """What was compared, and what of either run was not."""
        parameters = {name for rank in self.ranks for name in rank.parameters}
        steps = {step for rank in self.ranks for step in rank.steps}
        read = {"parameters": len(parameters), "steps": len(steps), "ranks": len(self.ranks)}
        return Coverage(read, tuple(self.not_compared))

    @property
    def exit_code(self) -> int:
        """1 if there is a problem; 2 if there is none and not all could be compared; else 0."""
        return self.coverage.status(bool(self.problems))

    @property
    def line(self) -> str:
        """The answer in a line."""
        if self.problems:
            return said("gradients-suspicious-first", self.problems[0].line)
        rest = self.coverage.sentence()
        counts = self.coverage.read.values()
        return said("gradients-all-agree", *counts, said("gradients-and-rest", rest) if rest else "")


class GradComparator:
    """Compares what two runs of the probe wrote. Both methods can be called on the class.

    Where directions were written (L1, L2) the similarity of a parameter at a step is the share of its elements that
    point the same way; else (L0) checksums, or maximum, minimum and norm, are compared. The first two arguments are
    folders, the third is where results go; each goes by two names. Further arguments:

    ``plot``: see :data:`Plots`. ``first``, ``drop``: thresholds of a problem
    (:class:`msprobe.grad_probe.verdict.Thresholds`). ``mapping``: names of parameters of the first run and what these
    are called in the second; a dict, or the path of a JSON file with one. A key that is no name is a regular
    expression, replaced wherever it is found. ``module.`` and other wrappers' names need none.
    ``quiet``: say nothing in the log of what was found.

    Raises PathError for folders that cannot be used, InvalidInputError where nothing can be compared.
    """

    @classmethod
    def compare_distributed(
        cls,
        path1: Any = None,
        path2: Any = None,
        output_dir: Any = None,
        *,
        dump_path1: Any = None,
        dump_path2: Any = None,
        output_path: Any = None,
        plot: Plots | None = None,
        first: float = FIRST,
        drop: float = DROP,
        mapping: Mapped = None,
        quiet: bool = False,
    ) -> GradientComparison:
        """Compare all ranks of two ``dump_path``."""
        ours, other, output = _paths((path1, dump_path1), (path2, dump_path2), (output_dir, output_path))
        ranks, others = layout.ranks_of(ours), layout.ranks_of(other)
        common = [rank for rank in ranks if rank in others]
        if not common:
            raise InvalidInputError(said("gradients-without-common-rank", ours, _ranks(ranks), other, _ranks(others)))
        notes = [
            NotRead(
                said("gradients-of-rank", rank),
                said("not-in-second-run") if rank in ranks else said("not-in-first-run"),
            )
            for rank in sorted({*ranks, *others} - {*common})
        ]
        limits, partner = Thresholds(first, drop), _partner(mapping)
        ranks_compared = [
            compare_rank(rank, RankFolder(ranks[rank]), RankFolder(others[rank]), limits, partner) for rank in common
        ]
        return _finish(ranks_compared, notes, output, plot, lambda rank: output / f"rank{rank}", quiet)

    @classmethod
    def compare(
        cls,
        path1: Any = None,
        path2: Any = None,
        output_dir: Any = None,
        *,
        dump_path1: Any = None,
        dump_path2: Any = None,
        output_path: Any = None,
        plot: Plots | None = None,
        first: float = FIRST,
        drop: float = DROP,
        mapping: Mapped = None,
        quiet: bool = False,
    ) -> GradientComparison:
        """Compare two folders ``rank{N}``; results have no folder of a rank."""
        ours, other, output = _paths((path1, dump_path1), (path2, dump_path2), (output_dir, output_path))
        number = re.fullmatch(r"rank(\d{1,18})", ours.name)
        rank = int(number[1]) if number else 0
        compared = compare_rank(rank, RankFolder(ours), RankFolder(other), Thresholds(first, drop), _partner(mapping))
        return _finish([compared], [], output, plot, lambda rank: output, quiet)


def _paths(*given: tuple[Any, Any]) -> tuple[Path, Path, Path]:
    """The two folders to read and the one to write to, each by one of its two names."""
    names = (("path1", "dump_path1"), ("path2", "dump_path2"), ("output_dir", "output_path"))
    mistakes: list[str] = []
    for values, both in zip(given, names, strict=True):
        if values[0] is not None and values[1] is not None:
            mistakes.append(said("two-names-of-argument", *both))
        elif values[0] is None and values[1] is None:
            mistakes.append(said("argument-is-missing", both[0]))
    if mistakes:
        raise InvalidInputError(said("grad-comparator-arguments", joined("; ", mistakes)))
    ours, other, output = (
        paths.check_path_form(first if first is not None else second, "folder") for first, second in given
    )
    for folder in (ours, other):
        if not folder.is_dir():
            what = said("is-no-folder") if folder.exists() else said("is-not-there")
            raise PathError(said("no-gradients-folder", folder, what))
    return ours, other, paths.check_output_folder(output)


def _partner(mapping: Mapped) -> Callable[[str], str]:
    """How a parameter of the first run is called in the second. Raises InvalidInputError with all that is wrong."""
    if mapping is None:
        return lambda name: name
    from msprobe.grad_probe.mapping import read_mapping  # few comparisons need it

    table, patterns = read_mapping(mapping)

    def partner(name: str) -> str:
        if name in table:
            return table[name]
        for pattern, new in patterns:
            name = pattern.sub(new, name)
        return name

    return partner


def _ranks(ranks: Mapping[int, Path]) -> str:
    numbers = [str(rank) for rank in ranks]
    if not numbers:
        return said("gradients-no-rank-folder")
    return said("ranks-of-folder", ", ".join(numbers[:8]) + (" ..." if len(numbers) > 8 else ""))


def _finish(
    ranks: list[RankComparison],
    notes: list[NotRead],
    output: Path,
    plot: Plots | None,
    folder: Callable[[int], Path],
    quiet: bool,
) -> GradientComparison:
    if not any(rank.parameters for rank in ranks):
        few = [*notes, *[named_by_rank(rank.rank, note) for rank in ranks for note in rank.notes][:4]]
        raise InvalidInputError(
            said("no-gradients-to-compare", joined("; ", map(_text, few)) or said("no-parameter-there"))
        )
    result = GradientComparison(ranks, ranked([problem for rank in ranks for problem in rank.problems]))
    every = [*notes, *(named_by_rank(rank.rank, note) for rank in ranks for note in rank.notes)]
    judged = {named_by_rank(rank.rank, note) for rank in ranks for note in rank.not_judged}
    result.notes = [_text(note) for note in every]
    result.not_compared = [note for note in every if note not in judged]
    result.written = write_results(ranks, result.problems, result.notes, output, folder, plot)
    result.written.append(coverage.write(result.coverage, output / "coverage.json"))
    if quiet:
        return result
    for note in result.notes[:20]:
        log.warning(said("gradients-comparison-note", note))
    (log.warning if result.problems else log.info)(said("gradients-comparison-note", result.line))
    return result


def named_by_rank(rank: int, note: NotRead) -> NotRead:
    """A note of one rank among those of all."""
    what = said("gradients-of-rank-in", rank, note.what) if note.what else said("gradients-of-rank", rank)
    return NotRead(what, note.why)


def _text(note: NotRead) -> str:
    return Wording("{}: {}", note.what, note.why)
