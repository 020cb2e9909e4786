"""The first call beyond what its arguments and healthy devices explain; and which calls nothing can be said of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from msprobe.diagnose.measured.classes import Classes, measured, shipped
from msprobe.diagnose.measured.healthy import HealthyCalls
from msprobe.diagnose.measured.judge import healthy_nodes, judge_nodes
from msprobe.diagnose.measured.node import CollectiveInput, MeasuredResult, Node
from msprobe.diagnose.measured.product_units import product_units
from msprobe.diagnose.tolerance.declared_units import TEN_BITS, Rounding

_NOTHING = Classes({}, {})
_HALF, _SINGLE = 2.0**-7, 2.0**-23


@dataclass(frozen=True)
class _Event:
    name: str


def _node(name: str, distance: float, given: float = 0.0, **more: Any) -> Node:
    facts = {"operation": "linear", "direction": "forward", "unit": _HALF, "product": "product", "excused": ""} | more
    result = MeasuredResult("output.0", distance, distance / 64, given, given / 64, 4096, False, 1.0, 4096, 4096.0)
    event: Any = _Event(name)
    return Node(event, facts["operation"], facts["direction"], facts["unit"], (result,), *_rest(facts))


def _rest(facts: dict[str, Any]) -> tuple[str, str]:
    return facts["product"], facts["excused"]


def _first(*found: Node, classes: Classes = _NOTHING) -> str | None:
    first = judge_nodes(found, classes).first
    return first.node.event.name if first is not None else None


def test_rounding_and_what_the_arguments_have_is_explained() -> None:
    assert _first(_node("a", 0.3 * _HALF), _node("b", 0.02, 0.02), _node("c", 0.0)) is None


def test_the_first_beyond_is_named_and_not_the_furthest() -> None:
    assert _first(_node("a", 0.3 * _HALF), _node("b", 0.05), _node("c", 0.4, 0.05), _node("d", 0.9)) == "b"


def test_what_a_class_usually_shows_is_taken_off() -> None:
    usual = Classes({"linear forward half": (4.0, 4.0)}, {})
    assert _first(_node("a", 0.02), classes=usual) is None
    assert _first(_node("a", 0.02), classes=Classes({"linear forward half": (-4.0, -4.0)}, {})) == "a"
    assert _first(_node("a", 0.02, unit=_SINGLE), classes=usual) == "a"


def test_an_operator_that_is_not_in_the_table_has_the_class_of_its_family() -> None:
    families = Classes({}, {"products forward half": (4.0, 4.0)})
    assert _first(_node("a", 0.02, operation="mv"), classes=families) is None
    assert _first(_node("a", 0.02, operation="mine_fused"), classes=families) == "a"
    assert families.is_known(_node("a", 0.0, operation="mv"))
    assert not families.is_known(_node("a", 0.0, operation="mine_fused"))


def test_calls_that_nothing_can_be_said_of_are_counted_and_never_named() -> None:
    found = judge_nodes([_node("a", 0.9, excused="whole numbers"), _node("b", 0.9, 0.4), _node("c", 0.0)], _NOTHING)
    assert found.first is None
    assert (found.calls, found.not_judged) == (3, 2)
    # What may come out of arguments so far apart is no finding; what another reason excuses may be one.
    assert {event.name for event in found.explained} == {"b"}


@pytest.mark.parametrize(("distance", "judged", "named"), [(0.3 * _HALF, 1, True), (0.9, 0, False)])
def test_a_norm_of_few_elements_is_judged_where_it_is_within_its_limits(
    distance: float, judged: int, named: bool
) -> None:
    found = judge_nodes([_node("a", distance, operation="layer_norm", excused="few elements")], _NOTHING)
    assert found.first is None
    assert (found.calls - found.not_judged, found.explains_all, bool(found.explained)) == (judged, named, named)


def test_results_without_rows_explain_as_little_as_calls_that_anything_may_come_out_of() -> None:
    unread = _node("numpy", 0.0, excused="results")
    assert judge_nodes([_node("a", 0.0), unread], _NOTHING).explains_all
    assert not judge_nodes([_node("a", 0.0), unread, unread, unread], _NOTHING).explains_all


def test_what_is_not_finite_on_one_side_alone_is_beyond_all() -> None:
    bad = MeasuredResult("output.0", 0.0, 0.0, 0.0, 0.0, 16, True)
    event: Any = _Event("a")
    assert _first(Node(event, "exp", "forward", _SINGLE, (bad,), "")) == "a"


def test_products_in_ten_bits_show_by_many_of_them() -> None:
    good = [_node(str(number), 1e-7, unit=_SINGLE) for number in range(6)]
    ten = [_node(str(number), TEN_BITS / 4, unit=_SINGLE) for number in range(3)]
    assert product_units([*good, *ten]) == {"product": TEN_BITS}
    assert product_units([*good, ten[0]]) == {}
    assert _first(*ten) is None
    assert _first(*good, ten[0]) == "0"


def test_products_in_ten_bits_show_where_their_arguments_have_them_too() -> None:
    good = [_node(str(number), 1e-7, unit=_SINGLE) for number in range(6)]
    later = [_node("later", TEN_BITS / 2, TEN_BITS / 10, unit=_SINGLE) for _ in range(2)]
    assert product_units([*good, *later]) == {"product": TEN_BITS}
    assert product_units([*good, *(_node("carried", TEN_BITS / 2, TEN_BITS / 2, unit=_SINGLE) for _ in range(2))]) == {}


def test_convolutions_may_have_ten_bits_where_matrices_have_all() -> None:
    good = [_node(str(number), 1e-7, unit=_SINGLE) for number in range(30)]
    convolutions = [
        _node(str(number), TEN_BITS / 4, unit=_SINGLE, product="convolution", operation="conv2d") for number in range(5)
    ]
    assert product_units([*convolutions, *good]) == {"convolution": TEN_BITS}
    assert _first(*convolutions, *good) is None
    # One call says nothing by itself, but for what a header says.
    assert product_units([convolutions[0], *good]) == {}
    told = {"convolution": Rounding(TEN_BITS, is_declared=True), "product": Rounding(0.0)}
    assert product_units([convolutions[0], *good], told) == {"convolution": TEN_BITS}
    assert product_units(convolutions, {"convolution": Rounding(0.0)}) == {}


def test_a_table_is_the_median_of_healthy_calls() -> None:
    found = [_node(str(number), 0.3003 * _HALF * 2.0**number) for number in range(3)]
    table = measured([(found, {})])
    assert table.by_operator["linear forward half"] == found[1].excess() != found[0].excess()
    assert found[1].excess()[0] == pytest.approx(1.0, abs=0.01)
    assert table.by_family["products forward half"] == table.by_operator["linear forward half"]


def test_the_table_that_is_shipped_says_which_command_made_it_and_knows_the_usual_operators() -> None:
    table = shipped()
    for name in ("linear forward half", "linear backward single", "layer_norm forward half", "softmax forward single"):
        assert all(math.isfinite(one) for one in table.by_operator[name])


def _healthy(*found: Node) -> HealthyCalls:
    return healthy_nodes(found, _NOTHING, {})


def test_a_healthy_pair_allows_what_it_shows_itself() -> None:
    found = [_node("a", 0.05)]
    assert judge_nodes(found, _NOTHING).first is not None
    assert judge_nodes(found, _NOTHING, _healthy(_node("b", 0.06))).first is None
    assert judge_nodes(found, _NOTHING, _healthy(_node("b", 0.06, operation="matmul"))).first is not None


def test_a_healthy_pair_lowers_the_limits_of_calls_like_its_own() -> None:
    near = [_node("a", 0.009)]  # 1.9 bits above rounding
    assert judge_nodes(near, _NOTHING, _healthy(_node("b", 0.002))).first is not None
    usual = [_node("a", 0.0065)]  # 1.5 bits, the doubt of an estimate
    assert judge_nodes(usual, _NOTHING, _healthy(_node("b", 0.002))).first is None
    coherent = replace(near[0], results=(replace(near[0].results[0], distance=0.003, coherent=2.0**2.7 * 3.67e-5),))
    assert judge_nodes([coherent], _NOTHING).first is None
    assert judge_nodes([coherent], _NOTHING, _healthy(_node("b", 0.002))).first is not None


def test_a_healthy_pair_says_nothing_of_calls_that_are_unlike_its_own() -> None:
    further = [_node("a", 0.2, 0.1)]
    coherent = replace(further[0], results=(replace(further[0].results[0], distance=0.1, coherent=0.012),))
    assert judge_nodes([coherent], _NOTHING, _healthy(_node("b", 0.1, 0.1))).first is not None
    assert judge_nodes([coherent], _NOTHING, _healthy(_node("b", 0.002, 0.002))).first is None
    single = replace(coherent, results=(replace(coherent.results[0], count=1),))
    assert judge_nodes([single], _NOTHING, _healthy(_node("b", 0.1, 0.1))).first is None


def test_gradients_that_calls_have_made_are_explained() -> None:
    made = replace(_node("made", 0.0), results=(), operation="", direction="gradient")
    new = replace(made, event=_event("new"), from_outside=True)
    found = judge_nodes([_node("a", 0.0), made, new], _NOTHING)
    assert [event.name for event in found.explained] == ["made"]
    assert (found.calls, found.from_outside) == (1, False)


def _event(name: str) -> Any:
    return _Event(name)


def test_more_collectives_than_can_wait_explain_nothing() -> None:
    def found(count: int) -> list[Node]:
        exchange = CollectiveInput(("all_reduce", (0, 1)), 0, 0.0, 0.0, (1.0,))
        return [replace(_node(str(number), 0.1), exchange=exchange) for number in range(count)]

    assert judge_nodes(found(3), _NOTHING).explains_all
    assert not judge_nodes(found(100), _NOTHING).explains_all
    assert all(one.node.exchange for one in judge_nodes(found(100), _NOTHING).waiting)


def _drawn(name: str, distance: float, given: float = 0.01, by: Any = None, **more: Any) -> Node:
    node = _node(name, distance, given, operation="dropout", excused="random", product="", **more)
    return replace(node, drawn_by=by or node.event)


def test_a_call_that_draws_the_same_numbers_as_a_later_one_shows_is_judged() -> None:
    alike, later = _drawn("a", 0.01), _drawn("c", 0.01)
    wrong = _drawn("b", 0.2)
    assert _first(alike, wrong, later) == "b"
    # Where the numbers differ from here on, nothing is said of the calls.
    assert _first(alike, wrong, _drawn("c", 0.2)) is None
    found = judge_nodes([alike, _drawn("b", 0.0105), later], _NOTHING)
    assert (found.calls, found.not_judged, len(found.explained)) == (3, 0, 3)


def test_calls_of_one_generator_show_each_others_numbers_whatever_they_are() -> None:
    wrong, later = replace(_drawn("attention", 0.2), operation="scaled_dot_product_attention"), _drawn("dropout", 0.01)
    assert _first(wrong, later) == "attention"
    assert _first(wrong, replace(later, generator="randn")) is None


def test_gradients_use_the_numbers_that_their_forward_call_has_drawn() -> None:
    first, second = _drawn("a", 0.01), _drawn("b", 0.4)
    backward = [
        _drawn("b back", 0.4, by=second.event, direction="backward"),
        _drawn("a back", 0.2, by=first.event, direction="backward"),
    ]
    assert _first(first, second, *backward) == "a back"


#: Beyond what many calls may be together, and not what one may be by itself.
_NEAR = 0.3003 * _HALF * 2.0**1.5


def test_calls_that_are_within_their_limits_may_be_beyond_them_together() -> None:
    several = [_node(str(number), _NEAR) for number in range(7)]
    judgement = judge_nodes(several, _NOTHING)
    first = judgement.first
    assert first is not None
    assert (first.node.event.name, first.together) == ("0", 7)
    assert first.beyond > 0.0
    assert "0" not in {event.name for event in judgement.explained}
    assert not judgement.explains_all
    assert _first(*several[:2]) is None


def test_calls_together_are_named_by_the_first_that_differs() -> None:
    assert _first(_node("same", 0.0), *(_node(str(number), _NEAR) for number in range(7))) == "0"


def test_what_one_call_does_by_itself_is_not_laid_on_those_of_its_operator() -> None:
    usual = [_node(str(number), 0.3 * _HALF) for number in range(5)]
    judgement = judge_nodes([*usual, _node("wrong", 0.9), *usual], _NOTHING)
    first = judgement.first
    assert first is not None
    assert (first.node.event.name, first.together) == ("wrong", 1)


def test_a_first_call_that_is_near_to_its_limit_is_named_before_one_of_its_operator_that_is_beyond() -> None:
    several = [_node(str(number), _NEAR) for number in range(5)]
    assert _first(*several, _node("beyond", 0.9)) == "0"


def test_calls_behind_one_of_a_different_operator_that_is_beyond_say_nothing_together() -> None:
    several = [_node(str(number), _NEAR) for number in range(7)]
    wrong = _node("wrong", 0.9, operation="softmax")
    assert _first(wrong, *several) == "wrong"
    assert _first(several[0], wrong, *several[1:]) == "wrong"
    assert _first(*several, wrong) == "0"


def test_calls_in_single_precision_have_more_room_together() -> None:
    for bits, first in ((1.3, None), (2.1, "0")):
        distance = 2.0 * _SINGLE * 2.0**bits
        assert _first(*(_node(str(number), distance, unit=_SINGLE, product="") for number in range(9))) == first


def test_calls_of_few_elements_are_judged_by_themselves() -> None:
    few = [replace(node, results=(replace(node.results[0], count=4),)) for node in map(_node, "abcdefg", [_NEAR] * 7)]
    assert _first(*few) is None


def test_a_healthy_pair_allows_what_its_calls_show_together() -> None:
    several = [_node(str(number), _NEAR) for number in range(7)]
    assert judge_nodes(several, _NOTHING, _healthy(*several)).first is None
    others = [_node(str(number), _NEAR, operation="matmul") for number in range(7)]
    assert judge_nodes(several, _NOTHING, _healthy(*others)).first is not None


def test_a_healthy_pair_lowers_what_calls_like_its_own_may_show_together() -> None:
    """What is coherent in each of four is less than any of them, or all together, may have without such a pair."""
    usual = [_node(str(number), 0.3 * _HALF) for number in range(4)]
    several = [replace(node, results=(replace(node.results[0], coherent=1.45e-4),)) for node in usual]
    assert _first(*several) is None
    named = judge_nodes(several, _NOTHING, _healthy(*usual)).first
    assert named is not None
    assert (named.node.event.name, named.together) == ("0", 4)
    assert judge_nodes(several, _NOTHING, _healthy(*several)).first is None
    assert judge_nodes(several[:2], _NOTHING, _healthy(*usual)).first is None
