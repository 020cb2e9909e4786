"""What was found, as rows of ``free_benchmark.csv`` and of the files beside it. Rows are there at once."""

from __future__ import annotations

import io
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msprobe import log, paths
from msprobe.foreign import csv_cells
from msprobe.messages import Wording, code_of, said

#: Whether the call's own rounding explains a deviation; "not judged": nobody can say.
Verdict = Literal["risk", "explained by rounding", "not judged"]
EXPLAINED: Verdict = "explained by rounding"

FILE = "free_benchmark.csv"
DETAILS_FILE = "free_benchmark_details.csv"
SUMMARY_FILE = "free_benchmark_summary.csv"
#: The columns of 8.1.1 for PyTorch; for MindSpore the second one is ``pert_type``.
COLUMNS = ("rank", "pert_mode", "stage", "step", "api_name", "max_rel", "dtype", "shape", "output_index")
MINDSPORE_COLUMNS = ("rank", "pert_type", *COLUMNS[2:])
#: What is said of errors that go one way.
_ONE_WAY = ("scaled-one-way", "shifted-one-way")
_MORE = ("verdict", "mean_rel", "bad_ratio", "condition", "source")
# Of a training that is killed the table is so old at most.
_SECONDS = 1.0
_SUMMARY = ("api", "calls", "checked", "deviations", "risks", "not_judged", "worst_max_rel", "notes")


@dataclass(frozen=True)
class DeviationRow:
    """A result that differs. ``max_rel``: ratio - 1, or a word: ``symbol_flipping``, ``nan_mismatch``.

    ``mean_rel``: mean relative difference;
    ``bad_ratio``: share of the elements over the limit; ``condition``: relative change of the result over that of the
    input, None where the input did not change.
    """

    mode: str
    stage: str
    step: int
    name: str
    key: str
    max_rel: float | str
    dtype: str
    shape: str
    index: int | None
    verdict: Verdict
    mean_rel: float
    bad_ratio: float
    condition: float | None
    source: str = ""


@dataclass
class _Total:
    calls: int = 0
    checked: int = 0
    deviations: int = 0
    risks: int = 0
    not_judged: int = 0
    #: The share of elements that deviated in each of those that rounding explains.
    explained: list[float] = field(default_factory=list)
    worst: float = 0.0
    word: str = ""

    def add(self, row: DeviationRow) -> None:
        self.deviations += 1
        self.not_judged += row.verdict == "not judged"
        if row.verdict == EXPLAINED:
            self.explained.append(row.bad_ratio)
        if row.verdict != "risk":
            return
        self.risks += 1
        if isinstance(row.max_rel, str):
            self.word = row.max_rel
        else:
            self.worst = max(self.worst, row.max_rel)

    @property
    def shown(self) -> str:
        return self.word or (f"{self.worst:.6g}" if self.worst else "")


class Results:
    """Where what is found goes, and what it amounts to.

    ``folder``: gives the folder of a step; ``summary``: that of all steps; both for the rank of the process as it is.
    """

    def __init__(self, columns: Sequence[str], folder: Callable[[int], Path], summary: Callable[[], Path]) -> None:
        self._columns = columns
        self._folder = folder
        self._summary = summary
        self._totals: dict[str, _Total] = defaultdict(_Total)
        self._notes: dict[str, dict[str, None]] = defaultdict(dict)
        self._is_new = False
        self._written = -_SECONDS

    def called(self, key: str) -> None:
        """A call that is meant."""
        self._totals[key].calls += 1
        self._is_new = True

    def checked(self, key: str) -> None:
        """It was made again and compared."""
        self._totals[key].checked += 1

    def note(self, key: str, text: str) -> None:
        """Why it was not."""
        self._notes[key][text] = None

    def add(self, row: DeviationRow, rank: int, is_listed: bool) -> None:
        """A deviation; ``is_listed``: it has a row in ``free_benchmark.csv``."""
        self._totals[row.key].add(row)
        cells = [
            rank, row.mode, row.stage, row.step, row.name, row.max_rel, row.dtype, row.shape,
            "" if row.index is None else row.index,
        ]  # fmt: skip
        folder = self._folder(row.step)
        if is_listed:
            self._append(folder / FILE, self._columns, cells)
        condition = "" if row.condition is None else row.condition
        more = [row.verdict, row.mean_rel, row.bad_ratio, condition, row.source]
        self._append(folder / DETAILS_FILE, (*self._columns, *_MORE), [*cells, *more])

    def _append(self, path: Path, columns: Sequence[str], cells: Sequence[object]) -> None:
        is_first = not path.exists()
        if is_first:
            paths.create_folder(path.parent)
        data = (_line(columns) if is_first else b"") + _line(cells)
        with paths.create_file(path, append=True, buffering=0) as file:
            file.write(data)

    def write_summary(self, is_last: bool = True) -> None:
        """The table of all steps so far, a row for each API; at most once a second, unless this is the last one."""
        now = time.monotonic()
        if not self._is_new or not (is_last or now - self._written > _SECONDS):
            return
        self._is_new, self._written = False, now
        lines = [_line(_SUMMARY)]
        for key, total in self._sorted():
            cells = [key, total.calls, total.checked, total.deviations, total.risks, total.not_judged, total.shown]
            lines.append(_line([*cells, "; ".join(self._notes.get(key, ()))]))
        folder = self._summary()
        paths.create_folder(folder)
        paths.write_atomically(folder / SUMMARY_FILE, lines, fsync=False)

    def log_summary(self, is_fix: bool) -> None:
        """The same on the console: APIs with risks, or how many calls got another result."""
        if not self._totals:
            log.warning(said("benchmark-without-calls"))
            return
        risky = [(key, total) for key, total in self._sorted() if total.risks]
        checked = sum(total.checked for total in self._totals.values())
        calls = sum(total.calls for total in self._totals.values())
        if is_fix:
            log.info(said("benchmark-fixed", checked, calls, len(self._totals)))
            return
        not_judged = sum(total.not_judged for total in self._totals.values())
        explained = [share for total in self._totals.values() for share in total.explained]
        further = said("benchmark-explained", len(explained)) if explained else ""
        further += said("benchmark-not-judged", not_judged, SUMMARY_FILE) if not_judged else ""
        log.info(said("benchmark-checked", checked, calls, len(self._totals), further))
        if not checked:
            why = self._usual_reason()
            log.warning(said("benchmark-checked-nothing", why, SUMMARY_FILE))
        elif not risky:
            shares = said("benchmark-shares", 100 * min(explained), 100 * max(explained)) if explained else ""
            rounding = said("benchmark-rounding", len(explained), shares)
            log.info(said("benchmark-without-risk", rounding if explained else ""))
        for key, total in risky[:20]:
            log.warning(
                said("benchmark-risks", key, total.risks, total.checked, total.calls, total.shown, self._direction(key))
            )
        if len(risky) > 20:
            log.warning(said("benchmark-more-risks", len(risky) - 20, SUMMARY_FILE))

    def _direction(self, key: str) -> str:
        """What the errors of an API have in common, where they go one way."""
        direction = next((note for note in self._notes.get(key, ()) if code_of(note)[1] in _ONE_WAY), "")
        return Wording("; {}", direction) if direction else ""

    def _usual_reason(self) -> str:
        """Why most APIs were not checked."""
        reasons = Counter(reason for notes in self._notes.values() for reason in notes)
        return reasons.most_common(1)[0][0] if reasons else said("no-call-with-floats")

    def _sorted(self) -> list[tuple[str, _Total]]:
        def weight(item: tuple[str, _Total]) -> tuple[bool, bool, float, str]:
            key, total = item
            return not total.risks, not total.word, -total.worst, key

        return sorted(self._totals.items(), key=weight)


def _line(cells: Iterable[object]) -> bytes:
    text = io.StringIO()
    csv_cells.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()
