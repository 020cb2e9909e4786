"""What stands in memory that nobody has written is no data: not where it is seen, copied or computed with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.cli.summary import summarise
from msprobe.diagnose import compare_runs
from msprobe.diagnose.check import check_run
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.store.reader import open_dump

Call = tuple[str, list[Any], Any]


def write(folder: Path, calls: list[Call], level: str = "L1", digests: bool = True) -> Path:
    rec = Recording(digests=digests)
    for api, given, out in calls:
        rec.call(api, given, out)
    rec.write(folder / "step0" / "rank", level=level)
    return folder


def unset(folder: Path) -> dict[str, list[str]]:
    timeline = Timeline(open_dump(folder).part())
    slots = {event.name: (*event.inputs(), *event.outputs()) for event in timeline}
    return {name: [slot for slot, leaf in found if _is_unset(leaf)] for name, found in slots.items()}


def _is_unset(leaf: Any) -> bool:
    return isinstance(leaf, dict) and leaf.get("unset", False)


def garbage(seed: str, count: int = 8) -> Value:
    values = drawn(seed, count) * 1e30
    values.flat[0] = np.nan
    return Value(values)


def test_copies_of_it_and_what_is_computed_element_by_element_are_none_either(tmp_path: Path) -> None:
    whole, other, sound = garbage("a"), garbage("b"), Value(drawn("x", 8))
    calls: list[Call] = [
        ("Torch.empty", [8], whole),
        ("Tensor.clone", [whole], whole),
        ("Tensor.__mul__", [whole, sound], other),
        ("Torch.sin", [sound], sound),
        ("Tensor.neg", [other], garbage("c")),
        ("Torch.matmul", [other, sound], garbage("d")),
        ("Torch.zeros_like", [other], Value(np.zeros(8, np.float32))),
    ]
    found = unset(write(tmp_path, calls))
    assert found["Tensor.clone.0.forward"] == ["input.0", "output.0"]
    assert found["Tensor.__mul__.0.forward"] == ["input.0", "output.0"]
    assert found["Torch.sin.0.forward"] == []
    assert found["Tensor.neg.0.forward"] == ["input.0", "output.0"]
    assert found["Torch.matmul.0.forward"] == ["input.0"]
    assert found["Torch.zeros_like.0.forward"] == ["input.0"]


@pytest.mark.parametrize("digests", [True, False])
def test_a_view_of_memory_that_c_allocated_is_none_until_it_is_written(tmp_path: Path, digests: bool) -> None:
    """Level L2 does not see it allocated; nobody reads a view of it before a collective fills it."""
    whole, part, sent, got = garbage("a"), garbage("b", 4), Value(drawn("s", 4)), Value(drawn("g", 8))
    calls: list[Call] = [
        ("Aten.split", [whole, 4], part),
        ("Ops.c10d__allgather_base_", [whole, sent], None),
        ("Aten.slice", [got, 0, 0, 4], Value(drawn("h", 4))),
        ("Aten.mul", [Value(drawn("h", 4)), sent], Value(drawn("m", 4))),
        ("Aten.split", [got, 2], Value(drawn("unused", 4))),
    ]
    found = unset(write(tmp_path / "L2", calls, "L2", digests))
    assert found["Aten.split.0.forward"] == ["input.0", "output.0"]
    assert found["Aten.slice.0.forward"] == [], "it is read"
    assert found["Ops.c10d__allgather_base_.0.forward"] == ["input.0"]
    assert unset(write(tmp_path / "L1", calls, "L1", digests))["Aten.split.0.forward"] == []


def test_a_stale_buffer_that_holds_what_is_read_later_is_still_none(tmp_path: Path) -> None:
    stale, sent = Value(drawn("weights", 8)), Value(drawn("s", 4))
    calls: list[Call] = [
        ("Aten.view", [stale], stale),
        ("Ops.c10d__allgather_base_", [stale, sent], None),
        ("Aten.mul", [stale, sent], Value(drawn("m", 8))),
    ]
    assert unset(write(tmp_path, calls, "L2"))["Aten.view.0.forward"] == ["input.0", "output.0"]


def run(folder: Path, seed: str, result: Value, read: str = "Torch.matmul") -> Path:
    """Takes memory, looks at it, computes with it, and goes on with what ``result`` is."""
    whole, sound = garbage(seed), Value(drawn("x", 8))
    calls: list[Call] = [
        ("Torch.empty", [8], whole),
        ("Tensor.clone", [whole], whole),
        (read, [whole, sound], garbage(f"{seed}2")),
        ("Tensor.masked_fill", [garbage(f"{seed}2"), sound], result),
        ("Torch.sin", [result], Value(np.sin(result.array))),
    ]
    return write(folder, calls)


def test_two_runs_that_mask_it_away_agree(tmp_path: Path) -> None:
    result = Value(drawn("r", 8))
    one, other = run(tmp_path / "a", "a", result), run(tmp_path / "b", "b", result)
    verdict = compare_runs(one, other)
    assert (verdict.status, verdict.findings) == ("agree", ())
    assert check_run(one).findings == ()


def test_a_nan_of_it_that_reaches_the_end_is_told_as_that(tmp_path: Path) -> None:
    found = check_run(run(tmp_path, "a", garbage("r")))
    assert found.findings[0].code == "C108"
    assert found.findings[0].where == "Torch.matmul.0.forward"


def test_summary_counts_no_nan_of_it(tmp_path: Path) -> None:
    whole = garbage("a")
    calls: list[Call] = [("Torch.empty", [8], whole), ("Distributed.recv", [whole, 0], Value(drawn("x", 8)))]
    assert summarise(open_dump(write(tmp_path / "a", calls)).part()).not_finite == 0
    calls.append(("Torch.matmul", [Value(drawn("x", 8))], garbage("b")))
    found = summarise(open_dump(write(tmp_path / "b", calls)).part())
    assert (found.not_finite, found.first_not_finite) == (1, "Torch.matmul.0.forward output.0")
