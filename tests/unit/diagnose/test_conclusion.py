from __future__ import annotations

from typing import Any

import pytest

from msprobe.diagnose.conclusion import Compared, conclude
from msprobe.diagnose.effect import Reach
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.scene import Suspect

ALLOWED = 1e-6


def compared(reach: float, **more: Any) -> Compared:
    return Compared(
        step=0, rank="rank", suspects=[], reach=Reach(reach), tolerance=ALLOWED, summary={"pairs": 1}, notes=[],
        collectives=[], left=({}, {}), **more,
    )  # fmt: skip


def status(result: Compared, later: float = 0.0, goes_on: bool = True, **more: Any) -> str:
    finding = Finding("structure", "the candidate alone calls Torch.abs.0.forward", "Torch.abs.0.forward", rank="rank")
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
