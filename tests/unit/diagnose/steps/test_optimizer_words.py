"""Steps of optimizers that MindSpore recorded, beside each other and beside those of PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.hand_made import call, tensor, write_part

from msprobe.diagnose.check import check_run
from msprobe.diagnose.findings import Verdict
from msprobe.diagnose.runs import compare_runs
from msprobe.messages import said

MINDSPORE = {"learning_rate": 0.01, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "loss_scale": 1.0}
PYTORCH = {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0, "maximize": False, "foreach": None}


def leaf(value: Any) -> Any:
    if isinstance(value, list):
        return [leaf(one) for one in value]
    return None if value is None else {"type": type(value).__name__, "value": value}


def dump(folder: Path, framework: str, kind: str, settings: dict[str, Any], moved: float, grad: float = 0.25) -> Path:
    """A step with one layer: its pass, the gradient of its weight, and the step of the optimizer."""
    own = framework == "mindspore"
    dtype, layer = ("Float32", "Cell.a.Dense") if own else ("torch.float32", "Module.a.Linear")

    def value(number: float) -> Any:
        # Of numbers that differ: of one number alone, equal statistics say little.
        return tensor(2, 2, dtype=dtype, value=number) | {"Min": number / 4, "Mean": number / 2, "Norm": 1.5 * number}

    state = {"moment1": value(0.0), "moment2": value(0.0)} if own else {}
    after = {"moment1": value(0.1), "moment2": value(0.2)} if own else {"exp_avg": value(0.1), "step": value(1.0)}
    data = {
        f"{layer}.forward.0": {**call(value(0.5), out=value(1.5)), "parameters": {"weight": value(1.0)}},
        f"{layer}.parameters_grad": {"weight": [value(grad)]},
        f"Optimizer.{kind}.0.forward": {
            "input_args": [],
            "input_kwargs": {"a.weight": {"weight": value(1.0), "grad": value(grad), **state}},
            "output": [{"a.weight": {"weight": value(moved), **after}}],
            "class": f"somewhere.{kind}",
            "groups": [{"params": ["a.weight"], **{key: leaf(one) for key, one in settings.items()}}],
        },
    }
    for order, record in enumerate(data.values()):
        record["msprobe"] = {"order": order}
    write_part(folder / "step0" / "rank", data, framework=framework, construct=dict.fromkeys(data))
    return folder


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change what is in the only file of a dump."""
    file = folder / "step0" / "rank" / "dump.json"
    found = json.loads(file.read_text())
    change(found)
    file.write_text(json.dumps(found))


def compared(tmp_path: Path, one: dict[str, Any], other: dict[str, Any], kinds: tuple[str, str]) -> Verdict:
    mindspore = dump(tmp_path / "mindspore", "mindspore", kinds[0], one, 0.99)
    pytorch = dump(tmp_path / "pytorch", "pytorch", kinds[1], other, 0.99001)
    return compare_runs(mindspore, pytorch)


@pytest.mark.parametrize(
    ("kinds", "one", "other"),
    [
        (("Adam", "Adam"), MINDSPORE, PYTORCH),
        (("AdamWeightDecay", "AdamW"), MINDSPORE, PYTORCH),
        (
            ("Momentum", "SGD"),
            {"learning_rate": 0.1, "momentum": 0.9, "use_nesterov": False},
            {"lr": 0.1, "momentum": 0.9},
        ),
        (
            ("RMSProp", "RMSprop"),
            {"learning_rate": 0.1, "decay": 0.9, "epsilon": 1e-8},
            {"lr": 0.1, "alpha": 0.9, "eps": 1e-8},
        ),
    ],
)
def test_the_same_optimizer_in_two_frameworks_is_the_same(
    tmp_path: Path, kinds: tuple[str, str], one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert compared(tmp_path, one, other, kinds).findings == ()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"learning_rate": 0.02}, said("argument-is", "lr", "0.02", "0.01")),
        ({"beta2": 0.99}, said("argument-is", "betas", "[0.9, 0.99]", "[0.9, 0.999]")),
        ({"eps": 1e-6}, said("argument-is", "eps", "1e-06", "1e-08")),
    ],
)
def test_another_setting_between_two_frameworks_is_told(tmp_path: Path, setting: dict[str, Any], words: str) -> None:
    first = compared(tmp_path, {**MINDSPORE, **setting}, PYTORCH, ("Adam", "Adam")).findings[0]
    assert first.kind == "optimizer"
    assert words in first.message


def test_another_optimizer_is_told(tmp_path: Path) -> None:
    first = compared(tmp_path, {"learning_rate": 0.01}, PYTORCH, ("Momentum", "Adam")).findings[0]
    assert first.message == said("optimizer-class-differs", "SGD", "Adam")


def test_a_number_that_was_rounded_to_single_precision_is_the_same_setting(tmp_path: Path) -> None:
    rounded = {**tensor(dtype="Float32"), "Max": 0.009999999776482582, "Min": 0.009999999776482582}
    one = dump(tmp_path / "one", "mindspore", "Adam", MINDSPORE, 0.99)
    other = dump(tmp_path / "other", "mindspore", "Adam", MINDSPORE, 0.99)
    edit(other, lambda found: found["data"]["Optimizer.Adam.0.forward"]["groups"][0].update(learning_rate=rounded))
    assert compare_runs(one, other).findings == ()


def test_another_setting_between_two_runs_of_mindspore_is_told_in_its_own_words(tmp_path: Path) -> None:
    one = dump(tmp_path / "one", "mindspore", "Adam", MINDSPORE, 0.99)
    other = dump(tmp_path / "other", "mindspore", "Adam", {**MINDSPORE, "learning_rate": 0.1}, 0.9)
    first = compare_runs(one, other).findings[0]
    assert first.message.startswith(
        said("argument-differs", "Optimizer.Adam.0.forward", "learning_rate", "0.01", "0.1")
    )


def test_a_step_outside_of_what_one_framework_recorded_is_no_finding(tmp_path: Path) -> None:
    mindspore = dump(tmp_path / "mindspore", "mindspore", "Adam", MINDSPORE, 0.99)
    pytorch = dump(tmp_path / "pytorch", "pytorch", "Adam", PYTORCH, 0.99)
    edit(pytorch, lambda found: found["data"].pop("Optimizer.Adam.0.forward"))
    for folder in (mindspore, pytorch):
        edit(folder, lambda found: found.update(msprobe={"version": "1", "complete": True}))
    assert compare_runs(mindspore, pytorch).findings == ()
    assert compare_runs(pytorch, mindspore).findings == ()


@pytest.mark.parametrize(("rate", "is_told"), [(0.01, True), (0.0, False)])
def test_check_tells_of_an_optimizer_of_mindspore_that_moves_nothing(
    tmp_path: Path, rate: float, is_told: bool
) -> None:
    folder = dump(tmp_path, "mindspore", "Adam", {**MINDSPORE, "learning_rate": rate}, 1.0)
    assert any(finding.code == "C416" for finding in check_run(folder).findings) == is_told
