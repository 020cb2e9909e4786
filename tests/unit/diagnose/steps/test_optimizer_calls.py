from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.diagnose import compare_runs
from msprobe.diagnose.steps.optimizer_calls import calls_inside_steps
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.store.reader import open_dump

USER = [
    "File /home/me/train.py, line 9, in step, \n optimizer.step()",
    "File /home/me/train.py, line 14, in <module>, \n go",
]
WRAPPER = "File /lib/torch/optim/optimizer.py, line {}, in wrapper, \n {}"
INSIDE = [
    "File /lib/torch/optim/sgd.py, line 379, in sgd, \n param.add_(grad, alpha=-lr)",
    WRAPPER.format(530, "func()"),
]
STEP = [WRAPPER.format(520, "pre_hook(self)"), *USER]
CLIPPING = ["File /home/me/train.py, line 8, in step, \n gradient.mul_(0.5)", USER[1]]


def step(rate: float, inside: list[str] | None = None) -> Recording:
    """A gradient that is halved, and the step of an optimizer with one call inside."""
    rec = Recording()
    weight, gradient = Value(drawn("weight", 8), True), Value(drawn("gradient", 8))
    half = gradient.of(gradient.array * np.float32(0.5))
    after = weight.of(weight.array - np.float32(rate) * half.array)
    halved = f"{rec.call('Tensor.mul_', [gradient, 0.5], half)}.forward"
    added = f"{rec.call('Tensor.add_', [weight, half], after, keywords={'alpha': -rate})}.forward"
    rec.optimizer("SGD", {"w": {"weight": weight, "grad": half}}, {"w": {"weight": after}}, {"lr": rate})
    rec.stacks = {halved: CLIPPING, added: inside or [*INSIDE, *USER], "Optimizer.SGD.0.forward": STEP}
    return rec


def names(folder: Path, rec: Recording) -> list[str]:
    part = open_dump(rec.write(folder / "step0" / "rank", level="L1")).part()
    return [event.name for event in Timeline(part) if event.direction == "optimizer"]


def test_calls_inside_a_step_are_known_by_their_stacks(tmp_path: Path) -> None:
    assert names(tmp_path, step(0.1)) == ["Tensor.add_.0.forward", "Optimizer.SGD.0.forward"]


@pytest.mark.parametrize(
    "stack",
    [
        CLIPPING,
        [],
        USER,
        ["File /home/me/train.py, line 20, in clip, \n x", *USER],
        [*INSIDE, USER[0].replace("line 9", "line 8"), USER[1]],
    ],
    ids=["before it", "no stack", "as deep as it", "of another function", "from another line"],
)
def test_other_calls_are_not_inside(tmp_path: Path, stack: list[str]) -> None:
    assert names(tmp_path, step(0.1, stack or ["unknown"])) == ["Optimizer.SGD.0.forward"]


def test_a_setting_comes_before_the_calls_that_use_it(tmp_path: Path) -> None:
    folders = [step(rate).write(tmp_path / str(rate), level="L1") for rate in (0.2, 0.1)]
    verdict = compare_runs(*folders)
    assert [(found.kind, found.entry) for found in verdict.findings] == [
        ("optimizer", "Optimizer.SGD.0.forward"),
        ("argument", "Tensor.add_.0.forward"),
    ]


def test_a_step_without_stack_has_no_calls_inside(tmp_path: Path) -> None:
    rec = step(0.1)
    del rec.stacks["Optimizer.SGD.0.forward"]
    part = open_dump(rec.write(tmp_path / "dump", level="L1")).part()
    found: Any = calls_inside_steps(part, Timeline(part).events)
    assert found == []
