"""What a check found, for people: counts, and the calls that failed, the worst first, each with what reproduces it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msprobe.compare.number_types import epsilon_of
from msprobe.coverage import Coverage, NotRead
from msprobe.messages import Wording, joined, said, translated
from msprobe.precheck.columns import DEVICE_DTYPE, SCALED, SLOPE, STATUS
from msprobe.precheck.executors import RECORDED, is_details_file
from msprobe.precheck.job import Answer, Task
from msprobe.precheck.requests import api_name
from msprobe.precheck.slopes import SlopePool
from msprobe.signed_errors import certainty_of, way_of

#: With the standards of 8.1.1 and 26.2 healthy halves give many.
#: So many APIs are named in one line.
_MOST_APIS = 12
_MOST_WARNINGS = 3
_LONGEST_REASON = 160
#: Where rows beside a control have their largest ratio.
_RATIO = 3


@dataclass(frozen=True)
class Entry:
    """One call that failed: the worst result that is named, why, the line of the program, and what reproduces it."""

    name: str
    why: str
    frame: str
    command: str


@dataclass(frozen=True)
class Pooled:
    """One result of an API that is off by a factor over all calls: ``status`` is ``Warning`` or ``error``."""

    name: str
    status: str
    text: str


@dataclass
class Ranking:
    """Gathers answers. ``stack_of`` gives the innermost frames of a call, ``command_of`` what reproduces it."""

    stack_of: Callable[[str], Sequence[str]]
    command_of: Callable[[str, str], str]
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {"forward": Counter(), "backward": Counter()})
    failed: list[Answer] = field(default_factory=list)
    warned: list[Answer] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    #: The first call that was skipped for each reason.
    first_skipped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    #: Who plays the trusted device; its errors are no errors of the answers.
    control: str = ""
    #: By what the check judges.
    standard: str = "strict"
    #: True if the record was interrupted: what came behind is not there.
    interrupted: bool = False
    #: Operators that were asked for by name and have no sample, with the type.
    without_samples: tuple[str, ...] = ()
    #: The slopes of all calls of one API, by result and type: what is small in each call may be sure in all of them.
    pools: dict[tuple[str, str], SlopePool] = field(default_factory=dict)

    @property
    def allowance(self) -> str:
        """What a control changes of the verdict; empty without one."""
        return said("judged-beside-control", self.control) if self.control else ""

    @property
    def coverage(self) -> Coverage:
        """What was judged, and which calls were not, by reason."""
        judged = {direction: sum(counts.values()) - counts["skip"] for direction, counts in self.counts.items()}
        skipped = [
            NotRead(
                said("several-calls-named", count, self.first_skipped[reason])
                if count > 1
                else said("one-call-named", self.first_skipped[reason]),
                shortened(reason),
            )
            for reason, count in self.skipped.most_common()
        ]
        missing = [NotRead(name, said("sample-missing")) for name in self.without_samples]
        behind = [_behind_the_end()] if self.interrupted else []
        return Coverage(
            {direction: count for direction, count in judged.items() if count}, (*behind, *missing, *skipped)
        )

    def add(self, answer: Answer) -> None:
        """Count one answer."""
        for direction, status in zip(("forward", "backward"), answer.result[1:3], strict=True):
            if status.strip():
                self.counts[direction][status.lower()] += 1
        if answer.failed:
            self.failed.append(answer)
        elif "warning" in (answer.result[1].lower(), answer.result[2].lower()):
            self.warned.append(answer)
        if answer.result[1] == "SKIP":
            self.skipped[answer.result[3]] += 1
            self.first_skipped.setdefault(answer.result[3], answer.key)
        self.notes += [Wording("{}: {}", answer.key, note) for note in answer.notes]
        self._pool(answer)

    def _pool(self, answer: Answer) -> None:
        for row in answer.details:
            if len(row) <= SLOPE + 1 or row[STATUS] == "SKIP" or not row[SLOPE].strip():
                continue
            result = row[0].removeprefix(answer.key)
            dtype = row[DEVICE_DTYPE].rpartition(".")[2]
            pool = self.pools.setdefault((f"{_api_of(answer.key)}{result}", dtype), SlopePool())
            pool.add(float(row[SLOPE]), float(row[SLOPE + 1]))

    @property
    def pooled(self) -> list[Pooled]:
        """The results of APIs that are off by a factor over all their calls."""
        pooled = []
        for (name, dtype), pool in self.pools.items():
            status, fit = pool.status(epsilon_of(dtype)), pool.fit
            if status != "pass":
                numbers = 100 * abs(fit.size), way_of(fit), certainty_of(fit)
                text = said("pooled-one-way", pool.count, name, *numbers)
                pooled.append(Pooled(name, status, text))
        return pooled

    @property
    def is_error(self) -> bool:
        """True if a call failed, or all calls of an API together."""
        return bool(self.failed) or any(pooled.status == "error" for pooled in self.pooled)

    @property
    def is_warning(self) -> bool:
        """The same of warnings."""
        return bool(self.warned or self.pooled)

    @property
    def worst_first(self) -> list[Answer]:
        """Failed calls, the largest error first; among equals in the order of the dump."""
        return _worst_first(self.failed)

    def lines(self, top: int) -> list[str]:
        """The summary, in the language that is asked for: a line of counts for each direction, and the ``top`` worst
        calls.
        """
        return [translated(line) for line in (*self._lines_of_all(), *self._lines_of_calls(top))]

    def _lines_of_all(self) -> Iterator[str]:
        counted = [line for direction, counts in self.counts.items() if (line := counts_line(direction, counts))]
        yield from counted or [said("nothing-to-check")]
        if self.allowance:
            yield Wording("  {}", self.allowance)
        if self.interrupted:
            yield Wording("  {}", Coverage({}, (_behind_the_end(),)).sentence("checked"))
        if self.without_samples:
            yield Wording("  {}", said("no-samples-of", ", ".join(self.without_samples[:_MOST_APIS])))
        for reason, count in self.skipped.most_common(5):
            first, more = self.first_skipped.get(reason, ""), ", ..." if count > 1 else ""
            yield Wording("  {}", said("skipped-calls", count, first, more, shortened(reason)))
        for answers, named in ((self.failed, "apis-with-errors"), (self.warned, "apis-with-warnings")):
            by_api = Counter(_api_of(answer.key) for answer in answers)
            if answers:
                names = ", ".join(f"{name} ({count})" for name, count in by_api.most_common(_MOST_APIS))
                more = said("and-more-apis", len(by_api) - _MOST_APIS) if len(by_api) > _MOST_APIS else ""
                yield said(named, names, more)

    def _lines_of_calls(self, top: int) -> Iterator[str]:
        for number, entry in enumerate(self.entries(top), 1):
            yield said("numbered-result", number, entry.name, entry.why)
            if entry.frame:
                yield Wording("   {}", said("called-in", entry.frame))
            yield Wording("   {}", said("reproduce-with", entry.command))
        if self.failed and top and self.standard != "strict":
            yield said("scripts-judge-strictly", self.standard)
        if len(self.failed) > top:
            count = len(self.failed) - top
            yield said("and-more-failed-beside-control" if self.control else "and-more-failed-calls", count)
        if self.warned and not self.failed:
            for entry in self.warnings(min(top, _MOST_WARNINGS)):
                yield said("warning-of", entry.name, entry.why)
        for pooled in self.pooled[:_MOST_APIS]:
            yield said("status-of", said(f"status-{pooled.status.lower()}"), pooled.text)
        for note in self.notes[:10]:
            yield said("note-of-check", note)

    def entries(self, most: int) -> list[Entry]:
        """The worst calls that failed."""
        return [self._entry(answer, "error") for answer in self.worst_first[:most]]

    def warnings(self, most: int) -> list[Entry]:
        """The worst calls with a warning."""
        return [self._entry(answer, "warning") for answer in _worst_first(self.warned)[:most]]

    def _entry(self, answer: Answer, status: str) -> Entry:
        # In the files of 8.1.1 it is "Warning", in those of 26.2 "warning".
        rows = [row for row in answer.details if status in [cell.lower() for cell in row]]
        # The result that the call has its place in the ranking by.
        bad = max(rows, key=_size, default=[answer.key, status, ""])
        why = bad[[cell.lower() for cell in bad].index(status) + 1].strip() or status
        direction = "backward" if ".backward." in bad[0] else "forward"
        frame = next((frame for frame in self.stack_of(answer.key) if "site-packages" not in frame), "")
        return Entry(bad[0], why, " ".join(frame.split())[:200], self.command_of(answer.key, direction))


def counts_line(direction: str, counts: Counter[str]) -> str:
    """How many are a pass, a warning, an error or skipped; empty if there are none."""
    words = [said(f"count-{word}", counts[word]) for word in ("pass", "warning", "error", "skip") if counts[word]]
    return said("direction-counts", said(f"direction-{direction}"), joined(", ", words)) if words else ""


def shortened(reason: str) -> str:
    """A reason for a line of its own; what an exception said may be very long."""
    return reason if isinstance(reason, Wording) else reason[:_LONGEST_REASON]


def _size(row: Sequence[str]) -> float:
    """How large the error of a result is: its scaled error, or beside a control its largest ratio."""
    try:
        return float(row[_RATIO] if len(row) == _RATIO + 1 else row[SCALED])
    except (IndexError, ValueError):
        return 0.0


def _worst_first(answers: Sequence[Answer]) -> list[Answer]:
    return sorted(answers, key=lambda answer: -answer.worst)


def _api_of(key: str) -> str:
    name = api_name(key)
    return f"{name.prefix}.{name.name}"


def _is_script_control(text: str) -> bool:
    """True for a control that a script can have: an executor of its own Python."""
    return bool(text) and not is_details_file(text) and not text.startswith("python:")


def reproduction_command(dump: str, candidate: str, task: Task) -> Callable[[str, str], str]:
    """How a call of this dump is reproduced with a script of its own."""

    def command(key: str, direction: str) -> str:
        words = ["msprobe", "op_generate", "--dump", dump, "--api", key, "--propagation", direction, "-o", "."]
        words += ["--load", task.load] if task.load else []
        references = {name: forward for name, forward, _ in task.operators}
        words += ["--reference", references[name]] if (name := api_name(key).name) in references else []
        words += ["--control", task.control] if _is_script_control(task.control) else []
        # What was recorded runs nowhere, and a script in the Python that starts it: it chooses the device then.
        chooses = candidate == RECORDED or candidate.startswith("python:")
        return shlex.join(words if chooses else [*words, "--device", candidate])

    return command


def _behind_the_end() -> NotRead:
    return NotRead(said("behind-the-end"), said("was-not-recorded"))
