"""Arguments are recorded as they were given: which by position, which by keyword, and no defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.recorded import record
from torch import nn

x = torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(0))
v = x[0, 0, :2, :4].contiguous()
t = torch.tensor([0, 1])
some: list[Any] = [v]
more: dict[str, Any] = {"dim": 1}

# name, call, number of positional arguments, keywords in their order
GIVEN: list[tuple[str, Callable[[], Any], int, list[str]]] = [
    ("Functional.layer_norm", lambda: F.layer_norm(v, (4,)), 2, []),
    ("Functional.layer_norm", lambda: F.layer_norm(v, normalized_shape=(4,), eps=1e-6), 1, ["normalized_shape", "eps"]),
    ("Functional.cross_entropy", lambda: F.cross_entropy(v, t), 2, []),
    ("Functional.cross_entropy", lambda: F.cross_entropy(v, t, reduction="sum"), 2, ["reduction"]),
    ("Functional.cross_entropy", lambda: F.cross_entropy(target=t, input=v), 0, ["target", "input"]),
    ("Functional.dropout", lambda: F.dropout(v), 1, []),
    ("Functional.dropout", lambda: F.dropout(v, 0.1, training=True), 2, ["training"]),
    ("Functional.dropout", lambda: nn.Dropout(0.3)(v), 4, []),
    ("Functional.embedding", lambda: F.embedding(t, v), 2, []),
    ("Functional.interpolate", lambda: F.interpolate(x, scale_factor=2), 1, ["scale_factor"]),
    ("Functional.normalize", lambda: F.normalize(v), 1, []),
    ("Functional.gumbel_softmax", lambda: F.gumbel_softmax(v, tau=2.0), 1, ["tau"]),
    ("Functional.log_softmax", lambda: F.log_softmax(v, dim=1), 1, ["dim"]),
    ("Functional.gelu", lambda: F.gelu(v, approximate="tanh"), 1, ["approximate"]),
    ("Functional.linear", lambda: F.linear(v, v), 2, []),
    ("Functional.linear", lambda: nn.Linear(4, 2)(v), 3, []),
    ("Functional.scaled_dot_product_attention", lambda: F.scaled_dot_product_attention(v, v, value=v), 2, ["value"]),
    # Functions that choose between two: what they hand on is not what they were given.
    ("Functional.max_pool2d", lambda: F.max_pool2d(x, 2), 2, []),
    (
        "Functional.max_pool2d",
        lambda: F.max_pool2d(x, 2, stride=1, return_indices=True),
        2,
        ["stride", "return_indices"],
    ),
    ("Functional.max_pool2d_with_indices", lambda: F.max_pool2d_with_indices(x, 2), 2, []),
    ("Functional.adaptive_max_pool2d", lambda: F.adaptive_max_pool2d(x, 2), 2, []),
    ("Tensor.norm", lambda: v.norm(), 1, []),
    ("Tensor.norm", lambda: v.norm(2, dim=1), 2, ["dim"]),
    ("Tensor.split", lambda: v.split(1), 2, []),
    ("Tensor.split", lambda: v.split(split_size=1, dim=1), 1, ["split_size", "dim"]),
    ("Torch.norm", lambda: torch.norm(v, 2), 2, []),
    ("Torch.split", lambda: torch.split(v, 1, dim=0), 2, ["dim"]),
    ("Torch.einsum", lambda: torch.einsum("ij,ij->i", v, v), 3, []),
    ("Torch.cdist", lambda: torch.cdist(v, v), 2, []),
    ("Torch.tensordot", lambda: torch.tensordot(v, v, dims=2), 2, ["dims"]),
    # In C: they reach us as they were written.
    ("Tensor.sum", lambda: v.sum(-1, keepdim=True), 2, ["keepdim"]),
    ("Tensor.to", lambda: v.to(dtype=torch.float64), 1, ["dtype"]),
    ("Torch.add", lambda: torch.add(v, other=v, alpha=2), 1, ["other", "alpha"]),
    # Where the caller's code does not tell, what has its default was not given.
    ("Functional.log_softmax", lambda: F.log_softmax(*some, **more), 1, ["dim"]),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", GIVEN, ids=lambda case: f"{case[0]}-{case[2]}-{','.join(case[3])}")
def test_arguments_are_recorded_as_given(tmp_path: Path, case: tuple[str, Callable[[], Any], int, list[str]]) -> None:
    name, call, positional, keywords = case
    entry = record(tmp_path, call).data[f"{name}.0.forward"]
    assert len(entry["input_args"]) == positional
    assert list(entry["input_kwargs"]) == keywords


def test_their_values_are_those_that_were_given(tmp_path: Path) -> None:
    entry = record(tmp_path, lambda: F.dropout(v, 0.25, training=False)).data["Functional.dropout.0.forward"]
    assert entry["input_args"][0]["shape"] == [2, 4]
    assert entry["input_args"][1] == {"type": "float", "value": 0.25}
    assert entry["input_kwargs"] == {"training": {"type": "bool", "value": False}}


def test_the_form_of_each_call_in_a_loop_and_in_one_line(tmp_path: Path) -> None:
    def work() -> None:
        for n in range(3):
            F.gelu(v, approximate="tanh" if n else "none")
        F.dropout(F.dropout(v, p=0.1), 0.2)

    data = record(tmp_path, work).data
    assert [list(data[f"Functional.gelu.{n}.forward"]["input_kwargs"]) for n in range(3)] == [["approximate"]] * 3
    inner, outer = (data[f"Functional.dropout.{n}.forward"] for n in (0, 1))
    assert (len(inner["input_args"]), list(inner["input_kwargs"])) == (1, ["p"])
    assert (len(outer["input_args"]), list(outer["input_kwargs"])) == (2, [])


def test_gradients_are_named_by_the_place_that_was_given(tmp_path: Path) -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    three = torch.randn(2, 3, 4, requires_grad=True)

    def work() -> None:
        F.scaled_dot_product_attention(three, key=three @ weight, value=three).sum().backward()

    entry = record(tmp_path, work).data["Functional.scaled_dot_product_attention.0.backward"]
    places = set(entry.get("input_grads", {}))
    assert not places - {"input.0", "kwargs.key", "kwargs.value"}


def test_results_are_the_same_objects_the_call_returned(tmp_path: Path) -> None:
    found: list[Any] = []
    record(tmp_path, lambda: found.append(F.max_pool2d(x, 2, return_indices=True)))
    values, places = found[0]
    assert values.shape == places.shape == (1, 2, 4, 4)
    assert torch.equal(values, F.max_pool2d(x, 2))
