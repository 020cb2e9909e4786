"""What ``api_precision_compare`` judges and prints."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from support.coded_texts import mentions
from support.row_by_row import for_each

from msprobe.precheck.columns import DETAILS_HEADER
from msprobe.precheck.precision_compare import ComparedOutput, compare_row, coverage_of, judged, lines
from msprobe.precheck.standards import PROFILES


def test_counts_and_the_worst_results_are_reported() -> None:
    def wrong(name: str, ratio: str) -> ComparedOutput:
        cells = {"均方根误差比值": ratio, "均方根误差判定结果": "error"}
        return ComparedOutput(name, "error", "benchmark", cells=cells)

    rows = [
        ComparedOutput("Torch.add.0.forward.output.0", "pass", "benchmark"),
        wrong("Torch.mul.0.forward.output.0", "3.0"),
        wrong("Torch.exp.0.backward.output.0", "nan"),
        wrong("Torch.log.0.forward.output.0", "20.0"),
        ComparedOutput("Torch.to.0.forward.output.0", message="not compared"),
    ]
    forward, backward, skips, first, second, more = lines(rows, 2)
    assert (forward, backward) == ("forward: 1 pass, 2 error, 1 skip", "backward: 1 error")
    assert mentions(skips, "skipped-results", count=1, reason="not compared")
    for number, line, row, ratio in ((1, first, rows[2], float("nan")), (2, second, rows[3], 20.0)):
        assert mentions(line, "numbered-result", number=number, name=row.name)
        assert mentions(line, "metric-ratio", ratio=ratio)
        assert mentions(line, "metric-rms")
    assert mentions(more, "and-more-failed-results", count=1)


@for_each(
    ("dtype", "candidate", "control", "strict", "legacy"),
    [
        # Two thousand times the control's error is below twice 2**-14, what 8.1.1 takes for its least.
        ("float32", 1.2e-4, 1e-7, "error", "pass"),
        ("float32", 4.7e-7, 0.0, "pass", "pass"),
        ("float32", 4.9e-7, 0.0, "error", "pass"),
        ("float32", 1.3e-4, 0.0, "error", "error"),
        ("float16", 9e-4, 0.0, "pass", "pass"),
        ("float16", 1.1e-3, 0.0, "error", "error"),
        ("bfloat16", 7e-3, 0.0, "pass", "pass"),
        ("bfloat16", 9e-3, 0.0, "error", "error"),
    ],
)
def test_the_least_error_that_a_control_counts_with_is_a_few_units_in_strict(
    dtype: str, candidate: float, control: float, strict: str, legacy: str
) -> None:
    def row(mean: float) -> dict[str, str]:
        known = {"API Name": "Torch.exp.0.forward.output.0", "DEVICE Dtype": f"torch.{dtype}", "Shape": "(3,)"}
        zeros = dict.fromkeys(("小值域错误占比", "均方根误差", "相对误差最大值", "误差均衡性"), "0.0")
        return {**dict.fromkeys(DETAILS_HEADER, " "), **known, **zeros, "相对误差平均值": repr(mean), "Status": "pass"}

    for standard, status in (("strict", strict), ("8.1.1", legacy)):
        assert compare_row(row(candidate), row(control), PROFILES[standard]).status == status


def test_what_one_details_file_alone_has_is_named_as_not_compared(tmp_path: Path) -> None:
    def details(name: str, calls: Sequence[str]) -> Path:
        known = {"DEVICE Dtype": "torch.float32", "Shape": "(3,)", "Status": "pass"}
        rows = [{**dict.fromkeys(DETAILS_HEADER, " "), **known, "API Name": f"{one}.forward.output.0"} for one in calls]
        with open(tmp_path / name, "w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, DETAILS_HEADER)
            writer.writeheader()
            writer.writerows(rows)
        return tmp_path / name

    calls = ["Torch.exp.0", "Torch.log.0", "Torch.mul.0", "Torch.add.0"]
    whole, less = details("whole.csv", calls), details("less.csv", calls[::2])
    for candidate, control, alone in ((less, whole, "Torch.log.0"), (whole, less, "Torch.log.0")):
        covered = coverage_of(judged(candidate, control, "8.1.1"), control)
        assert any(alone in one.what for one in covered.not_read)
