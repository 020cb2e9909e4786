"""What `run_ut` prints of the calls that it has checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.coded_texts import mentions
from support.command_line import call
from support.row_by_row import for_each

from msprobe.messages import ENTRIES, said
from msprobe.precheck.columns import DETAILS_HEADER
from msprobe.precheck.job import Answer, skipped
from msprobe.precheck.page import page
from msprobe.precheck.ranking import Ranking


def ranking() -> Ranking:
    return Ranking(lambda _: [], lambda key, direction: f"reproduce {key} {direction}")


def test_calls_with_warnings_are_named_with_why() -> None:
    found = ranking()
    for number, (word, worst) in enumerate((("Warning", 40.0), ("warning", 100.0), ("pass", 1.0))):
        key = f"Functional.gelu.{number}"
        why = f"{number + 1} of 8 elements are off" if word != "pass" else " "
        found.add(Answer(key, [key, word, " ", ""], [[f"{key}.forward.output.0", word, why]], worst=worst))
    assert found.lines(10) == [
        "forward: 1 pass, 2 warning",
        "APIs with warnings: Functional.gelu (2)",
        "warning: Functional.gelu.1.forward.output.0: 2 of 8 elements are off",
        "warning: Functional.gelu.0.forward.output.0: 1 of 8 elements are off",
    ]
    shown = page(found, "a check", 10).decode().partition(ENTRIES["page-warnings"].text("en"))[2]
    assert 0 < shown.index("Functional.gelu.1") < shown.index("Functional.gelu.0")


def test_a_dump_without_calls_is_reported_and_skipped_calls_are_named() -> None:
    found = ranking()
    assert found.lines(10) == [said("nothing-to-check")]
    for number in range(2):
        found.add(skipped(f"Tensor.to.{number}", said("never-checked", "to"), False))
    counts, skips = found.lines(10)
    assert counts == "forward: 2 skip"
    assert mentions(
        skips, "skipped-calls", count=2, first="Tensor.to.0", more=", ...", reason=said("never-checked", "to")
    )


def test_a_line_of_apis_says_how_many_it_leaves_out() -> None:
    ranking = Ranking(lambda name: (), lambda key, direction: "")
    for number in range(15):
        ranking.add(Answer(f"Torch.call{number:02}.0", [f"Torch.call{number:02}.0", "error", " ", " "], []))

    (line,) = [line for line in ranking.lines(0) if line.startswith("APIs with errors")]

    assert line.endswith("Torch.call11 (1) and 3 more APIs")


def test_a_call_is_reported_by_the_result_that_it_has_its_place_by() -> None:
    found = Ranking(lambda _: [], lambda key, direction: direction, control="cpu")
    key = "Torch.mul.0"
    rows = [
        [f"{key}.forward.output.0", "error", "3 times", "3.0"],
        [f"{key}.backward.output.0", "error", "80 times", "80.0"],
        [f"{key}.backward.output.1", "pass", "", "500.0"],
    ]
    found.add(Answer(key, [key, "error", "error", ""], rows, worst=80.0))
    (entry,) = found.entries(5)
    assert (entry.name, entry.why, entry.command) == (f"{key}.backward.output.0", "80 times", "backward")
    assert found.lines(0)[-1] == said("and-more-failed-beside-control", 1)


def sloped(number: int, slope: float, error: float, status: str = "pass") -> Answer:
    key = f"Functional.cross_entropy.{number}"
    cells = {"API Name": f"{key}.forward.output.0", "DEVICE Dtype": "torch.bfloat16", "Status": status}
    cells |= {"Slope": f"{slope:.6g}", "Slope error": f"{error:.6g}"}
    return Answer(key, [key, status, " ", ""], [[cells.get(column, " ") for column in DETAILS_HEADER]])


@for_each(
    ("slope", "count", "status"),
    [(0.01, 40, "Warning"), (0.03, 40, "error"), (-0.03, 40, "error"), (0.003, 40, ""), (0.01, 1, ""), (0.01, 4, "")],
)
def test_what_is_small_in_each_call_is_sure_in_all_calls_of_an_api(slope: float, count: int, status: str) -> None:
    found = ranking()
    for number in range(count):
        found.add(sloped(number, slope * (1 + 0.2 * (-1) ** number), 0.004))
    assert [one.status for one in found.pooled] == ([status] if status else [])
    assert (found.is_error, found.is_warning) == (status == "error", bool(status))
    lines = [line for line in found.lines(5) if "Functional.cross_entropy.forward.output.0" in line]
    assert len(lines) == bool(status)
    assert (b"All calls of an API together" in page(found, "a check", 5)) is bool(status)


def test_calls_that_were_skipped_or_have_no_slope_are_in_no_pool() -> None:
    found = ranking()
    for number in range(40):
        found.add(sloped(number, 0.05, 0.004, "SKIP"))
        found.add(skipped(f"Tensor.to.{number}", "it is never checked", False))
    assert found.pooled == []


@pytest.mark.parametrize(("slope", "status"), [(0.03, 1), (0.01, 0)])
def test_op_check_ends_with_what_all_calls_of_an_api_say_together(
    slope: float, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = ranking()
    for number in range(40):
        found.add(sloped(number, slope, 0.004))
    monkeypatch.setattr("msprobe.precheck.sample_check.check_samples", lambda *_: ([], found))

    assert call("op_check", "--candidate", "cpu", "-o", tmp_path).returncode == status
