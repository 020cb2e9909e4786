"""Every number and verdict that mindstudio-probe 8.1.1 was seen to give for small pairs of arrays."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from support.row_by_row import for_each

from msprobe.precheck.columns import METRIC_COLUMNS
from msprobe.precheck.judge import ResultPair, Value, judge
from msprobe.precheck.standards import PROFILES

GOLDEN = Path(__file__).parents[2] / "data" / "precheck" / "golden_vectors.csv"
METRICS = {
    "cosine": "cosine",
    "max_abs_err": "max_abs",
    "hundredth": "hundredth",
    "thousandth": "thousandth",
    "ten_thousandth": "ten_thousandth",
    "error_rate": "unequal",
    "error_balance": "balance",
    "rmse": "rmse",
    "small_value_err_ratio": "small_value",
    "max_rel_err": "max_relative",
    "mean_rel_err": "mean_relative",
    "inf_nan_err_ratio": "non_finite",
    "rel_err_ratio": "relative_share",
    "abs_err_ratio": "absolute_share",
    "max_ulp": "ulp_max",
    "mean_ulp": "ulp_mean",
    "ulp_gt_threshold_ratio": "ulp_share",
}
with GOLDEN.open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def value(text: str, dtype: str) -> Value:
    kind = dtype.removeprefix("torch.")
    numbers = json.loads(text.replace("nan", "NaN").replace("inf", "Infinity"))
    array = np.array(numbers, dtype={"bfloat16": "float32"}.get(kind, kind))
    return Value(array, dtype, array.shape)


@for_each("row", ROWS)
def test_metrics_and_status_are_those_of_8_1_1(row: dict[str, Any]) -> None:
    bench, device = value(row["bench"], row["bench_dtype"]), value(row["device"], row["device_dtype"])
    if device.kind == "bfloat16":
        bench.array = bench.array.astype(np.float32)
    judged = judge(ResultPair("x", bench, device), row["api_name"].split(".")[1], PROFILES["8.1.1"])
    assert judged.status == row["status"]
    for column, metric in METRICS.items():
        if row[column].strip():
            wanted, found = float(row[column]), judged.metrics[metric]
            # Numbers of float32 stand there in eight digits, others with fourteen decimals.
            near = math.isclose(found, wanted, rel_tol=1e-6, abs_tol=1e-14)
            assert near or (math.isnan(wanted) and math.isnan(found)), (column, wanted, found)


def test_all_metrics_have_a_column() -> None:
    assert set(METRICS.values()) == set(METRIC_COLUMNS.values())
