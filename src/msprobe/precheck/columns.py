"""The csv files of the pre-check: their headers, and how a result becomes cells."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from msprobe.foreign import csv_cells
from msprobe.precheck.metrics import Metrics

BLANK = " "
RESULT_HEADER = ("API name", "Forward Test Success", "Backward Test Success", "Message")

#: Column -> the metric in it, in the order of the file.
METRIC_COLUMNS = {
    "余弦相似度": "cosine",
    "最大绝对误差": "max_abs",
    "双百指标": "hundredth",
    "双千指标": "thousandth",
    "双万指标": "ten_thousandth",
    "二进制一致错误率": "unequal",
    "误差均衡性": "balance",
    "均方根误差": "rmse",
    "小值域错误占比": "small_value",
    "相对误差最大值": "max_relative",
    "相对误差平均值": "mean_relative",
    "inf/nan错误率": "non_finite",
    "相对误差错误率": "relative_share",
    "绝对误差错误率": "absolute_share",
    "ULP误差最大值": "ulp_max",
    "ULP误差平均值": "ulp_mean",
    "ULP误差大于阈值占比": "ulp_share",
}
DETAILS_HEADER = (
    *("API Name", "Bench Dtype", "DEVICE Dtype", "Shape", *METRIC_COLUMNS, "Status", "Message"),
    # Ours: behind those that other tools read.
    *("Index of max error", "p99 rel err", "Scaled error", "Seed", "Candidate", "Control", "Standard", "Arguments"),
    # Errors that go one way: see msprobe.signed_errors.
    *("Slope", "Slope error", "Directed error"),
)
STATUS = DETAILS_HEADER.index("Status")
DEVICE_DTYPE = DETAILS_HEADER.index("DEVICE Dtype")
SCALED = DETAILS_HEADER.index("Scaled error")
CANDIDATE = DETAILS_HEADER.index("Candidate")
CONTROL = DETAILS_HEADER.index("Control")
SLOPE = DETAILS_HEADER.index("Slope")
DIRECTED = DETAILS_HEADER.index("Directed error")


@dataclass
class JudgedResult:
    """One result of a call, compared. ``name`` ends in ``.forward.output.0``; ``further`` holds the columns of ours."""

    name: str
    status: str
    message: str = ""
    bench_dtype: str = BLANK
    device_dtype: str = BLANK
    shape: tuple[int, ...] | None = None
    metrics: Metrics = field(default_factory=dict)
    index: tuple[int, ...] | None = None
    p99: float | None = None
    scaled: float | None = None
    #: The slope of all errors with its standard error, and how far errors go one way: more than 1 is an error.
    slope: tuple[float, float] | None = None
    directed: float | None = None

    def cells(
        self, decimals: int, seed: Any, candidate: str, control: str, standard: str = "", arguments: str = ""
    ) -> list[str]:
        """The line of the details file. ``arguments``: what distinguishes those of one record from others."""
        return [
            self.name,
            self.bench_dtype,
            self.device_dtype,
            BLANK if self.shape is None else str(self.shape),
            *(number_text(self.metrics.get(name), decimals) for name in METRIC_COLUMNS.values()),
            self.status,
            self.message or BLANK,
            BLANK if self.index is None else str(self.index),
            number_text(self.p99, decimals),
            number_text(self.scaled, decimals),
            str(seed),
            candidate,
            control or BLANK,
            standard or BLANK,
            arguments or BLANK,
            *(BLANK if self.slope is None else f"{number:.6g}" for number in self.slope or (0.0, 0.0)),
            BLANK if self.directed is None else f"{self.directed:.6g}",
        ]


def number_text(value: Any, decimals: int) -> str:
    """A number as the files have it: floats with a fixed number of decimals, whole numbers as they are."""
    if value is None:
        return BLANK
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.{decimals}f}"
    return str(value)


def direction_status(rows: Sequence[JudgedResult], warning: str) -> str:
    """What the result file says of one direction: the worst of its outputs; one that only skipped some is a pass."""
    statuses = {row.status for row in rows}
    for status in ("error", warning):
        if status in statuses:
            return status
    return "pass"


def lines_of(rows: Sequence[Sequence[str]]) -> bytes:
    """Rows as the text of a csv file, each with a CRLF behind it."""
    text = io.StringIO()
    csv_cells.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode("utf-8")


def worst_of(*groups: list[JudgedResult]) -> list[JudgedResult]:
    """The rows of several judgements of the same results, of each the worst."""
    order = ("SKIP", "pass", "Warning", "error")
    worst: dict[str, JudgedResult] = {}
    for row in (row for group in groups for row in group):
        known = worst.setdefault(row.name, row)
        if order.index(row.status) > order.index(known.status):
            worst[row.name] = row
    return list(worst.values())
