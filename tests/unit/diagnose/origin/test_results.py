from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions, pieces_of
from unit.diagnose.comparing import agrees, compare, edited, first, told
from unit.diagnose.dumps import Recording, Value, drawn, rounded
from unit.diagnose.training import WIDTH, WORDS, Plan

from msprobe.messages import said
from msprobe.report.advice import advice_on

TANH = "blocks.1.tanh"


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)


def other_mask(array: np.ndarray) -> np.ndarray:
    return array * (drawn("other", *array.shape) > -1)


def one_nan(array: np.ndarray) -> np.ndarray:
    return np.where(np.arange(array.size).reshape(array.shape) == 11, np.float32("nan"), array)


def one_unit_off(array: np.ndarray) -> np.ndarray:
    """One element of a tensor in bfloat16, and not the largest, is rounded to the number beside it."""
    found = rounded(array, "bfloat16").copy()
    place = np.unravel_index(np.argsort(np.abs(found), axis=None)[found.size // 2], found.shape)
    found[place] = rounded(found[place] * np.float32(1 + 2**-7), "bfloat16")
    return found


def test_another_kernel_of_a_function_that_none_computes_exactly_is_rounding(tmp_path: Path) -> None:
    """In types with few digits two kernels give the same bits nearly everywhere, so that other calls prove nothing."""
    more: dict[str, Any] = {"dtype": "bfloat16"}
    assert agrees(compare(tmp_path, Plan(results={TANH: one_unit_off}, **more), Plan(**more)))


def test_a_product_that_is_one_unit_off_is_no_rounding(tmp_path: Path) -> None:
    """What a multiplication gives, to the last bit, the standard says."""
    more: dict[str, Any] = {"dtype": "bfloat16"}
    verdict = compare(tmp_path, Plan(results={"blocks.1.mul": one_unit_off}, **more), Plan(**more))
    assert told(verdict)[:1] == [("computation", "Tensor.__mul__.1.forward")]


@pytest.mark.parametrize(
    "more", [{}, {"digests": False}, {"values": True}, {"ours": False}, {"level": "L1"}, {"steps": 2}]
)
def test_a_result_that_its_inputs_do_not_explain(tmp_path: Path, more: dict[str, Any]) -> None:
    verdict = compare(tmp_path, Plan(results={TANH: off(1.01)}, **more), Plan(**more))
    found = first(verdict)
    assert told(verdict) == [("computation", "Torch.tanh.1.forward")]
    assert (found.direction, found.step, found.where) == ("forward", 0, "Torch.tanh.1.forward, output.0")
    assert found.module == ("blocks.1" if more.get("level") != "L1" else None)
    assert said("times-as-large", 1.01) in found.message
    assert found.evidence["inputs_differ_by"] == 0.0
    assert found.evidence["difference"] == pytest.approx(0.01, rel=0.02)
    assert found.stack == ("File /home/me/train.py, line 10, in forward, \n y = x",)
    assert verdict.summary["steps_compared"] == 1


@pytest.mark.parametrize(
    ("call", "digests", "named_by"),
    [("linear", False, "statistics"), ("linear", True, None), ("tanh", False, None)],
)
def test_it_is_said_where_another_order_of_inputs_would_not_show(
    tmp_path: Path, call: str, digests: bool, named_by: str | None
) -> None:
    """Statistics see no order; that of a result which is made element by element hangs on none."""
    plan = Plan(results={f"blocks.1.{call}": off(1.01)}, digests=digests)
    found = first(compare(tmp_path, plan, Plan(digests=digests)))
    assert found.kind == "computation"
    assert found.evidence.get("inputs_agree_by") == named_by
    assert ("input-statistics-agree" in pieces_of(found.message)) == (named_by is not None)
    assert ("xxh3" in advice_on(found)) == (named_by is not None)
    agree = "its inputs agree"
    assert (agree in found.message.replace(f"statistics of {agree}", "")) == (named_by is None)


def test_a_module_is_blamed_where_its_calls_were_not_recorded(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(level="L0", results={"blocks.1.linear": off(1.01)}), Plan(level="L0"))
    assert told(verdict) == [("computation", "Module.blocks.1.fc.Linear.forward.0")]
    assert first(verdict).module == "blocks.1.fc"


def test_a_result_apart_by_rounding_agrees(tmp_path: Path) -> None:
    plan = Plan(results={"blocks.0.linear": off(1 + 3e-7)}, digests=False)
    verdict = compare(tmp_path, plan, Plan(digests=False))
    assert agrees(verdict)
    assert verdict.summary["explained"] > 10


def test_elementwise_results_must_reproduce_where_others_do(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(results={TANH: off(1 + 2e-7)}))
    assert told(verdict) == [("computation", "Torch.tanh.1.forward")]
    first(verdict)


def test_a_single_element_is_found_by_its_values(tmp_path: Path) -> None:
    def flip(array: np.ndarray) -> np.ndarray:
        return np.where(np.arange(array.size).reshape(array.shape) == 11, np.float32(0.5), array)

    found = first(compare(tmp_path, Plan(results={TANH: flip}, values=True), Plan(values=True)))
    assert "1 of 48 elements" in found.message
    assert said("first-element", "[1, 3]", 0.5, 0.0).rpartition("0")[0] in found.message


@pytest.mark.parametrize("site", ["blocks.1.linear", "blocks.1.dropout"])
def test_a_result_in_another_order_is_named_before_what_follows(tmp_path: Path, site: str) -> None:
    verdict = compare(tmp_path, Plan(results={site: lambda array: array[::-1].copy()}))
    api = "linear" if site.endswith("linear") else "dropout"
    assert first(verdict).entry == f"Functional.{api}.1.forward"


def test_a_result_in_another_order_is_named_where_values_tell(tmp_path: Path) -> None:
    plan = Plan(results={"blocks.1.linear": lambda array: array[::-1].copy()}, values=True)
    found = first(compare(tmp_path, plan, Plan(values=True)))
    assert (found.kind, found.entry) == ("computation", "Functional.linear.1.forward")
    assert said("same-elements-reordered") in found.message


def test_a_wrong_product_in_bfloat16_is_no_rounding(tmp_path: Path) -> None:
    plan = Plan(dtype="bfloat16", results={"blocks.1.linear": off(1.2)})
    assert first(compare(tmp_path, plan, Plan(dtype="bfloat16"))).entry == "Functional.linear.1.forward"


class TestNotFinite:
    def test_is_born_on_the_side_of_the_candidate(self, tmp_path: Path) -> None:
        verdict = compare(tmp_path, Plan(results={TANH: one_nan}))
        found = first(verdict)
        assert (found.kind, found.entry) == ("overflow", "Torch.tanh.1.forward")
        assert mentions(found.message, "nan-or-infinity-made", call="Torch.tanh.1.forward", slot="output.0")
        assert verdict.summary["largest_effect"] == "infinite"

    def test_is_born_in_the_reference_alone(self, tmp_path: Path) -> None:
        found = first(compare(tmp_path, Plan(), Plan(results={TANH: one_nan})))
        assert (found.kind, found.entry) == ("computation", "Torch.tanh.1.forward")

    @pytest.mark.parametrize("digests", [True, False])
    def test_is_no_difference_where_both_have_it(self, tmp_path: Path, digests: bool) -> None:
        plan = Plan(results={TANH: one_nan}, digests=digests)
        assert agrees(compare(tmp_path, plan, plan))

    def test_is_born_in_the_backward_pass(self, tmp_path: Path) -> None:
        found = first(compare(tmp_path, Plan(results={f"{TANH}.backward": one_nan})))
        assert (found.kind, found.entry, found.direction) == ("overflow", "Torch.tanh.1.backward", "backward")


class TestRandomNumbers:
    def test_of_another_seed(self, tmp_path: Path) -> None:
        verdict = compare(tmp_path, Plan(results={"blocks.1.dropout": other_mask}))
        assert told(verdict) == [("computation", "Functional.dropout.1.forward")]
        assert first(verdict).code == "D219"

    def test_after_a_call_that_draws_some(self, tmp_path: Path) -> None:
        def draw(rec: Recording, x: Value) -> Value:
            rec.call("Torch.rand", [3], Value(drawn("rand", 3)))
            return x

        verdict = compare(tmp_path, Plan(results={"blocks.1.dropout": other_mask}, before={"blocks.1.dropout": draw}))
        assert told(verdict) == [("structure", "Torch.rand.0.forward")]

    def test_on_another_memory_layout(self, tmp_path: Path) -> None:
        def strided(data: dict[str, Any]) -> None:
            data["Functional.dropout.1.forward"]["input_args"][0]["stride"] = [1, 6]
            data["Torch.tanh.1.forward"]["output"][0]["stride"] = [1, 6]

        layout = edited(strided)
        found = first(compare(tmp_path, Plan(results={"blocks.1.dropout": other_mask}, edit=layout)))
        assert (found.kind, found.entry) == ("layout", "Functional.dropout.1.forward")
        assert found.alternatives == ("Torch.tanh.1.forward",)
        assert agrees(compare(tmp_path / "alone", Plan(edit=layout)))


def test_a_recomputed_call_gives_another_result(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(recompute=True, again={TANH: off(1.01)}), Plan(recompute=True))
    assert told(verdict) == [("recompute", "Torch.tanh.2.forward")]
    assert first(verdict).direction == "recompute"


def test_recomputation_on_one_side_is_no_difference(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(recompute=True))
    assert agrees(verdict)
    assert (verdict.summary["candidate_only"], verdict.summary["reference_only"]) == (14, 0)


def test_a_result_in_another_type_from_the_same_inputs(tmp_path: Path) -> None:
    def half(data: dict[str, Any]) -> None:
        data["Torch.tanh.1.forward"]["output"][0]["dtype"] = "torch.float16"

    found = first(compare(tmp_path, Plan(edit=edited(half), results={TANH: off(1.0001)})))
    assert (found.kind, found.entry) == ("dtype", "Torch.tanh.1.forward")
    assert (found.evidence["candidate"], found.evidence["reference"]) == ("torch.float16", "torch.float32")


class TestSavedTensors:
    """The gradient that leaves ``tanh`` differs, all that arrives and the forward pass agree."""

    plant = {f"{TANH}.backward": off(1.3)}

    @staticmethod
    def written(api: str) -> Any:
        def write(rec: Recording, x: Value) -> Value:
            rec.call(api, [x, 2.0], x.of(x.array * 2))
            return x

        return write

    def test_written_to_by_the_candidate_alone(self, tmp_path: Path) -> None:
        plan = Plan(results=self.plant, before={TANH: self.written("Tensor.mul_")})
        found = first(compare(tmp_path, plan))
        assert (found.kind, found.entry) == ("mutation", "Tensor.mul_.0.forward")
        assert found.evidence["seen_in"] == "Torch.tanh.1.backward"
        assert found.alternatives == ("Torch.tanh.1.backward",)

    @pytest.mark.parametrize("turned", [False, True])
    def test_not_by_what_is_done_after_the_backward_pass(self, tmp_path: Path, turned: bool) -> None:
        def late(rec: Recording, loss: Value) -> Value:
            tanh = rec.data["Torch.tanh.1.forward"]["output"][0]
            rec.data["Tensor.clone.0.forward" if turned else "Tensor.mul_.0.forward"] = {
                "input_args": [tanh],
                "input_kwargs": {},
                "output": [tanh],
                "msprobe": {"order": len(rec.data)},
            }
            return loss

        plans = [Plan(results=self.plant), Plan()]
        plans[turned] = replace(plans[turned], before={"step": late})
        found = first(compare(tmp_path, *plans))
        assert (found.kind, found.entry) == ("gradient", "Torch.tanh.1.backward")

    def test_copied_by_the_reference_alone(self, tmp_path: Path) -> None:
        found = first(compare(tmp_path, Plan(results=self.plant), Plan(before={TANH: self.written("Tensor.clone")})))
        assert (found.kind, found.entry) == ("structure", "Tensor.clone.0.forward")
        assert found.evidence["side"] == "reference"

    def test_of_an_unknown_writer(self, tmp_path: Path) -> None:
        found = first(compare(tmp_path, Plan(results=self.plant)))
        assert (found.kind, found.entry) == ("gradient", "Torch.tanh.1.backward")


@pytest.mark.parametrize("digests", [True, False])
def test_the_rounding_of_another_type_is_no_fault_of_a_call_that_reproduces_others(
    tmp_path: Path, digests: bool
) -> None:
    """A weight decay of 1e-5, say: a one keeps its value in a half type, and a zero in both."""

    def decay(dtype: str) -> Any:
        def decayed(rec: Recording, x: Value) -> Value:
            for start in (np.zeros(WIDTH, np.float32), np.ones(WIDTH, np.float32)):
                out = rounded(start * np.float32(1 - 1e-5), dtype)
                rec.call("Tensor.mul", [Value(start, dtype=dtype), 1 - 1e-5], Value(out, dtype=dtype))
            return x

        return decayed

    plans = [Plan(dtype=t, before={"head.linear": decay(t)}, digests=digests) for t in ("bfloat16", "float32")]
    verdict = compare(tmp_path, *plans)
    assert agrees(verdict)
    assert verdict.notes == (said("precision-differs", "bfloat16", "float32"),)


class TestTies:
    @pytest.mark.parametrize("digests", [True, False])
    @pytest.mark.parametrize("side", ["candidate", "reference"])
    def test_a_weight_that_is_tied_on_one_side(self, tmp_path: Path, side: str, digests: bool) -> None:
        """The second tensor begins with the values of the first, as from one checkpoint."""

        def plan(tied: bool) -> Plan:
            same = {} if tied else {"head.weight": lambda _: drawn("embedding.weight", WORDS, WIDTH) / 3}
            return Plan(tied=tied, weights=same, digests=digests)

        found = first(compare(tmp_path, plan(side == "candidate"), plan(side == "reference")))
        assert found.kind == "parameter_gradient"
        assert '"embedding.weight"' in found.message
        assert '"head.weight"' in found.message
        other = "candidate" if side == "reference" else "reference"
        assert mentions(found.message, "tied-on-one-side", side=side, other_side=other)
        assert found.evidence["cause"] == "tie"
