"""``msprobe.compare`` and ``msprobe.check``: what the commands of these names say, as values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.diagnose import findings as diagnosed
from msprobe.diagnose.check.run import CheckResult
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.report import check_text, console, phrases, source_frames
from msprobe.results.columns import FINDINGS
from msprobe.results.notebook import result_html
from msprobe.results.tables import Table, Tabular, rank_column

if TYPE_CHECKING:
    from msprobe.paths import StrPath
    from msprobe.store.reader import Dump
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


@dataclass(frozen=True, repr=False, eq=False)
class Finding(diagnosed.Finding):
    """One statement, with what it rests on; see :class:`msprobe.diagnose.findings.Finding` for the fields.

    ``str(finding)`` is what the console prints of it.
    """

    @property
    def source(self) -> str | None:
        """The line of the program that made the call: file, line, function and code; None if no stack was recorded."""
        frame = source_frames.source_of(self)
        if frame is None:
            return None
        return (
            f"{frame.place}{f' in {frame.function}' if frame.function else ''}{f': {frame.code}' if frame.code else ''}"
        )

    def __eq__(self, other: object) -> bool:
        # As JSON, in which a NaN is the same as another.
        return isinstance(other, Finding) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.kind, self.message, self.where, self.entry, self.step, self.rank))

    def __repr__(self) -> str:
        return f"<Finding {self.kind}: {phrases.clean(self.message)}>"

    def __str__(self) -> str:
        return "\n".join(line.text for line in _lines(self))

    def _repr_html_(self) -> str:
        tone = "warn" if self.harmless else "bad"
        return result_html(self.message, tone, (), [("in full", [line.text for line in _lines(self)])])


class _Findings(Tabular):
    """What results with findings have in common."""

    findings: tuple[diagnosed.Finding, ...]

    @property
    def table(self) -> Table:
        """The findings, one row for each; ``table.meanings`` says what the columns hold."""
        columns: dict[str, list[Any]] = {
            name: [getattr(finding, name) for finding in self.findings] for name in FINDINGS
        }
        return Table({**columns, "rank": rank_column(columns["rank"])}, "findings", FINDINGS)

    if TYPE_CHECKING:

        def to_json(self) -> dict[str, Any]: ...

    def __eq__(self, other: object) -> bool:
        # As JSON, in which a NaN is the same as another.
        return isinstance(other, type(self)) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((type(self), self.findings))


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(_Findings, diagnosed.Verdict):
    """Where two runs part; see :class:`msprobe.diagnose.findings.Verdict` for the fields.

    ``str(comparison)`` is what ``msprobe compare`` prints. ``noise`` is the second healthy run that was given.
    """

    noise: str | None = None
    #: The dumps without the parts that could not be read.
    _dumps: tuple[Dump, Dump] | None = field(default=None, compare=False)

    @property
    def headline(self) -> str:
        """One line: what came out, and where."""
        return phrases.headline(self)

    def call_table(self, step: int | None = None, rank: int | str | None = None) -> Table:
        """All calls of one step of one rank, in the order of the page, and how they were judged.

        Step and rank may be left out: those of the first finding, or the first that both runs have, are meant. The
        columns: ``name``, ``reference_name``, ``module``, ``inside``, ``phase``, ``order``, ``status``,
        ``input_delta``, ``output_delta``, ``allowed``, ``largest``, ``norm``, ``not_finite``, ``finding``;
        ``table.meanings`` and ``docs/python.md`` say what they hold. Raises InvalidInputError if there is no such step
        or rank, and what reading the dumps raises.
        """
        from msprobe.results.step_tables import call_table, place_of

        with self._source() as source:
            return call_table(source, place_of(source, self, step, rank), self.findings)

    def tensor_table(self, step: int | None = None, rank: int | str | None = None) -> Table:
        """All tensors of one step of one rank, each beside that of the reference, and how far they are apart.

        Step and rank as for :meth:`call_table`. The columns: ``name``, ``reference_name``, ``module``, ``slot``,
        ``group``, ``status``, ``difference``, ``units``, and of both sides (``reference_...``) ``dtype``, ``shape``,
        ``max``, ``min``, ``mean``, ``norm``; ``table.meanings`` and ``docs/python.md`` say what they hold. Raises the
        same.
        """
        from msprobe.results.step_tables import place_of, tensor_table

        with self._source() as source:
            return tensor_table(source, place_of(source, self, step, rank), self.findings)

    def step_table(self) -> Table:
        """Loss, norm of the gradients and norm of the weights of both runs, one row for each rank of each step.

        The columns: ``step``, ``rank``, and of both sides (``reference_...``) ``loss``, ``gradient_norm``,
        ``weight_norm``; ``table.meanings`` and ``docs/python.md`` say what they hold. Raises what opening the dumps
        raises.
        """
        from msprobe.results.step_tables import step_table

        return step_table(*self._opened())

    def write_html(self, path: StrPath) -> Path:
        """Write the page of ``msprobe view``, with its data in one file. Raises PathError."""
        from msprobe.paths import check_output_file, write_atomically
        from msprobe.view.single_file import single_file

        check_output_file(path)
        with self._source() as source:
            write_atomically(path, single_file(source), fsync=False)
        return Path(path)

    @contextmanager
    def _source(self) -> Iterator[Dumps]:
        """The two dumps, judged as the comparison did it; closed behind."""
        from msprobe.view.dumps import Dumps

        source = Dumps(*self._opened(), self, noise=self.noise)
        try:
            yield source
        finally:
            source.close()

    def _opened(self) -> tuple[Dump, Dump]:
        from msprobe.store.reader import open_dump

        return self._dumps or (open_dump(self.candidate), open_dump(self.reference))

    def __repr__(self) -> str:
        return f"<Comparison {self.headline}{_counted(self.findings)}>"

    def __str__(self) -> str:
        return console.verdict_text(self).rstrip()

    def _repr_html_(self) -> str:
        about = (f"candidate {self.candidate}", f"reference {self.reference}", *phrases.further_notes(self))
        findings = phrases.leading(self)
        groups = phrases.grouped(findings)
        blocks = [_block(group.first, console.finding_lines(group.first), group) for group in groups[:_SHOWN]]
        return result_html(self.headline + _more(self.findings, groups), _TONES[self.status], about, blocks)


@dataclass(frozen=True, repr=False, eq=False)
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
        blocks = [_block(finding, check_text.finding_lines(finding)) for finding in self.findings[:_SHOWN]]
        about = (f"dump {self.dump}", *self.unread, *self.notes)
        return result_html(self.headline + _more(self.findings, self.findings), _TONES[self.status], about, blocks)


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
    that says how runs of other parallel layouts lie on their ranks. ``jobs`` ranks are compared at once.
    ``progress`` gets what is compared next. Raises PathError or InvalidInputError if something cannot be read, and
    NotAvailableError if what ``jobs`` needs is not installed.
    """
    from msprobe.diagnose.runs import compare_runs
    from msprobe.diagnose.verdict.readable import readable_verdict
    from msprobe.lockstep.comparing import compared
    from msprobe.store.reader import open_dump, open_dumps

    left, right, *healthy = open_dumps((candidate, reference) if noise is None else (candidate, reference, noise))

    def run(first: StrPath, other: StrPath) -> diagnosed.Verdict:
        second = healthy[0] if healthy else None
        return compare_runs(first, other, progress, noise=second, layout=layout, jobs=jobs)

    verdict, first, other = readable_verdict(lambda first, other: compared(first, other, progress, run), left, right)
    values = _values(verdict)
    # Paths as they were given: what could be read of them is in the notes.
    values |= {"candidate": str(candidate), "reference": str(reference)}
    return Comparison(
        **values, noise=None if noise is None else str(noise), _dumps=(open_dump(first), open_dump(other))
    )


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
        if isinstance(names, str) or not isinstance(names, Collection):
            raise InvalidInputError(said("names-of-checks-wrong", word, names))
    unknown = [name for name in (*only, *skip) if name not in {known_check.name for known_check in CHECKS}]
    if unknown:
        raise InvalidInputError(
            said("no-such-checks", ", ".join(map(repr, unknown)), ", ".join(known_check.name for known_check in CHECKS))
        )
    chosen = [
        known_check for known_check in CHECKS if (not only or known_check.name in only) and known_check.name not in skip
    ]
    if not chosen:
        raise InvalidInputError(said("no-check-left"))
    return CheckedRun(**_values(check_run(dump, chosen, progress)))


def _values(result: Any) -> dict[str, Any]:
    """The fields of a result, with findings that put themselves into words."""
    values = {column.name: getattr(result, column.name) for column in fields(result)}
    values["findings"] = tuple(
        Finding(**{column.name: getattr(finding, column.name) for column in fields(finding)})
        for finding in result.findings
    )
    return values


def _lines(finding: diagnosed.Finding) -> list[console.Line]:
    lines = check_text.finding_lines if "check" in finding.evidence else console.finding_lines
    return lines(finding)


def _block(
    finding: diagnosed.Finding, lines: Sequence[console.Line], group: phrases.Alike | None = None
) -> tuple[str, list[str]]:
    alike = ""
    if group is not None and group.count > 1:
        alike = f" (on {group.on_ranks})" if group.on_ranks else f" ({group.count} alike)"
    return f"{finding.kind}: {finding.message}{alike}", [line.text for line in lines]


def _counted(findings: Sequence[object]) -> str:
    return "" if not findings else "; 1 finding" if len(findings) == 1 else f"; {len(findings)} findings"


def _more(findings: Sequence[object], groups: Sequence[object]) -> str:
    """How many findings there are, where not all are shown."""
    return said("first-of-findings", len(findings)) if len(groups) > _SHOWN else ""
