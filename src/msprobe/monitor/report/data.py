"""What the page of a run shows, as plain values that go into it as JSON."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msprobe.coverage import Coverage, NotRead, together
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.messages import in_both, said
from msprobe.monitor.alerts.alert import parse_tag, text_of_record
from msprobe.monitor.alerts.ranks import divergences
from msprobe.monitor.alerts.reading import read_all_alerts
from msprobe.monitor.band import departures, half_width
from msprobe.monitor.coverage import coverage_of_tables
from msprobe.monitor.csv_files import QuantityTable
from msprobe.monitor.csv_text import SCALARS
from msprobe.monitor.diff import diff
from msprobe.monitor.files import RunFolder, find_runs
from msprobe.monitor.series import Curve, Series, curves_of, label_of, series_of, tables_of, update_ratio
from msprobe.monitor.tags import quantity_of_kind
from msprobe.monitor.whole_runs import newest_of_ranks
from msprobe.paths import StrPath

# A page of more is slow to open and to send.
_MOST_BYTES = 24 << 20
_MOST_COLUMNS = 600
_MOST_RANKS = 8
_MOST_ALERTS = 500
_MOST_REASONS = 5
# Where there was no value; NaN is that of a tensor.
_MISSING = np.float32(-3.0e38)


@dataclass(frozen=True, slots=True)
class Monitored:
    """What was read of a run: all ranks."""

    path: str
    ranks: dict[int, list[RunFolder]]
    tables: dict[int, dict[str, QuantityTable]]
    alerts: Mapping[str, Mapping[str, Any]]


def read_run(path: StrPath) -> Monitored:
    """Read all ranks of a run. Raises PathError and InvalidInputError."""
    runs = find_runs(path)
    if not runs:
        raise InvalidInputError(said("no-monitor-runs", path))
    ranks = newest_of_ranks(runs)
    tables = {rank: tables_of(ranks[rank]) for rank in sorted(ranks)[:_MOST_RANKS]}
    try:
        alerts = read_all_alerts(path).records
    except MsprobeError:  # none that can be read
        alerts = {}
    return Monitored(str(path), ranks, tables, alerts)


def coverage_of(first: Monitored, second: Monitored | None) -> Coverage:
    """What the page shows of the runs, and what of them it does not."""
    parts = []
    for run in [first] if second is None else [first, second]:
        folders = [folder for folders_of_rank in run.ranks.values() for folder in folders_of_rank]
        tables = [(rank, table) for rank, tables_of_rank in run.tables.items() for table in tables_of_rank.values()]
        shown = [folder for folder in folders if folder.rank in run.tables]
        parts.append(coverage_of_tables(run.path, shown, tables))
        parts.append(Coverage({}, _not_shown(set(run.ranks) - set(run.tables))))
    return together(parts)


def _not_shown(ranks: set[int]) -> tuple[NotRead, ...]:
    why = said("page-shows-ranks", _MOST_RANKS)
    return tuple(NotRead(f"rank {rank}", why) for rank in sorted(ranks))


def page_data(first: Monitored, second: Monitored | None) -> dict[str, Any]:
    """Everything that the page shows. The second run, if any, is held against the first."""
    runs = [first] if second is None else [first, second]
    columns = _columns_that_fit(runs)
    names = ("reference", "candidate") if second is not None else ("",)
    return {
        "runs": [_run(run, name, columns) for run, name in zip(runs, names, strict=True)],
        "departures": [] if second is None else _departures(first, second),
        "compared": second is not None,
        "first_bad": None if second is None else _first_bad(first, second),
        "band": {} if second is None else _bands(first),
    }


def _run(run: Monitored, name: str, columns: int) -> dict[str, Any]:
    about = next((folder.about for folders in run.ranks.values() for folder in folders if folder.about), {})
    versions = about.get("versions")
    return {
        "name": name,
        "path": run.path,
        "started": str(about.get("started", "")),
        "framework": str(about.get("framework", "")),
        "versions": versions if isinstance(versions, dict) else {},
        "ranks": [_rank(rank, tables, columns) for rank, tables in run.tables.items()],
        "further_ranks": max(0, len(run.ranks) - len(run.tables)),
        "alerts": [_alert(record) for record in list(run.alerts.values())[:_MOST_ALERTS]],
        "further_alerts": max(0, len(run.alerts) - _MOST_ALERTS),
        "divergences": [in_both(divergence.message) for divergence in divergences(run.ranks)],
    }


def _rank(rank: int, tables: dict[str, QuantityTable], columns: int) -> dict[str, Any]:
    maps = [
        _matrix(series, columns)
        for table in tables.values()
        if table.quantity != SCALARS
        for series in series_of(table)
    ]
    ratios = update_ratio(tables)
    if ratios is not None and "update" not in tables:
        maps.append(_matrix(ratios, columns))
    steps = np.concatenate([table.steps for table in tables.values()]) if tables else np.zeros(0, np.int64)
    return {
        "rank": rank,
        "first": int(steps.min()) if len(steps) else None,
        "last": int(steps.max()) if len(steps) else None,
        "steps": len(np.unique(steps)),
        "curves": [_curve(curve) for curve in curves_of(tables)],
        "maps": maps,
    }


def _matrix(series: Series, columns: int) -> dict[str, Any]:
    edges, values = _binned(series, columns)
    return {
        "quantity": series.quantity,
        "op": series.op,
        "labels": list(series.labels),
        "steps": edges,
        "values": base64.b64encode(values.astype("<f4").tobytes()).decode("ascii"),
    }


def _binned(series: Series, columns: int) -> tuple[list[int], np.ndarray[Any, np.dtype[np.float32]]]:
    """At most so many columns: of several steps in one the value that stands out most, NaN first; and the first step of
    each.
    """
    count = len(series.steps)
    with np.errstate(over="ignore"):
        values = np.where(series.present, series.values, np.float64(_MISSING)).astype(np.float32)
    if count <= columns:
        return series.steps.tolist(), values
    edges = np.unique(np.linspace(0, count, columns + 1).astype(np.int64))[:-1]
    kept = np.empty((len(values), len(edges)), np.float32)
    size = np.where(np.isnan(values), np.inf, np.abs(values))
    size[values == _MISSING] = -1
    for at, (begin, end) in enumerate(zip(edges, [*edges[1:], count], strict=True)):
        most = begin + size[:, begin:end].argmax(axis=1)
        kept[:, at] = values[np.arange(len(values)), most]
    return series.steps[edges].tolist(), kept


def _columns_that_fit(runs: Sequence[Monitored]) -> int:
    rows = 0
    for run in runs:
        for tables in run.tables.values():
            for table in tables.values():
                tensors = len(set(zip(table.stages, table.names, table.micro_steps.tolist(), strict=True)))
                rows += tensors * len(table.ops)
    # Four bytes each, of which text takes a third more.
    return max(40, min(_MOST_COLUMNS, int(_MOST_BYTES / (max(1, rows) * 5.4))))


def _curve(curve: Curve) -> dict[str, Any]:
    at = np.arange(len(curve.steps))
    if len(at) > 2 * _MOST_COLUMNS:
        at = np.unique(np.linspace(0, len(at) - 1, 2 * _MOST_COLUMNS).astype(np.int64))
    return {
        "name": curve.name,
        "steps": curve.steps[at].tolist(),
        "values": [_number(x) for x in curve.values[at].tolist()],
    }


def _alert(record: Mapping[str, Any]) -> dict[str, Any]:
    name, micro, kind = parse_tag(str(record.get("tag_name", "")))
    return {
        "step": record.get("step"),
        "rank": record.get("rank"),
        "rule": str(record.get("rule", "")),
        "op": str(record.get("op", "")),
        "value": str(record.get("value", "")),
        "quantity": quantity_of_kind(kind),
        "label": label_of(int(record.get("vpp_stage", 0) or 0), name, micro),
        "name": label_of(int(record.get("vpp_stage", 0) or 0), name, None),
        "message": in_both(text_of_record(record)),
    }


def _departures(first: Monitored, second: Monitored) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for rank in sorted(first.tables.keys() & second.tables.keys()):
        for departure in departures(first.tables[rank], second.tables[rank]):
            rows.append(
                {
                    "rank": rank,
                    "step": departure.step,
                    "quantity": departure.quantity,
                    "label": departure.label,
                    "op": departure.op,
                    "first": _number(departure.first),
                    "second": _number(departure.second),
                    "distance": _number(departure.distance),
                }
            )
    earliest = min((int(row["step"]) for row in rows), default=None)
    return [row for row in rows if row["step"] == earliest][:_MOST_ALERTS]


def _first_bad(first: Monitored, second: Monitored) -> dict[str, Any] | None:
    """Where rounding no longer explains what differs."""
    try:
        result = diff(first.path, second.path)
    except MsprobeError:  # no step or rank in common
        return None
    if result.first_bad is None:
        return None
    what = [in_both(each) for each in result.first_bad.what[:_MOST_REASONS]]
    return {
        "step": result.first_bad.step,
        "rank": result.rank,
        "what": what,
        "from_the_first": result.first_bad.step == result.first,
    }


def _bands(first: Monitored) -> dict[str, Any]:
    """The band of the norm of all gradients and of the loss, for their curves."""
    bands = {}
    for rank, tables in first.tables.items():
        for curve in curves_of(tables):
            width = half_width(curve.values[None, :].astype(np.float64), "norm")[0]
            at = _curve(Curve(curve.name, curve.steps, width))
            bands[f"{rank}/{curve.name}"] = at["values"]
    return bands


def _number(value: float) -> float | str:
    """JSON knows neither NaN nor infinity."""
    return float(f"{value:.7g}") if math.isfinite(value) else str(value)
