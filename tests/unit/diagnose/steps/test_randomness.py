"""What draws random numbers is known by what it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.steps.randomness import is_random
from msprobe.diagnose.steps.timeline import Event


def tensor(values: Any) -> dict[str, Any]:
    array = np.asarray(values, np.float64)
    numbers = {"Max": array.max(), "Min": array.min(), "Mean": array.mean(), "Norm": np.linalg.norm(array)}
    plain = {key: float(one) for key, one in numbers.items()}
    return {"type": "mindspore.Tensor", "dtype": "Float32", "shape": list(array.shape), **plain}


def event(name: str, **record: Any) -> Event:
    found = {"input_args": [], "input_kwargs": {}, "output": [], **record}
    return Event(name, read_name(name), found, "forward")


def dropped(keep: float, told: float, count: int = 4000) -> dict[str, Any]:
    mask = np.arange(count) % 10 < round(10 * keep)
    result = np.linspace(-1, 1, count) * mask / keep
    chance = {"keep_prob": {"type": "float", "value": told}}
    return {"attributes": chance, "output": [tensor(result), tensor(mask)], "input_args": [tensor(np.ones(count))]}


@pytest.mark.parametrize("name", ["Primitive.dropout.Dropout.0.forward", "Primitive.x.AnyName.0.forward"])
@pytest.mark.parametrize("told", [0.7, 0.3])
def test_a_mask_with_as_many_ones_as_a_probability_says_is_drawn(name: str, told: float) -> None:
    assert is_random(event(name, **dropped(0.7, told)))


def test_a_mask_that_no_probability_explains_is_not_drawn() -> None:
    assert not is_random(event("Primitive.x.ReLUMask.0.forward", **dropped(0.5, 0.9)))
    less = {**dropped(0.5, 0.5), "attributes": {}}
    assert not is_random(event("Primitive.x.ReLUMask.0.forward", **less))


@pytest.mark.parametrize("word", ["seed", "seed0", "generator", "rng"])
def test_a_call_that_takes_a_seed_or_a_generator_draws(word: str) -> None:
    given = {"type": "int", "value": 3}
    assert is_random(event("Primitive.x.Perturb.0.forward", attributes={word: given}))
    assert is_random(event("Functional.perturb.0.forward", input_kwargs={word: given}))


@pytest.mark.parametrize("word", ["seeds_of_all", "proceed", "degenerate", "margin"])
def test_other_words_are_no_seeds(word: str) -> None:
    assert not is_random(event("Functional.perturb.0.forward", input_kwargs={word: {"type": "int", "value": 3}}))


def test_a_generator_that_is_not_given_says_nothing() -> None:
    assert not is_random(event("Functional.perturb.0.forward", input_kwargs={"generator": None}))
