"""What a check found, for people: counts, and the calls that failed, the worst first, each with what reproduces it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msprobe.compare.number_types import epsilon_of
from msprobe.coverage import Coverage, NotRead
from msprobe.precheck.columns import DEVICE_DTYPE, SCALED, SLOPE, STATUS
from msprobe.precheck.executors import RECORDED, is_details_file
from msprobe.precheck.job import Answer, Task
from msprobe.precheck.requests import api_name
from msprobe.precheck.slopes import Pool
from msprobe.signed_errors import ONE_WAY, percent

#: With the standards of 8.1.1 and 26.2 healthy halves give many.
#: So many APIs are named in one line.
_MOST_APIS = 12
_MOST_WARNINGS = 3
_BEHIND_THE_END = NotRead("what came behind the end of the dump", "it was not recorded")
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
    pools: dict[tuple[str, str], Pool] = field(default_factory=dict)

    @property
    def allowance(self) -> str:
        """What a control changes of the verdict; empty without one."""
        return self.control and f"judged beside the control ({self.control}), whose errors are allowed"

    @property
    def coverage(self) -> Coverage:
        """What was judged, and which calls were not, by reason."""
        judged = {way: sum(counts.values()) - counts["skip"] for way, counts in self.counts.items()}
        skipped = [
            NotRead(f"{count} call{'s' if count > 1 else ''}, {self.first_skipped[reason]}", reason[:160])
            for reason, count in self.skipped.most_common()
        ]
        missing = [NotRead(name, "there is no sample of it in this type") for name in self.without_samples]
        behind = [_BEHIND_THE_END] if self.interrupted else []
        return Coverage({way: count for way, count in judged.items() if count}, (*behind, *missing, *skipped))

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
        self.notes += [f"{answer.key}: {note}" for note in answer.notes]
        self._pool(answer)

    def _pool(self, answer: Answer) -> None:
        for row in answer.details:
            if len(row) <= SLOPE + 1 or row[STATUS] == "SKIP" or not row[SLOPE].strip():
                continue
            result = row[0].removeprefix(answer.key)
            dtype = row[DEVICE_DTYPE].rpartition(".")[2]
            pool = self.pools.setdefault((f"{_api_of(answer.key)}{result}", dtype), Pool())
            pool.add(float(row[SLOPE]), float(row[SLOPE + 1]))

    @property
    def pooled(self) -> list[Pooled]:
        """The results of APIs that are off by a factor over all their calls."""
        found = []
        for (name, dtype), pool in self.pools.items():
            status, fit = pool.status(epsilon_of(dtype)), pool.fit
            if status != "pass":
                way = "large" if fit.size > 0 else "small"
                text = (
                    f"over {pool.count} calls {name} is {percent(abs(fit.size))} too {way}, "
                    f"{min(fit.certainty, 9999):.0f} standard errors: {ONE_WAY}"
                )
                found.append(Pooled(name, status, text))
        return found

    @property
    def is_error(self) -> bool:
        """True if a call failed, or all calls of an API together."""
        return bool(self.failed) or any(one.status == "error" for one in self.pooled)

    @property
    def is_warning(self) -> bool:
        """The same of warnings."""
        return bool(self.warned or self.pooled)

    @property
    def worst_first(self) -> list[Answer]:
        """Failed calls, the largest error first; among equals in the order of the dump."""
        return _worst_first(self.failed)

    def lines(self, top: int) -> list[str]:
        """The summary: one line of counts for each direction, and the ``top`` worst calls."""
        found = []
        for direction, counts in self.counts.items():
            parts = [f"{counts[word]} {word}" for word in ("pass", "warning", "error", "skip") if counts[word]]
            if parts:
                found.append(f"{direction}: {', '.join(parts)}")
        if not found:
            found.append("no call was checked: there is none of an API to check")
        if self.allowance:
            found.append(f"  {self.allowance}")
        if self.interrupted:
            found.append(f"  {Coverage({}, (_BEHIND_THE_END,)).sentence('checked')}")
        if self.without_samples:
            found.append(f"  not checked: there are no samples of {', '.join(self.without_samples[:_MOST_APIS])}")
        for reason, count in self.skipped.most_common(5):
            first = self.first_skipped.get(reason, "")
            found.append(f"  skipped {count} ({first}{', ...' if count > 1 else ''}): {reason[:160]}")
        for word, answers in (("errors", self.failed), ("warnings", self.warned)):
            by_api = Counter(_api_of(answer.key) for answer in answers)
            if answers:
                named = ", ".join(f"{name} ({count})" for name, count in by_api.most_common(_MOST_APIS))
                more = len(by_api) - _MOST_APIS
                found.append(f"APIs with {word}: {named}{f' and {more} more APIs' if more > 0 else ''}")
        for number, entry in enumerate(self.entries(top), 1):
            found.append(f"{number}. {entry.name}: {entry.why}")
            if entry.frame:
                found.append(f"   called in {entry.frame}")
            found.append(f"   reproduce: {entry.command}")
        if self.failed and top and self.standard != "strict":
            found.append(f"scripts judge by the standard strict, and may let pass what {self.standard} does not")
        if len(self.failed) > top:
            where = "file api_precision_compare_result" if self.control else "result file"
            found.append(f"and {len(self.failed) - top} more calls with errors in the {where}")
        if self.warned and not self.failed:
            for entry in self.warnings(min(top, _MOST_WARNINGS)):
                found.append(f"warning: {entry.name}: {entry.why}")
        found += [f"{one.status.lower()}: {one.text}" for one in self.pooled[:_MOST_APIS]]
        found += [f"note: {note}" for note in self.notes[:10]]
        return found

    def entries(self, most: int) -> list[Entry]:
        """The worst calls that failed."""
        return [self._entry(answer, "error") for answer in self.worst_first[:most]]

    def warnings(self, most: int) -> list[Entry]:
        """The worst calls with a warning."""
        return [self._entry(answer, "warning") for answer in _worst_first(self.warned)[:most]]

    def _entry(self, answer: Answer, status: str) -> Entry:
        # In the files of 8.1.1 it is "Warning", in those of 26.2 "warning".
        found = [row for row in answer.details if status in [cell.lower() for cell in row]]
        # The result that the call has its place in the ranking by.
        bad = max(found, key=_size, default=[answer.key, status, ""])
        why = bad[[cell.lower() for cell in bad].index(status) + 1].strip() or status
        direction = "backward" if ".backward." in bad[0] else "forward"
        frame = next((frame for frame in self.stack_of(answer.key) if "site-packages" not in frame), "")
        return Entry(bad[0], why, " ".join(frame.split())[:200], self.command_of(answer.key, direction))


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
