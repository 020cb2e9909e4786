"""The table of statistics is what all recorders and readers go by."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from support.native_and_python import use_python
from support.row_by_row import for_each

from msprobe import statistics_table
from msprobe.capture import native
from msprobe.capture.array_numbers import numbers_of
from msprobe.capture.array_statistics import ArrayStatistics, HostArray
from msprobe.capture.records import describe_array
from msprobe.capture.statistics_text import StatisticsText
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.statistics_table import NAMES, NUMBERS, TABLE, USUAL, choose, needed
from msprobe.store.encode import encode as encode_python

nan, inf = float("nan"), float("inf")
USUAL_NAMES = tuple(one.name for one in USUAL)
TYPES = (
    "float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"
    " complex64 complex128"
).split()
VALUES: dict[str, Any] = {
    "some": [[1.5, -2.0, 0.0], [0.1, 3.0, 7.0]],
    "single": 3.0,
    "zero": 0.0,
    "one": [-2.0],
    "equal": [0.1] * 7,
    "nan": [1.0, nan, 0.0],
    "inf": [1.0, inf, -inf, 0.0],
    "single nan": nan,
    "none": [],
}


def tensor(values: Any, dtype: str) -> torch.Tensor:
    """The values in a type; whole numbers without sign, NaN and infinities."""
    kind, exact = getattr(torch, dtype), torch.tensor(values, dtype=torch.float64)
    return exact.to(kind) if kind.is_floating_point or kind.is_complex else exact.abs().nan_to_num(0, 0, 0).to(kind)


def described(given: torch.Tensor, names: tuple[str, ...] = (), defer: bool = False) -> bytes:
    statistics = TensorStatistics(names=names, defer=defer)
    info = statistics.describe(given)
    statistics.flush()
    assert statistics.errors == 0
    return info.text


def statistics_of(given: torch.Tensor, names: tuple[str, ...] = NAMES, defer: bool = False) -> dict[str, Any]:
    found = json.loads(described(given, names, defer))
    return {one.name: found[one.key] for one in choose(names)}


def same(one: Any, other: Any, relative: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return str(one) == str(other) or one == pytest.approx(other, rel=relative, abs=1e-12)
    return type(one) is type(other) and one == other


def test_keys_names_and_columns_are_each_given_once() -> None:
    for field in ("name", "key", "word", "difference", "relative"):
        values = [getattr(one, field) for one in TABLE]
        assert len(set(values)) == len(values), field
    assert needed(TABLE) <= set(NUMBERS)
    assert [one.key for one in USUAL] == ["Max", "Min", "Mean", "Norm"]


@pytest.mark.parametrize("statistic", TABLE, ids=NAMES)
@pytest.mark.parametrize("way", ["numpy", "torch", "device", "native"])
def test_every_way_of_recording_computes_the_numbers_of_every_statistic(
    statistic: statistics_table.Statistic, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = needed([statistic])
    if way == "native":
        if native.numbers is None:
            pytest.skip("the C extension is not built")
        assert needs <= native.NUMBERS.keys(), "a kernel in C, or Python answers for all"
        return
    if way == "numpy":
        numbers = numbers_of(np.array([1.0, 2.0, 4.0]), needs)
        assert needs <= numbers.keys()
        return
    if way == "torch":
        use_python(monkeypatch)
    found = statistics_of(torch.tensor([1.0, 2.0, 4.0]), (statistic.name,), defer=way == "device")
    assert found[statistic.name] is not None


@pytest.mark.skipif(not native.built, reason="the C extension is not built")
@for_each("dtype", TYPES)
def test_what_c_writes_of_the_usual_statistics_is_what_the_table_makes_of_its_numbers(dtype: str) -> None:
    assert TensorStatistics().is_native()
    for name, values in VALUES.items():
        given = tensor(values, dtype)
        assert described(given) == described(given, USUAL_NAMES), name


@pytest.mark.parametrize("dtype", TYPES)
def test_all_ways_agree_on_all_statistics(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: tensor(values, dtype) for name, values in VALUES.items()}
    itemsize = getattr(torch, dtype).itemsize
    relative = 1e-6 if itemsize >= 4 else 0.3 if itemsize == 1 else 2e-2
    expected = {name: statistics_of(one) for name, one in given.items()}
    late = {name: statistics_of(one, defer=True) for name, one in given.items()}
    use_python(monkeypatch)
    by_torch = {name: statistics_of(one) for name, one in given.items()}
    for found in (late, by_torch):
        for name in given:
            for one in NAMES:
                assert same(found[name][one], expected[name][one], relative), (name, one)


@pytest.mark.parametrize("with_native", [True, False])
@pytest.mark.parametrize("dtype", [name for name in TYPES if hasattr(np, name)])
def test_arrays_have_the_statistics_of_tensors(dtype: str, with_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: tensor(values, dtype) for name, values in VALUES.items()}
    expected = {name: statistics_of(one) for name, one in given.items()}
    if not with_native:
        use_python(monkeypatch)
    statistics = ArrayStatistics(names=NAMES)
    for name, one in given.items():
        array = one.numpy()
        found = json.loads(statistics.describe("T", dtype, array.shape, HostArray(array, dtype)).text)
        as_argument = describe_array(array, statistics.text)
        for row in TABLE:
            if row.name == "l2norm" and one.is_complex():
                continue  # PyTorch has none
            wanted = expected[name][row.name]
            assert same(found[row.key], wanted, 2e-2), (name, row.key)
            if not one.is_complex():
                # Of a single whole number mean and norm are told as such of a tensor, in double of an argument.
                wanted = float(wanted) if isinstance(as_argument[row.key], float) else wanted
                assert same(as_argument[row.key], wanted, 2e-2), (name, row.key)


@pytest.mark.parametrize("defer", [False, True])
def test_only_what_is_asked_for_is_written_and_in_the_order_of_the_table(defer: bool) -> None:
    given = torch.tensor([1.0, 0.0])
    for names in (("max",), ("l2norm", "min"), NAMES):
        found = json.loads(described(given, names, defer))
        assert [key for key in found if key in {one.key for one in TABLE}] == [one.key for one in choose(names)]
        assert found["zero"] == 1
    digests = TensorStatistics("md5", names=("md5",))
    assert list(json.loads(digests.describe(given).text)) == ["type", "dtype", "shape", "requires_grad", "md5", "zero"]


def test_a_kernel_that_c_lacks_is_asked_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = statistics_of(torch.tensor([1.0, 2.0]))
    monkeypatch.setattr(native, "NUMBERS", {name: 0 for name in native.NUMBERS if name != "norm"})
    assert not TensorStatistics(names=NAMES).is_native()
    assert statistics_of(torch.tensor([1.0, 2.0])) == pytest.approx(wanted)


@pytest.mark.parametrize("way", ["native", "python", "late", "numpy"])
def test_a_description_says_its_statistics_as_numbers(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = torch.tensor([1.0, -inf, 0.0])
    wanted = {"Max": 1.0, "Min": -inf, "Mean": -inf, "Norm": inf}
    if way == "numpy":
        info: Any = ArrayStatistics().describe("T", "Float32", (3,), HostArray(given.numpy(), "float32"))
    else:
        if way == "python":
            use_python(monkeypatch)
        statistics = TensorStatistics(defer=way == "late")
        info = statistics.describe(given)
        if way == "late":
            assert info.statistics == dict.fromkeys(wanted)
        statistics.flush()
    assert info.statistics == wanted
    assert info.nonfinite is True
    assert {key: value for key, value in json.loads(info.text).items() if key in wanted} == wanted
    assert info.with_file("a.pt").statistics == wanted


@pytest.mark.skipif(not native.built, reason="the C extension is not built")
def test_a_description_makes_its_text_when_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = TensorStatistics()
    rendered: list[Any] = []
    monkeypatch.setattr(
        statistics.text, "render", lambda numbers: rendered.append(numbers) or StatisticsText().render(numbers)
    )
    info = statistics.describe(torch.tensor([1.0, 2.0]).to_sparse())
    assert (info.nonfinite, info.statistics["Max"], rendered) == (False, 2.0, [])
    assert native.encode({"input": info}, 0) == encode_python({"input": info}, 0)
    assert len(rendered) == 1
