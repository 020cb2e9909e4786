"""``--standard compiler``: a result beside the one of a trusted device, by its error as a whole."""

from __future__ import annotations

import math

import numpy as np
import pytest

from msprobe.messages import arguments_of, code_of
from msprobe.precheck.columns import DETAILS_HEADER
from msprobe.precheck.compiler_rule import problem_of, root_mean_square
from msprobe.precheck.control_verdict import beside_control
from msprobe.precheck.job import Answer


@pytest.mark.parametrize(
    ("dtype", "elements", "factor"),
    [("float32", 1000, 2.0), ("float64", 5000, 2.0), ("float32", 999, 3.0), ("bfloat16", 5000, 3.0)],
)
def test_a_result_may_be_as_much_worse_as_its_type_and_size_allow(dtype: str, elements: int, factor: float) -> None:
    assert problem_of(factor * 0.01 + 0.9e-5, 0.01, dtype, elements) == ""
    text = problem_of(factor * 0.01 + 1.1e-5, 0.01, dtype, elements)
    assert code_of(text)[1] == "rms-error-too-large"
    assert arguments_of(text).items() >= {"control": 0.01, "factor": factor, "constant": 1e-5}.items()


def test_nothing_is_worse_than_a_control_that_is_as_wrong_and_nan_is_worse_than_any_number() -> None:
    assert problem_of(math.inf, math.inf, "float32", 1) == ""
    assert problem_of(math.nan, 1.0, "float32", 1)
    assert problem_of(math.inf, 1e300, "float32", 1)


def test_the_error_is_that_of_all_elements_and_infinite_where_infinities_are_elsewhere() -> None:
    bench = np.array([0.0, 1e-12, 3.0, math.inf, math.nan])
    assert root_mean_square(bench, bench + np.array([0, 0, 1.0, 0, 0])) == pytest.approx(math.sqrt(1 / 3))
    assert root_mean_square(bench, np.array([0.0, 0, 3, -math.inf, math.nan])) == math.inf
    assert root_mean_square(bench, np.array([0.0, 0, 3, math.inf, 1])) == math.inf
    assert root_mean_square(bench[3:], bench[3:].astype(np.float32)) == 0.0


def row(rmse: object, status: str = "pass", dtype: str = "torch.float32") -> list[str]:
    known = {"API Name": "Torch.exp.0.forward.output.0", "DEVICE Dtype": dtype, "Shape": "(3, 5)", "Status": status}
    known |= {"均方根误差": rmse, "Message": "2 of 15 elements are off." if status == "error" else " "}
    return [str(known.get(column, " ")) for column in DETAILS_HEADER]


@pytest.mark.parametrize(
    ("ours", "control", "expected"),
    [
        # It is by the error as a whole that floats are judged, whatever the check said of single elements.
        (row(2e-3, "error"), row(1e-3), "pass"),
        (row(4e-3), row(1e-3), "error"),
        (row(4e-3), row(" "), "SKIP"),
        # Whole numbers have no such error.
        (row(" ", "error", "torch.int64"), row(" ", "pass", "torch.int64"), "error"),
        (row(" ", "error", "torch.int64"), row(" ", "error", "torch.int64"), "SKIP"),
    ],
)
def test_floats_are_judged_beside_the_control_and_whole_numbers_must_be_equal(
    ours: list[str], control: list[str], expected: str
) -> None:
    found = beside_control(Answer("Torch.exp.0", ["Torch.exp.0", "error", " ", ""], [ours], [control]), "compiler")
    assert found.result[1] == expected, found
