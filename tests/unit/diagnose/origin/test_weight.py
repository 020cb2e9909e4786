"""Parameters that look different because a call takes another one: where modules were not recorded (L1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.comparing import compare, first, told
from unit.diagnose.dumps import Recording, Value, drawn
from unit.diagnose.training import Plan

from msprobe.messages import said

FC = "blocks.{}.fc.weight"


def chain(folder: Path, order: str, weights: Callable[[str], np.ndarray]) -> Path:
    """A model of layers ``a``, ``b``, ``c``, called in ``order``; all of them are in the optimizer."""
    rec = Recording(digests=False)
    x = Value(drawn("x", 6, 8))
    parameters = {name: Value(weights(name), True) for name in "abc"}
    for name in order:
        array = np.tanh(x.array @ parameters[name].array.T).astype(np.float32)
        made = Value(array, True)
        rec.call("Functional.linear", [x, parameters[name]], made)
        x = made
    loss = Value(np.asarray(np.square(x.array).mean(), np.float32), True)
    rec.call("Tensor.mean", [x], loss)
    before = {
        f"{name}.weight": {"weight": one, "grad": Value(drawn(f"g {name}", 8, 8))} for name, one in parameters.items()
    }
    rec.optimizer("SGD", before, {name: {"weight": fields["weight"]} for name, fields in before.items()}, {"lr": 0.1})
    rec.write(folder / "step0" / "rank", level="L1")
    return folder


def verdict_of(tmp_path: Path, order: str, reference: str, **changed: Any) -> Any:
    from msprobe.diagnose import compare_runs

    def weights(name: str) -> np.ndarray:
        return drawn(changed.get(name, name), 8, 8)

    one = chain(tmp_path / "one", order, weights)
    return compare_runs(one, chain(tmp_path / "other", reference, lambda name: drawn(name, 8, 8)))


@pytest.mark.parametrize(("order", "reference"), [("ac", "abc"), ("abc", "ac")])
def test_a_layer_that_is_not_called_is_no_difference_of_weights(tmp_path: Path, order: str, reference: str) -> None:
    verdict = verdict_of(tmp_path, order, reference)
    assert verdict.status == "diverged"
    assert {finding.kind for finding in verdict.findings} == {"structure"}, told(verdict)


def test_layers_in_another_order_are_no_difference_of_weights(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, "bac", "abc")
    found = first(verdict)
    assert (found.kind, found.entry) == ("structure", "Functional.linear.0.forward")
    assert found.code == "D221"
    assert (found.arguments["candidate"], found.arguments["reference"]) == ('"b.weight"', '"a.weight"')
    assert "initial_weights" not in {finding.kind for finding in verdict.findings}


def test_weights_that_were_loaded_from_another_layer_are_named_by_their_own_name(tmp_path: Path) -> None:
    # c was loaded with what a has: by its values it is a.
    found = first(verdict_of(tmp_path, "abc", "abc", c="a"))
    assert (found.kind, found.where) == ("initial_weights", "c.weight")
    assert said("relative-difference", "at least") in found.message


def test_the_name_of_a_differing_weight_where_the_optimizer_tells_it(tmp_path: Path) -> None:
    verdict = compare(
        tmp_path, Plan(level="L1", weights={FC.format(1): lambda array: array * np.float32(1.1)}), Plan(level="L1")
    )
    assert first(verdict).where == FC.format(1)
