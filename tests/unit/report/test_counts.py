"""What was compared, in numbers: nothing it says contradicts the status."""

from __future__ import annotations

import pytest
from support.coded_texts import pieces_of
from unit.report.verdicts import finding, verdict

from msprobe.report.counts import counts


@pytest.mark.parametrize(
    ("summary", "name"),
    [
        ({"largest_effect": 1e-3, "rounding_tolerance": 1e-2}, "effect-at-most"),
        (
            {"largest_effect": 4e-2, "rounding_tolerance": 1e-2, "calls_explain_effect": True},
            "effect-explained-by-calls",
        ),
        ({"largest_effect": 1e-3, "rounding_tolerance": 1e-2, "calls_explain_effect": True}, "effect-at-most"),
    ],
)
def test_an_effect_that_calls_explain_is_not_measured_by_what_rounding_explains(
    summary: dict[str, object], name: str
) -> None:
    one = verdict(status="agree")
    one.summary.update(summary)
    assert name in pieces_of(counts(one)[-1])


@pytest.mark.parametrize(
    ("effect_on", "names"),
    [(["loss"], {"effect-none", "effect-on-loss"}), (["results"], {"effect-none", "effect-on-results"}), ([], set())],
)
def test_no_more_is_called_the_same_than_was_compared(effect_on: list[str], names: set[str]) -> None:
    one = verdict(finding(), status="agree")
    one.summary.update({"largest_effect": 0.0, "effect_on": effect_on})
    effects = {name for line in counts(one) for name in pieces_of(line) if name.startswith("effect-")}
    assert effects == names
