from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import pieces_of
from unit.diagnose.comparing import agrees, compare, edited, first, told
from unit.diagnose.dumps import Recording, Value
from unit.diagnose.training import Plan

from msprobe.messages import said
from msprobe.report.phrases import headline

TANH = "blocks.1.tanh"
NEXT = ("blocks.1.fc.weight", "blocks.1.fc.bias")
LOST = ("embedding.weight", "blocks.0.fc.weight", "blocks.0.fc.bias")


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)


@pytest.mark.parametrize("more", [{}, {"digests": False}, {"ours": False}, {"values": True}])
def test_a_gradient_that_arriving_ones_do_not_explain(tmp_path: Path, more: dict[str, Any]) -> None:
    verdict = compare(tmp_path, Plan(results={f"{TANH}.backward": off(1.05)}, **more), Plan(**more))
    found = first(verdict)
    assert (found.kind, found.entry, found.direction) == ("gradient", "Torch.tanh.1.backward", "backward")
    assert found.code == "D413"
    assert found.arguments["how"] == said("times-as-large", 1.05).join((" (", ")"))
    assert found.arguments["why"] == "its inputs agree"
    assert found.module == "blocks.1"
    assert verdict.summary["largest_effect"] > 0.01


def test_the_gradient_of_a_call_whose_forward_had_another_argument(tmp_path: Path) -> None:
    """The result of a forward call need not show what its backward call does with an argument."""
    plan = Plan(arguments={"blocks.1.dropout": {2: False}}, results={"blocks.1.dropout.backward": off(1.3)})
    found = first(compare(tmp_path, plan))
    assert (found.kind, found.entry) == ("argument", "Functional.dropout.1.forward")


def test_the_gradient_that_arrives_first_differs(tmp_path: Path) -> None:
    def scaled(data: dict[str, Any]) -> None:
        leaf = data["Functional.mse_loss.0.backward"]["input"][0]
        leaf |= {key: leaf[key] * 8.0 for key in ("Max", "Min", "Mean", "Norm")} | {"digest": "xxh3:0123456789abcdef"}

    plan = Plan(edit=edited(scaled), results={"loss.backward": off(8.0)})
    verdict = compare(tmp_path, plan)
    assert told(verdict) == [("loss_scale", "Functional.mse_loss.0.backward")]
    assert said("times-as-large", 8) in first(verdict).message


@pytest.mark.parametrize("name", ["blocks.0.fc.weight", "head.bias"])
def test_a_gradient_of_a_parameter_that_its_uses_do_not_explain(tmp_path: Path, name: str) -> None:
    verdict = compare(tmp_path, Plan(parameter_gradients={name: off(1.1)}))
    found = first(verdict)
    path = name.rpartition(".")[0]
    assert told(verdict) == [("parameter_gradient", f"Module.{path}.Linear.parameters_grad")]
    assert found.message.startswith(said("gradient-of-slot", name))
    assert said("times-as-large", 1.1) in found.message
    assert found.direction == "gradient"


def test_the_gradient_of_a_tied_weight_is_explained_by_all_its_uses(tmp_path: Path) -> None:
    plan = Plan(tied=True, results={"blocks.0.tanh.backward": off(1.05)})
    verdict = compare(tmp_path, plan, Plan(tied=True))
    assert first(verdict).entry == "Torch.tanh.0.backward"
    assert "parameter_gradient" not in dict(told(verdict))


def test_the_gradient_of_a_tied_weight(tmp_path: Path) -> None:
    plan = Plan(tied=True, parameter_gradients={"embedding.weight": off(0.5)})
    verdict = compare(tmp_path, plan, Plan(tied=True))
    assert {kind for kind, _ in told(verdict)} == {"parameter_gradient"}
    assert "1/2 of it" in first(verdict).message


def calling(api: str, factor: float = 1.0) -> Any:
    """A call on each gradient, between the backward pass and the step."""

    def before(rec: Recording, gradient: Value) -> Value:
        out = gradient.of(gradient.array * np.float32(factor))
        rec.call(api, [gradient, factor], out)
        return out

    return before


def clip(rec: Recording, gradient: Value, most: float = 0.01) -> Value:
    """Gives a gradient the norm ``most``."""
    norm = np.float32(np.linalg.norm(gradient.array))
    size, factor = Value(np.asarray(norm)), Value(np.asarray(np.float32(most) / norm))
    out = gradient.of(gradient.array * factor.array)
    rec.call("Torch.linalg_vector_norm", [gradient], size)
    rec.call("Tensor.__rtruediv__", [size, most], factor)
    rec.call("Tensor.mul_", [gradient, factor], out)
    return out


class TestOnTheWayToTheOptimizer:
    scaled = {"loss.backward": off(1024)}

    def test_the_scale_of_the_loss_is_not_taken_back(self, tmp_path: Path) -> None:
        reference = Plan(results=self.scaled, before={"step": calling("Tensor.mul_", 1 / 1024)})
        verdict = compare(tmp_path, Plan(results=self.scaled), reference)
        found = first(verdict)
        assert {kind for kind, _ in told(verdict)} == {"loss_scale"}
        assert {entry for _, entry in told(verdict)} == {f"Tensor.mul_.{number}.forward" for number in range(7)}
        assert found.evidence["side"] == "reference"
        assert said("times-as-large", 1024) in found.message

    def test_lone_calls_are_told_in_the_order_of_execution(self, tmp_path: Path) -> None:
        reference = Plan(results=self.scaled, before={"step": calling("Tensor.mul_", 1 / 1024)})
        orders = [found.order for found in compare(tmp_path, Plan(results=self.scaled), reference).findings]
        assert orders == sorted(orders, key=lambda order: order or 0)

    def test_the_scale_is_another_one(self, tmp_path: Path) -> None:
        plans = [Plan(results=self.scaled, before={"step": calling("Tensor.mul_", 1 / size)}) for size in (512, 1024)]
        found = first(compare(tmp_path, *plans))
        assert (found.kind, found.entry) == ("argument", "Tensor.mul_.0.forward")

    def test_both_take_it_back(self, tmp_path: Path) -> None:
        plan = Plan(results=self.scaled, before={"step": calling("Tensor.mul_", 1 / 1024)})
        assert agrees(compare(tmp_path, plan, plan))

    def test_gradients_that_were_not_cleared(self, tmp_path: Path) -> None:
        """A call takes a gradient that is not what the backward pass brought."""

        def stale(rec: Recording, gradient: Value) -> Value:
            return calling("Torch.square")(rec, gradient.of(gradient.array + np.float32(0.1)))

        found = first(compare(tmp_path, Plan(before={"step": stale}), Plan(before={"step": calling("Torch.square")})))
        assert (found.kind, found.entry) == ("parameter_gradient", "Torch.square.0.forward")
        assert found.code == "D407"

    def test_a_factor_of_one_side_alone(self, tmp_path: Path) -> None:
        found = first(compare(tmp_path, Plan(before={"step": calling("Tensor.mul_", 0.3)})))
        assert found.entry == "Tensor.mul_.0.forward"
        assert (found.kind, found.evidence["cause"]) == ("loss_scale", "gradient_factor")

    @pytest.mark.parametrize("candidate", [True, False])
    @pytest.mark.parametrize("level", ["mix", "L1"])
    def test_clipping_of_one_side_alone(self, tmp_path: Path, candidate: bool, level: str) -> None:
        plans = [Plan(before={"step": clip}, level=level), Plan(level=level)]
        found = first(compare(tmp_path, *(plans if candidate else plans[::-1])))
        assert (found.kind, found.evidence["cause"]) == ("structure", "clipping")
        assert found.entry == "Torch.linalg_vector_norm.0.forward"
        clips = "only the candidate clips"
        assert (clips in found.message) == candidate
        assert "clips" in found.message

    def test_clipping_by_another_norm_is_no_call_of_one_side(self, tmp_path: Path) -> None:
        other = Plan(before={"step": lambda rec, gradient: clip(rec, gradient, 0.02)})
        found = first(compare(tmp_path, other, Plan(before={"step": clip})))
        assert (found.kind, found.evidence.get("cause")) == ("argument", None)


def tampered(data: Any) -> Any:
    """A weight is written to when the optimizer is done."""
    weight = data["Module.head.Linear.forward.0"]["parameters"]["weight"]
    written = {**weight, "Norm": weight["Norm"] * 1.01, "digest": "xxh3:0123456789abcdef"}
    call = {"input_args": [weight, {"type": "float", "value": 1.01}], "input_kwargs": {}, "output": [written]}
    data["Tensor.mul_.80.forward"] = {**call, "is_recompute": False}
    return data


@pytest.mark.parametrize(
    ("plan", "phase"),
    [
        (Plan(arguments={"loss": {1: 3}}, results={"loss": off(2)}, level="L1"), "forward"),
        (Plan(before={"step": calling("Tensor.mul_", 0.3)}), "after backward"),
        (Plan(edit=tampered), "after optimizer"),
    ],
)
def test_a_call_outside_of_modules_says_when_it_is_made(tmp_path: Path, plan: Plan, phase: str) -> None:
    verdict = compare(tmp_path, plan, Plan(level=plan.level))
    assert first(verdict).evidence["phase"] == phase
    words = {
        "forward": "forward pass",
        "after backward": "after the backward pass",
        "after optimizer": "after the optimizer step",
    }[phase]
    assert headline(verdict) == f"DIVERGED at step 0, {words}"


class TestFactorOfTheLoss:
    """The loss is multiplied before the backward pass begins from it."""

    scaled = {"loss.backward": off(1024)}
    plain = Plan(root=lambda rec, loss: loss)

    @staticmethod
    def times(factor: float) -> Any:
        def multiply(rec: Recording, loss: Value) -> Value:
            out = loss.of(loss.array * np.float32(factor))
            rec.call("Tensor.__mul__", [loss, factor], out)
            return out

        return multiply

    @pytest.mark.parametrize("more", [{}, {"digests": False}, {"level": "L1"}])
    @pytest.mark.parametrize("candidate", [True, False])
    def test_that_nothing_undoes(self, tmp_path: Path, candidate: bool, more: dict[str, Any]) -> None:
        plans = [Plan(root=self.times(1024), results=self.scaled, **more), replace(self.plain, **more)]
        found = first(compare(tmp_path, *(plans if candidate else plans[::-1])))
        assert (found.kind, found.entry, found.evidence["cause"]) == (
            *("loss_scale", "Tensor.__mul__.2.forward", "loss_factor"),
        )
        ratio = said("times-as-large", 1024) if candidate else "1/1024 of it"
        assert found.message.endswith(said("so-the-loss-is", ratio, said("gradients-at-optimizer-are", ratio)))

    def test_that_is_undone_is_harmless(self, tmp_path: Path) -> None:
        undone = {"step": calling("Tensor.mul_", 1 / 1024)}
        plan = Plan(root=self.times(1024), results=self.scaled, before=undone, steps=2)
        found = first(compare(tmp_path, plan, replace(self.plain, steps=2)), "harmless")
        assert (found.kind, found.entry) == ("loss_scale", "Tensor.__mul__.2.forward")
        assert found.message.endswith(said("factor-undone-before"))

    @pytest.mark.parametrize(
        ("factors", "status", "tail"),
        [
            (None, "diverged", "gradients-at-optimizer-are"),
            ((1.0, 1.0), "harmless", "factor-undone-before"),
            ((0.0625, 0.0625), "harmless", "factor-undone-before"),
            ((0.3, 0.3), "diverged", "factor-undone-or-hidden"),
        ],
        ids=["kept", "undone", "undone on both sides", "hidden"],
    )
    def test_that_only_modules_show(
        self, tmp_path: Path, factors: tuple[float, float] | None, status: str, tail: str
    ) -> None:
        """Level L0: no call tells where it comes from; what clipping makes of gradients is a number like no other."""
        names = (*LOST, "head.weight", "head.bias", *NEXT)
        sides = [
            {name: off(factor * scale) for name in names} if factors else {}
            for factor, scale in zip(factors or (0.0, 0.0), (1 / 1024, 1.0), strict=True)
        ]
        plan = Plan(results=self.scaled, at_optimizer=sides[0], level="L0")
        found = first(compare(tmp_path, plan, Plan(at_optimizer=sides[1], level="L0")), status)
        assert (found.kind, found.evidence["cause"]) == ("loss_scale", "loss_factor")
        assert tail in pieces_of(found.message)

    def test_that_clipping_hides_is_not_undone(self, tmp_path: Path) -> None:
        plan = Plan(root=self.times(1024), results=self.scaled, before={"step": clip})
        found = first(compare(tmp_path, plan, replace(self.plain, before={"step": clip})))
        assert found.kind == "loss_scale"
        assert found.message.endswith(said("clipping-hides-factor"))

    def test_of_a_term_of_the_loss_is_a_call_of_one_side(self, tmp_path: Path) -> None:
        def with_term(factor: float | None) -> Any:
            def root(rec: Recording, loss: Value) -> Value:
                term = self.times(factor)(rec, loss) if factor is not None else loss
                whole = loss.of(loss.array + term.array)
                rec.call("Tensor.__add__", [loss, term], whole)
                return whole

            return root

        results = {"loss.backward": off(1.5)}
        found = first(compare(tmp_path, Plan(root=with_term(2.0), results=results), Plan(root=with_term(None))))
        assert (found.kind, found.entry) == ("structure", "Tensor.__mul__.2.forward")


class TestMissing:
    @staticmethod
    def cut(at: str) -> Any:
        """Nothing before the result of ``at``, in the first block, gets a gradient."""

        def change(data: dict[str, Any]) -> None:
            for name in [*data]:
                of_first = "blocks.0" in name or "embedding" in name or name.split(".")[-2] == "0"
                later = name.startswith(("Functional.mse_loss", "Module.head", "Module.blocks.1"))
                if name.endswith(("backward", "backward.0")) and of_first and not later:
                    del data[name]
            for entry in ("Module.blocks.0.fc.Linear.parameters_grad", "Module.embedding.Embedding.parameters_grad"):
                data[entry] = {key: [None] for key in data[entry]}
            data[at]["output"][0]["requires_grad"] = False

        return edited(change)

    def test_behind_a_call_that_cuts(self, tmp_path: Path) -> None:
        at = "Tensor.__add__.0.forward"
        plan = Plan(edit=self.cut(at), at_optimizer=dict.fromkeys(LOST))
        verdict = compare(tmp_path, plan)
        found = first(verdict)
        assert told(verdict) == [("missing_gradient", at)]
        assert said("call-cuts-graph", at) in found.message
        assert said("without-gradient", ", ".join(LOST)) in found.message
        assert sorted(found.evidence["parameters"]) == sorted(LOST)
        assert "Torch.tanh.0.backward" in found.evidence["calls"]

    def test_behind_a_call_that_the_candidate_alone_makes(self, tmp_path: Path) -> None:
        def detach(rec: Any, x: Any) -> Any:
            rec.call("Tensor.detach", [x], x)
            return x

        at = "Tensor.detach.0.forward"
        plan = Plan(before={"blocks.1.linear": detach}, edit=self.cut(at), at_optimizer=dict.fromkeys(LOST))
        verdict = compare(tmp_path, plan)
        assert told(verdict) == [("structure", at)]

    @pytest.mark.parametrize("more", [{}, {"level": "L0"}])
    def test_of_one_parameter(self, tmp_path: Path, more: dict[str, Any]) -> None:
        name = "blocks.0.fc.weight"
        plan = Plan(parameter_gradients={name: None}, at_optimizer={name: None}, **more)
        verdict = compare(tmp_path, plan, Plan(**more))
        found = first(verdict)
        assert told(verdict) == [("missing_gradient", "Module.blocks.0.fc.Linear.parameters_grad")]
        assert found.message == said("gradient-missing", name)
        assert found.where == name
        assert verdict.summary["largest_effect"] == "infinite"

    def test_of_the_reference_is_told_too(self, tmp_path: Path) -> None:
        name = "blocks.0.fc.weight"
        verdict = compare(tmp_path, Plan(), Plan(parameter_gradients={name: None}, at_optimizer={name: None}))
        found = first(verdict)
        assert (found.kind, found.where) == ("missing_gradient", name)

    def test_where_neither_has_one(self, tmp_path: Path) -> None:
        plan = Plan(parameter_gradients={"head.bias": None}, at_optimizer={"head.bias": None})
        assert agrees(compare(tmp_path, plan, plan))


def test_a_gradient_that_is_missed_stands_behind_what_was_done_in_the_forward_pass(tmp_path: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        del data["Functional.linear.0.backward"]

    plan = Plan(edit=edited(change), results={"blocks.1.mul": lambda array: array * np.float32(1.1)})
    verdict = compare(tmp_path, plan)
    assert [kind for kind, _ in told(verdict)][:2] == ["computation", "missing_gradient"], told(verdict)
    assert first(verdict).entry == "Tensor.__mul__.1.forward"


@pytest.mark.parametrize("turned", [False, True])
def test_parameters_that_require_no_gradient_are_told_as_such(tmp_path: Path, turned: bool) -> None:
    def freeze(data: dict[str, Any]) -> None:
        del data["Module.head.Linear.parameters_grad"]
        for leaf in data["Module.head.Linear.forward.0"]["parameters"].values():
            leaf["requires_grad"] = False

    gone = dict.fromkeys(("head.weight", "head.bias"))
    plans = [Plan(edit=edited(freeze), at_optimizer=gone), Plan()]
    found = first(compare(tmp_path, *(plans[::-1] if turned else plans)))
    assert (found.kind, found.evidence["cause"]) == ("missing_gradient", "frozen")
    side, other = ("reference", "candidate") if turned else ("candidate", "reference")
    assert said("requires-grad-differs", "them", side, other) in found.message
