"""Tokens that go to another expert by rounding are nobody's fault; what goes wrong there for another reason is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from unit.diagnose.comparing import agrees, first, told
from unit.diagnose.dumps import Recording, Value
from unit.diagnose.recorded import Program, last_bits, of_programs, tensor

from msprobe.messages import said

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


def generation(token: int, rounds: bool = False, scale: float = 1.0, rows: float = 1.0) -> Program:
    """Two tokens of a model that is an embedding and a head. ``token``: what is chosen first; ``scale``: of what the
    head of the second pass gives; ``rows``: of the embedding.
    """

    def program(rec: Recording) -> None:
        table = tensor("table", 9, WIDTH, dtype="bfloat16", grad=False)
        table = table.of(table.array * np.float32(rows))
        ids = np.array([[4]])
        for number, chosen in enumerate((token, 3)):
            given = Value(ids, dtype="int64")
            with rec.module("embedding", "Embedding", [given]) as end:
                x = table.of(table.array[ids[0]])
                rec.call("Functional.embedding", [given, table], x)
                end(x)
            with rec.module("head", "Linear", [x]) as end:
                y = tensor(f"logits {ids[0]}", 1, WIDTH, dtype="bfloat16", grad=False)
                y = y.of(y.array * np.float32(scale if number else 1.0))
                y = last_bits(y) if rounds else y
                rec.call("Functional.linear", [x, tensor("w", WIDTH, WIDTH, dtype="bfloat16", grad=False)], y)
                end(y)
            ids = np.array([[chosen]])
            rec.call("Tensor.argmax", [y, -1], Value(ids, dtype="int64"))

    return program


def test_a_generation_that_goes_on_with_another_token_by_rounding_is_told_and_harmless(tmp_path: Path) -> None:
    verdict = of_programs(tmp_path, generation(7, rounds=True), generation(5))
    found = first(verdict, "harmless")
    assert (found.kind, found.entry) == ("choice", "Tensor.argmax.0.forward")
    assert (found.code, found.arguments["token"]) == ("D302", said("number-in-reference", 7, 5))


def test_another_token_from_the_same_values_is_not_rounding(tmp_path: Path) -> None:
    verdict = of_programs(tmp_path, generation(7), generation(5))
    assert ("computation", "Tensor.argmax.0.forward") in told(verdict)
    assert verdict.status == "diverged"


def test_with_the_same_tokens_the_second_pass_counts(tmp_path: Path) -> None:
    verdict = of_programs(tmp_path, generation(5, rounds=True, scale=3.0), generation(5))
    assert verdict.status == "diverged"
    assert told(verdict)[0] == ("computation", "Functional.linear.1.forward")
