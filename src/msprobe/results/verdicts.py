"""``msprobe.compare`` and ``msprobe.check``: what the commands of these names say, as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.diagnose import findings as diagnosed
from msprobe.diagnose.check.run import CheckResult
from msprobe.errors import InvalidInputError
from msprobe.report import check_text, console, phrases
from msprobe.results.notebook import result_html
from msprobe.results.tables import Table

if TYPE_CHECKING:
    import pandas
    import polars

    from msprobe.paths import StrPath
    from msprobe.view.dumps import Dumps

_SHOWN = 5
_TONES = {
    "diverged": "bad",
    "found": "bad",
    "incomparable": "bad",
    "harmless": "warn",
    "agree": "good",
    "clean": "good",
}
_STATUSES = ("not measured", "same", "rounding", "explained", "unexplained", "candidate only", "reference only")


@dataclass(frozen=True, repr=False)
class Finding(diagnosed.Finding):
    """One statement, with what it rests on; see :class:`msprobe.diagnose.findings.Finding` for the fields.

    ``str(finding)`` is what the console prints of it.
    """

    def __repr__(self) -> str:
        return f"<Finding {self.kind}: {phrases.clean(self.message)}>"

    def __str__(self) -> str:
        return "\n".join(line.text for line in _lines(self))

    def _repr_html_(self) -> str:
        tone = "warn" if self.harmless else "bad"
        return result_html(self.message, tone, (), [("in full", [line.text for line in _lines(self)])])


class _Findings:
    """What results with findings have in common."""

    findings: tuple[diagnosed.Finding, ...]

    @property
    def table(self) -> Table:
        """The findings, one row for each."""
        names = ("kind", "where", "module", "entry", "step", "rank", "direction", "order", "harmless", "message")
        columns: dict[str, list[Any]] = {name: [getattr(one, name) for one in self.findings] for name in names}
        # Names of ranks and their numbers do not share a column.
        columns["rank"] = [None if rank is None else str(rank) for rank in columns["rank"]]
        return Table(columns, "findings")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The findings, one dict for each."""
        return self.table.rows

    def to_polars(self) -> polars.DataFrame:
        """The findings for polars. Raises NotAvailableError if it is not installed."""
        return self.table.to_polars()

    def to_pandas(self) -> pandas.DataFrame:
        """The findings for pandas. Raises NotAvailableError if it is not installed."""
        return self.table.to_pandas()


@dataclass(frozen=True, repr=False)
class Comparison(_Findings, diagnosed.Verdict):
    """Where two runs part; see :class:`msprobe.diagnose.findings.Verdict` for the fields.

    ``str(comparison)`` is what ``msprobe compare`` prints.
    """

    @property
    def headline(self) -> str:
        """One line: what came out, and where."""
        return phrases.headline(self)

    def call_table(self, step: int | None = None, rank: int | str | None = None) -> Table:
        """All calls of one step of one rank, in the order of the page, and how they were judged.

        Step and rank may be left out: those of the first finding, or the first that both runs have, are meant.
        ``input_delta`` and ``output_delta`` are the largest relative differences of what goes in and what comes out,
        ``allowed`` what rounding and the inputs explain of the latter. Raises InvalidInputError if there is no such
        step or rank, and what reading the dumps raises.
        """
        source = self._source()
        try:
            return _calls(source, source.place(_place(source, self, step, rank)))
        finally:
            source.close()

    def write_html(self, path: StrPath) -> Path:
        """Write the page of ``msprobe view``, with its data in one file. Raises PathError."""
        from msprobe.paths import write_atomically
        from msprobe.view.single_file import single_file

        source = self._source()
        try:
            write_atomically(path, single_file(source), fsync=False)
        finally:
            source.close()
        return Path(path)

    def _source(self) -> Dumps:
        from msprobe.store.reader import open_dump
        from msprobe.view.dumps import Dumps

        return Dumps(open_dump(self.candidate), open_dump(self.reference), self)

    def __repr__(self) -> str:
        return f"<Comparison {self.headline}{_counted(self.findings)}>"

    def __str__(self) -> str:
        return console.verdict_text(self).rstrip()

    def _repr_html_(self) -> str:
        about = (f"candidate {self.candidate}", f"reference {self.reference}", *phrases.further_notes(self))
        told = [_told(one, console.finding_lines(one)) for one in phrases.leading(self)[:_SHOWN]]
        return result_html(self.headline + _more(self.findings), _TONES[self.status], about, told)


@dataclass(frozen=True, repr=False)
class CheckedRun(_Findings, CheckResult):
    """What is wrong in one run; see :class:`msprobe.diagnose.check.CheckResult` for the fields.

    ``str(checked)`` is what ``msprobe check`` prints.
    """

    @property
    def headline(self) -> str:
        """One line: what came out, and where."""
        return check_text.check_headline(self)

    def __repr__(self) -> str:
        return f"<CheckedRun {self.headline}{_counted(self.findings)}>"

    def __str__(self) -> str:
        return check_text.check_text(self).rstrip()

    def _repr_html_(self) -> str:
        told = [_told(one, check_text.finding_lines(one)) for one in self.findings[:_SHOWN]]
        about = (f"dump {self.dump}", *self.unread, *self.notes)
        return result_html(self.headline + _more(self.findings), _TONES[self.status], about, told)


def compare(
    candidate: StrPath,
    reference: StrPath,
    *,
    noise: StrPath | None = None,
    layout: StrPath | None = None,
    jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Say where two recorded trainings part, as ``msprobe compare CANDIDATE REFERENCE`` does.

    ``candidate`` and ``reference`` are folders of dumps (a whole dump, a step, a rank, or a ``dump.json``). ``noise``
    is a second healthy run: what it differs by from the reference, the candidate may differ by. ``layout`` is a file
    that tells how runs of other parallel layouts lie on their ranks. ``jobs`` ranks are compared at once.
    ``progress`` is told what is compared next. Raises PathError or InvalidInputError if something cannot be read, and
    NotAvailableError if what ``jobs`` needs is not installed.
    """
    from msprobe.diagnose.runs import compare_runs
    from msprobe.diagnose.verdict.readable import readable_verdict

    def run(one: StrPath, other: StrPath) -> diagnosed.Verdict:
        return compare_runs(one, other, progress, noise=noise, layout=layout, jobs=jobs)

    verdict, _, _ = readable_verdict(run, candidate, reference)
    values = _values(verdict)
    # Paths as they were given: what could be read of them is in the notes.
    return Comparison(**{**values, "candidate": str(candidate), "reference": str(reference)})


def check(
    dump: StrPath,
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> CheckedRun:
    """Say what is wrong in a recorded training, without another to compare it with, as ``msprobe check DUMP`` does.

    ``only`` and ``skip`` are names of checks (``msprobe check --list``). Raises InvalidInputError for a name that there
    is not, and PathError or InvalidInputError if the dump cannot be read.
    """
    from msprobe.diagnose.check import CHECKS, check_run

    for word, names in (("only", only), ("skip", skip)):
        if isinstance(names, str):
            raise InvalidInputError(f"{word} must be a list of names of checks, found the text {names!r}.")
    unknown = [name for name in (*only, *skip) if name not in {one.name for one in CHECKS}]
    if unknown:
        raise InvalidInputError(
            f"no check {', '.join(map(repr, unknown))}; the checks are {', '.join(one.name for one in CHECKS)}."
        )
    chosen = [one for one in CHECKS if (not only or one.name in only) and one.name not in skip]
    return CheckedRun(**_values(check_run(dump, chosen, progress)))


def _values(result: Any) -> dict[str, Any]:
    """The fields of a result, with findings that tell themselves."""
    found = {one.name: getattr(result, one.name) for one in fields(result)}
    found["findings"] = tuple(
        Finding(**{one.name: getattr(finding, one.name) for one in fields(finding)}) for finding in result.findings
    )
    return found


def _lines(finding: diagnosed.Finding) -> list[console.Line]:
    lines = check_text.finding_lines if "check" in finding.evidence else console.finding_lines
    return lines(finding)


def _told(finding: diagnosed.Finding, lines: Sequence[console.Line]) -> tuple[str, list[str]]:
    return f"{finding.kind}: {finding.message}", [line.text for line in lines]


def _counted(findings: Sequence[object]) -> str:
    return "" if not findings else "; 1 finding" if len(findings) == 1 else f"; {len(findings)} findings"


def _more(findings: Sequence[object]) -> str:
    return f" (the first {_SHOWN} of {len(findings)} findings)" if len(findings) > _SHOWN else ""


def _place(source: Dumps, verdict: Comparison, step: int | None, rank: int | str | None) -> int:
    """The number of a step and rank. Raises InvalidInputError if there is none."""
    if step is None and rank is None and verdict.findings:
        first = phrases.leading(verdict)[0]
        step, rank = first.step, first.rank
    for number, place in enumerate(source.places):
        if place.side == 0 and step in (None, place.step) and rank in (None, place.rank):
            return number
    there = ", ".join(f"step {place.step} rank {place.rank}" for place in source.places[:8] if place.side == 0)
    raise InvalidInputError(f"both runs have no step {step}, rank {rank}; they have {there or 'nothing in common'}.")


def _calls(source: Dumps, place: dict[str, Any]) -> Table:
    twins = place["twins"]
    names = place["names"]
    chosen = [row for row, kind in enumerate(place["kinds"]) if kind != 2]

    def of(column: str) -> list[Any]:
        return [place[column][row] for row in chosen]

    statuses = of("status")
    columns: dict[str, list[Any]] = {
        "name": [None if place["sides"][row] == 2 else names[row] for row in chosen],
        "reference_name": [None if place["sides"][row] == 1 else twins.get(str(row), names[row]) for row in chosen],
        "inside": [names[above] if (above := place["parents"][row]) >= 0 else None for row in chosen],
        "phase": [("forward", "backward", "optimizer")[phase] for phase in of("phases")],
        "order": of("orders"),
        "status": [_STATUSES[status] for status in statuses],
        "input_delta": of("arrived"),
        "output_delta": of("left"),
        "allowed": of("allowed"),
        "largest": of("largest"),
        "norm": of("norm"),
    }
    return Table(columns, "calls")
