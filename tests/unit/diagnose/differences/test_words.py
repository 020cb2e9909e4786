from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hand_made import write_part
from support.row_by_row import for_each
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.diagnose.differences.records import Comparer, Difference
from msprobe.diagnose.differences.words import (
    NO_RELATION,
    Relation,
    dtype_word,
    measure,
    named,
    ratio_in_words,
    ratio_of,
    relation_in_words,
    relation_of_values,
)
from msprobe.messages import said

A = drawn("a", 100).astype(np.float64)


def leaf(array: Any, dtype: str = "float32") -> dict[str, Any]:
    found: dict[str, Any] = Recording().leaf(Value(np.asarray(array), dtype=dtype))
    return found


@for_each(
    ("factor", "text"),
    [
        (2.0, said("times-as-large", 2)),
        (1024.0, said("times-as-large", 1024)),
        (0.5, "1/2 of it"),
        (1 / 3, "1/3 of it"),
        (0.3, said("times-as-large", 0.3)),
        (-1.0, said("times-as-large", -1)),
        (-0.5, "-1/2 of it"),
        (1.0, ""),
        (1.0001, ""),
    ],
)
def test_constant_factors(factor: float, text: str) -> None:
    assert ratio_in_words(leaf(A * factor), leaf(A)) == text


@for_each(
    ("left", "right"),
    [
        (leaf(A), leaf(drawn("b", 100))),
        (leaf(A + 1), leaf(A)),
        (leaf(A), leaf(A * 0)),
        (leaf(A * 0), leaf(A)),
        (leaf(A * math.nan), leaf(A)),
        (leaf(A), leaf(A * math.inf)),
        (leaf([2, 4], "int64"), leaf([1, 2], "int64")),
        (None, leaf(A)),
    ],
)
def test_no_constant_factor(left: Any, right: Any) -> None:
    assert ratio_of(left, right) is None


@given(st.floats(1e-3, 1e6).filter(lambda factor: abs(factor - 1) > 0.01), st.booleans())
def test_a_factor_is_found(factor: float, negative: bool) -> None:
    factor = -factor if negative else factor
    assert ratio_of(leaf(np.float32(A * factor)), leaf(np.float32(A))) == pytest.approx(factor, rel=1e-3)


SQUARE = A.reshape(10, 10)


def other(places: Any, value: Any) -> np.ndarray:
    found = A.copy()
    found[places] = value
    return found


@for_each(
    ("left", "text"),
    [
        (A, ""),
        (other(11, 7.0), f"1 of 100 elements, the first at [1, 1]: 7 for {A[11]:.6g}"),
        (other([3, 40], 7.0), f"2 of 100 elements, the first at [0, 3]: 7 for {A[3]:.6g}"),
        (other(slice(20), math.nan), said("elements-not-finite", "20", "100")),
        (other(slice(20), 0.0), said("elements-zero", "20", "100")),
        (A * 3, said("times-as-large", 3)),
        (A / 4, "1/4 of it"),
        (A * -1, said("times-as-large", -1)),
        (SQUARE.T.ravel(), "transposed"),
        (A[::-1].copy(), "the same elements in a different order"),
        (other(slice(30, 50), A[30:50] + 1), "elements 30 to 49 of 100"),
    ],
)
def test_relations_of_values(left: np.ndarray, text: str) -> None:
    assert str(relation_of_values(left, A, shape=[10, 10])) == text


def test_anything_else_is_a_distance() -> None:
    assert str(relation_of_values(A + 1, A)).startswith(said("relative-difference", "0."))
    assert str(relation_of_values(A, A.astype("U"))) == ""


@pytest.mark.parametrize(
    ("what", "left", "right", "delta", "text"),
    [
        ("value", leaf([1, 2], "int64"), leaf([1, 3], "int64"), 1.0, "whole numbers differ"),
        ("value", leaf(A[:4]), leaf(A[:5]), math.inf, said("shapes-differ", "[4]", "reference", "[5]")),
        ("value", leaf(A), leaf(A + 1), 0.3, said("relative-difference", "0.3")),
        ("value", leaf(A), leaf(A + 1), math.inf, "not finite"),
        (
            *("value", leaf(A) | {"inf": 20}, leaf(A) | {"inf": 30}, 1.0),
            said("elements-not-finite-on-sides", "20", "100", "infinite", "reference", "30"),
        ),
        ("value", leaf(A * 2), leaf(A), 0.5, said("times-as-large", 2)),
        ("not_finite", leaf(A), leaf(A), math.inf, said("nan-and-infinite", "some", "no", "100")),
        ("not_finite", leaf(math.nan), leaf(1.0), math.inf, "NaN"),
        ("not_finite", leaf(math.inf), leaf(1.0), math.inf, "infinite"),
        ("missing", leaf(A), None, math.inf, ""),
        ("argument", 1, 2, 0.0, ""),
    ],
)
def test_relations_of_records(tmp_path: Path, what: Any, left: Any, right: Any, delta: float, text: str) -> None:
    comparer = Comparer(write_part(tmp_path / "a", {}), write_part(tmp_path / "b", {}))
    assert relation_in_words(Difference("x", what, left, right, delta), comparer) == text


def test_equal_statistics_say_what_they_may_hide(tmp_path: Path) -> None:
    comparer = Comparer(write_part(tmp_path / "a", {}), write_part(tmp_path / "b", {}))
    found = relation_in_words(Difference("x", "value", leaf(A), leaf(A[::-1]), 0.0), comparer)
    assert found == said("same-statistics")


def test_what_was_measured_is_evidence() -> None:
    found = measure(Difference("x", "value", leaf(A), {"type": "int", "value": 3}, 0.5))
    assert found["relative_difference"] == 0.5
    assert set(found["candidate"]) == {"dtype", "shape", "Max", "Min", "Mean", "Norm"}
    assert found["reference"] == "3"
    assert measure(Difference("x", "missing", None, leaf(A)))["reference"]["shape"] == [100]


def test_names_are_not_too_many(tmp_path: Path) -> None:
    class Named:
        def __init__(self, number: int) -> None:
            self.name = f"call{number}"

    events: Any = [Named(number) for number in range(6)]
    assert named(events[:2]) == "call0, call1"
    assert named(events) == "call0, call1, call2, call3 and 2 more"
    assert dtype_word({"dtype": "torch.bfloat16"}) == "bfloat16"


def test_what_is_a_distance_has_a_short_form_of_its_own() -> None:
    assert (str(Relation("2e-05", is_distance=True)), Relation("2e-05", is_distance=True).brief()) == (
        said("relative-difference", "2e-05"),
        "by 2e-05",
    )
    assert (str(Relation("transposed")), Relation("transposed").brief()) == ("transposed", "(transposed)")
    assert (str(NO_RELATION), NO_RELATION.brief(), bool(NO_RELATION)) == ("", "", False)
