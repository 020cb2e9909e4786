from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions
from unit.diagnose.comparing import agrees, compare, edited, first, told
from unit.diagnose.training import Plan

from msprobe.diagnose.differences.words import settings_in_words
from msprobe.messages import said
from msprobe.report import phrases

STEP = "Optimizer.SGD.0.forward"
BIAS = "head.bias"


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)


@pytest.mark.parametrize("more", [{}, {"level": "L0"}, {"level": "L1"}, {"digests": False}])
def test_another_setting(tmp_path: Path, more: dict[str, Any]) -> None:
    verdict = compare(tmp_path, Plan(settings={"lr": 0.2}, **more), Plan(**more))
    found = first(verdict)
    assert told(verdict) == [("optimizer", STEP)]
    assert found.message == f"{STEP}: lr is 0.2, in the reference 0.1, for all parameters (ratio 2)"
    assert (found.evidence["candidate"], found.evidence["reference"], found.direction) == (0.2, 0.1, "optimizer")
    assert BIAS in found.evidence["parameters"]
    # A line that has no room for all parameters still says what is set.
    assert phrases.brief(found, len(found.message) - 1).endswith(said("is-and-is-in-reference", "0.2", "0.1"))


def test_a_setting_that_changes_nothing_in_this_step_matters(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(settings={"weight_decay": 0.1}))
    assert [(f.kind, f.evidence["field"]) for f in verdict.findings] == [("optimizer", "weight_decay")]
    first(verdict)


@pytest.mark.parametrize("field", ["foreach", "fused", "capturable"])
def test_how_a_step_is_carried_out_is_no_setting(tmp_path: Path, field: str) -> None:
    assert agrees(compare(tmp_path, Plan(settings={field: True}), Plan(settings={field: False})))


@pytest.mark.parametrize("decay", [0.0, False])
def test_a_number_written_in_another_way_is_the_same_setting(tmp_path: Path, decay: Any) -> None:
    assert agrees(compare(tmp_path, Plan(settings={"weight_decay": decay}), Plan(settings={"weight_decay": 0})))


def test_settings_by_parameter(tmp_path: Path) -> None:
    def groups(decay: float) -> Any:
        def change(data: dict[str, Any]) -> None:
            (group,) = data[STEP]["groups"]
            mine = [name for name in group["params"] if name.endswith("bias")]
            others = [name for name in group["params"] if not name.endswith("bias")]
            data[STEP]["groups"] = [{**group, "params": others}, {**group, "weight_decay": decay, "params": mine}]

        return edited(change)

    verdict = compare(tmp_path, Plan(edit=groups(0.5)), Plan(edit=groups(0.0)))
    found = first(verdict)
    assert found.evidence["parameters"] == ["head.bias", "blocks.0.fc.bias", "blocks.1.fc.bias"]
    assert found.message.endswith('"head.bias", "blocks.0.fc.bias", "blocks.1.fc.bias"')
    # The same settings in other groups are the same.
    assert agrees(compare(tmp_path / "same", Plan(edit=groups(0)), Plan()))


def test_a_parameter_that_is_left_out(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(without=frozenset([BIAS])))
    found = first(verdict)
    assert (found.kind, found.entry, found.where) == ("optimizer", STEP, BIAS)
    assert (found.evidence["missing"], found.evidence["extra"]) == ([BIAS], [])
    lacks = said("optimizer-lacks-parameters", f'"{BIAS}"', "is", "it is")
    assert found.message == f"{STEP}: {lacks}"


def test_a_parameter_too_many(tmp_path: Path) -> None:
    found = first(compare(tmp_path, Plan(), Plan(without=frozenset([BIAS]))))
    assert (found.evidence["missing"], found.evidence["extra"]) == ([], [BIAS])


def test_another_class(tmp_path: Path) -> None:
    plan = Plan(optimizer="AdamW", states={}, updated={BIAS: off(1.1)})
    found = first(compare(tmp_path, plan, Plan(states={})))
    assert (found.kind, found.entry) == ("optimizer", "Optimizer.AdamW.0.forward")
    assert found.message == said("optimizer-class-differs", "AdamW", "SGD")


def test_another_class_that_makes_the_same_weights(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(optimizer="AdamW"))
    assert told(verdict) == [("optimizer", "Optimizer.AdamW.0.forward")]
    assert first(verdict, "harmless").message == said("optimizer-class-differs", "AdamW", "SGD")


class TestStates:
    def test_other_values(self, tmp_path: Path) -> None:
        plan = Plan(states={BIAS: off(0)}, updated={BIAS: off(1.1)})
        verdict = compare(tmp_path, plan, Plan(states={}))
        found = first(verdict)
        assert (found.kind, found.where) == ("optimizer", f"{STEP}, exp_avg_sq of {BIAS}")
        assert found.evidence["field"] == "exp_avg_sq"

    def test_other_values_that_show_in_the_next_step(self, tmp_path: Path) -> None:
        plan = Plan(states={BIAS: off(0)}, updated={BIAS: off(1.1)}, steps=2)
        found = first(compare(tmp_path, plan, Plan(states={}, steps=2)))
        assert (found.kind, found.step, found.evidence["field"]) == ("optimizer", 0, "exp_avg_sq")

    def test_without_effect_is_harmless(self, tmp_path: Path) -> None:
        found = first(compare(tmp_path, Plan(states={BIAS: off(0)}), Plan(states={})), "harmless")
        assert (found.kind, found.where) == ("optimizer", f"{STEP}, exp_avg_sq of {BIAS}")

    @pytest.mark.parametrize("candidate", [True, False])
    def test_on_one_side_alone(self, tmp_path: Path, candidate: bool) -> None:
        with_states, without = Plan(states={}), Plan()
        plans = (with_states, without) if candidate else (without, with_states)
        found = first(compare(tmp_path, *plans))
        assert (found.kind, found.entry) == ("optimizer", STEP)
        assert found.evidence["only_in"] == ("candidate" if candidate else "reference")


def test_the_step_itself(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(updated={BIAS: off(1.1)}))
    assert told(verdict) == [("optimizer", STEP)]
    assert first(verdict).where.split(", ") == [STEP, said("of-call", "weight", BIAS)]


def test_a_weight_apart_by_rounding_agrees(tmp_path: Path) -> None:
    assert agrees(compare(tmp_path, Plan(updated={BIAS: off(1 + 1e-7)}, steps=2), Plan(steps=2)))


class TestGradientsOnTheirWay:
    """What the backward pass brought agrees, what the optimizer gets does not."""

    def test_not_cleared(self, tmp_path: Path) -> None:
        stale = {name: (lambda array: array + np.float32(0.1)) for name in ("head.weight", BIAS)}
        verdict = compare(tmp_path, Plan(at_optimizer=stale))
        found = first(verdict)
        assert told(verdict) == [("gradient", STEP)]
        assert (found.where, found.evidence["parameter"]) == ("head.weight", "head.weight")
        assert found.code == "D510"

    @pytest.mark.parametrize(("factor", "code"), [(1.1, "D517"), (1 + 1e-7, None)])
    def test_of_a_backward_pass_that_was_not_recorded(self, tmp_path: Path, factor: float, code: str | None) -> None:
        def begin_late(data: Any) -> None:
            for name in [name for name in data if name != STEP]:
                del data[name]

        plans = (Plan(at_optimizer={BIAS: off(factor)}, edit=edited(begin_late)), Plan(edit=edited(begin_late)))
        verdict = compare(tmp_path, *plans)
        assert [found.code for found in verdict.findings if found.where == BIAS] == ([code] if code else [])

    def test_scaled(self, tmp_path: Path) -> None:
        found = first(compare(tmp_path, Plan(at_optimizer={BIAS: off(1024)})))
        assert (found.kind, found.where) == ("gradient", BIAS)
        assert said("times-as-large", 1024) in found.message

    @pytest.mark.parametrize("candidate", [True, False])
    def test_missing(self, tmp_path: Path, candidate: bool) -> None:
        plans = [Plan(at_optimizer={BIAS: None}), Plan()]
        found = first(compare(tmp_path, *(plans if candidate else plans[::-1])))
        assert (found.kind, found.where) == ("gradient", BIAS)
        name = "gradient-missing-at-optimizer" if candidate else "gradient-extra-at-optimizer"
        assert mentions(found.message, name, parameter=BIAS)


def test_what_was_not_recorded_in_the_backward_pass_is_not_doubted(tmp_path: Path) -> None:
    """A dump of mindstudio-probe has no groups: then nothing is said of settings."""
    assert agrees(compare(tmp_path, Plan(ours=False, settings={"lr": 0.1}), Plan()))


def test_a_setting_is_told_with_as_many_digits_as_it_takes() -> None:
    assert settings_in_words(0.07500000000000001, 0.05) == ("0.075", "0.05")
    assert settings_in_words(0.10000001, 0.1) == ("0.10000001", "0.1")
    assert settings_in_words(0.1 + 0.2, 0.3) == ("0.30000000000000004", "0.3")
    assert settings_in_words(True, None) == ("True", "None")
