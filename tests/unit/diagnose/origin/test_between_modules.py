"""Where a tensor that differs comes from, if its maker was not recorded, or its values are those of many others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from unit.diagnose.comparing import first, told
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict
from msprobe.messages import code_of, said
from msprobe.report.advice import advice_on


def squared(array: np.ndarray) -> Value:
    return Value(np.asarray(np.square(array).mean(), np.float32), True)


def constants(folder: Path, api: str, value: float) -> Path:
    rec = Recording(digests=False)
    x, w = Value(drawn("x", 8, 4)), Value(drawn("w", 1, 4), True)
    aim = Value(np.full((8, 1), value, np.float32))
    rec.call(api, [8, 1], aim)
    y = Value(x.array @ w.array.T, True)
    with rec.module("fc", "Linear", [x], {"weight": w}) as end:
        rec.call("Functional.linear", [x, w], y)
        end(y)
    rec.call("Functional.mse_loss", [y, aim], squared(y.array - aim.array))
    rec.write(folder / "step0" / "rank")
    return folder


@pytest.mark.parametrize(("mine", "theirs"), [("Torch.zeros", "Torch.ones"), ("Torch.ones", "Torch.zeros")])
def test_labels_of_one_number_are_led_to_the_call_that_makes_them(tmp_path: Path, mine: str, theirs: str) -> None:
    dumps = [constants(tmp_path / api, api, float(api == "Torch.ones")) for api in (mine, theirs)]
    verdict = compare_runs(*dumps)
    found = first(verdict)
    assert (found.kind, found.entry) == ("structure", f"{mine}.0.forward"), told(verdict)
    calls = {"call": f"{mine}.0.forward", "other_call": f"{theirs}.0.forward"}
    assert code_of(found.message)[1].startswith("replaced-call")
    assert all(call in found.message for call in calls.values())


def modules(folder: Path, factor: float, inside: bool = False, of_grad: bool = True) -> Path:
    """Two layers at level L0; between them the model, or the block around the second, multiplies."""
    rec = Recording(digests=False)
    x, w = Value(drawn("x", 8, 4)), Value(drawn("w", 4, 4), True)
    with rec.module("a", "Linear", [x], {"weight": w}) as end:
        end(h := Value(x.array @ w.array.T, of_grad))
    h = h if inside else h.of(h.array * np.float32(factor))
    with rec.module("block", "Block", [h]) as end_block:
        with rec.module("block.n", "LayerNorm", [h]) as end:
            end(n := h.of(np.tanh(h.array)))
        n = n.of(n.array * np.float32(factor)) if inside else n
        with rec.module("block.b", "Linear", [n], {"weight": w}) as end:
            end(y := n.of(n.array @ w.array.T))
        end_block(y)
    rec.write(folder / "step0" / "rank", level="L0")
    return folder


def between(tmp_path: Path, **more: bool) -> Verdict:
    return compare_runs(modules(tmp_path / "a", 1.1, **more), modules(tmp_path / "b", 0.9, **more))


def test_what_the_model_calculates_between_its_modules_is_no_data(tmp_path: Path) -> None:
    verdict = between(tmp_path)
    found = first(verdict)
    assert found.kind == "computation", told(verdict)
    model = "the forward pass of the model itself"
    assert said("between-modules-of", model) in found.message
    assert advice_on(found).startswith("Record level mix")


def test_what_a_block_calculates_between_its_modules_is_told_of_the_block(tmp_path: Path) -> None:
    found = first(between(tmp_path, inside=True))
    assert (found.kind, found.entry) == ("computation", "Module.block.Block.forward.0")


def test_what_may_come_from_outside_is_told_as_both(tmp_path: Path) -> None:
    found = first(between(tmp_path, of_grad=False))
    assert found.kind == "data"
    assert said("or-between-modules") in found.message
