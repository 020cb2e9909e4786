"""The verdict of two checks of the same dump: the candidate's errors beside those of a device that is trusted.

Input are the details files of both, ours or those of mindstudio-probe 8.1.1 and 26.2.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msprobe.coverage import Coverage, NotRead
from msprobe.messages import Wording, joined, said, text_of, translated
from msprobe.paths import StrPath, make_folder, write_atomically
from msprobe.precheck.columns import BLANK, DIRECTED, SCALED, lines_of
from msprobe.precheck.columns import DETAILS_HEADER as CHECK_HEADER
from msprobe.precheck.compiler_rule import problem_of, share_of_limit
from msprobe.precheck.details_table import DetailsTable
from msprobe.precheck.metric_standards import COLUMN, JUDGES, MetricRows, MissingNumberError, digits
from msprobe.precheck.ranking import counts_line, shortened
from msprobe.precheck.standards import (
    LABELS,
    PROFILES,
    Profile,
    Standard,
    is_float8,
    standard_of,
)
from msprobe.precheck.writer import BOM, time_stamp

RESULT_HEADER = ("API Name", "Forward Test Success", "Backward Test Success", "Message")
DETAILS_HEADER = (
    *("API Name", "小值域错误比值", "小值域判定结果", "均方根误差比值", "均方根误差判定结果", "相对误差最大值比值"),
    *("相对误差最大值判定结果", "相对误差平均值比值", "相对误差平均值判定结果", "误差均衡性比值", "误差均衡性判定结果"),
    *("inf/nan错误率", "inf/nan判定结果", "相对误差错误率", "相对误差判定结果", "绝对误差错误率", "绝对误差判定结果"),
    *(
        "二进制一致错误率",
        "二进制一致错误率判定结果",
        "ULP误差平均值",
        "ULP误差大于阈值占比",
        "ULP误差大于阈值占比比值",
    ),
    *("ULP误差判定结果", "双千指标", "双千指标判定结果", "比对结果", "比对算法", "Message"),
)
_SCALED, _DIRECTED = CHECK_HEADER[SCALED], CHECK_HEADER[DIRECTED]
#: The column that distinguishes the arguments of one record from others; blank where nobody has noted them.
ARGUMENTS = CHECK_HEADER[CHECK_HEADER.index("Arguments")]
_COMPARED = frozenset(("torch.float16", "torch.bfloat16", "torch.float32"))
_NOT_COMPARED = frozenset(("torch.float64", "torch.complex64", "torch.complex128"))
#: What a verdict of the details file is about -> the piece that says it.
_IN_WORDS = {
    "小值域": "metric-small-values",
    "均方根误差": "metric-rms",
    "相对误差最大值": "metric-largest-relative",
    "相对误差平均值": "metric-mean-relative",
    "误差均衡性": "metric-balance",
    "inf/nan": "metric-not-finite",
    "相对误差": "metric-relative",
    "绝对误差": "metric-absolute",
    "二进制一致错误率": "metric-unequal",
    "ULP误差": "metric-ulp",
    "双千指标": "metric-thousandth",
}
#: Where the ratio of a metric to the control's stands.
_RATIO_COLUMNS = {
    "small_value": "小值域错误比值",
    "rmse": "均方根误差比值",
    "max_relative": "相对误差最大值比值",
    "mean_relative": "相对误差平均值比值",
    "balance": "误差均衡性比值",
    "ulp_share": "ULP误差大于阈值占比比值",
}
_ENDINGS = ("错误比值", "比值", "大于阈值占比比值", "错误率", "")
#: How the name of a row ends that is about the formula of a backward.
FORMULA = ".backward.formula"


@dataclass
class ComparedOutput:
    """One output: the cells that its standard fills, its status and why."""

    name: str
    status: str = "SKIP"
    standard: Standard | None = None
    message: str = ""
    cells: dict[str, str] = field(default_factory=dict)
    #: Its error in errors of what is allowed beside the control, where a rule says that.
    share_of_limit: float | None = None
    #: Columns of ratios to an error of the control that is next to nothing, so that they say nothing: both errors.
    beside_nothing: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def largest_ratio(self) -> float:
        """How many times as large as the control's, or as allowed, the worst of its errors is; 0 where no standard says
        it.
        """
        if self.share_of_limit is not None:
            return self.share_of_limit
        ratios = [
            float(value)
            for column, value in self.cells.items()
            if column.endswith("比值") and column not in self.beside_nothing
        ]
        return max((math.inf if math.isnan(value) else value for value in ratios), default=0.0)

    @property
    def reason(self) -> str:
        """Why it is an error: the columns that decide, or what the check itself said."""
        reasons: list[str] = []
        for label, name in _IN_WORDS.items():
            if self.cells.get(f"{label}判定结果") == "error":
                column = next((column_name for end in _ENDINGS if (column_name := label + end) in self.cells), "")
                reasons.append(self._number_of(said(name), column))
        return self.message or joined(", ", reasons[:3]) or "error"

    def _number_of(self, metric: str, column: str) -> str:
        """A metric with the number in a column."""
        if column in self.beside_nothing:
            ours, theirs = self.beside_nothing[column]
            return (
                said("metric-beside-nothing", metric, ours, theirs)
                if theirs
                else said("metric-beside-none", metric, ours)
            )
        if not column:
            return metric
        return said("metric-ratio" if column.endswith("比值") else "metric-is", metric, float(self.cells[column]))

    def line(self) -> list[str]:
        """The line of the details file."""
        filled = {
            **self.cells,
            "API Name": self.name,
            "比对结果": self.status,
            "比对算法": LABELS[self.standard] if self.standard else BLANK,
            "Message": self.message or BLANK,
        }
        return [filled.get(column, BLANK) for column in DETAILS_HEADER]


def compare(
    candidate: StrPath, control: StrPath, output: StrPath, standard: str = "8.1.1", stamp: str | None = None
) -> tuple[Path, Path]:
    """Compare two details files; gives the paths of the result and the details file that it wrote."""
    return write(judged(candidate, control, standard), output, stamp)


def judged(
    candidate: StrPath, control: StrPath, standard: str = "8.1.1", same_arguments: bool = False
) -> list[ComparedOutput]:
    """The verdict on each output of the candidate's details file. Raises PathError or InvalidInputError.

    ``same_arguments``: a control's row that was made of other arguments is none.
    """
    ours, theirs = DetailsTable(candidate, "-npu"), DetailsTable(control, "-gpu")
    theirs.demand_single(ours.by_name)
    profile = PROFILES[standard]
    for table in (ours, theirs):
        table.demand_standard(profile)
    return [compare_row(row, theirs.by_name.get(row["API Name"]), profile, same_arguments) for row in ours.rows]


def coverage_of(rows: Sequence[ComparedOutput], control: StrPath) -> Coverage:
    """What was compared, and what of either details file was not: rows that the other lacks, and skipped ones."""
    ours = {row.name for row in rows}
    lacking = [name for name in DetailsTable(control, "-gpu").by_name if name not in ours]
    parts = [NotRead(_named(lacking), said("candidate-lacks-rows"))] if lacking else []
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.status == "SKIP":
            reasons.setdefault(row.message or said("no-reason-given"), []).append(row.name)
    parts += [NotRead(_named(names), shortened(reason)) for reason, names in reasons.items()]
    return Coverage({"results": sum(row.status != "SKIP" for row in rows)}, tuple(parts))


def _named(names: Sequence[str]) -> str:
    return said("several-results-named", len(names), names[0]) if len(names) > 1 else said("one-result-named", names[0])


def write(rows: Sequence[ComparedOutput], output: StrPath, stamp: str | None = None) -> tuple[Path, Path]:
    """Write the result and the details file; gives their paths."""
    folder = make_folder(output)
    stamp = stamp or time_stamp()
    paths = tuple(folder / f"api_precision_compare_{kind}_{stamp}.csv" for kind in ("result", "details"))
    write_atomically(paths[0], BOM + lines_of([RESULT_HEADER, *results_of(rows)]))
    write_atomically(paths[1], BOM + lines_of([DETAILS_HEADER, *(row.line() for row in rows)]))
    return paths[0], paths[1]


def results_of(rows: Sequence[ComparedOutput]) -> list[list[str]]:
    """One row for each API, in the order of the candidate's file."""
    groups: dict[str, dict[str, list[ComparedOutput]]] = {}
    for row in rows:
        key, direction = _split(row.name)
        groups.setdefault(key, {"forward": [], "backward": []})[direction].append(row)
    results = []
    for key, directions in groups.items():
        statuses = [_status(directions[direction]) for direction in ("forward", "backward")]
        skips = [row for row in directions["forward"] + directions["backward"] if row.status == "SKIP"]
        message = skips[0].message if "SKIP" in statuses and skips else ""
        if "topk" in key and "error" in statuses:
            message = said("topk-unsorted")
        results.append([key, *statuses, message])
    return results


def lines(rows: Sequence[ComparedOutput], top: int) -> list[str]:
    """How many calls pass, and the calls with errors, those with the largest ratios first; in the language that is
    asked for.
    """
    results = results_of(rows)
    printed = []
    for column, direction in ((1, "forward"), (2, "backward")):
        line = counts_line(direction, Counter(row[column].lower() for row in results if row[column] != BLANK))
        printed += [line] if line else []
    reasons = Counter(row.message for row in rows if row.status == "SKIP" and row.message)
    for reason, count in reasons.most_common(5):
        printed.append(Wording("  {}", said("skipped-results", count, shortened(reason))))
    failed = sorted((row for row in rows if row.status == "error"), key=lambda row: -row.largest_ratio)
    for number, row in enumerate(failed[:top], 1):
        printed.append(said("numbered-result", number, row.name, row.reason))
    if len(failed) > top:
        printed.append(said("and-more-failed-results", len(failed) - top))
    return [translated(line) for line in printed]


def _split(name: str) -> tuple[str, str]:
    for direction in ("backward", "forward"):
        if f".{direction}." in name:
            return name.partition(f".{direction}.")[0], direction
    return name, "forward"


def _status(rows: Sequence[ComparedOutput]) -> str:
    statuses = {row.status for row in rows}
    if not statuses:
        return BLANK
    for status in ("error", "Warning", "pass"):
        if status in statuses:
            return status
    return "SKIP"


def compare_row(
    ours: dict[str, str], theirs: dict[str, str] | None, profile: Profile, same_arguments: bool = False
) -> ComparedOutput:
    """The verdict on one output. A row of one side that cannot be compared is a SKIP with the reason.

    In standards of ours an error of the check that the control has not stays one: those of 8.1.1 judge some types not
    at all, and let single elements and NaN pass. So does in all of them a backward that is not the derivative of its
    forward, which is no matter of a device.
    """
    others = same_arguments and theirs is not None and _has_other_arguments(ours, theirs)
    theirs = None if others else theirs
    if profile.by_control and theirs is not None and ours[COLUMN["rmse"]].strip():
        return _by_control(ours, theirs)
    row = _compared(ours, theirs, profile)
    if others:
        row.message = said("control-of-other-arguments")
    stays = (profile.own or row.name.endswith(FORMULA)) and _is_wrong(ours)
    if row.status != "error" and stays and (theirs is None or not _has_too(ours, theirs)):
        row.status, row.message = "error", ours.get("Message", "").strip()
    return row


def _has_other_arguments(ours: dict[str, str], theirs: dict[str, str]) -> bool:
    known = ours.get(ARGUMENTS, "").strip(), theirs.get(ARGUMENTS, "").strip()
    return all(known) and known[0] != known[1]


def _by_control(ours: dict[str, str], theirs: dict[str, str]) -> ComparedOutput:
    """The verdict of ``--standard compiler`` on a result of floats, of which both files have the error as a whole."""
    row = ComparedOutput(ours["API Name"], "pass")
    sides = MetricRows(ours, theirs, ours["DEVICE Dtype"].strip().rpartition(".")[2], "", PROFILES["compiler"])
    try:
        candidate, control = sides.number("rmse"), sides.number("rmse", control=True)
    except MissingNumberError as problem:
        row.status, row.message = "SKIP", text_of(problem)
        return row
    ratio = 1.0 if candidate == control else candidate / control if control else math.inf
    numbers = (candidate, control, sides.dtype, _elements(ours.get("Shape", "")))
    row.message, row.share_of_limit = problem_of(*numbers), share_of_limit(*numbers)
    if not row.message and not _goes_one_way_too(ours, theirs):
        row.message = ours.get("Message", "").strip() or said("errors-go-one-way")
    row.status = "error" if row.message else "pass"
    row.cells = {"均方根误差比值": digits(ratio), "均方根误差判定结果": row.status}
    return row


def _elements(shape: str) -> int:
    return math.prod(int(part) for part in shape.strip("() ").split(",") if part.strip())


def _is_wrong(row: dict[str, str]) -> bool:
    return row.get("Status", "").strip() == "error"


def _has_too(ours: dict[str, str], theirs: dict[str, str]) -> bool:
    """True where the control is wrong as well, or its scaled error is at least half as large."""
    if _is_wrong(theirs):
        return True
    try:
        return float(ours[_SCALED]) <= 2 * float(theirs[_SCALED]) and _goes_one_way_too(ours, theirs)
    except (KeyError, ValueError):
        return False


def _goes_one_way_too(ours: dict[str, str], theirs: dict[str, str]) -> bool:
    """True where the errors of the candidate go one way no further than is allowed, or than twice the control's do."""
    sizes = []
    for row in (ours, theirs):
        text = row.get(_DIRECTED, "").strip()
        sizes.append(float(text) if text.replace(".", "").replace("e-", "").replace("e+", "").isdigit() else 0.0)
    return sizes[0] <= max(1.0, 2 * sizes[1])


def _compared(ours: dict[str, str], theirs: dict[str, str] | None, profile: Profile) -> ComparedOutput:
    row = ComparedOutput(ours["API Name"])
    dtype = ours["DEVICE Dtype"].strip()
    if theirs is None:
        row.message = said("control-lacks-row")
        if ours.get("Status", "").strip() == "SKIP":
            row.message = ours.get("Message", "").strip() or row.message
        return row
    shape = ours.get("Shape", "")
    # 26.2 skips results without elements in the check alone.
    is_empty = _is_empty(shape) and not (profile.levels and "," in shape.strip("(), "))
    if not dtype or (ours.get("Status", "").strip() == "SKIP" and (is_empty or not _is_empty(shape))):
        row.message = ours.get("Message", "").strip() or said("skipped-by-check")
        return row
    if dtype in _NOT_COMPARED:
        row.message = said("type-not-compared", dtype)
        return row
    if is_empty:
        row.message = said("result-without-elements")
        return row
    api = _api_of(row.name)
    row.standard = "binary" if dtype not in _COMPARED else standard_of(api)
    if profile.benchmark_for_floats and dtype in _COMPARED:
        row.standard = "benchmark"
    if profile.levels and is_float8(dtype):
        row.standard = "ulp"
    sides = MetricRows(ours, theirs, dtype.rpartition(".")[2], api, profile)
    if dtype in _COMPARED:
        row.standard = sides.measured(row.standard)
    try:
        row.status = JUDGES[row.standard](sides, row.cells)
        row.beside_nothing = {_RATIO_COLUMNS[metric]: both for metric, both in sides.beside_nothing.items()}
        if profile.own:
            row.cells |= dict.fromkeys(row.beside_nothing, BLANK)
    except MissingNumberError as problem:
        # Of ours is what is judged without numbers: random calls.
        message = ours.get("Message", "").strip() if profile.own else ""
        row.status, row.message = "SKIP", message or text_of(problem)
        if _is_wrong(ours) and not (profile.own and _is_wrong(theirs)):
            # The check itself could not compare the two: shapes or types differ.
            row.status, row.message = "error", ours.get("Message", "").strip() or row.message
    return row


def _is_empty(shape: str) -> bool:
    return any(part.strip() == "0" for part in shape.strip("() ").split(",")) if shape.strip("() ") else False


def _api_of(name: str) -> str:
    parts = _split(name)[0].split(".")
    return parts[-2] if len(parts) > 2 else name
