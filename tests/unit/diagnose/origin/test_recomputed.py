"""What a recomputation begins with: in one run that has the same bits as in its forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.diagnose.comparing import agrees, compare, edited, first
from unit.diagnose.training import Plan

#: The first call of the last of two blocks, run again, behind those of the forward pass and the head.
AGAIN = "Functional.linear.3.forward"


def written_to(data: dict[str, Any]) -> None:
    """What was kept for it is a hundredth larger, which types with few digits hardly show."""
    leaf = data[AGAIN]["input_args"][0]
    leaf.update({key: leaf[key] * 1.01 for key in ("Max", "Min", "Mean", "Norm")})
    leaf.pop("digest", None)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_recomputation_that_begins_with_something_else_is_named(tmp_path: Path, dtype: str) -> None:
    more: dict[str, Any] = {"recompute": True, "dtype": dtype, "digests": False}
    found = first(compare(tmp_path, Plan(edit=edited(written_to), **more), Plan(**more)))
    assert (found.kind, found.entry, found.harmless) == ("recompute", AGAIN, False)
    assert found.code == "D304"


def test_what_both_write_to_is_no_difference(tmp_path: Path) -> None:
    """The running averages of a norm, say."""
    plan = Plan(edit=edited(written_to), recompute=True, dtype="bfloat16", digests=False)
    assert agrees(compare(tmp_path, plan, plan))
