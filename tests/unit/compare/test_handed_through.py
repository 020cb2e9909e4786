"""A gradient that is that of the call before is no fault of the call that only gave its argument back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.hand_made import backward, call, tensor, write_part

from msprobe.compare.comparison import RowComparison, compare_parts
from msprobe.compare.first_difference import calls_of
from msprobe.diagnose import compare_runs
from msprobe.store.handed_through import HANDED_THROUGH

NOTED = {HANDED_THROUGH: {"input.0": "output.0"}}
MAKER, IDLE = "Torch.matmul.0", "Tensor.contiguous.0"


def step(wrong: float, marked: bool) -> dict[str, Any]:
    """A product whose result is given back by the next call; its gradients are off by a factor of ``wrong``."""
    weight = tensor(2, 2, value=3.0, requires_grad=True)
    product, total = tensor(2, 2, value=5.0, requires_grad=True), tensor(value=20.0, requires_grad=True)
    gone = [tensor(2, 2, value=7.0 * wrong), tensor(2, 2, value=9.0 * wrong)]
    more = {"msprobe": NOTED} if marked else {}
    return {
        f"{MAKER}.forward": call(tensor(2, 2, value=2.0, requires_grad=True), weight, out=product),
        f"{IDLE}.forward": {**call(product, out=product), **more},
        "Tensor.sum.0.forward": call(product, out=total),
        "Tensor.sum.0.backward": {"input": [tensor(value=1.0)], "output": [tensor(2, 2, value=1.0)]},
        f"{IDLE}.backward": {
            "input": [tensor(2, 2, value=1.0)],
            "output": gone,
            **(NOTED if marked else {}),
        },
        f"{MAKER}.backward": {**backward(*gone), "input": [tensor(2, 2, value=1.0)]},
    }


def compared(folder: Path, marked: bool) -> RowComparison:
    parts = [
        write_part(folder / name / "step0" / "rank", step(wrong, marked))
        for name, wrong in (("own", 4.0), ("other", 1.0))
    ]
    return compare_parts(*parts)


@pytest.mark.parametrize("marked", [True, False])
def test_the_first_difference_of_a_rank_is_not_at_it(marked: bool, tmp_path: Path) -> None:
    differing = [one.name for one in calls_of(compared(tmp_path, marked)) if one.differs]

    assert f"{MAKER}.backward" in differing
    assert (f"{IDLE}.backward" in differing) is not marked


def test_the_verdict_names_the_call_that_computed_it(tmp_path: Path) -> None:
    compared(tmp_path, True)
    verdict = compare_runs(tmp_path / "own", tmp_path / "other")

    (finding,) = verdict.findings
    assert finding.entry == f"{MAKER}.backward"
