"""What each standard says of the metrics that two checks have of one result: the candidate beside the control."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from msprobe.messages import said
from msprobe.precheck.columns import METRIC_COLUMNS
from msprobe.precheck.standards import Profile, Standard, ratios_of, thresholds_of

#: The column of each metric.
COLUMN = {metric: column for column, metric in METRIC_COLUMNS.items()}
#: The metrics that each standard needs.
_NEEDED: dict[Standard, tuple[str, ...]] = {
    "ulp": ("ulp_mean", "ulp_share"),
    "absolute": ("non_finite", "relative_share", "absolute_share"),
    "benchmark": ("small_value", "rmse", "max_relative", "mean_relative", "balance"),
    "binary": ("unequal",),
    "thousandth": ("thousandth",),
    "accumulative": ("non_finite", "relative_share", "absolute_share", "balance"),
}


class MissingNumberError(ValueError):
    """A cell that the standard needs is blank."""


@dataclass
class MetricRows:
    """The rows of one result in both files."""

    ours: dict[str, str]
    theirs: dict[str, str]
    dtype: str
    api: str
    profile: Profile
    #: Metrics of which the control's is nothing, or less than the type can distinguish from it: both sides' numbers.
    beside_nothing: dict[str, tuple[float, float]] = field(default_factory=dict)

    def number(self, metric: str, control: bool = False) -> float:
        """A metric of the candidate, or of the control. Raises MissingNumberError."""
        column = COLUMN[metric]
        text = (self.theirs if control else self.ours)[column].strip()
        if not text and self.profile.name == "26.2":
            return 0.0
        try:
            return float(text)
        except ValueError:
            side = "control" if control else "candidate"
            what = said("cell-is", text) if text else said("cell-is-blank")
            raise MissingNumberError(said("number-missing", column, side, what)) from None

    def measured(self, standard: Standard) -> Standard:
        """The standard; another one where only that was measured: 26.2 does so, and samples have names of their own."""

        def has(standard_tried: Standard) -> bool:
            rows = (self.ours, self.theirs)
            return all(row[COLUMN[metric]].strip() for row in rows for metric in _NEEDED[standard_tried])

        others: tuple[Standard, ...] = ("ulp", "absolute", "benchmark")
        possible = [standard_tried for standard_tried in others if has(standard_tried)]
        return possible[0] if len(possible) == 1 and not has(standard) else standard

    def ratio(self, metric: str) -> float:
        """The candidate's error in errors of the control, which count as no less than the type's smallest."""
        ours, theirs = self.number(metric), self.number(metric, control=True)
        if math.isnan(ours) and math.isnan(theirs):
            return 1.0
        if math.isinf(ours) and math.isinf(theirs) and (ours > 0) == (theirs > 0):
            return 1.0
        if not (math.isfinite(ours) and math.isfinite(theirs)):
            return math.inf
        limits = thresholds_of(self.dtype)
        least = limits.strict_least_error if self.profile.by_element else limits.least_error
        if abs(theirs) < least and ours:
            self.beside_nothing[metric] = abs(ours), abs(theirs)
        return abs(ours) / max(abs(theirs), least)


def digits(value: float) -> str:
    """A number as a cell has it."""
    return f"{value:.14f}"


def _benchmark(sides: MetricRows, cells: dict[str, str]) -> str:
    limits = ratios_of(sides.api, sides.profile)
    failed = []
    for metric, label, limit, decides in (
        ("small_value", "小值域", limits.small_value, True),
        ("rmse", "均方根误差", limits.rmse, True),
        ("max_relative", "相对误差最大值", limits.max_relative, True),
        ("mean_relative", "相对误差平均值", limits.mean_relative, True),
        ("balance", "误差均衡性", limits.balance, False),
    ):
        ratio = sides.ratio(metric)
        column = f"{label}错误比值" if metric == "small_value" else f"{label}比值"
        cells[column] = digits(ratio)
        cells[f"{label}判定结果"] = "error" if ratio > limit else "pass"
        failed.append(decides and ratio > limit)
    return "error" if any(failed) else "pass"


def _zeros(cells: dict[str, str], sides: MetricRows) -> list[bool]:
    good_sides = []
    for metric, column, verdict in (
        ("non_finite", "inf/nan错误率", "inf/nan判定结果"),
        ("relative_share", "相对误差错误率", "相对误差判定结果"),
        ("absolute_share", "绝对误差错误率", "绝对误差判定结果"),
    ):
        value = sides.number(metric)
        cells[column] = digits(value)
        good = value == 0 or _no_worse(sides, metric)
        cells[verdict] = "pass" if good else "error"
        good_sides.append(good)
    return good_sides


def _absolute(sides: MetricRows, cells: dict[str, str]) -> str:
    return "pass" if all(_zeros(cells, sides)) else "error"


def _accumulative(sides: MetricRows, cells: dict[str, str]) -> str:
    good = _zeros(cells, sides)
    balance = sides.number("balance")
    limit = thresholds_of(sides.dtype).accumulated_balance
    cells["误差均衡性比值"] = digits(balance)
    cells["误差均衡性判定结果"] = "pass" if balance <= limit else "error"
    return "pass" if all(good) and balance <= limit else "error"


def _binary(sides: MetricRows, cells: dict[str, str]) -> str:
    value = sides.number("unequal")
    cells["二进制一致错误率"] = digits(value)
    cells["二进制一致错误率判定结果"] = status = "pass" if value == 0 or _no_worse(sides, "unequal") else "error"
    return status


def _ulp(sides: MetricRows, cells: dict[str, str]) -> str:
    mean, share, ratio = sides.number("ulp_mean"), sides.number("ulp_share"), sides.ratio("ulp_share")
    if sides.dtype == "float32":
        good = mean < 64 or share < 0.05 or ratio < 1
    else:
        good = share < 0.001 or ratio < 1
    cells["ULP误差平均值"], cells["ULP误差大于阈值占比"] = digits(mean), digits(share)
    cells["ULP误差大于阈值占比比值"] = digits(ratio)
    cells["ULP误差判定结果"] = status = "pass" if good or _no_worse(sides, "ulp_share") else "error"
    return status


def _no_worse(sides: MetricRows, metric: str) -> bool:
    """True where the candidate is no further off than the control: compared with itself a check passes.

    In standards of ours. The reference is in higher precision, so the control, too, has errors where 8.1.1 allows none.
    """
    return sides.profile.own and sides.number(metric) <= sides.number(metric, control=True)


def _thousandth(sides: MetricRows, cells: dict[str, str]) -> str:
    value = sides.number("thousandth")
    cells["双千指标"] = digits(value)
    good = value >= 0.999
    if not good and sides.profile.own:
        good = value >= sides.number("thousandth", control=True)
    cells["双千指标判定结果"] = status = "pass" if good else "error"
    return status


#: What each standard says of both sides, and the cells that it fills.
JUDGES: dict[Standard, Callable[[MetricRows, dict[str, str]], str]] = {
    "benchmark": _benchmark,
    "ulp": _ulp,
    "absolute": _absolute,
    "binary": _binary,
    "thousandth": _thousandth,
    "accumulative": _accumulative,
}
