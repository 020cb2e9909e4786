"""Where a NaN or an infinity is born, over ranks: the cases of the acceptance list, and masks that mean no harm."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions
from support.hand_made import write_part
from unit.diagnose.overflow_ranks import CASES, Ranks, c03, c05, c15, leaf

from msprobe.diagnose.check import check_run
from msprobe.diagnose.check.registry import CHECKS
from msprobe.diagnose.findings import Finding
from msprobe.messages import said

_OVERFLOW = [check for check in CHECKS if check.name == "overflow"]


def findings(ranks: Ranks, folder: Path) -> list[Finding]:
    ranks.write(folder)
    return list(check_run(folder, _OVERFLOW).findings)


@pytest.mark.parametrize(("case", "expected"), CASES)
def test_the_first_bad_call_over_ranks(tmp_path: Path, case: Any, expected: list[tuple[int, str]]) -> None:
    assert [(found.rank, found.entry) for found in findings(case(), tmp_path)] == expected


def test_a_sum_that_overflows_is_the_collectives_fault(tmp_path: Path) -> None:
    (found,) = findings(c03(), tmp_path)
    assert found.entry == "Distributed.all_reduce.1.forward"
    assert found.evidence["birth"] == "communication"


def test_a_bad_input_is_told_as_such(tmp_path: Path) -> None:
    (found,) = findings(c15(), tmp_path)
    assert found.evidence["birth"] == "bad_input"
    assert mentions(found.message, "bad-value-in-input")


def test_who_was_reached_is_told(tmp_path: Path) -> None:
    (found,) = findings(c05(), tmp_path)
    assert found.evidence["reached"] == {"1": "Distributed.recv.0.forward"}


def one_rank(folder: Path, data: dict[str, Any]) -> list[Finding]:
    write_part(folder / "step0" / "rank", data)
    return list(check_run(folder, _OVERFLOW).findings)


def call(inputs: list[Any], output: Any) -> dict[str, Any]:
    return {"input_args": inputs, "input_kwargs": {}, "output": [output]}


def masked(value: float = -math.inf) -> dict[str, Any]:
    return {**leaf("1"), "Min": value, "Mean": value, "inf": 3}


def test_a_mask_of_minus_infinity_is_no_overflow(tmp_path: Path) -> None:
    data = {
        "Tensor.masked_fill.0.forward": call([leaf("1"), leaf("1"), {"type": "float", "value": -math.inf}], masked()),
        "Torch.softmax.0.forward": call([masked()], leaf("0.25")),
    }
    assert one_rank(tmp_path, data) == []


def test_the_logarithm_of_a_mask_is_no_overflow(tmp_path: Path) -> None:
    data = {
        "Torch.log.0.forward": call([leaf("0")], masked()),
        "Tensor.__add__.0.forward": call([leaf("1"), masked()], masked()),
        "Torch.softmax.0.forward": call([masked()], leaf("0.25")),
    }
    assert one_rank(tmp_path, data) == []


def test_a_wholly_masked_row_is_born_in_the_softmax(tmp_path: Path) -> None:
    data = {
        "Tensor.masked_fill.0.forward": call([leaf("1"), leaf("1"), {"type": "float", "value": -math.inf}], masked()),
        "Torch.softmax.0.forward": call([masked()], {**leaf("n"), "nan": 8}),
        "Torch.matmul.0.forward": call([leaf("n"), leaf("1")], leaf("n")),
    }
    (found,) = one_rank(tmp_path, data)
    assert found.entry == "Torch.softmax.0.forward"
    assert found.arguments["reason"] == said("rows-fully-masked", 2)


def test_memory_that_is_not_filled_yet_is_no_overflow(tmp_path: Path) -> None:
    data = {
        "Torch.empty.0.forward": call([{"type": "int", "value": 8}], leaf("n")),
        "Tensor.view.0.forward": call([leaf("2")], leaf("n")),
        "Tensor.copy_.0.forward": call([leaf("n"), leaf("1")], leaf("1")),
        "Torch.mul.0.forward": call([leaf("1"), leaf("2")], leaf("2")),
    }
    assert one_rank(tmp_path, data) == []


def test_half_precision_overflow_is_told_with_the_largest_number(tmp_path: Path) -> None:
    half = {"dtype": "torch.float16"}
    data = {
        "Torch.mul.0.forward": call([leaf("6e4", **half), leaf("2", **half)], leaf("i", **half)),
        "Torch.sub.0.forward": call([leaf("i", **half)], leaf("n", **half)),
    }
    (found,) = one_rank(tmp_path, data)
    assert found.entry == "Torch.mul.0.forward"
    assert "65504" in found.message


def test_the_root_of_zero_behind_a_where(tmp_path: Path) -> None:
    data = {
        "Torch.sqrt.0.forward": call([leaf("0", zero=8)], leaf("0")),
        "Torch.sqrt.0.backward": {"input": [leaf("0")], "output": [leaf("n")]},
        "Torch.mul.0.backward": {"input": [leaf("n")], "output": [leaf("n")]},
    }
    (found,) = one_rank(tmp_path, data)
    assert found.entry == "Torch.sqrt.0.backward"
    assert "infinite at zero" in found.message


def test_a_nan_that_reaches_nothing_is_harmless(tmp_path: Path) -> None:
    data = {
        "Torch.log.0.forward": call([leaf("-1")], leaf("n")),
        "Torch.where.0.forward": call([leaf("1"), leaf("n"), leaf("2")], leaf("2")),
        "Torch.mul.0.forward": call([leaf("2"), leaf("2")], leaf("4")),
    }
    write_part(tmp_path / "step0" / "rank", data)
    result = check_run(tmp_path, _OVERFLOW)
    assert [found.harmless for found in result.findings] == [True]
    assert result.status == "harmless"
    assert result.exit_code == 0


def test_what_a_scaler_skips_is_harmless(tmp_path: Path) -> None:
    data = {
        "Torch.mul.0.backward": {"input": [leaf("1")], "output": [leaf("i")]},
        "Optimizer.SGD.0.forward": {"input_args": [], "input_kwargs": {}, "output": [], "skipped": True},
    }
    (found,) = one_rank(tmp_path, data)
    assert found.harmless
    assert "scaler" in found.message


@pytest.mark.parametrize(("largest", "zeros"), [(0.0, 2), (1.0, "some")])
def test_zeros_that_a_logarithm_takes_are_counted_where_all_are_zero(
    tmp_path: Path, largest: float, zeros: int | str
) -> None:
    given = {**leaf("1"), "shape": [2], "Max": largest, "Min": 0.0, "Mean": largest / 2, "Norm": largest}
    result = {**leaf("1"), "shape": [2], "Max": -math.inf, "Min": -math.inf, "Mean": -math.inf, "Norm": math.inf}
    (found,) = one_rank(tmp_path, {"Torch.log.0.forward": call([given], result)})
    assert str(said("logarithm-of-zero", zeros)) in str(found.message)
