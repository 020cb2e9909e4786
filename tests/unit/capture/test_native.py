"""The C extension and its equals in Python: the same bytes, and the numbers that numpy gives."""

from __future__ import annotations

import collections
import enum
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import math
import struct
import sys
import types
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.json_text import in_one_line, written
from support.native_and_python import python_only
from support.row_by_row import for_each

from msprobe.capture import native
from msprobe.capture.statistics_text import StatisticsText

native_only = pytest.mark.skipif(not native.built, reason="the C extension was not built")
both = pytest.mark.parametrize("encode", [native.encode, native.encode_python], ids=["chosen", "python"])

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.floats(width=32)
    | st.text()
    | st.sampled_from(['"', "\\", "\n", "\r\t\f\b", "\x00\x1f\x7f", "ü", "漢字", "😀", ""])
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)


def by_json(tree: object, depth: int) -> bytes:
    return written(tree, depth).encode()


# ---- records to JSON ----


@given(trees, st.integers(0, 5))
def test_a_tree_is_written_as_the_format_has_it(tree: object, depth: int) -> None:
    expected = by_json(tree, depth)
    assert native.encode(tree, depth) == expected
    assert native.encode_python(tree, depth) == expected


@given(st.lists(st.integers(0, 2**64 - 1), min_size=20, max_size=20))
def test_every_double_is_written_as_repr_writes_it(patterns: list[int]) -> None:
    values = [struct.unpack("d", struct.pack("Q", pattern))[0] for pattern in patterns]
    assert native.encode(values, 0) == by_json(values, 0)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=20, max_size=20))
def test_every_float32_is_written_as_repr_writes_it(patterns: list[int]) -> None:
    values = [struct.unpack("f", struct.pack("I", pattern))[0] for pattern in patterns]
    assert native.encode(values, 0) == by_json(values, 0)


def test_powers_of_two_and_ten_and_the_ends_of_the_range_are_exact() -> None:
    values = [2.0**k for k in range(-1074, 1024)]
    values += [float(f"{m}e{k}") for k in range(-323, 309) for m in (1, 9.5)]
    values += [
        5e-324,
        1.7976931348623157e308,
        2.2250738585072014e-308,
        0.0,
        -0.0,
        1e15,
        1e16,
        9007199254740993.0,
    ]
    values += [1e-4, 9.999e-5, 123456.789, float("nan"), float("inf"), float("-inf")]
    assert native.encode(values, 0) == by_json(values, 0)


@both
@given(inner=trees, depth=st.integers(0, 4))
def test_a_ready_fragment_is_written_as_the_value_it_was_made_from(encode, inner: object, depth: int) -> None:
    fragment = in_one_line(inner).encode()

    class Info:
        text = fragment

    found = encode({"a": [fragment], "b": fragment}, depth)
    assert found == by_json({"a": ["*"], "b": "*"}, depth).replace(b'"*"', fragment)
    assert encode({"a": [Info()], "b": Info()}, depth) == found


class Colour(enum.IntEnum):
    RED = 3


class Name(str, enum.Enum):
    A = "a"


class Loud(float):
    def __repr__(self) -> str:
        return "loud"


@both
def test_subclasses_are_written_as_their_base_value(encode) -> None:
    Point = collections.namedtuple("Point", "x y")
    tree = {
        Name.A: Colour.RED,
        "np": np.float64(0.1),
        "loud": Loud(2.5),
        "point": Point(1, [2]),
        "ordered": collections.OrderedDict(z=1, a=2),
        "bool": True,
        "name": Name.A,
    }
    expected = {
        "a": 3, "np": 0.1, "loud": 2.5, "point": [1, [2]], "ordered": {"z": 1, "a": 2}, "bool": True,
        "name": "a",
    }  # fmt: skip
    assert encode(tree, 0) == by_json(expected, 0)


@both
def test_other_keys_than_text_are_written_as_their_text(encode) -> None:
    assert json.loads(encode({1: 2, (3,): 4, None: 5}, 0)) == {"1": 2, "(3,)": 4, "None": 5}


@both
def test_lone_surrogates_survive_as_escapes(encode) -> None:
    text = 'a\ud800"b\udfff\\ü'
    encoded = encode({text: [text, "\ud8001"]}, 0)
    assert rb"\ud800" in encoded
    assert json.loads(encoded.decode("utf-8")) == {text: [text, "\ud8001"]}


@both
def test_depth_is_cut_at_200_and_what_contains_itself_ends(encode) -> None:
    deep: list = []
    for _ in range(500):
        deep = [deep]
    encoded = encode(deep, 0)
    assert b'[{"unsupported":"nested deeper than 200"}]' in encoded
    inner = json.loads(encoded)
    for _ in range(200):
        (inner,) = inner
    assert inner == {"unsupported": "nested deeper than 200"}
    loop: dict = {}
    loop["again"] = [loop, loop]
    assert json.loads(encode(loop, 0)) == {"again": [{"unsupported": "contains itself"}] * 2}
    shared = [1]
    assert json.loads(encode([shared, shared], 0)) == [[1], [1]]


@both
def test_an_integer_beyond_the_digit_limit_does_not_lose_the_record(encode) -> None:
    tree = {"before": 1, "huge": 10**6000, "behind": -(10**300)}
    found = json.loads(encode(tree, 3))
    too_long = "integer with too many digits"
    assert found == {
        "before": 1,
        "huge": {"unsupported": too_long},
        "behind": -(10**300),
    }


@both
def test_a_value_of_another_type_is_refused_with_its_type(encode) -> None:
    with pytest.raises(TypeError, match="complex"):
        encode({"a": 1j}, 0)
    with pytest.raises(ValueError, match="-1"):
        encode({}, -1)


@both
def test_a_record_larger_than_any_buffer_is_whole(encode) -> None:
    tree = {f"k{i}": "x" * i for i in range(2000)}
    assert encode(tree, 1) == by_json(tree, 1)


# ---- the memory of views ----

shapes = st.lists(st.integers(0, 4), max_size=4)
strided = shapes.flatmap(
    lambda shape: st.tuples(
        st.just(tuple(shape)), st.tuples(*[st.integers(0, 9) | st.sampled_from([12, 16, 64]) for _ in shape])
    )
)


def offsets(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[int]:
    places = itertools.product(*[range(n) for n in shape])
    return [sum(i * s for i, s in zip(place, stride, strict=True)) for place in places]


@given(strided)
def test_a_pattern_names_exactly_the_elements_of_a_view(view) -> None:
    shape, stride = view
    pattern = native.pattern(shape, stride)
    assert pattern == native.pattern_python(shape, stride)
    assert sorted(offsets(pattern[::2], pattern[1::2])) == sorted(offsets(shape, stride))


@given(strided)
def test_dense_means_every_place_once(view) -> None:
    shape, stride = view
    expected = sorted(offsets(shape, stride)) == list(range(math.prod(shape)))
    assert native.is_dense_python(shape, stride) == native.is_dense(shape, stride)
    # A view of one element lies densely whatever its strides say; so does an empty one.
    assert native.is_dense(shape, stride) == expected


@given(st.permutations(range(4)))
def test_all_transposes_share_a_pattern(order) -> None:
    array = np.zeros((2, 3, 4, 5), np.int8).transpose(order)
    assert native.pattern(array.shape, array.strides) == (120, 1)


def test_sizes_and_strides_must_match() -> None:
    for pattern in (native.pattern, native.pattern_python):
        with pytest.raises(ValueError, match=r"2 sizes.* 1 strides"):
            pattern((1, 2), (1,))
        with pytest.raises(ValueError, match="negative"):
            pattern((2,), (-1,))


@pytest.mark.parametrize("memory", [native.memory, native.memory_python], ids=["chosen", "python"])
def test_memory_is_seen_without_a_copy_and_not_writable(memory) -> None:
    array = np.arange(10, dtype=np.int32)
    view = memory(array.ctypes.data, array.nbytes)
    assert bytes(view) == array.tobytes()
    assert view.readonly
    array[3] = 99
    assert bytes(view) == array.tobytes()
    assert native.copy_memory(array.ctypes.data, 8) == array.tobytes()[:8]
    assert bytes(memory(0, 0)) == b""
    with pytest.raises(ValueError, match="address 0"):
        memory(0, 1)


@native_only
@given(strided, st.sampled_from([1, 2, 4, 8, 16]))
def test_gathered_bytes_are_in_c_order(view, itemsize: int) -> None:
    shape, stride = view
    places = offsets(shape, stride)
    block = np.frombuffer(np.random.default_rng(0).bytes((max(places, default=0) + 1) * itemsize), f"V{itemsize}")
    assert native.gather is not None
    found = native.gather(block.ctypes.data, shape, stride, itemsize)
    assert found == block[places].tobytes() if places else found == b""


@native_only
@pytest.mark.parametrize("version", ["table", "folded", "best"])
def test_crc_is_that_of_zlib_at_every_length_and_alignment(version: str) -> None:
    from msprobe.capture import _native

    if not _native.choose_kernels(version):
        pytest.skip(f"this machine has no {version}")
    try:
        random = np.random.default_rng(0)
        for size in [*range(300), *range(1000, 1600, 37), 4096, 100_003]:
            for start in (0, 1, 7):
                block = np.frombuffer(random.bytes(size + start + 1), np.uint8)
                found = _native.crc32(block.ctypes.data + start, size)
                assert found == zlib.crc32(block[start : start + size]), (size, start)
    finally:
        _native.choose_kernels("best")


# ---- statistics ----

SETS = ["baseline", "avx2", "avx512"]


@pytest.fixture(params=SETS)
def kernels(request):
    if not native.built:
        pytest.skip("the C extension was not built")
    from msprobe.capture import _native

    if not _native.choose_kernels(request.param):
        pytest.skip(f"this machine has no {request.param}")
    yield request.param
    for best in reversed(SETS):
        if _native.choose_kernels(best):
            break


def measure(array: np.ndarray, kind: str | None = None, flags: int = 0, pattern=None, table=None):
    assert native.numbers is not None
    number = native.KINDS[kind or str(array.dtype)]
    found = native.numbers(
        array.ctypes.data,
        array.size if pattern is None else pattern,
        number,
        flags,
        0,
        *([table] if table else []),
    )
    text, counts, answer = StatisticsText().render(found)
    return json.loads(b"{" + text + b"}"), json.loads(b"{" + counts + b"}"), answer


def same(found: float, expected: float, relative: float) -> bool:
    if math.isnan(expected) or math.isinf(expected) or expected == 0:
        return str(found) == str(expected) or found == expected
    return math.isclose(found, expected, rel_tol=relative)


FLOATS = {"float32": (np.float32, 2**-23), "float64": (np.float64, 1e-14), "float16": (np.float16, 2**-10)}
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SIZES = [1, 2, 15, 16, 17, 31, 32, 33, 100, 255, 511, 512, 513, 2047, 2049, 5000]


@for_each("kind", FLOATS)
@for_each("size", SIZES)
def test_floats_have_the_statistics_of_numpy(kernels: str, kind: str, size: int) -> None:
    dtype, relative = FLOATS[kind]
    rng = np.random.default_rng(size)
    array = (rng.standard_normal(size) * 3 + 0.5).astype(dtype)
    array[rng.random(size) < 0.1] = 0
    exact = array.astype(np.float64)
    found, counts, answer = measure(array)
    assert found["Max"] == exact.max()
    assert found["Min"] == exact.min()
    assert same(found["Mean"], float(exact.mean()), relative + 1e-13 / max(1e-3, abs(exact.mean())))
    assert same(found["Norm"], float(np.sqrt((exact**2).sum())), relative)
    assert float(dtype(found["Mean"])) == found["Mean"], "rounded to its own type"
    zeros = int((array == 0).sum())
    assert counts == ({"zero": zeros} if zeros else {})
    assert answer == 0


@for_each("kind", INTS)
@for_each("size", SIZES)
def test_integers_have_exact_extremes_and_float64_means(kernels: str, kind: str, size: int) -> None:
    bounds = np.iinfo(kind)
    array = np.random.default_rng(size).integers(bounds.min, bounds.max, size, dtype=kind, endpoint=True)
    array[:: max(1, size // 3)] = [0, bounds.min, bounds.max, 0][: len(array[:: max(1, size // 3)])]
    exact = [int(v) for v in array]
    found, counts, _ = measure(array)
    assert (found["Max"], found["Min"]) == (max(exact), min(exact))
    assert isinstance(found["Max"], int)
    scale = max(abs(max(exact)), abs(min(exact)), 1)
    assert math.isclose(found["Mean"], sum(exact) / size, rel_tol=1e-12, abs_tol=scale * 1e-13)
    assert math.isclose(found["Norm"], math.sqrt(sum(v * v for v in exact)), rel_tol=1e-12)
    assert counts.get("zero", 0) == exact.count(0)


@native_only
@pytest.mark.parametrize("kind", [*FLOATS, *INTS, "bfloat16"])
def test_every_instruction_set_gives_the_same_bits(kind: str) -> None:
    from msprobe.capture import _native

    random = np.random.default_rng(5)
    texts: dict[int, set] = collections.defaultdict(set)
    for size in (17, 1000, 65_537):
        array = (random.standard_normal(size) * 50).astype("uint16" if kind == "bfloat16" else kind)
        for name in SETS:
            if _native.choose_kernels(name):
                found = _native.numbers(array.ctypes.data, size, native.KINDS[kind], 0, 0)
                texts[size].add(repr(found))
    assert [len(found) for found in texts.values()] == [1, 1, 1]


def bfloat16(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@for_each("size", SIZES)
def test_bfloat16_is_read_as_float32_and_answered_in_its_own_precision(kernels: str, size: int) -> None:
    bits = bfloat16(np.random.default_rng(size).standard_normal(size))
    exact = from_bfloat16(bits).astype(np.float64)
    found, _, _ = measure(bits, "bfloat16")
    assert (found["Max"], found["Min"]) == (exact.max(), exact.min())
    norm = math.sqrt((exact**2).sum())
    assert same(found["Norm"], norm, 2**-8)
    assert float(from_bfloat16(bfloat16(np.array([found["Norm"]])))[0]) == found["Norm"]
    high, _, _ = measure(bits, "bfloat16", native.HIGH_PRECISION)
    assert high["Norm"] == float(np.float32(norm))
    assert same(high["Mean"], float(np.float32(exact.mean())), 1e-6)


def test_every_float16_is_read_right(kernels: str) -> None:
    every = np.arange(65536, dtype=np.uint16)
    for block in every.reshape(-1, 32):
        values = block.view(np.float16).astype(np.float64)
        if np.isfinite(values).all():
            found, _, _ = measure(block, "float16", native.HIGH_PRECISION)
            assert (found["Max"], found["Min"]) == (values.max(), values.min())
            assert found["Norm"] == float(np.float32(np.sqrt((values**2).sum())))
    for bits in (0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00):
        value = np.uint16(bits).view(np.float16)
        assert measure(np.full(3, bits, np.uint16), "float16")[0]["Max"] == float(value), "one at a time"


@for_each("mantissa", [11, 8])
def test_half_means_round_to_nearest_even(kernels: str, mantissa: int) -> None:
    step = 2.0 ** -(mantissa - 1)
    array = np.array([1.0, 1.0 + step], np.float32)
    bits = array.astype(np.float16).view(np.uint16) if mantissa == 11 else bfloat16(array)
    assert measure(bits, "float16" if mantissa == 11 else "bfloat16")[0]["Mean"] == 1.0, "half-way, down to even"
    array = np.array([1.0 + step, 1.0 + 2 * step], np.float32)
    bits = array.astype(np.float16).view(np.uint16) if mantissa == 11 else bfloat16(array)
    assert measure(bits, "float16" if mantissa == 11 else "bfloat16")[0]["Mean"] == 1.0 + 2 * step, "up to even"


@for_each("kind", ["float16", "float32", "float64"])
@for_each("place", [0, 1, 16, 39, 40])
def test_one_nan_makes_all_four_nan_wherever_it_is(kernels: str, kind: str, place: int) -> None:
    array = np.ones(41, kind)
    array[place] = np.nan
    array[(place + 5) % 41] = np.inf
    found, counts, answer = measure(array)
    assert all(math.isnan(found[key]) for key in ("Max", "Min", "Mean", "Norm"))
    assert counts == {"nan": 1, "inf": 1}
    assert answer == native.HAS_NAN | native.HAS_INF


@for_each("kind", ["float16", "float32", "float64"])
@for_each("size", [3, 40, 3000])
def test_infinities_follow_ieee(kernels: str, kind: str, size: int) -> None:
    array = np.ones(size, kind)
    array[1] = np.inf
    assert measure(array) == (
        {"Max": math.inf, "Min": 1.0, "Mean": math.inf, "Norm": math.inf}, {"inf": 1}, native.HAS_INF
    )  # fmt: skip
    array[2] = -np.inf
    found, counts, _ = measure(array)
    assert (found["Max"], found["Min"], found["Norm"]) == (math.inf, -math.inf, math.inf)
    assert math.isnan(found["Mean"])
    assert counts == {"inf": 2}


def test_a_norm_overflows_only_where_its_type_does(kernels: str) -> None:
    assert measure(np.full(4, 60000, np.float16))[0] == {
        "Max": 6e4,
        "Min": 6e4,
        "Mean": 6e4,
        "Norm": math.inf,
    }
    high = measure(np.full(4, 60000, np.float16), flags=native.HIGH_PRECISION)[0]
    assert high["Norm"] == 120000.0
    large = np.full(100, 1e30, np.float32)
    assert measure(large)[0]["Norm"] == float(np.float32(float(np.float32(1e30)) * 10))
    assert measure(np.full(100, 3e38, np.float32))[0]["Norm"] == math.inf
    tiny = measure(np.full(100, 1e-40, np.float32))[0]
    assert tiny["Norm"] == float(np.float32(float(np.float32(1e-40)) * 10))


@for_each("value", [1e300, 1e-300, 1.7e308, 5e-324, 1e154, 1e-160])
@for_each("size", [1, 4, 100])
def test_float64_squares_neither_overflow_nor_vanish(kernels: str, value: float, size: int) -> None:
    found, counts, answer = measure(np.full(size, value))
    assert (found["Max"], counts, answer) == (value, {}, 0)
    assert math.isclose(found["Mean"], value, rel_tol=1e-12)
    norm = value * math.sqrt(size)
    assert found["Norm"] == norm if math.isinf(norm) or norm < 1e-300 else math.isclose(found["Norm"], norm)


def test_sums_that_cancel_keep_the_precision_of_double(kernels: str) -> None:
    rng = np.random.default_rng(3)
    half = (rng.standard_normal(2000) * 1e6).astype(np.float32)
    array = np.concatenate([half, [np.float32(3.25)], -half]).astype(np.float32)
    rng.shuffle(array)
    assert measure(array)[0]["Mean"] == pytest.approx(3.25 / array.size, rel=1e-5)


def test_negative_zero_is_a_zero_and_keeps_its_sign(kernels: str) -> None:
    found, counts, _ = measure(np.full(20, -0.0, np.float32))
    assert str(found["Max"]) == "-0.0"
    assert counts == {"zero": 20}


def test_bool_is_any_and_all_without_mean_and_norm(kernels: str) -> None:
    cases = {(True, False): (True, False), (True, True): (True, True), (False, False): (False, False)}
    for values, (any_, all_) in cases.items():
        for repeat in (1, 1000):
            array = np.array(values * repeat)
            found, counts, _ = measure(array)
            assert found == {"Max": any_, "Min": all_, "Mean": None, "Norm": None}
            assert counts.get("zero", 0) == values.count(False) * repeat


@for_each("kind", ["complex64", "complex128"])
def test_complex_statistics_are_those_of_the_magnitude(kernels: str, kind: str) -> None:
    found, counts, _ = measure(np.array([3 + 4j, 0, -1j, 6 - 8j], kind))
    assert found == {"Max": 10.0, "Min": 0.0, "Mean": 4.0, "Norm": None}
    assert counts == {"zero": 1}
    found, counts, answer = measure(np.array([1, complex(math.inf, 1), complex(math.nan, math.inf)], kind))
    assert math.isnan(found["Max"])
    assert counts == {"nan": 1, "inf": 1}
    assert answer == native.HAS_NAN | native.HAS_INF
    assert measure(np.array([1e30 + 1e30j, 1], "complex64"))[0]["Max"] == pytest.approx(1.4142135e30)


def test_one_byte_floats_are_looked_up(kernels: str) -> None:
    table = np.linspace(-2, 2, 256).astype(np.float32)
    table[7], table[9] = np.nan, np.inf
    array = np.array([0, 255, 255, 100] * 300, np.uint8)
    exact = table[array].astype(np.float64)
    found, counts, _ = measure(array, "float8", table=table.tobytes())
    assert (found["Max"], found["Min"], counts) == (2.0, -2.0, {})
    assert found["Mean"] == pytest.approx(exact.mean(), rel=1e-6)
    assert found["Norm"] == pytest.approx(np.sqrt((exact**2).sum()), rel=1e-6)
    found, counts, answer = measure(np.array([7, 9, 1], np.uint8), "float8", table=table.tobytes())
    assert (counts, answer) == ({"nan": 1, "inf": 1}, native.HAS_NAN | native.HAS_INF)
    with pytest.raises(ValueError, match="256"):
        measure(array, "float8")


def test_nothing_has_no_statistics(kernels: str) -> None:
    for kind in native.KINDS:
        table = bytes(1024) if kind == "float8" else None
        found, counts, answer = measure(np.zeros(0, np.uint8), kind, table=table)
        assert set(found.values()) == {None}
        assert (counts, answer) == ({}, 0)


def test_a_scalar_is_its_value_four_times(kernels: str) -> None:
    def scalar(value, kind):
        return list(measure(np.array([value], kind), flags=native.SCALAR)[0].values())

    assert scalar(-2.5, "float32") == [-2.5] * 4
    assert scalar(-7, "int64") == [-7] * 4
    assert scalar(2**64 - 1, "uint64") == [2**64 - 1] * 4
    assert scalar(True, "bool") == [True, True, None, None]
    assert scalar(3 - 4j, "complex64") == [5.0, 5.0, 5.0, None]
    assert measure(np.zeros(1, np.float32), flags=native.SCALAR)[1] == {}


@settings(max_examples=200)
@given(strided, st.sampled_from(["int8", "int16", "float32", "float64", "complex128"]))
def test_strided_elements_have_the_statistics_of_their_copy(view, kind: str) -> None:
    if not native.built:
        pytest.skip("the C extension was not built")
    shape, stride = view
    places = offsets(shape, stride)
    block = np.random.default_rng(1).integers(-100, 100, max(places, default=0) + 1).astype(kind)
    whole = block[places] if places else block[:0]
    pattern = native.pattern(shape, stride)
    found, counts, answer = measure(block, kind, pattern=pattern)
    expected, expected_counts, expected_answer = measure(whole, kind)
    assert (counts, answer) == (expected_counts, expected_answer)
    for key in found:
        assert found[key] == expected[key] or found[key] == pytest.approx(expected[key], rel=1e-6, abs=1e-12)


@for_each("row", [1, 3, 100, 3000])
def test_large_strided_blocks_are_read_whole(kernels: str, row: int) -> None:
    block = np.random.default_rng(2).standard_normal((70, row + 5)).astype(np.float32)
    part = block[:, :row]
    pattern = native.pattern(part.shape, tuple(s // 4 for s in part.strides))
    found, _, _ = measure(block, pattern=pattern)
    exact = part.astype(np.float64)
    assert (found["Max"], found["Min"]) == (exact.max(), exact.min())
    assert found["Norm"] == pytest.approx(np.sqrt((exact**2).sum()), rel=1e-6)


def test_a_million_elements_without_the_interpreter_lock_count_right(kernels: str) -> None:
    array = np.zeros(1_000_003, np.float32)
    array[::7] = 2
    found, counts, _ = measure(array)
    twos = -(-array.size // 7)
    assert counts == {"zero": array.size - twos}
    assert found["Mean"] == float(np.float32(2 * twos / array.size))


@native_only
def test_wrong_arguments_are_errors_and_nothing_is_read() -> None:
    assert native.numbers is not None
    for arguments, error in [
        ((0, 5, 0, 0, 0), "address 0"),
        ((1, -1, 0, 0, 0), "negative"),
        ((1, 1, 99, 0, 0), "99"),
        ((1, (1,), 0, 0, 0), "pairs"),
    ]:
        with pytest.raises(ValueError, match=error):
            native.numbers(*arguments)
    with pytest.raises(TypeError):
        native.numbers(1)


class _BrokenExtension(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An extension that is there and cannot be loaded."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name == "msprobe.capture._native" else None

    def exec_module(self, module: types.ModuleType) -> None:
        raise ImportError("_native.so: undefined symbol: PyNothing")


@native_only
def test_an_extension_in_use_has_no_reason_not_to_be() -> None:
    assert native.status() == "C extension: in use"


def test_why_the_extension_is_not_used_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "MSPROBE_NATIVE=0" in python_only().status()
    assert native.__spec__ is not None
    spec = importlib.util.spec_from_file_location("native_once_more", native.__spec__.origin)
    assert spec is not None
    assert spec.loader is not None
    monkeypatch.setenv("MSPROBE_NATIVE", "1")
    monkeypatch.delattr("msprobe.capture._native", raising=False)

    # None in the table of modules: as if no file were there.
    monkeypatch.setitem(sys.modules, "msprobe.capture._native", None)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert (again.built, again.status()) == (False, "C extension: not built")

    monkeypatch.delitem(sys.modules, "msprobe.capture._native")
    monkeypatch.setattr(sys, "meta_path", [_BrokenExtension(), *sys.meta_path])
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert (again.built, again.Memo) == (False, None)
    assert again.status().endswith("_native.so: undefined symbol: PyNothing")
