"""Tensors that one side alone broadcasts against each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.row_by_row import for_each
from unit.diagnose.comparing import agrees, told
from unit.diagnose.dumps import Recording
from unit.diagnose.recorded import Program, of_programs, tensor

from msprobe.diagnose.origin.broadcast import _is_outer
from msprobe.messages import said


def loss(*shape: int, squeezes: bool = False) -> Program:
    def program(rec: Recording) -> None:
        value, aim = tensor("value", 4, 1), tensor("aim", 4, grad=False)
        given = value.of(value.array.reshape(shape))
        if squeezes:
            rec.call("Tensor.squeeze", [value, -1], given)
        spread = np.broadcast_arrays(given.array, aim.array)
        rec.call("Functional.mse_loss", [given, aim], value.of(np.mean((spread[0] - spread[1]) ** 2)))

    return program


@pytest.mark.parametrize("turned", [False, True])
def test_a_loss_of_a_column_and_a_row(tmp_path: Path, turned: bool) -> None:
    programs = [loss(4, 1), loss(4, squeezes=True)]
    verdict = of_programs(tmp_path, *(programs[::-1] if turned else programs))
    assert ("argument", "Functional.mse_loss.0.forward") in told(verdict)
    found = next(one for one in verdict.findings if one.kind == "argument")
    side = "reference" if turned else "candidate"
    assert (found.code, found.arguments["side"]) == ("D207", side)
    assert found.evidence["reference" if turned else "candidate"] == [[4, 1], [4]]


def test_both_sides_alike(tmp_path: Path) -> None:
    assert agrees(of_programs(tmp_path, loss(4, 1), loss(4, 1)))


def test_a_call_of_one_side_that_is_seen_in_a_broadcast_tells_the_shapes(tmp_path: Path) -> None:
    verdict = of_programs(tmp_path, loss(4, squeezes=True), loss(4, 1))
    found = next(one for one in verdict.findings if one.kind == "structure")
    assert said("tensors-of-shapes", "[4] and [4]", "[4, 1] and [4]") in found.message


@for_each(
    ("shapes", "expected"),
    [
        ([(4, 1), (4,)], True),
        ([(2, 3), (2, 3)], False),
        ([(2, 3), (3,)], False),
        ([(2, 1, 3), (4, 1)], True),
        ([(), (3,)], False),
        ([(3,)], False),
    ],
)
def test_which_shapes_are_broadcast_against_each_other(shapes: list[tuple[int, ...]], expected: bool) -> None:
    assert _is_outer(shapes) is expected
