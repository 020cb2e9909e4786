"""A call of one side alone that cuts the backward pass is named first, where no record says what requires gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.hand_made import write_part

from msprobe.diagnose.runs import compare_runs

Record = dict[str, Any]


def tensor(value: float, *shape: int) -> Record:
    count = 1
    for one in shape:
        count *= one
    numbers = {"Max": value, "Min": -value, "Mean": value / 7, "Norm": value * count**0.5 / 2}
    return {"type": "mindspore.Tensor", "dtype": "Float32", "shape": list(shape), **numbers}


def forward(inputs: list[Record], result: Record) -> Record:
    return {"input_args": inputs, "input_kwargs": {}, "output": [result]}


def backward(inputs: list[Any], outputs: list[Any]) -> Record:
    return {"input": inputs, "output": outputs}


def training(cut: str) -> Record:
    """Two branches of one tensor; ``cut``: the call before the second one, which hands its argument on as it is."""
    x, h, y, z, w = (tensor(value, 4, 4) for value in (1.0, 0.5, 2.0, 3.0, 0.7))
    gz, gy, first, second = (tensor(value, 4, 4) for value in (0.1, 0.2, 0.05, 0.15))
    gone = bool(cut)
    found: Record = {"Functional.tanh.0.forward": forward([x], h)}
    if cut:
        found[f"{cut}.0.forward"] = forward([h], h)
    found |= {
        "Functional.matmul.0.forward": forward([h, w], y),
        "Functional.matmul.1.forward": forward([h, w], z),
        "Functional.matmul.1.backward": backward([gz], [None if gone else second, tensor(0.3, 4, 4)]),
        "Functional.matmul.0.backward": backward([gy], [first, tensor(0.4, 4, 4)]),
        "Functional.tanh.0.backward": backward(
            [first if gone else tensor(0.2, 4, 4)], [tensor(0.02 if gone else 0.1, 4, 4)]
        ),
    }
    return found


@pytest.mark.parametrize("name", ["Functional.stop_gradient", "Functional.cut_here", "Primitive.own.Barrier"])
@pytest.mark.parametrize("turned", [False, True], ids=["candidate", "reference"])
def test_a_call_of_one_side_that_hands_on_and_cuts_is_the_headline(tmp_path: Path, name: str, turned: bool) -> None:
    for folder, cut in (("a", name), ("b", "")):
        write_part(tmp_path / folder / "step0" / "rank", training(cut), framework="mindspore", construct={})
    order = ("b", "a") if turned else ("a", "b")
    verdict = compare_runs(*(tmp_path / one for one in order))
    assert verdict.status == "diverged"
    first = verdict.findings[0]
    assert (first.kind, first.entry) == ("structure", f"{name}.0.forward")


def test_a_call_that_hands_on_and_lets_gradients_through_is_no_cut(tmp_path: Path) -> None:
    with_copy, without = training(""), training("")
    h = tensor(0.5, 4, 4)
    with_copy = {
        "Functional.tanh.0.forward": with_copy["Functional.tanh.0.forward"],
        "Functional.identity.0.forward": forward([h], h),
        **with_copy,
    }
    for folder, data in (("a", with_copy), ("b", without)):
        write_part(tmp_path / folder / "step0" / "rank", data, framework="mindspore", construct={})
    assert compare_runs(tmp_path / "a", tmp_path / "b").status != "diverged"
