"""The curves of the page: loss, gradients and weights of a step, without judging it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hand_made import backward, call, tensor, write_part

from msprobe.store.reader import open_dump
from msprobe.view.curve import sizes_of

LOSS = tensor(value=2.5, requires_grad=True)
PASSES = {
    "Functional.mse_loss.0.forward": call(out=LOSS),
    "Functional.mse_loss.0.backward": backward(tensor(2, value=3.0)),
    "Module.fc.Linear.parameters_grad": {"weight": [tensor(2, value=3.0)]},
}
#: The second of two micro-batches left 4; clipping made 1 of it.
TAKEN = {"class": "SGD", "input_args": [], "input_kwargs": {"fc.weight": {"grad": tensor(2, value=1.0)}}, "output": []}


def gradient_norm(folder: Path, **more: Any) -> float | None:
    names = {"clip": "Torch._foreach_norm.0.forward", "optimizer": "Optimizer.SGD.0.forward"}
    write_part(folder, {**PASSES, **{names[key]: record for key, record in more.items()}})
    dump = open_dump(folder)
    (step,) = dump.steps
    loss, norm, _ = sizes_of(dump, step, dump.ranks(step)[0])
    assert loss == 2.5
    return norm


def test_the_gradients_are_those_that_the_optimizer_takes(tmp_path: Path) -> None:
    assert gradient_norm(tmp_path, optimizer=TAKEN) == 1.0


def test_before_clipping_they_are_what_it_measured(tmp_path: Path) -> None:
    assert gradient_norm(tmp_path, clip=call([tensor(2, value=4.0)]), optimizer=TAKEN) == 4.0


def test_a_norm_of_other_tensors_is_not_theirs(tmp_path: Path) -> None:
    assert gradient_norm(tmp_path, clip=call([tensor(3, value=4.0)]), optimizer=TAKEN) == 1.0


def test_without_an_optimizer_they_are_those_of_the_backward_pass(tmp_path: Path) -> None:
    assert gradient_norm(tmp_path) == 3.0
