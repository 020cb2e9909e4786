"""Which folders of a rank are one run, and which are runs of their own.

Each monitor is a run of its own: two in one process watch two networks, and a training that is started again is no
continuation. A run goes on with an earlier one only where it says so: in the same folder (``append_output``), or with
``start_iteration``. Folders that do not say what they are (other tools, earlier versions) go on with a run whose first
step is before theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msprobe import log
from msprobe.errors import MsprobeError
from msprobe.foreign.opening import open_regular
from msprobe.foreign.plain_numbers import count_or_none
from msprobe.messages import said
from msprobe.monitor.files import FIRST_STEP, MONITOR, RunFolder

_LINE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class WholeRun:
    """One run of one rank. ``monitor``: the place among the monitors that its process had at once, from 0.
    ``folders``: from the oldest to the newest; several where it was resumed in a new folder.
    """

    rank: int
    monitor: int
    folders: tuple[RunFolder, ...]

    @property
    def first_step(self) -> int | None:
        """The first step that it has files of; None if there is none."""
        return next((span[0] for span in map(recorded_steps, self.folders) if span is not None), None)

    def __str__(self) -> str:
        models = str(self.folders[0].about.get("models") or "")
        names = ", ".join(folder.path.name for folder in self.folders)
        return f"{names}{f' ({models})' if models else ''}"


def whole_runs(folders: Sequence[RunFolder]) -> list[WholeRun]:
    """The runs that these folders, in the order of :func:`msprobe.monitor.files.find_runs`, are of."""
    runs: list[WholeRun] = []
    for folder in folders:
        number = count_or_none(folder.about.get(MONITOR))
        at = next(
            (
                place
                for place in range(len(runs) - 1, -1, -1)
                if runs[place].rank == folder.rank
                and runs[place].monitor == (number or 0)
                and _goes_on(folder, runs[place])
            ),
            None,
        )
        if at is None:
            runs.append(WholeRun(folder.rank, number or 0, (folder,)))
        else:
            runs[at] = WholeRun(folder.rank, number or 0, (*runs[at].folders, folder))
    return runs


def newest_of_ranks(folders: Sequence[RunFolder]) -> dict[int, list[RunFolder]]:
    """The folders of one run of each rank, the newest of those of its first monitor; a warning names the others."""
    newest: dict[int, list[RunFolder]] = {}
    runs = whole_runs(folders)
    for rank in dict.fromkeys(run.rank for run in runs):
        several = [run for run in runs if run.rank == rank]
        first = min(run.monitor for run in several)
        chosen = [run for run in several if run.monitor == first][-1]
        newest[rank] = list(chosen.folders)
        if len(several) > 1:
            others = "; ".join(str(run) for run in several if run is not chosen)
            log.warning(said("one-run-of-rank-read", rank, len(several), chosen, others))
        if len(chosen.folders) > 1:
            log.info(said("runs-go-on", rank, chosen))
    return newest


def recorded_steps(folder: RunFolder) -> tuple[int, int] | None:
    """The first and the last step that a folder has numbers of; None if it has none that can be read."""
    from msprobe.monitor.csv_files import quantities_of
    from msprobe.monitor.trend_reading import extremes_of

    spans = [span for files in quantities_of(folder.path).values() if (span := _span(files)) is not None]
    try:
        extremes = extremes_of(folder)
    except MsprobeError:
        extremes = None
    spans += [] if extremes is None else [extremes]
    return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None


def _goes_on(folder: RunFolder, earlier: WholeRun) -> bool:
    said = count_or_none(folder.about.get(FIRST_STEP))
    if said is not None:
        return said > 0
    if FIRST_STEP in earlier.folders[0].about:
        # Both are ours, and this one never began to watch.
        return False
    here, there = recorded_steps(folder), earlier.first_step
    return here is None or there is None or here[0] > there


def _span(files: Sequence[Path]) -> tuple[int, int] | None:
    """The steps in the first and in the last line of the files of a quantity."""
    first = last = None
    for path in files:
        steps = _steps_in(path, at_end=False)
        if steps:
            first = steps[0]
            break
    for path in reversed(files):
        steps = _steps_in(path, at_end=True)
        if steps:
            last = steps[-1]
            break
    return None if first is None or last is None else (first, last)


def _steps_in(path: Path, at_end: bool) -> list[int]:
    try:
        with open_regular(path) as file:
            head = file.read(_LINE_BYTES)
            if at_end:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - _LINE_BYTES))
                data = file.read(_LINE_BYTES)
            else:
                data = head
    except OSError:
        return []
    columns = head.split(b"\n", 1)[0].split(b",")
    if b"step" not in columns or b"\n" not in data:
        return []
    # Names may have commas; the step stands behind them.
    place = columns.index(b"step") - len(columns)
    lines = data[: data.rindex(b"\n")].split(b"\n")
    return [step for line in lines if (step := _step_in(line, place, columns)) is not None]


def _step_in(line: bytes, place: int, columns: Sequence[bytes]) -> int | None:
    import csv

    for cells in csv.reader([line.decode("utf-8", "replace")]):
        if len(cells) == len(columns) and cells[place].isdecimal() and len(cells[place]) < 16:
            return int(cells[place])
    return None


def ranks_of_monitors(folders: Sequence[RunFolder]) -> list[dict[int, list[RunFolder]]]:
    """Runs of several ranks that belong together, rank -> folders: those of the same monitor that began one after the
    other in their ranks.
    """
    by_monitor: dict[tuple[int, int], dict[int, list[RunFolder]]] = {}
    counts: dict[tuple[int, int], int] = {}
    for run in whole_runs(folders):
        place = counts.get((run.rank, run.monitor), 0)
        counts[run.rank, run.monitor] = place + 1
        by_monitor.setdefault((run.monitor, place), {})[run.rank] = list(run.folders)
    return [by_monitor[key] for key in sorted(by_monitor)]
