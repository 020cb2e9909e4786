"""Calls that give a weighted sum of their arguments are judged by these, however far they are from the other side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.rows_made import RowsOfArrays, call_of

from msprobe.diagnose.measured.deviation import Deviation
from msprobe.diagnose.measured.members import members
from msprobe.diagnose.measured.own_arguments import OneCall, apart_of_quotient, change_by_call, error_of_call

_RANDOM = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def _from_the_beginning() -> None:
    """Each test draws the same numbers, whichever ran before it."""
    _RANDOM.bit_generator.state = np.random.default_rng(103).bit_generator.state


_SHAPE = (24, 40)
_ONE, _OTHER = _RANDOM.normal(size=_SHAPE), _RANDOM.normal(size=_SHAPE)
#: What the reference has in their place: far apart.
_ITS_ONE, _ITS_OTHER = _ONE + 0.3 * _RANDOM.normal(size=_SHAPE), _OTHER * 1.2


def _error(
    name: str, arguments: list[Any], result: Any, its_arguments: list[Any], its_result: Any, **named: Any
) -> float | None:
    """The distance over its scale; None where the call is none of them."""
    mine, theirs = RowsOfArrays(), RowsOfArrays()
    one = call_of(mine, name, arguments, result, named)
    other = call_of(theirs, name, its_arguments, its_result, named)
    candidate: Any = mine
    reference: Any = theirs
    found = error_of_call(OneCall.of(one), OneCall.of(other), candidate, reference)
    return None if found is None else found.distance / found.norm


def _lerp(one: Any, other: Any, weight: float) -> Any:
    return one + weight * (other - one)


_CALLS = {
    "add": ("Torch.add.0.forward", lambda a, b: a + b, [], {}),
    "alpha": ("Tensor.sub_.0.forward", lambda a, b: a - 0.1 * b, [], {"alpha": 0.1}),
    "reflected": ("Tensor.__rsub__.0.forward", lambda a, b: b - a, [], {}),
    "average": ("Tensor.lerp_.0.forward", lambda a, b: _lerp(a, b, 0.1), [0.1], {}),
}


@pytest.mark.parametrize("call", _CALLS)
def test_arguments_that_are_apart_hide_no_error_of_the_call(call: str) -> None:
    name, compute, more, named = _CALLS[call]
    mine, theirs = [_ONE, _OTHER, *more], [_ITS_ONE, _ITS_OTHER, *more]
    good = compute(_ONE, _OTHER)
    assert _error(name, mine, good, theirs, compute(_ITS_ONE, _ITS_OTHER), **named) == 0.0
    wrong = _error(name, mine, good * 1.03, theirs, compute(_ITS_ONE, _ITS_OTHER), **named)
    assert wrong == pytest.approx(0.03, rel=0.7)


@pytest.mark.parametrize(
    ("name", "factor"),
    [("Tensor.contiguous.0.forward", None), ("Tensor.view.0.forward", None), ("Tensor.mul_.0.forward", 0.9)],
)
def test_a_copy_and_a_product_with_a_number_are_too(name: str, factor: float | None) -> None:
    more = [] if factor is None else [factor]
    size = factor or 1.0
    assert _error(name, [_ONE, *more], _ONE * size, [_ITS_ONE, *more], _ITS_ONE * size) == 0.0
    lost = _ONE * size
    lost[-1] = 0.0
    assert (_error(name, [_ONE, *more], lost, [_ITS_ONE, *more], _ITS_ONE * size) or 0.0) > 0.05


def test_a_factor_may_be_in_a_tensor_and_each_side_has_its_own() -> None:
    mine, theirs = [_ONE, np.array(0.5)], [_ITS_ONE, np.array(0.25)]
    assert _error("Tensor.__mul__.0.forward", mine, _ONE * 0.5, theirs, _ITS_ONE * 0.25) == 0.0


@pytest.mark.parametrize(
    ("name", "mine", "theirs"),
    [
        ("Torch.mul.0.forward", [_ONE, _OTHER], [_ITS_ONE, _ITS_OTHER]),
        ("Tensor.__rtruediv__.0.forward", [_ONE, 2.0], [_ITS_ONE, 2.0]),
        ("Tensor.__add__.0.forward", [_ONE, 1.0], [_ITS_ONE, 1.0]),
        ("Torch.add.0.forward", [_ONE, _OTHER[:1]], [_ITS_ONE, _ITS_OTHER[:1]]),
        ("Tensor.transpose.0.forward", [_ONE, 0, 1], [_ITS_ONE, 0, 1]),
        ("Functional.gelu.0.forward", [_ONE], [_ITS_ONE]),
        ("Tensor.lerp_.0.forward", [_ONE, _OTHER, _OTHER], [_ITS_ONE, _ITS_OTHER, _ITS_OTHER]),
        ("Torch.div.0.forward", [_ONE, 0.0], [_ITS_ONE, 0.0]),
        ("Tensor.contiguous.0.forward", [np.where(_ONE > 2.0, np.inf, _ONE)], [_ITS_ONE]),
    ],
)
def test_others_are_judged_otherwise(name: str, mine: list[Any], theirs: list[Any]) -> None:
    assert _error(name, mine, _ONE, theirs, _ITS_ONE) is None


def test_a_view_as_a_different_type_gives_different_numbers() -> None:
    mine, theirs = RowsOfArrays(), RowsOfArrays()
    events = []
    for rows, given in ((mine, _ONE), (theirs, _ITS_ONE)):
        event = call_of(rows, "Tensor.view.0.forward", [given], given, {})
        event.record["output"][0]["dtype"] = "torch.bfloat16"
        events.append(event)
    candidate: Any = mine
    reference: Any = theirs
    assert error_of_call(OneCall.of(events[0]), OneCall.of(events[1]), candidate, reference) is None


def _changed(name: str, mine: list[Any], result: np.ndarray, theirs: list[Any], its: np.ndarray, **named: Any) -> Any:
    rows, others = RowsOfArrays(), RowsOfArrays()
    one = OneCall.of(call_of(rows, name, mine, result, named))
    other = OneCall.of(call_of(others, name, theirs, its, named))
    candidate: Any = rows
    reference: Any = others
    return one, candidate, change_by_call(one, other, candidate, reference)


def test_what_a_call_adds_is_judged_without_what_it_is_added_to() -> None:
    step = _ONE / np.sqrt(_ONE**2 + 1e-12)
    mine, theirs = [_ONE, _ONE, np.abs(_ONE)], [_ITS_ONE, _ONE, np.abs(_ONE)]
    good, its = mine[0] - 1e-2 * step, theirs[0] - 1e-2 * step
    *_, change = _changed("Tensor.addcdiv_.0.forward", mine, good, theirs, its, value=-1e-2)
    assert change is not None
    assert change.distance == 0.0  # in double: what is added is the same
    lost = good.copy()
    lost[:6] = mine[0][:6]
    *_, change = _changed("Tensor.addcdiv_.0.forward", mine, lost, theirs, its, value=-1e-2)
    assert 0.2 < change.distance / change.norm < 1.2
    # Too small to be seen in sums, which accelerators may keep in single precision.
    tiny = [1e4 * _ONE, *mine[1:]]
    assert _changed("Tensor.addcdiv_.0.forward", tiny, tiny[0] - 1e-2 * step, tiny, tiny[0] - 1e-2 * step)[-1] is None
    assert _changed("Torch.mul.0.forward", mine[:2], good, theirs[:2], its)[-1] is None


def test_a_quotient_of_small_numbers_is_further_apart() -> None:
    size = np.abs(_ONE) + 0.5
    size.reshape(-1)[:240] *= 0.02
    mine = [_ONE, _RANDOM.choice([-1.0, 1.0], _SHAPE) * size, size]
    result = mine[0] + 0.1 * mine[1] / mine[2]
    side, rows, change = _changed("Tensor.addcdiv_.0.forward", mine, result, mine, result, value=0.1)
    apart = Deviation("estimate", 1e-3, 0.0, float(np.linalg.norm(size)), size.size)
    found = apart_of_quotient(side, rows, apart, apart, change.norm)
    assert found is not None
    assert 1e-2 < found < 0.2
    # A bias that softmax does not see has a gradient of rounding alone: its quotients are anything.
    wide = replace(apart, distance=0.1)
    assert apart_of_quotient(side, rows, wide, wide, change.norm) is None
    # Where small divisors make it large, the smallest of them says how far it may be apart.
    assert apart_of_quotient(side, rows, apart, apart, 10.0 * change.norm) is None


def test_a_call_of_a_list_is_one_for_each_tensor() -> None:
    slots = [("input.0.0", "p"), ("input.0.1", "q"), ("input.1.0", "g"), ("input.1.1", "h"), ("input.alpha", 2.0)]
    found = members("_foreach_add", slots, [("output.0.0", "r"), ("output.0.1", "s")])
    assert [one.slot for one in found.values()] == ["output.0.0", "output.0.1"]
    assert found["1"].inputs == [("input.0", "q"), ("input.1", "h"), ("input.alpha", 2.0)]
    assert found["1"].outputs == [("output.0", "s")]
    assert members("add", slots, []) == members("_foreach_mine", slots, [("output.0.0", 1), ("output.1.0", 2)]) == {}


def test_a_few_elements_of_several_kinds_are_as_far_apart_as_the_smallest() -> None:
    """A bias of queries, keys and values in one: that of the keys has a gradient of rounding alone."""
    size = np.full(24, 1e-3)
    size[8:16] = 1e-8
    mine = [np.zeros(24), _RANDOM.choice([-1.0, 1.0], 24) * size, size]
    result = 0.1 * mine[1] / mine[2]
    side, rows, change = _changed("Tensor.addcdiv_.0.forward", mine, result, mine, result, value=0.1)
    assert change is not None
    apart = Deviation("estimate", 2e-10, 0.0, float(np.linalg.norm(size)), size.size)
    found = apart_of_quotient(side, rows, apart, apart, change.norm)
    assert found is not None
    assert found > 2e-10 / 1e-8 / 24**0.5
