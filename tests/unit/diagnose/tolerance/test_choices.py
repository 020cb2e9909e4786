"""Tokens that go to another expert by rounding are nobody's fault; what goes wrong there for another reason is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from unit.diagnose.comparing import agrees, told
from unit.diagnose.dumps import Recording, Value
from unit.diagnose.recorded import Program, last_bits, of_programs, tensor

EXPERTS, WIDTH = 4, 6


def experts(flip: bool, rounds: bool = True, wrong: bool = False) -> Program:
    """A layer of experts. ``rounds``: what the router takes has other last bits; ``flip``: one token goes elsewhere;
    ``wrong``: the experts, which take the same rows, give something else.
    """

    def program(rec: Recording) -> None:
        x = tensor("tokens", 12, WIDTH, dtype="bfloat16")
        y = tensor("mixed", 12, WIDTH, dtype="bfloat16")
        rec.call("Functional.linear", [x, tensor("w", WIDTH, WIDTH, dtype="bfloat16")], last_bits(y) if rounds else y)
        y = last_bits(y) if rounds else y
        chances = y.of(np.abs(y.array[:, :EXPERTS]))
        rec.call("Torch.softmax", [y], chances)
        chosen = np.arange(12) % EXPERTS
        if flip:
            chosen[5] = 3
        index = Value(chosen, dtype="int64")
        rec.call("Torch.topk", [chances, 1], [chances.of(chances.array[:, 0]), index])
        hot = Value(np.eye(EXPERTS, dtype=np.int64)[chosen], dtype="int64")
        rec.call("Functional.one_hot", [index, EXPERTS], hot)
        share = Value(hot.array.astype(np.float32))
        rec.call("Tensor.float", [hot], share)
        rec.call("Tensor.sum", [share, 0], share.of(share.array.sum(0)))
        for number in range(EXPERTS):
            mask = Value(chosen == number, dtype="bool")
            rec.call("Tensor.__eq__", [index, number], mask)
            rows = Value(np.flatnonzero(chosen == number), dtype="int64")
            rec.call("Torch.where", [mask], rows)
            taken = y.of(y.array[chosen == number])
            rec.call("Tensor.__getitem__", [y, rows], taken)
            result = taken.of(taken.array * (9.0 if wrong else 1.0))
            rec.call("Functional.gelu", [taken], result)
        loss = y.array.mean() * (9.0 if wrong else 1.0)
        rec.call("Functional.mse_loss", [y, tensor("aim", 12, WIDTH)], Value(np.float32(loss), grad=True))

    return program


def test_a_token_that_rounding_sends_elsewhere_accuses_nobody(tmp_path: Path) -> None:
    verdict = of_programs(tmp_path, experts(flip=True), experts(flip=False, rounds=False))
    assert agrees(verdict), told(verdict)


def test_without_rounding_nothing_is_chosen_otherwise(tmp_path: Path) -> None:
    verdict = of_programs(tmp_path, experts(flip=True, rounds=False), experts(flip=False, rounds=False))
    assert ("computation", "Torch.topk.0.forward") in told(verdict)


@pytest.mark.parametrize("rounds", [True, False])
def test_experts_that_compute_something_else_are_told(tmp_path: Path, rounds: bool) -> None:
    verdict = of_programs(tmp_path, experts(False, rounds, wrong=True), experts(False, rounds=False))
    assert verdict.status == "diverged"
    assert verdict.findings[0].entry == "Functional.gelu.0.forward"
