"""The numbers of a run over its steps: a matrix for each quantity and operator, tensors down and steps across."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from msprobe import log
from msprobe.messages import said
from msprobe.monitor.csv_files import QuantityTable, Steps
from msprobe.monitor.csv_text import SCALARS
from msprobe.monitor.files import RunFolder
from msprobe.monitor.trend_reading import quantities_of, read_quantity

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]

#: The order of a training step.
ORDER = (
    "actv", "attention_hook", "moe_router_logit_hook", "actv_grad", "grad_unreduced", "grad_reduced", "exp_avg",
    "exp_avg_sq", "param_origin", "update", "param_updated", "state", "linear_hook", "moe_router_weight_hook", "other",
    SCALARS,
)  # fmt: skip
TOTAL = "total"


@dataclass(frozen=True, slots=True)
class Series:
    """One operator of one quantity. ``labels``: of the rows, in the order of the files. ``values``: [rows, steps];
    ``present``: [rows, steps], where there was a tensor, so that NaN is its own.
    """

    quantity: str
    op: str
    labels: tuple[str, ...]
    steps: Steps
    values: Matrix
    present: np.ndarray[tuple[int, int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Curve:
    """A number of the training as a whole, over the steps."""

    name: str
    steps: Steps
    values: Numbers


def label_of(stage: int, name: str, micro_step: int | None) -> str:
    """What a tensor is called in pages and messages."""
    chunk = f"{stage}:" if stage else ""
    return f"{chunk}{name}" + ("" if micro_step is None else f" [micro {micro_step}]")


def place_of(quantity: str) -> int:
    """Where a quantity stands in the order of a step."""
    return ORDER.index(quantity) if quantity in ORDER else len(ORDER)


def tables_of(runs: Sequence[RunFolder]) -> dict[str, QuantityTable]:
    """All quantities of the runs of one rank, in the order of a step. Raises PathError."""
    names = sorted(quantities_of(runs), key=lambda name: (place_of(name), name))
    tables = {name: read_quantity(runs, name) for name in names}
    if runs and not names:
        configs = [run.about.get("config") for run in runs]
        asked = {str(config["format"]) for config in configs if isinstance(config, dict) and "format" in config}
        asked -= {"csv", "sqlite"}
        hint = said("written-in-other-formats", ", ".join(sorted(asked))) if asked else ""
        log.warning(said("no-files-of-monitor", runs[-1].path, hint))
    return {name: table for name, table in tables.items() if table is not None and len(table)}


def series_of(table: QuantityTable) -> Iterator[Series]:
    """A matrix for each operator of the table."""
    several = table.has_micro_steps and bool(table.micro_steps.any())
    keys = list(zip(table.stages, table.names, table.micro_steps.tolist(), strict=True))
    rows = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    labels = tuple(label_of(stage, name, micro if several else None) for stage, name, micro in rows)
    steps, columns = np.unique(table.steps, return_inverse=True)
    at = np.array([rows[key] for key in keys]), columns
    present = np.zeros((len(rows), len(steps)), np.bool_)
    present[at] = [dtype != "nan" for dtype in table.dtypes]
    for column, op in enumerate(table.ops):
        values = np.full((len(rows), len(steps)), np.nan)
        values[at] = table.values[:, column]
        yield Series(table.quantity, op, labels, steps, values, present)


def curves_of(tables: dict[str, QuantityTable]) -> list[Curve]:
    """Loss, learning rate and whatever else the steps have one number of; the norm of all gradients together; and how
    much the steps change the weights.
    """
    curves = []
    if SCALARS in tables:
        for series in series_of(tables[SCALARS]):
            curves += [Curve(name, series.steps, series.values[at]) for at, name in enumerate(series.labels)]
    if not any(curve.name == "grad_norm" for curve in curves):
        norm = _total_gradient_norm(tables)
        curves += [] if norm is None else [norm]
    return curves + _update_ratios(tables)


def _total_gradient_norm(tables: dict[str, QuantityTable]) -> Curve | None:
    for quantity in ("grad_reduced", "grad_unreduced"):
        for series in series_of(tables[quantity]) if quantity in tables else ():
            if series.op != "norm":
                continue
            if TOTAL in series.labels:
                return Curve("grad_norm", series.steps, series.values[series.labels.index(TOTAL)])
            first = [at for at, label in enumerate(series.labels) if "[micro " not in label]
            known = np.where(series.present, series.values, 0.0)[first or slice(None)]
            return Curve("grad_norm", series.steps, np.sqrt(np.square(known).sum(axis=0)))
    return None


def _update_ratios(tables: dict[str, QuantityTable]) -> list[Curve]:
    """Median and maximum over all parameters of the change in a step, as a share of the weight's norm."""
    ratios = update_ratio(tables)
    if ratios is None:
        return []
    with np.errstate(all="ignore"):
        known = np.where(np.isfinite(ratios.values), ratios.values, np.nan)
        kept = ~np.isnan(known).all(axis=0)
        steps, known = ratios.steps[kept], known[:, kept]
        return [
            Curve(said("update-ratio-median"), steps, np.nanmedian(known, axis=0)),
            Curve(said("update-ratio-largest"), steps, np.nanmax(known, axis=0)),
        ]


def update_ratio(tables: dict[str, QuantityTable]) -> Series | None:
    """The change of each weight in a step as a share of its norm: measured, or at least that of the norms before and
    after it; None if neither is known.
    """
    if "update" in tables:
        return next((series for series in series_of(tables["update"]) if series.op == "ratio"), None)
    before, after = _norms(tables, "param_origin"), _norms(tables, "param_updated")
    if before is None or after is None:
        return None
    if before.labels != after.labels or not np.array_equal(before.steps, after.steps):
        return None
    with np.errstate(all="ignore"):
        values = np.abs(after.values - before.values) / before.values
    return Series("update", "ratio (of norms)", before.labels, before.steps, values, before.present & after.present)


def _norms(tables: dict[str, QuantityTable], quantity: str) -> Series | None:
    if quantity not in tables:
        return None
    return next((series for series in series_of(tables[quantity]) if series.op == "norm"), None)
