"""A call that computes in another type because one side alone casts what it takes, and what only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.diagnose.comparing import agrees, told
from unit.diagnose.dumps import Recording, Value, rounded
from unit.diagnose.recorded import Program, of_programs, tensor


def turning(wide: bool) -> Program:
    """Queries that are turned in float32, or in bfloat16."""

    def program(rec: Recording) -> None:
        x = tensor("x", 8, 8, dtype="bfloat16")
        weight = tensor("w", 8, 8, dtype="bfloat16")
        for number in range(12):
            rec.call("Functional.linear", [x, weight], tensor(f"layer {number}", 8, 8, dtype="bfloat16"))
        query = tensor("q", 8, 8, dtype="bfloat16")
        rec.call("Functional.linear", [x, weight], query)
        if wide:
            cast = Value(query.array, grad=True)
            rec.call("Tensor.float", [query], cast)
            query = cast
        turned = query.of(rounded(query.array * query.array, query.dtype))
        rec.call("Tensor.__mul__", [query, query], turned)
        narrow = Value(rounded(turned.array, "bfloat16"), grad=True, dtype="bfloat16")
        rec.call("Tensor.to", [turned, "torch.bfloat16"], narrow)
        rec.call("Functional.linear", [narrow, weight], tensor("out", 8, 8, dtype="bfloat16"))

    return program


@pytest.mark.parametrize("wide", [True, False])
def test_a_cast_of_one_side_is_named(tmp_path: Path, wide: bool) -> None:
    verdict = of_programs(tmp_path, turning(wide), turning(not wide))
    side = "candidate" if wide else "reference"
    found = next((one for one in verdict.findings if one.entry == "Tensor.float.0.forward"), None)
    assert found is not None, told(verdict)
    assert found.kind == "dtype"
    assert found.code == "D215"
    assert (found.arguments["side"], found.arguments["call"]) == (side, "Tensor.float.0.forward")


def dropping(copies: bool) -> Program:
    """A dropout of nothing, which may give back its input: then its gradient is that of the call before."""

    def program(rec: Recording) -> None:
        rows = [tensor(f"row {number}", 6) for number in range(4)]
        stacked = rows[0].of([row.array for row in rows])
        stem = rec.call("Torch.stack", [rows], stacked)
        dropped = rec.call("Functional.dropout", [stacked, 0.0], stacked)
        loss = rec.call("Tensor.sum", [stacked], stacked.of(stacked.array.sum()))
        arriving = tensor("arriving", 4, 6, grad=False)
        rec.backward(loss, [stacked.of(1.0)], {"input.0": arriving})
        whole = {"input.0": arriving}
        apart = {f"input.0.{number}": arriving.of(arriving.array[number]) for number in range(4)}
        rec.backward(dropped, [arriving], whole if copies else apart)
        rec.backward(stem, [arriving], apart)

    return program


def test_gradients_of_the_call_before_are_not_taken_for_its_own(tmp_path: Path) -> None:
    verdict = of_programs(tmp_path, dropping(True), dropping(False))
    assert agrees(verdict), told(verdict)
