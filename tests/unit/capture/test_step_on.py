"""What the user says ends a step."""

from __future__ import annotations

import pytest
from support.row_by_row import for_each

from msprobe.capture.step_on import StepOn
from msprobe.errors import InvalidInputError


@for_each(
    ("text", "kind", "name"),
    [
        ("backward", "backward", ""),
        ("optimizer:Adam", "optimizer", "Adam"),
        ("optimizer:torch.optim.Adam", "optimizer", "torch.optim.Adam"),
        ("optimizer:0", "optimizer", "0"),
        ("call:train_step", "call", "train_step"),
        ("call:package.module.Trainer.step", "call", "package.module.Trainer.step"),
    ],
)
def test_a_rule_is_read_and_written(text: str, kind: str, name: str) -> None:
    found = StepOn.parse(text)
    assert (found.kind, found.name, str(found)) == (kind, name, text)


@for_each("text", ["", "step", "backward:", "optimizer", "optimizer:", "call:", "call:0", "call:a.", "call:a b"])
def test_anything_else_is_an_error_that_lists_what_is_possible(text: str) -> None:
    with pytest.raises(InvalidInputError, match="backward, optimizer:NAME or call:FUNCTION"):
        StepOn.parse(text)
