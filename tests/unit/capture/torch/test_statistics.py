"""What a dump says of everyday tensors, with the native reductions and with torch's own."""

from __future__ import annotations

import json
import math
import zlib

import pytest
import torch
import xxhash
from support.json_text import in_one_line
from support.native_and_python import use_python

from msprobe.capture import native
from msprobe.capture.torch.tensors.statistics import TensorInfo, TensorStatistics

nan, inf = math.nan, math.inf


@pytest.fixture(params=["native", "torch"], autouse=True)
def engine(request, monkeypatch) -> str:
    if request.param == "native":
        if not native.built:
            pytest.skip("the C extension was not built")
    else:
        use_python(monkeypatch)
    return request.param


def described(tensor: torch.Tensor, mode="statistics", precision="low", defer=False) -> dict:
    statistics = TensorStatistics(mode, precision, defer)
    with torch._C.DisableTorchFunction():
        info = statistics.describe(tensor)
    assert info.late == defer
    statistics.flush()
    assert not info.late
    assert statistics.errors == 0
    return json.loads(info.text)


def four(tensor: torch.Tensor, **settings) -> list:
    found = described(tensor, **settings)
    return [found[key] for key in ("Max", "Min", "Mean", "Norm")]


def same(found: list, expected: list, relative: float = 2e-7) -> bool:
    for a, b in zip(found, expected, strict=True):
        if b is None or isinstance(b, (bool, int)):
            if a != b or type(a) is not type(b):
                return False
        elif math.isnan(b) or math.isinf(b):
            if str(a) != str(b):
                return False
        elif not math.isclose(a, b, rel_tol=relative, abs_tol=1e-30):
            return False
    return True


deferred = pytest.mark.parametrize("defer", [False, True], ids=["now", "late"])

TABLE = [
    ("float32", torch.tensor([1.5, -2.0, 0.25]), [1.5, -2.0, -0.0833333358168602, 2.512468934]),
    ("float16 overflows", torch.full((4,), 60000.0, dtype=torch.float16), [60000.0, 60000.0, 60000.0, inf]),
    ("bfloat16 rounds", torch.tensor([1.0, 2.0], dtype=torch.bfloat16), [2.0, 1.0, 1.5, 2.234375]),
    ("nan", torch.tensor([nan, 1.0, inf]), [nan, nan, nan, nan]),
    ("inf", torch.tensor([1.0, inf]), [inf, 1.0, inf, inf]),
    ("-inf", torch.tensor([1.0, -inf]), [1.0, -inf, -inf, inf]),
    ("float64", torch.full((2,), 1e300, dtype=torch.float64), [1e300] * 3 + [1.4142135623730951e300]),
    ("float32 squares", torch.full((4,), 1e30), [1e30, 1e30, 1e30, 2e30]),
    ("int64", torch.tensor([2**40 + 1, -(2**62)]), [2**40 + 1, -(2**62), -(2.0**61) + 2**39, 2.0**62]),
    ("int8", torch.tensor([-128, 127], dtype=torch.int8), [127, -128, -0.5, math.sqrt(128**2 + 127**2)]),
    ("uint8", torch.tensor([0, 255], dtype=torch.uint8), [255, 0, 127.5, 255.0]),
    ("uint16", torch.tensor([1, 65535]).to(torch.uint16), [65535, 1, 32768.0, math.sqrt(1 + 65535**2)]),
    ("uint32", torch.tensor([0, 2**32 - 1]).to(torch.uint32), [2**32 - 1, 0, 2.0**31 - 0.5, 2.0**32 - 1]),
    ("uint64", torch.tensor([-1, 5]).view(torch.uint64), [2**64 - 1, 5, 2.0**63 + 2, 2.0**64]),
    ("bool", torch.tensor([True, False]), [True, False, None, None]),
    ("complex", torch.tensor([1 + 2j, 3 - 1j]), [3.1622776985, 2.2360680103, 2.6991729736, None]),
    ("complex128", torch.tensor([3 + 4j], dtype=torch.complex128), [5.0, 5.0, 5.0, None]),
    ("complex nan", torch.tensor([complex(nan, 1), 1]), [nan, nan, nan, None]),
    ("float8", torch.tensor([1.0, 2, 448]).to(torch.float8_e4m3fn), [448.0, 1.0, 150.33332825, 448.00558472]),
    ("float8 e5m2", torch.tensor([-inf, 2.0]).to(torch.float8_e5m2), [2.0, -inf, -inf, inf]),
    ("0-dim int", torch.tensor(5), [5, 5, 5, 5]),
    ("0-dim float16", torch.tensor(-2.5, dtype=torch.float16), [-2.5, -2.5, -2.5, -2.5]),
    ("0-dim bool", torch.tensor(True), [True, True, None, None]),
    ("0-dim nan", torch.tensor(nan), [nan, nan, nan, nan]),
    ("one element", torch.tensor([-2.0]), [-2.0, -2.0, -2.0, 2.0]),
    ("empty", torch.empty(3, 0), [None, None, None, None]),
    ("transposed", torch.arange(6.0).reshape(2, 3).t(), [5.0, 0.0, 2.5, math.sqrt(55)]),
    ("every second", torch.arange(6.0)[::2], [4.0, 0.0, 2.0, math.sqrt(20)]),
    ("expanded", torch.tensor([3.0]).expand(4), [3.0, 3.0, 3.0, 6.0]),
    ("negated view", torch._neg_view(torch.tensor([1.0, 2.0])), [-1.0, -2.0, -1.5, math.sqrt(5)]),
]  # fmt: skip


@deferred
@pytest.mark.parametrize(("tensor", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_statistics_are_those_of_the_specification(tensor: torch.Tensor, expected: list, defer: bool) -> None:
    assert same(four(tensor, defer=defer), expected)


@deferred
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [1, 7, 100, 3000])
def test_statistics_are_what_torch_computes_in_that_type(dtype, size: int, defer: bool) -> None:
    torch.manual_seed(size)
    x = torch.randn(size, dtype=torch.float64).to(dtype)
    relative = {torch.float32: 3e-7, torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-12}[dtype]
    found = four(x, defer=defer)
    exact = x.double()
    assert found[:2] == [x.max().item(), x.min().item()]
    assert found[2] == pytest.approx(exact.mean().item(), rel=relative, abs=relative * 0.1)
    assert found[3] == pytest.approx(exact.norm().item(), rel=relative)
    for value in found:
        assert torch.tensor(value, dtype=torch.float64).to(dtype).item() == value


def test_high_precision_leaves_half_types_in_float32() -> None:
    assert four(torch.full((4,), 60000.0, dtype=torch.float16), precision="high")[3] == 120000.0
    found = four(torch.tensor([1.0, 2.0], dtype=torch.bfloat16), precision="high")
    assert found[3] == torch.tensor(5.0).sqrt().item()
    assert four(torch.tensor([3.0, 4.0]), precision="high") == [4.0, 3.0, 3.5, 5.0]


def test_keys_stand_in_the_order_of_the_specification() -> None:
    x = torch.tensor([[0, 1], [2, 3]]).t()
    statistics = TensorStatistics("md5")
    info = statistics.describe(x).with_file("a.input.0.pt")
    assert isinstance(info, TensorInfo)
    assert info.data_name == "a.input.0.pt"
    assert list(json.loads(info.text)) == [
        "type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad", "md5", "data_name",
        "stride", "zero", "digest",
    ]  # fmt: skip
    assert info.text == in_one_line(json.loads(info.text)).encode()


def test_extra_keys_appear_only_when_they_say_something() -> None:
    plain = ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad"]
    assert list(described(torch.tensor([1.0, 2.0]))) == plain
    assert described(torch.tensor([0.0, nan, inf, -inf, 0.0, -0.0]))["nan"] == 1
    found = described(torch.tensor([0.0, nan, inf, -inf, 0.0, -0.0]))
    assert (found["nan"], found["inf"], found["zero"]) == (1, 2, 3)
    assert "stride" not in described(torch.ones(3, 1, 2).transpose(0, 1))
    assert described(torch.ones(3, 2).t())["stride"] == [1, 2]


def test_parameters_and_gradients_say_what_they_are() -> None:
    assert described(torch.nn.Parameter(torch.ones(2)))["type"] == "torch.Tensor"
    assert described(torch.nn.Parameter(torch.ones(2)))["requires_grad"] is True
    x = torch.ones(2, requires_grad=True)
    assert described(x * 2)["requires_grad"] is True
    assert described(x.detach())["requires_grad"] is False


@deferred
def test_crc_is_that_of_the_reference(defer: bool) -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    cases = {
        "1939e524": x,
        "aff2ec06": x.t(),
        "00000000": torch.empty(0),
        "2e3fa576": torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
    }
    for expected, tensor in cases.items():
        assert described(tensor, mode="md5", defer=defer)["md5"] == expected
    fp8 = torch.tensor([1.0, -0.5, 448.0]).to(torch.float8_e4m3fn)
    widened = fp8.to(torch.float32).numpy().tobytes()
    assert described(fp8, mode="md5", defer=defer)["md5"] == f"{zlib.crc32(widened):08x}"
    part = torch.arange(24).reshape(4, 6)[1:3, ::2]
    assert described(part, mode="md5", defer=defer)["md5"] == f"{zlib.crc32(part.numpy().tobytes()):08x}"


@deferred
def test_integers_always_have_an_order_sensitive_digest(defer: bool) -> None:
    for tensor in (torch.tensor([1, 2, 3]), torch.tensor([True, False]), torch.tensor([[1, 2], [3, 4]]).t()):
        expected = f"xxh3:{xxhash.xxh3_64_hexdigest(tensor.numpy().tobytes())}"
        for mode in ("statistics", "md5", "xxh3", "xor"):
            assert described(tensor, mode=mode, defer=defer)["digest"] == expected
    assert described(torch.tensor([1, 2]))["digest"] != described(torch.tensor([2, 1]))["digest"]
    assert "digest" not in described(torch.tensor([1.0]), defer=defer)


@deferred
def test_xxh3_mode_digests_every_tensor(defer: bool) -> None:
    for tensor in (
        torch.tensor([1.0, 2.0]),
        torch.ones(3, dtype=torch.float16),
        torch.arange(6.0).reshape(2, 3).t(),
        torch.tensor([1j]),
    ):
        expected = f"xxh3:{xxhash.xxh3_64_hexdigest(tensor.contiguous().numpy().tobytes())}"
        found = described(tensor, mode="xxh3", defer=defer)
        assert found["digest"] == expected
        assert found["Max"] is not None
    conjugate = torch.tensor([1 + 2j]).conj()
    raw = conjugate.resolve_conj().numpy().tobytes()
    assert described(conjugate, mode="xxh3")["digest"] == f"xxh3:{xxhash.xxh3_64_hexdigest(raw)}"


@deferred
def test_xor_is_written_as_the_newer_reference_writes_it(defer: bool) -> None:
    cases = [
        (torch.arange(1.0, 7.0), "0x404000003f600000"),
        (torch.arange(1.0, 7.0).reshape(2, 3).t(), "0x40e000003fc00000"),
        (torch.tensor([1.0, 2.0, 3.0]), "0x400000007fc00000"),
        (torch.tensor([1, 2, 3]), "0x0000000000000000"),
        (torch.arange(1, 10, dtype=torch.uint8), "0x0807060504030208"),
        (torch.tensor([1.0, 2.0], dtype=torch.bfloat16), "0x0000000040003f80"),
        (torch.tensor([1 + 2j, 3 - 1j]), "0xff8000007fc00000"),
        (torch.tensor(3), "0x0000000000000003"),
        (torch.tensor(True), "0x0000000000000001"),
        (torch.tensor(3.5), 3.5),
        (torch.empty(0), None),
    ]
    for tensor, expected in cases:
        found = described(tensor, mode="xor", defer=defer)
        assert found["md5"] == expected
        assert list(found)[:5] == ["type", "dtype", "shape", "md5", "requires_grad"]
        assert "Max" not in found


@deferred
def test_structure_mode_reads_nothing(defer: bool) -> None:
    statistics = TensorStatistics("structure", defer=defer)
    info = statistics.describe(torch.tensor([[1, 2], [3, 4]]).t())
    assert json.loads(info.text) == {
        "type": "torch.Tensor", "dtype": "torch.int64", "shape": [2, 2], "requires_grad": False,
        "stride": [1, 2],
    }  # fmt: skip
    assert info.nonfinite is None
    assert not info.late


def test_nonfinite_says_nan_and_infinity_in_every_float_type() -> None:
    def nonfinite(tensor, mode="statistics"):
        return TensorStatistics(mode).describe(tensor).nonfinite

    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.float8_e5m2,
    ):
        for bad in (nan, inf, -inf):
            assert nonfinite(torch.tensor([1.0, bad]).to(dtype)) is True
            assert nonfinite(torch.tensor(bad).to(dtype)) is True
        assert nonfinite(torch.tensor([1.0, 0.0]).to(dtype)) is False
    assert nonfinite(torch.tensor([1e300], dtype=torch.float64)) is False
    assert nonfinite(torch.tensor([1, 2])) is False
    assert nonfinite(torch.tensor([True])) is False
    assert nonfinite(torch.tensor([nan]), "xor") is None


def test_a_0_dim_value_is_that_of_the_moment() -> None:
    statistics = TensorStatistics()
    counter = torch.tensor(1)
    before = statistics.describe(counter)
    counter += 100
    assert json.loads(before.text)["Max"] == 1
    assert json.loads(statistics.describe(counter).text)["Max"] == 101
    late = TensorStatistics(defer=True)
    info = late.describe(counter)
    counter += 100
    late.flush()
    assert json.loads(info.text)["Max"] == 101


@pytest.mark.parametrize("mode", ["md5", "xor", "xxh3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.int16, torch.bool])
@pytest.mark.parametrize("size", [3, 5000, 100_000])
def test_hashes_of_large_and_strided_tensors_are_those_of_their_copy(mode: str, dtype, size: int) -> None:
    torch.manual_seed(size)
    x = torch.randn(size, 2).to(dtype)
    for view in (x, x.t(), x[:, 1], x[::3]):
        found, expected = described(view, mode=mode), described(view.contiguous(), mode=mode)
        assert found.get("md5") == expected.get("md5")
        assert found.get("digest") == expected.get("digest")
    if mode == "md5":
        widened = x.float() if dtype in (torch.bfloat16, torch.float8_e5m2) else x
        assert described(x, mode=mode)["md5"] == f"{zlib.crc32(widened.numpy().tobytes()):08x}"
