"""The curves of the page: loss, gradients and weights of a step, without judging it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from support.hand_made import backward, call, tensor, write_part

from msprobe.store.reader import open_dump
from msprobe.view.curve import as_curves, sizes_of

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


def test_a_gradient_that_is_nan_makes_the_norm_nan_not_unknown(tmp_path: Path) -> None:
    broken = {**TAKEN, "input_kwargs": {"fc.weight": {"grad": tensor(2, value=math.nan)}}}
    norm = gradient_norm(tmp_path, optimizer=broken)
    assert norm is not None
    assert math.isnan(norm)


def test_the_curve_says_nan_from_what_was_not_recorded() -> None:
    nothing = None, None, None
    (loss,) = as_curves([0, 1], [(2.5, None, None), (math.nan, None, None)], [(2.5, None, None), nothing])
    assert loss["candidate"] == [2.5, "nan"]
    assert loss["reference"] == [2.5, None]
    assert loss["difference"] == [0.0, None]


def test_the_order_of_the_gradients_does_not_change_their_norm(tmp_path: Path) -> None:
    sizes = {f"p{number}": {"grad": tensor(2, value=0.1 * number + 0.01)} for number in range(30)}
    there, back = (dict(order) for order in (list(sizes.items()), list(reversed(sizes.items()))))
    one = gradient_norm(tmp_path / "a", optimizer={**TAKEN, "input_kwargs": there})
    assert one == gradient_norm(tmp_path / "b", optimizer={**TAKEN, "input_kwargs": back})
