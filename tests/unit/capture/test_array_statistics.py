"""What is said of tensors that are numpy arrays; the native numbers and numpy's are the same."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest
from support.native_and_python import use_python

from msprobe.capture import native
from msprobe.capture.array_statistics import ArrayStatistics, HostArray, crc32, nearest_bfloat16


def described(array: Any, kind: str | None = None, mode: str = "statistics", high: bool = False) -> dict[str, Any]:
    values = np.asarray(array)
    host = HostArray(values, kind or values.dtype.name)
    info = ArrayStatistics(mode, high).describe("numpy.Tensor", host.kind, values.shape, host)
    found: dict[str, Any] = json.loads(info.text)
    return found


@pytest.fixture(params=["native", "numpy"])
def _both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        use_python(monkeypatch)
    elif native.numbers is None:
        pytest.skip("the C extension was not built")


TYPES = "float32 float64 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_of_every_real_type(dtype: str) -> None:
    found = described(np.array([[1, 2], [4, 0]], dtype))
    assert list(found)[:7] == ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm"]
    assert found["shape"] == [2, 2]
    assert (found["Max"], found["Min"], found["Mean"], found["zero"]) == (4, 0, 1.75, 1)
    assert found["Norm"] == pytest.approx(21**0.5, rel=1e-3)
    assert ("digest" in found) is (np.dtype(dtype).kind != "f")


@pytest.mark.usefixtures("_both")
def test_bfloat16_is_read_from_its_bits() -> None:
    values = np.array([1.5, -2.25, 0.0], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    found = described(bits, "bfloat16")
    assert (found["Max"], found["Min"], found["Mean"]) == (1.5, -2.25, -0.25)
    assert "digest" not in found
    assert crc32(HostArray(bits, "bfloat16")) == zlib.crc32(values.tobytes())


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        ([True, False], (True, False, None, None)),
        (np.array([3 + 4j, 0], np.complex64), (5.0, 0.0, 2.5, 5.0)),
        (np.zeros((0, 3), np.float32), (None, None, None, None)),
        (np.float32(-2), (-2.0, -2.0, -2.0, 2.0)),
        (np.int32(-2), (-2, -2, -2, 2)),
        (np.complex64(3 + 4j), (5.0, 5.0, 5.0, 5.0)),
        (np.bool_(True), (True, True, None, None)),
    ],
)
def test_bool_complex_empty_and_single_values(array: Any, wanted: tuple[Any, ...]) -> None:
    found = described(array)
    assert tuple(found[key] for key in ("Max", "Min", "Mean", "Norm")) == wanted
    assert type(found["Max"]) is type(wanted[0])


@pytest.mark.usefixtures("_both")
def test_nan_and_infinity_are_counted() -> None:
    found = described(np.array([1, np.nan, np.inf, 0], np.float32))
    assert all(found[key] != found[key] for key in ("Max", "Min", "Mean", "Norm"))
    assert (found["nan"], found["inf"], found["zero"]) == (1, 1, 1)
    found = described(np.array([1, -np.inf], np.float32))
    assert (found["Max"], found["Min"], found["inf"]) == (1.0, float("-inf"), 1)


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("high", [False, True])
def test_half_types_answer_in_their_own_precision_unless_asked(high: bool) -> None:
    values = np.array([0.1, 0.2, 0.7], np.float16)
    mean = np.float32(values.astype(np.float64).mean())
    assert described(values, high=high)["Mean"] == float(mean if high else np.float16(mean))


def test_a_permutation_has_another_digest_and_another_crc() -> None:
    one, other = np.arange(6), np.arange(6)[::-1].copy()
    assert described(one)["digest"] != described(other)["digest"]
    assert described(one, mode="md5")["md5"] == f"{zlib.crc32(one.tobytes()):08x}"
    assert described(one, mode="md5")["md5"] != described(other, mode="md5")["md5"]
    half = np.arange(6, dtype=np.float32)
    assert described(half, mode="xxh3")["digest"].startswith("xxh3:")
    assert described(half, mode="xor")["md5"].startswith("0x")


def test_structure_needs_no_values() -> None:
    info = ArrayStatistics("structure").describe("numpy.Tensor", "Float32", (2, 3), None)
    assert json.loads(info.text) == {"type": "numpy.Tensor", "dtype": "Float32", "shape": [2, 3]}


def test_what_cannot_be_read_has_nulls_and_the_reason() -> None:
    found = json.loads(ArrayStatistics("md5").absent("numpy.Tensor", "Float32", (2,), "no kernel").text)
    assert [found[key] for key in ("Max", "Min", "Mean", "Norm", "md5")] == [None] * 5
    assert found["unsupported"] == "no kernel"


def test_the_name_of_the_file_stands_behind_the_numbers() -> None:
    host = HostArray(np.array([1.0, 0.0], np.float32), "float32")
    info = ArrayStatistics("md5").describe("numpy.Tensor", "Float32", (2,), host).with_file("a.npy")
    assert info.data_name == "a.npy"
    keys = list(json.loads(info.text))
    assert keys[keys.index("md5") + 1] == "data_name"
    assert keys[-1] == "zero"


def test_rounding_to_bfloat16_is_to_the_nearest_and_ties_go_to_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, np.inf, np.nan, -3.5], np.float32)
    assert nearest_bfloat16(values)[:4].tolist() == [1.0, 1.0, 1.015625, float("inf")]
    assert np.isnan(nearest_bfloat16(values)[4])
    assert nearest_bfloat16(values)[5] == -3.5
