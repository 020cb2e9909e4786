"""Which steps of optimizers make one step of the training."""

from __future__ import annotations

from typing import Any

import pytest

from msprobe.capture.optimizer_turns import OptimizerTurns, Outcome


class Stepping:
    """An optimizer of parameters with these numbers."""

    def __init__(self, name: str, *changes: int) -> None:
        self.name = name
        self.changes = frozenset(changes)


A, B, FROZEN = Stepping("A", 1), Stepping("B", 2), Stepping("frozen")
OTHER = Stepping("other")


def turns_of(given: list[Stepping], exist: list[Stepping]) -> OptimizerTurns:
    return OptimizerTurns(given, lambda optimizer: optimizer.changes, lambda: [one for one in exist if one.changes])


def steps_of(turns: OptimizerTurns, *made: tuple[Stepping, Outcome]) -> list[str]:
    """What ends each step: the name of the optimizer behind whose step it is over, or before whose step it was."""
    ends: list[str] = []
    for optimizer, outcome in made:
        if outcome != "skipped" and turns.begins_next(optimizer) and turns.begin_next():
            ends.append(f"before {optimizer.name}")
        progress = turns.note(optimizer, outcome)
        if progress != "incomplete":
            ends.append(f"{progress}: {optimizer.name}")
    return ends


@pytest.mark.parametrize("are_given", [True, False])
@pytest.mark.parametrize(
    ("made", "ends"),
    [
        ([(A, "taken")] * 3, ["before A", "complete: A", "complete: A"]),
        ([(A, "taken"), (B, "taken")] * 2, ["complete: B"] * 2),
        ([(B, "taken"), (A, "taken")] * 2, ["complete: A"] * 2),
        # A critic that is trained three times for each step of its generator.
        (
            ([(A, "taken")] * 3 + [(B, "taken")]) * 2,
            ["before A", "complete: A", "complete: A", "complete: A", "before A", "complete: A"],
        ),
        # Scalers decide for each optimizer.
        ([(A, "skipped"), (B, "taken"), (A, "taken"), (B, "taken")], ["complete: B"] * 2),
        ([(A, "taken"), (B, "skipped"), (A, "taken"), (B, "taken")], ["complete: B"] * 2),
        ([(A, "skipped"), (B, "skipped"), (A, "taken"), (B, "taken")], ["left out: B", "complete: B"]),
        ([(A, "skipped"), (A, "taken"), (A, "taken")], ["complete: A", "complete: A"]),
        ([(A, "taken"), (B, "raised"), (A, "taken"), (B, "taken")], ["left out: B", "complete: B"]),
        ([(A, "raised"), (A, "taken"), (B, "taken")], ["left out: A", "complete: B"]),
    ],
)
def test_a_step_is_over_when_all_have_stepped_or_one_steps_again(made: Any, ends: list[str], are_given: bool) -> None:
    assert steps_of(turns_of([A, B] if are_given else [], [A, B]), *made) == ends


def test_whoever_cannot_end_a_step_before_the_next_ends_it_behind_that() -> None:
    turns = turns_of([A, B], [])
    assert [turns.note(A, "taken") for _ in range(3)] == ["incomplete", "complete", "complete"]


def test_one_that_changes_nothing_more_is_not_waited_for() -> None:
    assert steps_of(turns_of([A, FROZEN], []), (A, "taken")) == ["complete: A"]
    both = Stepping("both", 1, 2)
    assert steps_of(turns_of([], [A, B, both]), (both, "taken")) == ["complete: both"]


def test_one_that_steps_once_for_each_group_of_parameters() -> None:
    """DeepSpeed's does, with other parameters each time."""
    turns = turns_of([A, A, A], [])
    assert steps_of(turns, *[(A, "taken")] * 6) == ["complete: A", "complete: A"]
    assert steps_of(turns, (A, "taken"), (A, "raised"), *[(A, "taken")] * 3) == ["left out: A", "complete: A"]


def test_one_that_comes_later_takes_part_from_then_on() -> None:
    exist = [A]
    turns = turns_of([], exist)
    assert steps_of(turns, (A, "taken"), (A, "taken")) == ["complete: A"] * 2
    exist.append(B)
    assert steps_of(turns, *[(B, "taken"), (A, "taken")] * 2) == ["complete: A"] * 2


def test_which_optimizers_are_of_the_training() -> None:
    given, open_to_all = turns_of([A], []), turns_of([], [A, B])
    assert [given.has(one) for one in (A, B, OTHER)] == [True, False, False]
    assert [open_to_all.has(one) for one in (A, B, OTHER)] == [True, True, False]


def test_a_step_has_begun_when_some_have_stepped() -> None:
    turns = turns_of([A, B], [])
    assert not turns.has_begun
    turns.note(A, "skipped")
    assert not turns.has_begun
    turns.note(B, "taken")
    turns.note(A, "taken")
    assert turns.has_begun
