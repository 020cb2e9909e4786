"""A training while it runs, in the terminal: the last steps of all ranks, the tensors that stand out, the alerts."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from msprobe.errors import MsprobeError, PathError
from msprobe.foreign.console import harmless
from msprobe.messages import said, translated
from msprobe.monitor.alerts.alert import text_of_record
from msprobe.monitor.alerts.reading import read_all_alerts
from msprobe.monitor.coverage import coverage_of_tables
from msprobe.monitor.csv_files import QuantityTable, merged, quantities_of, read_table
from msprobe.monitor.files import MONITOR, RunFolder, find_runs
from msprobe.monitor.series import Curve, Numbers, Series, curves_of, series_of, update_ratio
from msprobe.monitor.trend_database import FILE_NAME
from msprobe.monitor.trend_reading import has_database, read_trend
from msprobe.monitor.trend_reading import quantities_of as database_quantities_of
from msprobe.paths import StrPath

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 40
# Of long runs only the last files are read, at most so many bytes of each quantity.
_MOST_BYTES = 8 << 20
_MOST_FILES = 64
_LAST_STEPS = 512
_MOST_ALERTS = 5
_USUAL_STEPS = 64
_WANTED = ("grad_reduced", "grad_unreduced", "actv", "param_updated", "param_origin", "actv_grad")


@dataclass(frozen=True, slots=True)
class RankState:
    """What the files of one rank say now. ``changed``: seconds since one was written."""

    run: RunFolder
    tables: dict[str, QuantityTable]
    changed: float | None


def watch(
    folder: StrPath, *, once: bool = False, every: float = 2.0, top: int = 12, console: Console | None = None
) -> None:
    """Show the newest run in the folder until Ctrl-C, or ``once``. ``every``: seconds. ``top``: how many tensors.

    Raises PathError if there is no such folder.
    """
    find_runs(folder)
    screen = console or Console()
    if once:
        screen.print(view(folder, top))
        return
    try:
        with Live(view(folder, top), console=screen, refresh_per_second=4) as live:
            while True:
                time.sleep(every)
                live.update(view(folder, top))
    except KeyboardInterrupt:
        return


def view(folder: StrPath, top: int = 12) -> RenderableType:
    """What is shown now."""
    newest = {(run.rank, str(run.about.get(MONITOR, 0))): run for run in find_runs(folder)}
    if not newest:
        return Text(translated(said("no-run-yet", folder)), style="dim")
    states = [_state(run) for run in newest.values()]
    known = [state for state in states if state.tables]
    parts: list[RenderableType] = [_ranks(states)]
    covered = coverage_of_tables(folder, list(newest.values()), [])
    if not covered.is_complete:
        parts.append(Text(translated(covered.sentence("shown")), style="yellow"))
    if known:
        parts += [_curves(curves_of(known[0].tables)), _tensors(known[0], top)]
    parts.append(_alerts(Path(os.path.abspath(states[0].run.path)).parent))
    return Group(*parts)


def spark(
    values: Numbers | Sequence[float], width: int = _WIDTH, present: Sequence[bool] | np.ndarray[Any, Any] | None = None
) -> str:
    """A line of small bars; logarithmic where the numbers differ much, ``!`` for what is not finite. ``present``: where
    there was a number; elsewhere the line is empty.
    """
    numbers = np.asarray(values, dtype=np.float64)[-width:]
    there = [True] * len(numbers) if present is None else [bool(flag) for flag in present][-width:]
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return "".join("!" if known else " " for known in there)
    if finite.min() > 0 and finite.max() > 20 * finite.min():
        with np.errstate(all="ignore"):
            numbers, finite = np.log(numbers), np.log(finite)
    low, room = finite.min(), (finite.max() - finite.min()) or 1.0
    bars = [
        _BARS[int((x - low) / room * (len(_BARS) - 1) + 0.5)] if math.isfinite(x) else "!" for x in numbers.tolist()
    ]
    return "".join(bar if known else " " for bar, known in zip(bars, there, strict=True))


def _state(run: RunFolder) -> RankState:
    tables = {}
    last: float | None = None
    for quantity, files in quantities_of(run.path).items():
        chosen: list[Path] = []
        size = 0
        for path in reversed(files[-_MOST_FILES:]):
            try:
                status = path.stat()
            except OSError:
                continue
            last = max(last or 0.0, status.st_mtime)
            size += status.st_size
            if chosen and size > _MOST_BYTES:
                break
            chosen.append(path)
        parts = []
        for path in reversed(chosen):
            try:
                parts.append(read_table(path))
            except PathError:
                continue
        if parts and sum(map(len, parts)):
            tables[quantity] = merged(parts)
    if has_database(run):
        last = max(last or 0.0, Path(run.path, FILE_NAME).stat().st_mtime)
        for quantity in database_quantities_of([run]):
            trend = None if quantity in tables else read_trend(run, quantity, _LAST_STEPS)
            if trend is not None and len(trend):
                tables[quantity] = trend
    return RankState(run, tables, None if last is None else max(0.0, time.time() - last))


def _ranks(states: Sequence[RankState]) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    for name in ("rank", "last-step", "written", "gradient-norm", "loss", "run"):
        _add_column(grid, name, is_left=name == "run")
    for state in states:
        steps = [int(table.steps.max()) for table in state.tables.values()]
        last = {curve.name: curve.values[-1] for curve in curves_of(state.tables)}
        grid.add_row(
            str(state.run.rank),
            str(max(steps)) if steps else "-",
            "-" if state.changed is None else translated(said("watch-seconds-ago", state.changed)),
            _number(last.get("grad_norm")),
            _number(last.get("loss")),
            state.run.path.name,
        )
    return grid


def _add_column(grid: Grid, name: str, is_left: bool) -> None:
    """A column with its head in the language that is asked for."""
    grid.add_column(translated(said(f"watch-{name}")), justify="left" if is_left else "right", header_style="dim")


def _curves(curves: Sequence[Curve]) -> Grid:
    grid = Grid(box=None, pad_edge=False, show_header=False)
    for curve in curves:
        grid.add_row(
            Text(harmless(translated(curve.name)), style="dim"), spark(curve.values), _number(curve.values[-1])
        )
    return grid


def _tensors(state: RankState, top: int) -> RenderableType:
    """The tensors whose last value is furthest from what it was before."""
    series = next((norms for name in _WANTED if (norms := _norms(state.tables.get(name))) is not None), None)
    if series is None:
        return Text("")
    there = series.present[:, -1]
    scores = [_surprise(row) if is_there else -1.0 for row, is_there in zip(series.values, there, strict=True)]
    ratios = update_ratio(state.tables)
    ratio_of: dict[str, float | None] = {}
    if ratios is not None:
        last = zip(ratios.labels, ratios.values[:, -1].tolist(), ratios.present[:, -1], strict=True)
        ratio_of = {label: value if is_there else None for label, value, is_there in last}
    grid = Grid(
        box=None, pad_edge=False, title=f"{series.quantity}: {series.op}", title_justify="left", title_style="bold"
    )
    for name in ("tensor", "last", "usual", "times", "steps", *(["update-ratio"] if ratio_of else [])):
        _add_column(grid, name, is_left=name in ("tensor", "steps"))
    for at in sorted(range(len(scores)), key=lambda at: -scores[at])[:top]:
        row = series.values[at]
        is_there = bool(there[at])
        usual = _usual(row)
        times = row[-1] / usual if usual else math.nan
        is_wrong = not math.isfinite(row[-1]) or times > 10
        style = "dim" if not is_there else "red" if is_wrong else "yellow" if times > 3 else ""
        more = [_number(ratio_of.get(series.labels[at]))] if ratio_of else []
        shown = Text(harmless(series.labels[at]), overflow="ellipsis", no_wrap=True, style=style)
        bars = spark(row, 24, series.present[at])
        known = not math.isnan(usual)
        grid.add_row(
            shown, _cell(row[-1], is_there), _cell(usual, known), _cell(times, is_there and known, 3), bars, *more
        )
    return grid


def _norms(table: QuantityTable | None) -> Series | None:
    if table is None:
        return None
    all_series = list(series_of(table))
    return next((series for series in all_series if series.op == "norm"), all_series[0] if all_series else None)


def _usual(row: Numbers) -> float:
    recent = row[-_USUAL_STEPS:-1]
    before = np.abs(recent[np.isfinite(recent)])
    return float(np.median(before)) if len(before) else math.nan


def _surprise(row: Numbers) -> float:
    """For sorting: what is not finite first, then by the factor to what is usual."""
    last, usual = abs(float(row[-1])), _usual(row)
    if not math.isfinite(last):
        return math.inf
    return abs(math.log(last / usual)) if last > 0 and usual > 0 else 0.0


def _alerts(folder: Path) -> RenderableType:
    try:
        alerts = list(read_all_alerts(folder).records.values())
    except MsprobeError:  # none that can be read
        return Text("")
    lines = [Text(translated(said("alerts-the-last", len(alerts))), style="bold red")] if alerts else []
    lines += [Text(harmless(translated(text_of_record(alert))), style="red") for alert in alerts[-_MOST_ALERTS:]]
    return Group(*lines)


def _number(value: float | None, digits: int = 5) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _cell(value: float, is_there: bool, digits: int = 5) -> str:
    """A number of a tensor, of which NaN is shown; ``-`` where there is none."""
    return _number(value if is_there else None, digits)
