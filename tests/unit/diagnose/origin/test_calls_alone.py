from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.comparing import agrees, compare, first, told
from unit.diagnose.dumps import Recording, Value
from unit.diagnose.training import Plan

from msprobe.messages import said

TANH = "blocks.1.tanh"


def calling(api: str, change: Any = np.asarray, *arguments: Any) -> Any:
    """For :attr:`Plan.before`: one more call, which ``change`` is the effect of."""

    def before(rec: Recording, x: Value) -> Value:
        out = x.of(change(x.array))
        rec.call(api, [x, *arguments], out)
        return out

    return before


def half(array: np.ndarray) -> np.ndarray:
    return array * np.float32(0.5)


class TestOneCallMore:
    @pytest.mark.parametrize("more", [{}, {"digests": False}, {"values": True}, {"level": "L1"}, {"ours": False}])
    def test_that_changes_what_follows(self, tmp_path: Path, more: dict[str, Any]) -> None:
        verdict = compare(tmp_path, Plan(before={TANH: calling("Torch.exp", np.exp)}, **more), Plan(**more))
        found = first(verdict)
        assert told(verdict) == [("structure", "Torch.exp.0.forward")]
        assert found.message.startswith(
            said("extra-calls", "Torch.exp.0.forward") + said("so-differs", "input.0", "Torch.tanh.1.forward", "")
        )
        assert found.evidence["candidate_alone"] == ["Torch.exp.0.forward"]
        assert (verdict.summary["candidate_only"], verdict.summary["reference_only"]) == (1, 0)

    @pytest.mark.parametrize("api", ["Tensor.clone", "Torch.tanh", "Tensor.contiguous", "Tensor.detach"])
    def test_that_changes_nothing(self, tmp_path: Path, api: str) -> None:
        verdict = compare(tmp_path, Plan(before={"blocks.1.dropout": calling(api)}))
        assert agrees(verdict)
        assert verdict.summary["candidate_only"] == 1

    def test_of_a_name_that_others_have(self, tmp_path: Path) -> None:
        """All later calls of that name have other numbers; none of them is doubted."""
        verdict = compare(tmp_path, Plan(before={TANH: calling("Tensor.__mul__", half, 0.5)}))
        assert told(verdict) == [("structure", "Tensor.__mul__.1.forward")]
        assert verdict.summary["reference_only"] == 0

    def test_that_the_reference_makes(self, tmp_path: Path) -> None:
        verdict = compare(tmp_path, Plan(left_out=frozenset(["blocks.1.mul"])))
        found = first(verdict)
        assert told(verdict) == [("structure", "Tensor.__mul__.1.forward")]
        assert found.evidence["side"] == "reference"
        assert found.evidence["reference_alone"] == ["Tensor.__mul__.1.forward"]
        assert "(2 times as large)" in found.message
        assert verdict.summary["reference_only"] == 2, "the call and its backward call"


def test_several_calls_in_a_row_are_told_together(tmp_path: Path) -> None:
    def before(rec: Recording, x: Value) -> Value:
        return calling("Torch.exp", np.exp)(rec, calling("Torch.sin", np.sin)(rec, x))

    verdict = compare(tmp_path, Plan(before={TANH: before}))
    assert told(verdict) == [("structure", "Torch.sin.0.forward")]
    assert first(verdict).evidence["candidate_alone"] == ["Torch.sin.0.forward", "Torch.exp.0.forward"]


def test_calls_instead_of_others(tmp_path: Path) -> None:
    plans = [
        Plan(before={TANH: calling(api, change)}) for api, change in (("Torch.exp", np.exp), ("Torch.sin", np.sin))
    ]
    verdict = compare(tmp_path, *plans)
    assert told(verdict) == [("structure", "Torch.exp.0.forward")]
    assert said("replaced-calls", "Torch.exp.0.forward", "Torch.sin.0.forward") in (first(verdict).message)


@pytest.mark.parametrize(
    ("site", "api"),
    [("blocks.1.mul", "Torch.mul"), ("blocks.1.add", "Tensor.add_"), ("blocks.1.add", "Tensor.__radd__")],
)
def test_the_same_calculation_under_another_name(tmp_path: Path, site: str, api: str) -> None:
    verdict = compare(tmp_path, Plan(renamed={site: api}))
    assert agrees(verdict)
    assert (verdict.summary["candidate_only"], verdict.summary["reference_only"]) == (0, 0)


def test_a_call_that_only_moves_is_blamed_for_the_smallest_difference(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(before={TANH: calling("Torch.roll", lambda a: np.roll(a, 1, axis=0))}))
    assert told(verdict)[0] == ("structure", "Torch.roll.0.forward")
    first(verdict)


def test_a_cast_on_one_side_is_a_matter_of_types(tmp_path: Path) -> None:
    def cast(rec: Recording, x: Value) -> Value:
        wide = Value(x.array, x.grad, "float64")
        rec.call("Tensor.double", [x], wide)
        return wide

    assert told(compare(tmp_path, Plan(before={TANH: cast}))) in ([], [("dtype", "Tensor.double.0.forward")])


def test_an_overflow_in_a_call_of_one_side(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(before={TANH: calling("Torch.log", lambda a: a * np.float32("inf"))}))
    assert told(verdict)[0] == ("overflow", "Torch.log.0.forward")
    first(verdict)


class TestModulesAround:
    @pytest.mark.parametrize("side", ["candidate", "reference"])
    @pytest.mark.parametrize("more", [{}, {"level": "L0"}])
    def test_on_one_side_are_opened(self, tmp_path: Path, side: str, more: dict[str, Any]) -> None:
        plans = [Plan(wrapper="blocks.0", **more), Plan(**more)]
        assert agrees(compare(tmp_path, *(plans if side == "candidate" else plans[::-1])))

    @pytest.mark.parametrize("wrapped", [True, False])
    def test_do_not_hide_what_differs(self, tmp_path: Path, wrapped: bool) -> None:
        around = "blocks.0" if wrapped else None
        plan = Plan(wrapper=around, results={TANH: lambda array: array * np.float32(1.01)})
        verdict = compare(tmp_path, plan, Plan(wrapper=None if wrapped else "blocks.0"))
        assert told(verdict) == [("computation", "Torch.tanh.1.forward")]

    @pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
    def test_of_frameworks_are_no_difference(self, tmp_path: Path, prefix: str) -> None:
        verdict = compare(tmp_path, Plan(prefix=prefix))
        assert agrees(verdict)
        assert verdict.summary["pairs"] == 43
        plan = Plan(prefix=prefix, parameter_gradients={"head.bias": lambda array: array * np.float32(2)})
        found = first(compare(tmp_path / "other", plan))
        assert (found.kind, found.entry) == ("parameter_gradient", f"Module.{prefix}head.Linear.parameters_grad")


def test_a_dump_of_calls_alone_answers_to_one_of_everything(tmp_path: Path) -> None:
    plan = Plan(level="L1", results={TANH: lambda array: array * np.float32(1.01)})
    verdict = compare(tmp_path, plan, Plan())
    assert told(verdict) == [("computation", "Torch.tanh.1.forward")]
    assert verdict.summary["candidate_only"] == 0
    assert agrees(compare(tmp_path / "same", Plan(level="L1"), Plan()))


@pytest.mark.parametrize(
    ("api", "arguments", "kind"),
    [("Tensor.masked_fill", [True, -math.inf], "structure"), ("Torch.log", [], "overflow")],
)
def test_a_mask_of_infinities_is_no_overflow(tmp_path: Path, api: str, arguments: list[Any], kind: str) -> None:
    def fill(rec: Recording, value: Value) -> Value:
        array = value.array.copy()
        array[0] = -np.inf
        rec.call(api, [value, *arguments], made := value.of(array))
        return made

    verdict = compare(tmp_path, Plan(before={"blocks.1.tanh": fill}))
    assert (first(verdict).kind, first(verdict).entry) == (kind, f"{api}.0.forward"), told(verdict)


def test_calls_that_are_all_of_a_module_name_it(tmp_path: Path) -> None:
    def inner(rec: Recording, value: Value) -> Value:
        made = value.of(value.array * np.float32(1.2))
        with rec.module("blocks.1.extra", "Extra", [value]) as end:
            rec.call("Torch.mul", [value, 1.2], made)
            end(made)
        return made

    verdict = compare(tmp_path, Plan(before={TANH: inner}))
    assert said("whole-modules", "module", "blocks.1.extra") in first(verdict).message
