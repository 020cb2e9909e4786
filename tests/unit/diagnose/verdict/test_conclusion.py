from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from msprobe.diagnose.effect.reach import Reach
from msprobe.diagnose.evidence import Because, Fact, ResultFact
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.verdict.conclusion import ComparedRank, conclude
from msprobe.messages import said

ALLOWED = 1e-6


def compared(reach: float, **more: Any) -> ComparedRank:
    return ComparedRank(
        step=0, rank="rank", suspects=[], reach=Reach(reach), tolerance=ALLOWED, summary={"pairs": 1}, notes=[],
        collectives=[], left=({}, {}), **more,
    )  # fmt: skip


def status(result: ComparedRank, later: float = 0.0, goes_on: bool = True, **more: Any) -> str:
    finding = Finding("structure", said("extra-calls", "Torch.abs.0.forward"), "Torch.abs.0.forward", rank="rank")
    suspect = Suspect(finding, 3.0, clear=True, **more)
    return conclude([result], [suspect], lambda: later, goes_on)[0]


@pytest.mark.parametrize(("reach", "expected"), [(0.0, "harmless"), (ALLOWED, "harmless"), (2 * ALLOWED, "diverged")])
def test_what_rounding_may_do_is_harmless(reach: float, expected: str) -> None:
    assert status(compared(reach)) == expected


@pytest.mark.parametrize(("later", "expected"), [(3 * ALLOWED, "harmless"), (5 * ALLOWED, "diverged")])
def test_rounding_grows_until_the_next_step(later: float, expected: str) -> None:
    assert status(compared(0.5 * ALLOWED), later) == expected
    assert status(compared(later, carried=True)) == expected


def test_nothing_is_harmless_where_no_values_were_recorded() -> None:
    assert status(compared(0.0, values=False)) == "diverged"


@pytest.mark.parametrize(("goes_on", "expected"), [(True, "harmless"), (False, "diverged")])
def test_what_shows_in_the_next_step_counts_where_there_is_none(goes_on: bool, expected: str) -> None:
    assert status(compared(0.0), goes_on=goes_on, shows_later="steps") == expected


def suspect(kind: Any, *facts: Fact, clear: bool = True) -> Suspect:
    return Suspect(Finding(kind, kind, kind, rank="rank", facts=facts), 3.0, clear=clear)


def concluded(result: ComparedRank, *found: Suspect) -> tuple[str, list[str]]:
    answer, findings = conclude([result], found, lambda: 0.0, True)
    return answer, [one.kind for one in findings]


def test_an_effect_beyond_rounding_is_told_though_no_call_is_to_blame() -> None:
    beyond = suspect("computation")
    assert concluded(compared(2 * ALLOWED, beyond=beyond)) == ("diverged", ["computation"])
    within = suspect("gradient", ResultFact(1e-7, 1e-6), clear=False)
    assert concluded(compared(2 * ALLOWED, beyond=beyond), within) == ("diverged", ["computation", "gradient"])


def test_what_one_side_does_alone_goes_before_such_an_effect() -> None:
    result = compared(2 * ALLOWED, beyond=suspect("computation"), doubts=[suspect("structure")])
    assert concluded(result) == ("diverged", ["structure", "computation"])
    assert concluded(compared(ALLOWED, doubts=[suspect("structure")])) == ("agree", [])


@pytest.mark.parametrize("more", [{"interrupted": ("candidate",)}, {"values": False}])
def test_what_is_not_known_is_no_effect(more: dict[str, Any]) -> None:
    assert concluded(compared(math.inf, beyond=suspect("computation"), **more)) == ("agree", [])


def test_of_two_frameworks_ten_times_as_much_is_rounding_where_all_calls_agree() -> None:
    beyond = suspect("computation")
    assert concluded(compared(9 * ALLOWED, beyond=beyond, crossing=True)) == ("agree", [])
    assert concluded(compared(11 * ALLOWED, beyond=beyond, crossing=True)) == ("diverged", ["computation"])


def test_a_step_within_rounding_leaves_it_to_the_next_one_to_tell_what_differs() -> None:
    within = suspect("gradient", ResultFact(1e-7, 1e-6), clear=False)
    assert conclude([compared(ALLOWED)], [within], lambda: 1.0, True) == ("agree", [])


def test_what_is_within_rounding_stands_behind_what_is_not() -> None:
    within = suspect("computation", ResultFact(1e-7, 1e-6))
    wrong = suspect("parameter_gradient", Because("not_cleared"))
    assert concluded(compared(2 * ALLOWED), within, wrong)[1] == ["parameter_gradient", "computation"]


@pytest.mark.parametrize(("difference", "expected"), [(0.1, "diverged"), (0.01, "harmless")])
def test_wide_rounding_does_not_excuse_an_argument_that_stands_out(difference: float, expected: str) -> None:
    result = replace(compared(0.03), tolerance=0.125)
    assert concluded(result, suspect("argument", ResultFact(difference, 0.02)))[0] == expected


def test_wide_rounding_does_not_excuse_an_argument_whose_effect_stands_out() -> None:
    result = replace(compared(0.05), tolerance=0.125)
    within = ResultFact(0.01, 0.02)
    assert concluded(result, suspect("argument", within))[0] == "diverged"
    assert concluded(result, suspect("structure", within))[0] == "harmless"


def test_what_one_side_does_alone_goes_before_gradients_that_are_missed() -> None:
    result = compared(math.inf, doubts=[suspect("structure")])
    assert concluded(result, suspect("missing_gradient"))[1] == ["structure", "missing_gradient"]
    assert concluded(result, suspect("missing_gradient", Because("frozen")))[1] == ["missing_gradient"]
