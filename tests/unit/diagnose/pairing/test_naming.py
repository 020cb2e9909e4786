from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import names_of
from support.hand_made import write_part
from unit.diagnose.comparing import compare, first, told
from unit.diagnose.training import Plan, train

from msprobe.diagnose.pairing.match import pair
from msprobe.diagnose.pairing.naming import drop_prefixes, notes_of
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.messages import said
from msprobe.store.reader import open_dump

STEP = "Optimizer.SGD.0.forward"
LEVELS = [{}, {"level": "L0"}, {"level": "L1"}, {"digests": False}, {"steps": 2, "digests": False}]


def front(prefix: str) -> Callable[[str], str]:
    return lambda name: f"{prefix}{name}"


def other_names(name: str) -> str:
    """Two submodules have other names, and so have the blocks."""
    name = re.sub(r"^blocks\.", "layers.", name)
    return re.sub(r"\bfc\b", "attn_out", re.sub(r"^head\b", "lm_head", name))


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)


@pytest.mark.parametrize("more", LEVELS)
@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "model.language_model.", "module.model."])
@pytest.mark.parametrize("side", ["candidate", "reference"])
def test_a_model_in_a_wrapper_agrees_with_the_bare_one(
    tmp_path: Path, more: dict[str, Any], prefix: str, side: str
) -> None:
    wrapped = Plan(called=front(prefix), around=prefix[:-1], **more)
    plans = (wrapped, Plan(**more)) if side == "candidate" else (Plan(**more), wrapped)
    verdict = compare(tmp_path, *plans)
    assert (verdict.status, verdict.findings) == ("agree", ())
    assert verdict.notes[-1] == said("names-have-prefix", prefix, side)


def test_what_is_planted_in_a_wrapped_model_is_named(tmp_path: Path) -> None:
    plan = Plan(called=front("model."), around="model", left_out=frozenset(["blocks.0.mul"]), blocks=3)
    found = first(compare(tmp_path, plan, Plan(blocks=3)))
    assert (found.kind, found.entry) == ("structure", "Tensor.__mul__.0.forward")


@pytest.mark.parametrize("more", LEVELS)
def test_other_names_of_submodules_are_no_difference(tmp_path: Path, more: dict[str, Any]) -> None:
    verdict = compare(tmp_path, Plan(called=other_names, **more), Plan(**more))
    assert (verdict.status, verdict.findings) == ("agree", ())
    assert verdict.summary["candidate_only"] == verdict.summary["reference_only"] == 0
    if more.get("level") == "L1":
        assert any(note.startswith(said("names-differ", 6, "parameter", "", "")) for note in verdict.notes)
    else:
        (note,) = [note for note in verdict.notes if names_of([note]) == ["names-differ"]]
        assert note.startswith(said("names-differ", "5", "module", "", ""))
        assert said("name-in-reference", "layers.0", "blocks.0") in note


def test_names_in_a_wrapper_and_other_names_together(tmp_path: Path) -> None:
    plan = Plan(called=lambda name: f"model.{other_names(name)}", around="model")
    verdict = compare(tmp_path, plan, Plan())
    assert (verdict.status, verdict.findings) == ("agree", ())


@pytest.mark.parametrize("called", [front("model."), other_names])
@pytest.mark.parametrize("level", ["mix", "L0", "L1"])
def test_a_parameter_that_the_optimizer_leaves_out_is_found_under_other_names(
    tmp_path: Path, called: Callable[[str], str], level: str
) -> None:
    plan = Plan(called=called, without=frozenset(["embedding.weight"]), level=level)
    found = first(compare(tmp_path, plan, Plan(level=level)))
    assert (found.kind, found.entry) == ("optimizer", STEP)
    # A name that the candidate has somewhere is told as it has it.
    name = "embedding.weight" if level == "L1" else called("embedding.weight")
    assert (found.evidence["missing"], found.evidence["extra"]) == ([name], [])


@pytest.mark.parametrize("level", ["mix", "L0", "L1"])
@pytest.mark.parametrize("digests", [True, False])
def test_parameters_of_another_block_are_no_other_names(tmp_path: Path, level: str, digests: bool) -> None:
    of = [frozenset([f"blocks.{number}.fc.weight", f"blocks.{number}.fc.bias"]) for number in (0, 1)]
    plans = [Plan(without=names, level=level, digests=digests) for names in of]
    found = first(compare(tmp_path, *plans))
    assert found.kind == "optimizer"
    assert [set(found.evidence["missing"]), set(found.evidence["extra"])] == of


def test_settings_are_compared_under_other_names(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(called=other_names, settings={"lr": 0.2}), Plan())
    assert told(verdict) == [("optimizer", STEP)]
    assert "layers.0.attn_out.weight" in first(verdict).evidence["parameters"]


def test_a_gradient_is_compared_under_other_names(tmp_path: Path) -> None:
    plan = Plan(called=other_names, parameter_gradients={"blocks.1.fc.weight": off(2)})
    found = first(compare(tmp_path, plan, Plan()))
    assert "layers.1.attn_out.weight" in found.message


def test_a_weight_that_differs_goes_by_the_name_of_the_candidate(tmp_path: Path) -> None:
    plan = Plan(called=other_names, weights={"blocks.1.fc.weight": off(1.5)})
    found = first(compare(tmp_path, plan, Plan()))
    assert (found.kind, found.where) == ("initial_weights", "layers.1.attn_out.weight")


def test_gradients_that_were_not_cleared_are_told_under_other_names(tmp_path: Path) -> None:
    """The step before is known by the names of the candidate, too."""
    one, other = train(tmp_path / "one", Plan(called=other_names)), train(tmp_path / "other", Plan())
    found = pair(Timeline(open_dump(one).part()), Timeline(open_dump(other).part()))
    steps = [
        next(event for event in side if event.parts.kind == "optimizer") for side in (found.candidate, found.reference)
    ]
    assert set(steps[0].record["input_kwargs"]) == set(steps[1].record["input_kwargs"])
    assert steps[0].record["groups"][0]["params"] == steps[1].record["groups"][0]["params"]


def kernel(**more: Any) -> Plan:
    """The weight of the head has another name in the same module."""

    def edit(data: Any) -> Any:
        for name, record in data.items():
            if name.startswith("Module.head.Linear.forward"):
                record["parameters"] = {"kernel": record["parameters"]["weight"], "bias": record["parameters"]["bias"]}
            if name == "Module.head.Linear.parameters_grad":
                record["kernel"] = record.pop("weight")
        return data

    return Plan(called=lambda name: name.replace("head.weight", "head.kernel"), edit=edit, **more)


def test_a_parameter_with_another_name_in_the_same_module(tmp_path: Path) -> None:
    verdict = compare(tmp_path, kernel(), Plan())
    assert (verdict.status, verdict.findings) == ("agree", ())
    assert verdict.notes == (
        said("name-differs", "parameter", "", said("name-in-reference", "head.kernel", "head.weight")),
    )


def test_a_parameter_with_another_name_and_other_values(tmp_path: Path) -> None:
    verdict = compare(tmp_path, kernel(weights={"head.weight": off(1.5)}), Plan())
    assert [(found.kind, found.where) for found in verdict.findings] == [("initial_weights", "head.kernel")]


def modules(folder: Path, *paths: str) -> Timeline:
    module = {"input_args": [], "output": []}
    return Timeline(write_part(folder, {f"Module.{path}.Linear.forward.0": module for path in paths}))


def test_a_prefix_is_left_out_only_where_fewer_names_are_the_same_with_it(tmp_path: Path) -> None:
    sides = (
        modules(tmp_path / "a", "fc", "head", "inner.fc", "inner.head", "z"),
        modules(tmp_path / "b", "fc", "head", "w"),
    )
    assert drop_prefixes(*sides).prefixes == ("", "")
    sides = modules(tmp_path / "c", "fc", "inner.fc", "inner.head", "z"), modules(tmp_path / "d", "fc", "head", "w")
    assert drop_prefixes(*sides).prefixes == ("inner", "")


def test_wrappers_on_both_sides_need_no_note(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(called=front("module.")), Plan(called=front("module.")))
    assert verdict.notes == ()


def test_models_without_common_names_are_left_as_they_are(tmp_path: Path) -> None:
    parts = [
        write_part(tmp_path / side, {f"Module.{path}.Linear.forward.0": {"input_args": [], "output": []}})
        for side, path in (("one", "a.b"), ("other", "c"))
    ]
    found = pair(*map(Timeline, parts))
    assert found.naming.prefixes == ("", "")
    assert notes_of(found.naming) == [said("name-differs", "module", "", said("name-in-reference", "a.b", "c"))]
