"""What is asked of a step for each call is looked up: nothing goes through the whole step again for every finding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.training import Plan, train

from msprobe.diagnose import compare_runs
from msprobe.diagnose.check import check_run
from msprobe.diagnose.effect.states import first_changes, is_changed_before
from msprobe.diagnose.steps.timeline import Event, Timeline

BLOCKS = 10


def off(array: Any) -> Any:
    return np.asarray(array) * np.float32(1.5)


def sites(kind: str, count: int) -> dict[str, Any]:
    """A plan with so many blocks at fault."""
    blocks = range(count)
    return {
        "gradients of parameters": {"parameter_gradients": {f"blocks.{block}.fc.weight": off for block in blocks}},
        "results": {"results": {f"blocks.{block}.tanh": off for block in blocks}},
        "gradients": {"results": {f"blocks.{block}.linear.backward": off for block in blocks}},
        "lone calls": {"left_out": frozenset(f"blocks.{block}.dropout" for block in blocks)},
        "arguments": {"arguments": {f"blocks.{block}.mul": {1: 0.25} for block in blocks}},
    }[kind]


@pytest.fixture
def gone_through(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events of timelines were gone through, in all."""
    found = [0]

    def counted(self: Timeline) -> Iterator[Event]:
        found[0] += len(self.events)
        return iter(self.events)

    monkeypatch.setattr(Timeline, "__iter__", counted)
    return found


@pytest.mark.parametrize("turned", [False, True], ids=["candidate", "reference"])
@pytest.mark.parametrize("kind", ["gradients of parameters", "results", "gradients", "lone calls", "arguments"])
def test_many_faults_need_no_more_passes_over_the_step_than_two(
    tmp_path: Path, gone_through: list[int], kind: str, turned: bool
) -> None:
    healthy = train(tmp_path / "healthy", Plan(blocks=BLOCKS))
    passes = []
    for count in (2, BLOCKS):
        one = train(tmp_path / str(count), Plan(blocks=BLOCKS, **sites(kind, count)))
        gone_through[0] = 0
        verdict = compare_runs(*((healthy, one) if turned else (one, healthy)))
        assert verdict.status == "diverged"
        calls = sum(verdict.summary[key] for key in ("pairs", "candidate_only", "reference_only"))
        passes.append(gone_through[0] / calls)
    assert passes[1] <= passes[0] + 3


def test_checks_go_through_a_step_as_often_however_long_it_is(tmp_path: Path, gone_through: list[int]) -> None:
    passes = []
    for blocks in (2, 3 * BLOCKS):
        one = train(tmp_path / str(blocks), Plan(blocks=blocks))
        gone_through[0] = 0
        passes.append(gone_through[0] / check_run(one).summary["records"])
    assert passes[1] <= passes[0] + 1


def test_the_optimizer_of_a_call_is_the_next_that_steps(tmp_path: Path) -> None:
    from msprobe.store.reader import open_dump

    timeline = Timeline(open_dump(train(tmp_path)).part())
    (step,) = timeline.optimizers
    assert timeline.optimizer_after(timeline.events[0]) is timeline.optimizer_after(step) is step
    first = next(event for event in timeline if event.direction == "backward")
    assert timeline.first_backward == first.index
    timeline.leave_out({step, timeline.events[0]})
    assert timeline.optimizers == []
    assert timeline.optimizer_after(timeline.events[0]) is None
    assert timeline.events[timeline.first_backward] is first
    assert first_changes(timeline) == {}
    assert not is_changed_before(first, {})
