from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.row_by_row import for_each
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.steps.tensor_info import tensors_of
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance import noise, units


def leaf(array: Any, dtype: str = "float32") -> dict[str, Any]:
    found: dict[str, Any] = Recording().leaf(Value(np.asarray(array), dtype=dtype))
    return found


def event(name: str) -> Event:
    parts = read_name(name)
    return Event(name, parts, {}, "backward" if parts.direction == "backward" else "forward")


def slots(*arrays: Any, dtype: str = "float32") -> list[tuple[str, Any]]:
    return [(f"input.{place}", leaf(array, dtype)) for place, array in enumerate(arrays)]


def own(name: str, inputs: list[tuple[str, Any]], outputs: list[tuple[str, Any]]) -> float:
    return noise.own_noise(event(name), tensors_of(inputs), tensors_of(outputs), units.unit(inputs, outputs))


def amplification(name: str, inputs: list[Any], output: Any) -> float:
    return noise.amplification(event(name), tensors_of(slots(*inputs)), tensors_of(slots(output)))


@for_each(
    ("dtype", "eps"),
    [
        ("torch.float32", 2.0**-23),
        ("torch.float64", 2.0**-52),
        ("torch.float16", 2.0**-10),
        ("torch.bfloat16", 2.0**-7),
        ("torch.complex64", 2.0**-23),
        ("torch.float8_e4m3fn", 2.0**-2),
        ("Float32", 2.0**-23),
        ("BFloat16", 2.0**-7),
        ("torch.int64", 0.0),
        ("torch.bool", 0.0),
    ],
)
def test_units_of_types(dtype: str, eps: float) -> None:
    assert units.eps_of({"type": "torch.Tensor", "dtype": dtype}) == eps


def test_the_coarsest_type_counts() -> None:
    assert units.unit(slots([1.0]), slots([1.0], dtype="bfloat16"), [("x", None), ("y", 3)]) == 2.0**-7
    assert units.unit([]) == 0.0


@pytest.mark.parametrize(
    "api", ["Tensor.reshape", "Torch.cat", "Tensor.__getitem__", "Functional.embedding", "Torch.max"]
)
def test_what_only_moves_adds_no_noise(api: str) -> None:
    assert own(f"{api}.0.forward", slots(drawn("a", 8)), slots(drawn("a", 8))) == 0.0


def test_noise_grows_with_the_root_of_the_number_of_terms() -> None:
    few = own("Torch.sum.0.forward", slots(drawn("a", 100)), slots(np.float32(1)))
    many = own("Torch.sum.0.forward", slots(drawn("a", 10_000)), slots(np.float32(1)))
    assert few == pytest.approx(2.0**-23 * (2 + 10 / 4))
    assert many == pytest.approx(2.0**-23 * (2 + 100 / 4))


def test_backward_calls_and_modules_may_add_more() -> None:
    given_, made = slots(drawn("a", 100)), slots(drawn("b", 100))
    plain = own("Torch.tanh.0.forward", given_, made)
    assert own("Torch.tanh.0.backward", given_, made) > plain
    assert own("Module.fc.Linear.forward.0", given_, made) > plain


class TestAmplification:
    def test_of_elementwise_calls_is_one(self) -> None:
        assert amplification("Tensor.__mul__.0.forward", [drawn("a", 9)], drawn("b", 9)) == 1.0

    def test_of_exponents_is_their_size(self) -> None:
        large = np.float32([-30.0, 20.0])
        assert amplification("Torch.exp.0.forward", [large], np.exp(large)) == 30.0
        assert amplification("Torch.softmax.0.forward", [large * 100], drawn("b", 2)) == 64.0, "not without end"

    def test_of_a_difference_is_its_cancellation(self) -> None:
        a = drawn("a", 50)
        b = a + np.float32(1e-2)
        assert amplification("Tensor.__sub__.0.forward", [a, b], a - b) > 50
        assert amplification("Tensor.__sub__.0.forward", [a, -a], a + a) == 1.0

    def test_of_a_sum_that_cancels(self) -> None:
        a = np.concatenate([np.ones(500), -np.ones(500) * 0.9999]).astype(np.float32)
        assert amplification("Torch.sum.0.forward", [a], a.sum()) > 100
        assert amplification("Torch.mean.0.forward", [np.ones(1000, np.float32)], np.float32(1)) <= 1.0

    def test_of_a_product_that_cancels(self) -> None:
        a, b = drawn("a", 16, 64), drawn("b", 64, 16)
        assert amplification("Torch.matmul.0.forward", [a, b], (a @ b) * np.float32(1e-3)) > 100
        assert amplification("Torch.matmul.0.forward", [a, b], a @ b) < 2

    def test_of_what_takes_the_mean_away(self) -> None:
        far = drawn("a", 100) + np.float32(1000)
        assert amplification("Functional.layer_norm.0.forward", [far], drawn("b", 100)) > 500
        assert amplification("Functional.layer_norm.0.forward", [drawn("a", 100)], drawn("b", 100)) < 2

    def test_without_tensors_is_one(self) -> None:
        assert noise.amplification(event("Torch.arange.0.forward"), [], []) == 1.0

    @given(
        st.sampled_from(["sum", "mean", "exp", "sub", "matmul", "layer_norm", "tanh"]),
        st.sampled_from(["forward", "backward"]),
        st.lists(st.floats(width=32), min_size=0, max_size=6),
        st.lists(st.floats(width=32), min_size=0, max_size=6),
    )
    def test_is_a_number_from_one_up(self, api: str, direction: str, given_: list[float], made: list[float]) -> None:
        inputs = tensors_of(slots(np.float32(given_), np.float32(given_)))
        outputs = tensors_of(slots(np.float32(made)))
        found = noise.amplification(event(f"Torch.{api}.0.{direction}"), inputs, outputs)
        assert found >= 1.0
        assert math.isfinite(found)
        assert math.isfinite(noise.own_noise(event(f"Torch.{api}.0.{direction}"), inputs, outputs, 1e-7))


@for_each(
    ("left", "allowed", "expected"),
    [(0.1, 0.2, False), (0.3, 0.2, False), (0.9, 0.2, True), (0.6, 0.55, True), (0.05, 0.01, True), (0.6, 0.7, False)],
)
def test_many_times_more_than_is_explained_is_clear_and_so_is_half_of_a_result(left, allowed, expected):
    assert noise.is_clear(left, allowed) is expected
