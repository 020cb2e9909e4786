from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from support.row_by_row import for_each

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.steps.argument_names import _NAMES, argument_name


def event(name: str) -> Any:
    parts = read_name(name)
    return SimpleNamespace(name=name, stem=parts.stem, parts=parts)


@for_each(
    ("entry", "slot", "expected"),
    [
        ("Functional.batch_norm.0.forward", "input.7", "input.7 (eps)"),
        ("Functional.dropout.3.forward", "input.2", "input.2 (training)"),
        ("Functional.dropout.3.forward", "input.p", "input.p"),
        ("Functional.dropout.3.forward", "input.9", "input.9"),
        ("Functional.unheard_of.3.forward", "input.1", "input.1"),
        # The function of the bare framework takes weight and bias before.
        ("Torch.batch_norm.0.forward", "input.3", "input.3 (running_mean)"),
        ("Functional.batch_norm.0.forward", "input.3", "input.3 (weight)"),
        ("Tensor.clamp_.0.forward", "input.2", "input.2 (max)"),
        # It is known by the word of another function, whose arguments are others.
        ("Tensor.view.0.forward", "input.1", "input.1"),
    ],
)
def test_what_is_given_by_position_has_a_name(entry: str, slot: str, expected: str) -> None:
    assert argument_name(event(entry), slot) == expected


def test_the_names_are_those_of_torch() -> None:
    functional = pytest.importorskip("torch.nn.functional")
    for name, words in _NAMES.items():
        try:
            parameters = list(inspect.signature(getattr(functional, name)).parameters)
        except (ValueError, TypeError):
            continue  # built in, without a signature
        if parameters[:1] != ["args"]:
            assert parameters[: len(words)] == words, name
