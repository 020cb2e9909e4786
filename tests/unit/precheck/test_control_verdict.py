"""The verdict on one call beside a control."""

from __future__ import annotations

import pytest
from support.coded_texts import pieces_of
from support.row_by_row import for_each

from msprobe.messages import arguments_of
from msprobe.precheck.columns import DETAILS_HEADER
from msprobe.precheck.control_verdict import beside_control
from msprobe.precheck.job import Answer, skipped
from msprobe.precheck.ranking import Ranking

ROW = "Torch.exp.0.forward.output.0"
BENCHMARK = {"小值域错误占比": 0.0, "均方根误差": 0.0, "相对误差平均值": 0.0, "误差均衡性": 0.0}


def row(
    name: str = ROW, status: str = "pass", message: str = " ", dtype: str = "torch.float32", **cells: object
) -> list[str]:
    known = {"API Name": name, "DEVICE Dtype": dtype, "Shape": "(3,)", "Status": status, "Message": message}
    filled = {column: str(value) for column, value in {**BENCHMARK, **known, **cells}.items()}
    return [filled.get(column, " ") for column in DETAILS_HEADER]


def verdict(ours: list[str], control: list[str] | None, standard: str = "strict") -> Answer:
    key = ours[0].partition(".forward")[0].partition(".backward")[0]
    controls = [] if control is None else [control]
    return beside_control(Answer(key, [key, "error", " ", ""], [ours], controls, worst=7.0), standard)


def off(largest: float, **words: str) -> list[str]:
    return row(status="error", message="2 of 3 elements are off.", 相对误差最大值=largest, **words)


def test_an_error_that_the_control_has_too_is_a_pass() -> None:
    found = verdict(off(0.02), off(0.01))
    assert (found.result, found.failed, found.worst) == (["Torch.exp.0", "pass", " ", ""], False, 7.0)


def test_an_error_beyond_the_control_is_ranked_by_how_many_times_as_large_it_is() -> None:
    found = verdict(off(0.5), off(0.01))
    assert [row[:3] for row in found.details] == [[ROW, "error", "largest relative error 50 times the control's"]]
    assert float(found.details[0][3]) == pytest.approx(50.0)
    assert (found.result[1], found.worst) == ("error", pytest.approx(50.0))


@pytest.mark.parametrize(
    ("ours", "control", "statuses"),
    [
        # The standards of 8.1.1 let some elements and NaN pass.
        (off(0.0), row(相对误差最大值=0.0), {"strict": "error", "assert_close": "error", "8.1.1": "pass"}),
        # They do not judge double precision.
        (off(0.1, dtype="torch.float64"), row(dtype="torch.float64"), {"strict": "error", "8.1.1": "SKIP"}),
        (off(0.1, dtype="torch.float64"), off(0.1, dtype="torch.float64"), {"strict": "SKIP", "8.1.1": "SKIP"}),
        # A control that is nearly an error excuses what is slightly more.
        (
            row(status="error", 相对误差最大值=0.0, **{"Scaled error": 130.0}),
            row(status="Warning", 相对误差最大值=0.0, **{"Scaled error": 120.0}),
            {"strict": "pass"},
        ),
    ],
)
def test_an_error_that_the_control_has_not_stays_by_our_standards(
    ours: list[str], control: list[str], statuses: dict[str, str]
) -> None:
    assert {name: verdict(ours, control, name).result[1] for name in statuses} == statuses


def test_a_wrong_formula_of_a_backward_is_excused_by_no_control() -> None:
    ours = row("Torch.exp.0.backward.formula", "error", "no derivative.", " ")
    found = verdict(ours, None, "8.1.1")
    assert (found.result[2], found.details[0][2]) == ("error", "no derivative.")


@pytest.mark.parametrize("theirs", ["pass", "error"])
def test_a_random_call_is_wrong_where_that_of_the_control_is_not(theirs: str) -> None:
    ours, control = (row(status=one, message="random: spread.") for one in ("error", theirs))
    found = verdict(ours, control)
    assert found.result[1] == ("error" if theirs == "pass" else "SKIP")
    assert found.details[0][2] == "random: spread."


def test_a_call_that_was_not_checked_says_why() -> None:
    found = beside_control(skipped("Torch.exp.0", "it died", True), "strict")
    assert found.result == ["Torch.exp.0", "SKIP", "SKIP", "it died"]


def test_what_passes_beside_a_failed_result_is_not_taken_for_it() -> None:
    good, bad = row(f"{ROW[:-1]}0", 相对误差最大值=0.0), off(0.5)
    bad[0] = f"{ROW[:-1]}1"
    controls = [row(good[0], 相对误差最大值=0.0), row(bad[0], 相对误差最大值=0.01)]
    found = beside_control(Answer("Torch.exp.0", ["Torch.exp.0", "error", " ", ""], [good, bad], controls), "strict")
    assert found.details[0] == [good[0], "pass", "", "0.0"]
    ranking = Ranking(lambda name: (), lambda key, direction: "")
    ranking.add(found)
    assert [(entry.name, entry.why) for entry in ranking.entries(1)] == [
        (bad[0], "largest relative error 50 times the control's")
    ]


@pytest.mark.parametrize(
    ("dtype", "column", "value"),
    [
        ("torch.float32", "相对误差最大值", 0.5),
        ("torch.float32", "均方根误差", 0.1),
        ("torch.float16", "相对误差平均值", 0.1),
        ("torch.bfloat16", "小值域错误占比", 0.25),
    ],
)
def test_no_ratio_to_an_error_that_is_nothing_is_said_or_sorted_by(dtype: str, column: str, value: float) -> None:
    ours = row(status="error", dtype=dtype, **{"相对误差最大值": 0.0, column: value})
    found = verdict(ours, row(相对误差最大值=0.0, dtype=dtype))
    (name, status, reason, ratio) = found.details[0]
    assert (name, status) == (ROW, "error")
    assert pieces_of(reason) & {"metric-beside-none", "metric-ratio"} == {"metric-beside-none"}
    assert arguments_of(reason)["size"] == value
    assert (float(ratio), found.worst) == (0.0, 7.0)


def test_an_error_of_the_control_that_is_next_to_nothing_is_said_beside() -> None:
    found = verdict(off(0.5), row(相对误差最大值=1e-12))
    reason = found.details[0][2]
    assert pieces_of(reason) >= {"metric-beside-nothing", "metric-largest-relative"}
    assert arguments_of(reason).items() >= {"size": 0.5, "control": 1e-12}.items()


def test_the_published_standards_keep_their_cells() -> None:
    from msprobe.precheck.precision_compare import compare_row
    from msprobe.precheck.standards import PROFILES

    ours, theirs = (dict(zip(DETAILS_HEADER, one, strict=True)) for one in (off(0.5), row(相对误差最大值=0.0)))
    assert float(compare_row(ours, theirs, PROFILES["8.1.1"]).cells["相对误差最大值比值"]) > 1000
    assert compare_row(ours, theirs, PROFILES["strict"]).cells["相对误差最大值比值"].strip() == ""


@for_each("standard", ["strict", "assert_close", "compiler"])
@for_each(("control", "status"), [("0", "error"), ("1.2", "pass")])
def test_an_error_that_goes_one_way_stays_unless_the_control_goes_there_too(
    standard: str, control: str, status: str
) -> None:
    ours = row(
        status="error", message="3 % too large.", 相对误差最大值=0.0, **{"Scaled error": 1, "Directed error": 1.5}
    )
    theirs = row(相对误差最大值=0.0, **{"Scaled error": 1, "Directed error": control})
    assert verdict(ours, theirs, standard).result[1] == status
