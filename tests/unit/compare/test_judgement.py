"""Statistics, verdicts, colours and the order in which suspects are looked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.row_by_row import for_each

from msprobe.compare.colours import NONE, RED, YELLOW
from msprobe.compare.comparison import RowComparison, compare_parts
from msprobe.compare.measures_tensor import TensorMeasures, all_six
from msprobe.compare.verdicts import accuracy, digest_result
from msprobe.messages import said
from msprobe.store.reader import open_dump

NAN, INF = float("nan"), float("inf")
Compare = Callable[[dict[str, Any], dict[str, Any]], RowComparison]


def tensor(
    high: Any = 1.0, low: Any = 0.0, mean: Any = 0.5, norm: Any = 3.0, dtype: str = "torch.float32", **more: Any
) -> dict[str, Any]:
    """A tensor of 12 elements."""
    leaf = {"type": "torch.Tensor", "dtype": dtype, "shape": [3, 4], "Max": high, "Min": low, "Mean": mean}
    return {**leaf, "Norm": norm, "requires_grad": False, **more}


def call(inputs: list[Any], outputs: list[Any], **kwargs: Any) -> dict[str, Any]:
    return {"input_args": inputs, "input_kwargs": kwargs, "output": outputs}


def number(value: float) -> dict[str, Any]:
    return {"type": type(value).__name__, "value": value}


@pytest.fixture
def compared(tmp_path: Path) -> Compare:
    def compare(candidate: dict[str, Any], reference: dict[str, Any]) -> RowComparison:
        parts = []
        for side, data in (("a", candidate), ("b", reference)):
            (tmp_path / side).mkdir()
            (tmp_path / side / "dump.json").write_text(json.dumps({"task": "statistics", "data": data}, indent=1))
            parts.append(open_dump(tmp_path / side).part())
        return compare_parts(parts[0], parts[1])

    return compare


@pytest.fixture
def one(compared: Compare) -> Callable[[Any, Any], RowComparison]:
    """Compare two outputs of a call whose input agrees; the output is row 1."""

    def compare(ours: Any, theirs: Any) -> RowComparison:
        records = [{"Torch.f.0.forward": call([tensor()], [value])} for value in (ours, theirs)]
        return compared(records[0], records[1])

    return compare


One = Callable[[Any, Any], RowComparison]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict", "fails"),
    [
        (tensor(), tensor(), "", False),
        (tensor(high=2.1), tensor(high=1.0), "Warning", True),
        (tensor(high=1.9), tensor(high=1.0), "", False),
        # The larger of the two, by sign, is the measure: -1 against -3 is off by twice of it.
        (tensor(high=-1.0, low=-3.0), tensor(high=-3.0, low=-3.0), "Warning", True),
        # A mean that is nothing beside the elements is noise, although the column of 8.1.1 warns.
        (tensor(mean=1e-9), tensor(mean=0.0), "Warning", False),
        (tensor(mean=0.9), tensor(mean=0.0), "Warning", True),
        (tensor(high=NAN), tensor(), "Warning", True),
        (tensor(high=INF), tensor(), "Warning", True),
        (tensor(mean=NAN), tensor(), "Warning", True),
        (tensor(high=NAN), tensor(high=NAN), "", False),
        (tensor(low=-INF), tensor(low=-INF), "", False),
        (tensor(), tensor(high=NAN), "", False),
        (tensor(high=None, low=None, mean=None, norm=None), tensor(), "", False),
        (tensor(shape=[4, 3]), tensor(), "Warning", True),
        (tensor(dtype="torch.float64"), tensor(), "", False),
        (None, tensor(), "Warning", True),
        (None, None, "", False),
        (number(1), number(2), "", False),
        (number(1), number(3), "Warning", True),
    ],
)
def test_results_of_statistics(ours: Any, theirs: Any, verdict: str, fails: bool, one: One) -> None:
    found = one(ours, theirs)
    assert (found.verdict[1], bool(found.failing[1])) == (verdict, fails)


def test_what_is_noise_or_new_is_said(one: One, tmp_path: Path) -> None:
    assert said("within-rounding-of-inputs") in one(tensor(mean=1e-9), tensor(mean=0.0)).messages[1]
    for side in "ab":
        (tmp_path / side).rename(tmp_path / f"{side}1")
    assert one(tensor(high=NAN), tensor()).messages[1][0] == said("target-not-finite")


def test_a_sum_that_cancels_is_as_good_as_the_rounding_of_its_terms(compared: Compare) -> None:
    """The gradient of a bias that does not matter is noise; its scale is that of what was summed."""
    given = tensor(high=8.0, low=-8.0, mean=0.0, norm=20.0, dtype="torch.bfloat16")
    noise = [tensor(x, -x, x / 2, x, dtype="torch.bfloat16") for x in (1e-3, 4e-3)]
    data = [{"Torch.f.0.forward": call([given], [value])} for value in noise]
    assert not compared(*data).failing.any()


def test_whole_numbers_beyond_float64_are_subtracted_exactly(one: One) -> None:
    big = [tensor(high=2**60 + extra, dtype="torch.int64") for extra in (3, 0)]
    assert one(*big).statistics.difference[0, 1] == 3.0


@pytest.mark.parametrize(
    ("ours", "theirs", "colour"),
    [
        (tensor(), tensor(), NONE),
        (tensor(high=INF), tensor(), RED),
        (tensor(high=NAN), tensor(), RED),
        (tensor(high=NAN), tensor(high=NAN), NONE),
        (tensor(low=-INF), tensor(low=-INF), NONE),
        (tensor(high=INF, low=1.0), tensor(high=INF, low=2.0), RED),
        (tensor(high=2e10), tensor(high=1e9), RED),
        (tensor(high=1.6), tensor(high=1.0), RED),
        (tensor(high=1.4), tensor(high=1.0), YELLOW),
        (tensor(high=1.05), tensor(high=1.0), NONE),
        (tensor(high=-1.0), tensor(high=-1.0001), NONE),
        (tensor(high=1010.0), tensor(high=1000.0), YELLOW),
        (tensor(high=1009.0), tensor(high=1000.0), NONE),
        (tensor(high=1.0), tensor(high=0.0), RED),
    ],
)
def test_colours_of_statistics(ours: Any, theirs: Any, colour: int, one: One) -> None:
    found = one(ours, theirs)
    assert found.colouring.colour.tolist() == [NONE, colour]
    assert bool(found.colouring.reasons.get(1)) == (colour != NONE)


def test_yellow_needs_an_input_that_agrees(compared: Compare) -> None:
    def data(given: float, made: float) -> dict[str, Any]:
        return {"Torch.f.0.forward": call([tensor(high=given)], [tensor(high=made)])}

    assert compared(data(1.2, 1.4), data(1.0, 1.0)).colouring.colour.tolist() == [NONE, NONE]


def test_saved_variables_and_digests_have_no_colours(tmp_path: Path) -> None:
    for side, high in (("a", 5.0), ("b", 1.0)):
        (tmp_path / side).mkdir()
        content = {"task": "statistics", "data": {"x.0.debug": tensor(high=high)}}
        (tmp_path / side / "debug.json").write_text(json.dumps(content))
    found = compare_parts(*(open_dump(tmp_path / side).part() for side in "ab"))
    assert found.colouring.colour.tolist() == [NONE]
    assert found.verdict == ["Warning"]


def measures(cosine: float | str, error: float | str) -> TensorMeasures:
    return TensorMeasures(cosine, 0.0, error, 0.0, 1.0, 1.0)


@for_each(
    ("found", "word"),
    [
        (measures(1.0, 0.0), "Yes"),
        (measures(0.98, 0.0011), "No"),
        (measures(0.98, 0.0009), "Yes"),
        (measures(0.89, 0.0), "No"),
        (measures(1.0, 1.1), "No"),
        (measures(1.0, 1.0), "Yes"),
        (measures("Nan", 0.5), "Yes"),
        (measures("Nan", 12.0), "No"),
        (measures("unsupported", 5.0), "None"),
        (all_six("N/A"), "No"),
        (all_six("shape unmatched"), "Unmatched"),
        (all_six("unsupported"), "None"),
    ],
)
def test_accuracy(found: TensorMeasures, word: str) -> None:
    assert accuracy(found) == word


@for_each(
    ("ours", "theirs", "matched", "word"),
    [
        ("ab", "ab", True, "pass"),
        ("ab", "cd", True, "Different"),
        ("ab", "N/A", False, "N/A"),
        ("N/A", "N/A", True, "N/A"),
        ("N/A", "ab", True, "Different"),
        (None, None, True, "N/A"),
        ("N/A", "N/A", False, "N/A"),
    ],
)
def test_digests(ours: str | None, theirs: str | None, matched: bool, word: str) -> None:
    assert digest_result(ours, theirs, matched) == word


GOOD = tensor()


def test_nothing_on_one_side_is_compared_without_harm(compared: Compare) -> None:
    found = compared({"Torch.f.0.forward": call([GOOD], [GOOD])}, {"Torch.f.0.forward": call([], [])})
    assert found.verdict == ["N/A", "N/A"]
