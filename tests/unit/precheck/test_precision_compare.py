"""What ``api_precision_compare`` prints."""

from __future__ import annotations

from msprobe.precheck.precision_compare import Compared, lines


def test_counts_and_the_worst_results_are_told() -> None:
    def wrong(name: str, ratio: str) -> Compared:
        cells = {"均方根误差比值": ratio, "均方根误差判定结果": "error"}
        return Compared(name, "error", "benchmark", cells=cells)

    rows = [
        Compared("Torch.add.0.forward.output.0", "pass", "benchmark"),
        wrong("Torch.mul.0.forward.output.0", "3.0"),
        wrong("Torch.exp.0.backward.output.0", "nan"),
        wrong("Torch.log.0.forward.output.0", "20.0"),
        Compared("Torch.to.0.forward.output.0", message="not compared"),
    ]
    assert lines(rows, 2) == [
        "forward: 1 pass, 2 error, 1 skip",
        "backward: 1 error",
        "  skipped 1: not compared",
        "1. Torch.exp.0.backward.output.0: root mean square error nan times the control's",
        "2. Torch.log.0.forward.output.0: root mean square error 20 times the control's",
        "and 1 more results with errors in the details file",
    ]
