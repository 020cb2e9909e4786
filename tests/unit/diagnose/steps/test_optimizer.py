from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.hand_made import tensor, write_part
from support.row_by_row import for_each

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.timeline import Event

NAME = "Optimizer.AdamW.0.forward"


def step(**record: Any) -> Event:
    return Event(NAME, read_name(NAME), record, "optimizer")


def group(*params: str, **settings: Any) -> dict[str, Any]:
    return {"params": list(params), **settings}


def test_settings_hold_for_the_parameters_of_their_group() -> None:
    found = optimizer.settings_by_parameter(step(groups=[group("a", "b", lr=1), group("c", lr=2)]))
    assert found == {"a": {"lr": 1}, "b": {"lr": 1}, "c": {"lr": 2}}


@pytest.mark.parametrize("record", [{}, {"groups": None}, {"groups": [7]}, {"groups": [{"params": None}]}])
def test_a_step_without_groups_has_no_settings(record: dict[str, Any]) -> None:
    assert optimizer.settings_by_parameter(step(**record)) == {}


def test_changed_settings_are_told_by_field() -> None:
    one = step(groups=[group("a", "b", lr=1, betas=[0.9, 0.95], foreach=True)])
    other = step(groups=[group("b", lr=2, betas=[0.9, 0.95], foreach=False), group("a", "c", lr=1, eps=3)])
    assert optimizer.changed_settings(one, other) == {
        "eps": [("a", None, 3)],
        "lr": [("b", 1, 2)],
        "betas": [("a", [0.9, 0.95], None)],
    }


def test_what_a_schedule_notes_is_told_where_the_setting_that_it_makes_agrees() -> None:
    one = [group("a", lr=1, initial_lr=1, max_momentum=2), group("b", lr=1, initial_lr=1, max_momentum=1)]
    other = [group("a", lr=2, initial_lr=2, max_momentum=1), group("b", lr=1, initial_lr=2, max_momentum=1)]
    assert optimizer.changed_settings(step(groups=one), step(groups=other)) == {
        "lr": [("a", 1, 2)],
        "initial_lr": [("b", 1, 2)],
        "max_momentum": [("a", 2, 1)],
    }


@for_each(
    ("leaf", "value"),
    [
        ({"type": "float", "value": 0.1}, 0.1),
        ([{"type": "float", "value": 0.9}, {"type": "float", "value": 0.95}], [0.9, 0.95]),
        (tensor(value=0.1), 0.1),
        (0.1, 0.1),
        (None, None),
        ({"type": "function"}, {"type": "function"}),
    ],
)
def test_the_value_of_a_setting(leaf: Any, value: Any) -> None:
    assert optimizer.value_of(leaf) == value


def test_what_a_step_takes_and_makes() -> None:
    before, after = {"a": {"weight": tensor(2)}}, {"a": {"weight": tensor(2, value=2.0)}}
    event = step(input_kwargs=before, output=[after])
    assert optimizer.parameters_of(event) == before
    assert optimizer.results_of(event) == after
    assert optimizer.results_of(step(output=after)) == after
    assert (
        optimizer.results_of(step(output=[])) == optimizer.results_of(step()) == optimizer.parameters_of(step()) == {}
    )


def test_differences_begin_with_weight_and_gradient(tmp_path: Path) -> None:
    comparer = Comparer(write_part(tmp_path / "a", {}), write_part(tmp_path / "b", {}))
    fields = ("exp_avg", "grad", "weight")
    one = {"a": {field: tensor(2, value=1.0) for field in fields}, "b": {"weight": tensor(2)}}
    other = {"a": {field: tensor(2, value=2.0) for field in fields}, "c": {"weight": tensor(2)}}
    found = [(name, field, one.what) for name, field, one in optimizer.differences(comparer, one, other)]
    assert found == [("a", "weight", "value"), ("a", "grad", "value"), ("a", "exp_avg", "value")]
