from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions
from unit.diagnose.comparing import agrees, compare, edited, first, told
from unit.diagnose.dumps import Recording, Value, drawn, rounded
from unit.diagnose.training import WIDTH, WORDS, Plan

from msprobe.messages import said

FC = "blocks.0.fc.weight"


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)


class TestData:
    @pytest.mark.parametrize("more", [{}, {"digests": False}, {"level": "L1"}, {"ours": False}])
    def test_other_tokens(self, tmp_path: Path, more: dict[str, Any]) -> None:
        verdict = compare(tmp_path, Plan(data=lambda tokens: (tokens + 1) % WORDS, **more), Plan(**more))
        found = first(verdict)
        assert told(verdict) == [("data", "Functional.embedding.0.forward")]
        assert found.where == "Functional.embedding.0.forward, input.0"
        assert "whole numbers differ" in found.message

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_other_tokens_whose_gradients_are_added_up_unseen(self, tmp_path: Path, dtype: str) -> None:
        """As in one rank of a data-parallel run: the optimizers of both sides get the same."""
        names = ("embedding.weight", "head.weight", "head.bias", "blocks.0.fc.weight", "blocks.0.fc.bias",
                 "blocks.1.fc.weight", "blocks.1.fc.bias")  # fmt: skip
        summed = {name: lambda array: drawn("sum", *array.shape) for name in names}
        plan = Plan(at_optimizer=summed, dtype=dtype)
        other = Plan(at_optimizer=summed, dtype=dtype, data=lambda tokens: (tokens + 1) % WORDS)
        assert first(compare(tmp_path, other, plan)).kind == "data"

    def test_the_same_tokens_in_another_order(self, tmp_path: Path) -> None:
        found = first(compare(tmp_path, Plan(data=lambda tokens: tokens[::-1].copy())))
        assert (found.kind, found.entry) == ("data", "Functional.embedding.0.forward")

    def test_the_aim_of_the_loss(self, tmp_path: Path) -> None:
        def change(data: dict[str, Any]) -> None:
            aim = data["Functional.mse_loss.0.forward"]["input_args"][1]
            aim |= {"Norm": aim["Norm"] * 1.1, "Mean": aim["Mean"] + 0.01, "digest": "xxh3:0123456789abcdef"}

        plan = Plan(edit=edited(change), results={"loss": off(1.2)})
        verdict = compare(tmp_path, plan)
        assert told(verdict) == [("data", "Functional.mse_loss.0.forward")]
        assert first(verdict).where == "Functional.mse_loss.0.forward, input.1"


class TestWeights:
    @pytest.mark.parametrize("more", [{}, {"digests": False}, {"level": "L0"}, {"ours": False}])
    def test_before_the_first_step(self, tmp_path: Path, more: dict[str, Any]) -> None:
        verdict = compare(tmp_path, Plan(weights={FC: off(1.001)}, **more), Plan(**more))
        found = first(verdict)
        assert (found.kind, found.where) == ("initial_weights", FC)
        assert mentions(found.message, "parameter-differs", parameter=FC, when="before the first step")
        assert said("times-as-large", 1.001) in found.message
        assert {one.where for one in verdict.findings} == {FC}

    def test_transposed_seen_by_values(self, tmp_path: Path) -> None:
        plan = Plan(weights={FC: lambda array: array.T.copy()}, values=True)
        found = first(compare(tmp_path, plan, Plan(values=True)))
        assert (found.kind, found.where) == ("initial_weights", FC)
        assert "transposed" in found.message

    def test_transposed_seen_by_digests(self, tmp_path: Path) -> None:
        found = first(compare(tmp_path, Plan(weights={FC: lambda array: array.T.copy()})))
        assert (found.kind, found.where) == ("initial_weights", FC)

    def test_apart_by_rounding_agree(self, tmp_path: Path) -> None:
        assert agrees(compare(tmp_path, Plan(weights={FC: off(1 + 2e-7)}, digests=False), Plan(digests=False)))

    def test_at_the_beginning_of_a_later_step(self, tmp_path: Path) -> None:
        # The optimizer was not recorded: the step before agrees as far as anybody knows.
        def without(data: dict[str, Any]) -> None:
            del data["Optimizer.SGD.0.forward"]

        plan = Plan(steps=2, updated={FC: off(1.1)}, edit=edited(without))
        verdict = compare(tmp_path, plan, Plan(steps=2, edit=edited(without)))
        found = first(verdict)
        assert (found.kind, found.where, found.step) == ("weights", FC, 1)
        beginning = "at the beginning of this step"
        assert beginning in found.message
        assert verdict.summary["steps_compared"] == 2

    def test_that_equal_another_parameter_here(self, tmp_path: Path) -> None:
        # The head is a copy of the embedding, as when weights are tied on one side only.
        start = drawn("embedding.weight", WORDS, WIDTH) / 3
        verdict = compare(tmp_path, Plan(weights={"head.weight": lambda array: start.astype(array.dtype)}))
        assert {finding.where for finding in verdict.findings} == {"head.weight"}


class TestTypes:
    @staticmethod
    def cast(rec: Recording, x: Value) -> Value:
        out = Value(rounded(x.array, "bfloat16"), x.grad, "bfloat16")
        rec.call("Tensor.bfloat16", [x], out)
        return out

    def test_of_one_call(self, tmp_path: Path) -> None:
        verdict = compare(tmp_path, Plan(before={"blocks.1.tanh": self.cast}))
        found = first(verdict)
        assert told(verdict) == [("dtype", "Tensor.bfloat16.0.forward")]
        assert found.message.startswith("Torch.tanh.1.forward ")
        assert found.message.index("bfloat16") < found.message.index(" float32")
        assert verdict.notes == ()

    @pytest.mark.parametrize("turned", [False, True])
    @pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
    def test_of_a_whole_run_are_a_setting(self, tmp_path: Path, dtype: str, turned: bool) -> None:
        plans = [Plan(dtype=dtype), Plan()]
        verdict = compare(tmp_path, *(plans[::-1] if turned else plans))
        assert agrees(verdict)
        words = ("float32", dtype) if turned else (dtype, "float32")
        assert verdict.notes == (said("precision-differs", "{}", "{}").format(*words),)

    def test_from_outside(self, tmp_path: Path) -> None:
        def wide(data: dict[str, Any]) -> None:
            data["Functional.mse_loss.0.forward"]["input_args"][1]["dtype"] = "torch.float64"

        found = first(compare(tmp_path, Plan(edit=edited(wide))), "harmless")
        assert (found.kind, found.entry) == ("dtype", "Functional.mse_loss.0.forward")
        assert mentions(found.message, "outside-dtype-differs", candidate="float64", reference="float32")


class TestWiring:
    """A call takes another result of the same calls."""

    def test_of_another_call(self, tmp_path: Path) -> None:
        first_block: dict[str, Value] = {}

        def keep(rec: Recording, x: Value) -> Value:
            first_block["x"] = x
            return x

        def take(rec: Recording, x: Value) -> Value:
            return first_block["x"]

        verdict = compare(tmp_path, Plan(before={"blocks.0.mul": keep, "blocks.1.mul": take}))
        found = first(verdict)
        assert (found.kind, found.entry) == ("structure", "Tensor.__mul__.1.forward")
        assert found.evidence["candidate_takes"] == "Functional.dropout.0.forward"
        assert found.evidence["reference_takes"] == "Functional.dropout.1.forward"


class TestMutation:
    def test_by_a_call_of_both_sides_that_writes_to_a_copy_in_the_reference(self, tmp_path: Path) -> None:
        """Both write to what ``tanh`` made; the reference takes what was there before to ``dropout``."""

        def write(of_it: bool) -> Any:
            def written(rec: Recording, x: Value) -> Value:
                out = x.of(x.array * np.float32(1.2))
                rec.call("Tensor.mul_", [x, 1.2], out)
                return out if of_it else x

            return written

        plans = [Plan(before={"blocks.1.dropout": write(of_it)}, digests=False) for of_it in (True, False)]
        found = first(compare(tmp_path, *plans))
        assert (found.kind, found.entry) == ("mutation", "Tensor.mul_.0.forward")
        assert (found.code, found.arguments["maker"]) == ("D212", "Torch.tanh.1.forward")

    def test_by_something_that_was_not_recorded(self, tmp_path: Path) -> None:
        def silently(rec: Recording, x: Value) -> Value:
            return x.of(x.array * np.float32(1.2))

        found = first(compare(tmp_path, Plan(before={"blocks.1.dropout": silently})))
        assert (found.kind, found.entry) == ("mutation", "Functional.dropout.1.forward")
        assert found.evidence["made_by"] == "Torch.tanh.1.forward"

    def test_by_a_write_of_the_candidate_alone(self, tmp_path: Path) -> None:
        def write(rec: Recording, x: Value) -> Value:
            out = x.of(x.array * np.float32(1.2))
            rec.call("Tensor.mul_", [x, 1.2], out)
            return out

        verdict = compare(tmp_path, Plan(before={"blocks.1.dropout": write}))
        assert told(verdict) == [("mutation", "Tensor.mul_.0.forward")]
        assert said("extra-calls", "Tensor.mul_.0.forward") in first(verdict).message


def test_what_is_calculated_between_modules_is_blamed_on_the_one_around(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(level="L0", results={"blocks.1.tanh": off(1.01)}), Plan(level="L0"))
    assert told(verdict) == [("computation", "Module.blocks.1.Block.forward.0")]


def test_statistics_that_one_side_did_not_record_say_nothing(tmp_path: Path) -> None:
    def without(data: dict[str, Any]) -> None:
        for leaf in data["Torch.tanh.1.forward"]["input_args"] + data["Torch.tanh.1.forward"]["output"]:
            leaf |= dict.fromkeys(("Max", "Min", "Mean", "Norm"))

    assert agrees(compare(tmp_path, Plan(edit=edited(without), digests=False), Plan(digests=False)))
