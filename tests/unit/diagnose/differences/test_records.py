from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.hand_made import tensor, write_part
from support.row_by_row import for_each
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.diagnose.differences.records import (
    Comparer,
    described,
    fingerprint,
    is_floating,
    is_integer,
    not_finite,
    numbers,
    numel,
    rms,
    statistics_difference,
)
from msprobe.diagnose.differences.tensor_files import values_difference
from msprobe.store.part import DumpPart

NAN, INF = math.nan, math.inf


@pytest.fixture
def comparer(tmp_path: Path) -> Comparer:
    return Comparer(write_part(tmp_path / "one", {}), write_part(tmp_path / "other", {}))


def leaf(array: Any, dtype: str = "float32", digests: bool = True, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = Recording(digests=digests).leaf(Value(np.asarray(array), dtype=dtype, more=more))
    return found


def whats(found: list[Any]) -> list[str]:
    return [one.what for one in found]


def plain(kind: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "value": value}


class TestTensors:
    def test_the_same(self, comparer: Comparer) -> None:
        assert comparer.leaf("input.0", leaf(drawn("a", 4)), leaf(drawn("a", 4))) == []

    def test_other_values(self, comparer: Comparer) -> None:
        (found,) = comparer.leaf("input.0", leaf(drawn("a", 4) * np.float32(1.1)), leaf(drawn("a", 4)))
        assert (found.slot, found.what) == ("input.0", "value")
        assert found.delta == pytest.approx(0.1, rel=0.1)

    def test_digests_decide_over_statistics(self, comparer: Comparer) -> None:
        one = leaf(drawn("a", 4))
        assert comparer.same(one, {**one, "Max": 99.0})
        assert not comparer.same(one, {**one, "digest": "xxh3:0"})

    def test_infinities_are_counted_where_their_statistics_look_alike(self, comparer: Comparer) -> None:
        """Two masks: all but the maximum is infinite."""
        one, other = leaf([1.0, -INF, -INF, 1.0], digests=False), leaf([1.0, -INF, 0.5, 1.0], digests=False)
        assert {key: one[key] for key in ("Max", "Min", "Mean", "Norm")} == {
            key: other[key] for key in ("Max", "Min", "Mean", "Norm")
        }
        assert comparer.same(one, other)
        (found,) = comparer.leaf("output.0", {**one, "inf": 2}, {**other, "inf": 1})
        assert (found.what, found.delta) == ("value", 1.0)
        assert comparer.same({**one, "inf": 2}, other)  # not counted on one side

    def test_digests_of_other_kinds_are_not_compared(self, comparer: Comparer) -> None:
        one = leaf(drawn("a", 4))
        assert comparer.same(one, {**one, "digest": "xor:0"})
        assert comparer.same({**one, "md5": "00"}, {key: one[key] for key in one if key != "digest"})

    @pytest.mark.parametrize(("left", "right", "same"), [("aa", "aa", True), ("aa", "bb", False)])
    def test_checksums(self, comparer: Comparer, left: str, right: str, same: bool) -> None:
        one = leaf(drawn("a", 4), digests=False)
        assert comparer.same({**one, "md5": left}, {**one, "md5": right}) is same

    def test_digests_of_other_types_say_nothing(self, comparer: Comparer) -> None:
        one, other = leaf([1.0, 2.0]), leaf(np.float64([1.0, 2.0]), "float64")
        assert whats(comparer.leaf("input.0", one, other)) == ["dtype"]

    @pytest.mark.parametrize(
        ("left", "right", "expected"),
        [
            (leaf(np.zeros((2, 3))), leaf(np.zeros((3, 2)), digests=False), ["shape"]),
            (leaf(np.ones(3)), leaf(np.ones(4)), ["shape", "value"]),
            (leaf([1.0, 2.0], stride=[2]), leaf([1.0, 2.0]), ["layout"]),
            (leaf([1.0, 2.0]), leaf([1.0, 2.0], requires_grad=True), ["requires_grad"]),
            (leaf([1, 2], "int64"), leaf([1, 2], "int64", requires_grad=True), []),
            (leaf([1.0, NAN]), leaf([1.0, 2.0]), ["not_finite"]),
            (leaf([1.0, INF]), leaf([1.0, NAN]), ["value"]),
            (leaf([1.0, 2.0]), leaf([1.0, NAN]), ["value"]),
            (leaf([1.0, NAN]), leaf([1.0, NAN]), []),
            (leaf([1.0, NAN], digests=False), leaf([1.0, NAN], digests=False), []),
            (leaf([INF, 1.0], digests=False), leaf([INF, 1.0], digests=False), []),
            (leaf(np.zeros(0)), leaf(np.zeros(0)), []),
            (leaf(np.float32(2.0)), leaf(np.float32(2.5)), ["value"]),
            (leaf(True, "bool"), leaf(False, "bool"), ["value"]),
        ],
    )
    def test_all_ways_to_differ(self, comparer: Comparer, left: Any, right: Any, expected: list[str]) -> None:
        assert whats(comparer.leaf("x", left, right)) == expected

    def test_strict_json_has_words_for_numbers(self, comparer: Comparer) -> None:
        words = {"Max": "NaN", "Min": "NaN", "Mean": "NaN", "Norm": "NaN"}
        one = {**leaf([1.0, NAN], digests=False), **words}
        assert comparer.leaf("x", one, dict(one)) == []
        assert not_finite(one)
        (found,) = comparer.leaf("x", one, leaf([1.0, 2.0], digests=False))
        assert found.what == "not_finite"
        assert numbers({**one, "Max": "Infinity", "Min": "-Infinity"})[:2] == (INF, -INF)  # type: ignore[index]

    def test_words_here_and_numbers_there_are_the_same(self, comparer: Comparer) -> None:
        words = dict.fromkeys(("Max", "Min", "Mean", "Norm"), "NaN")
        one = leaf([1.0, NAN], digests=False)
        assert comparer.leaf("x", {**one, **words}, one) == []

    def test_missing_statistics_say_nothing(self, comparer: Comparer) -> None:
        nothing = leaf([1.0, 2.0], digests=False) | dict.fromkeys(("Max", "Min", "Mean", "Norm"))
        assert comparer.leaf("x", nothing, dict(nothing)) == []
        assert numbers(nothing) is None
        assert rms(nothing) == 0.0

    def test_what_nothing_was_written_to_does_not_differ(self, comparer: Comparer) -> None:
        one, other = leaf(drawn("a", 4)), leaf(drawn("b", 4))
        assert comparer.leaf("x", {**one, "unset": True}, other) == []
        assert comparer.leaf("x", one, {**other, "unset": True}) == []


class TestPlainValues:
    @pytest.mark.parametrize(
        ("left", "right", "expected"),
        [
            (plain("int", 1), plain("int", 1), []),
            (plain("int", 1), plain("int", 2), ["argument"]),
            (plain("float", 1.0), plain("int", 1), []),
            (plain("float", 0.1 + 0.2), plain("float", 0.3), []),
            (plain("float", NAN), plain("float", NAN), []),
            (plain("float", -INF), plain("float", -INF), []),
            (plain("float", -INF), plain("float", INF), ["argument"]),
            (plain("float", -1.0), plain("float", -INF), ["argument"]),
            (plain("str", "a"), plain("str", "b"), ["argument"]),
            (plain("bool", True), plain("bool", False), ["argument"]),
            (plain("slice", [0, 2, None]), plain("slice", [0, 3, None]), ["argument"]),
            (plain("torch.device", "cpu"), plain("torch.device", "cuda:0"), []),
            (None, plain("int", 1), ["missing"]),
            (plain("int", 1), None, ["missing"]),
            (None, None, []),
            (leaf(2.0), plain("float", 2.0), []),
            (plain("int", 2), leaf(2.0), []),
            (leaf([2.0, 2.0]), plain("float", 2.0), ["argument"]),
            (leaf(2.0), plain("float", 3.0), ["argument"]),
            (1, 2, ["argument"]),
        ],
    )
    def test_differ(self, comparer: Comparer, left: Any, right: Any, expected: list[str]) -> None:
        assert whats(comparer.leaf("x", left, right)) == expected

    @for_each(
        ("value", "text"),
        [
            (leaf(np.zeros((2, 3))), "float32[2, 3]"),
            (plain("str", "mean"), '"mean"'),
            (plain("float", 0.5), "0.5"),
            ({"type": "function"}, "function"),
            (None, "None"),
            (3, "3"),
        ],
    )
    def test_in_words(self, value: Any, text: str) -> None:
        assert described(value) == text


class TestSlots:
    def test_answer_by_name(self, comparer: Comparer) -> None:
        a, b = leaf(drawn("a", 4)), leaf(drawn("b", 4))
        assert comparer.between([("x", a), ("y", b)], [("y", b), ("x", a)]) == []

    def test_a_keyword_here_may_be_a_position_there(self, comparer: Comparer) -> None:
        a, b = leaf(drawn("a", 4)), leaf(drawn("b", 4))
        assert comparer.between([("input.0", a), ("input.weight", b)], [("input.0", a), ("input.1", b)]) == []

    def test_of_one_side_alone(self, comparer: Comparer) -> None:
        found = comparer.between([("x", leaf([1.0])), ("n", None)], [("z", plain("int", 1))])
        assert [(one.slot, one.what) for one in found] == [("x", "missing"), ("z", "missing")]


class TestDistances:
    @pytest.mark.parametrize("factor", [1.001, 0.5, 2.0, -1.0, 1e6])
    def test_of_statistics_never_exceed_those_of_values_much(self, factor: float) -> None:
        a = drawn("a", 100).astype(np.float64)
        b = a * factor
        exact = values_difference(a, b)
        told = statistics_difference(leaf(a, digests=False), leaf(b, digests=False))
        assert told <= 1.0000001 * max(exact, 1.0)
        assert told > 0.5 * min(exact, 0.5)

    def test_of_values(self) -> None:
        a = np.array([3.0, 4.0])
        assert values_difference(a, a) == 0.0
        assert values_difference(a, np.array([3.0, 0.0])) == pytest.approx(4 / 5)
        assert values_difference(np.array([1, 2]), np.array([1, 3])) == 1.0
        assert values_difference(np.array([1.0, NAN]), np.array([1.0, NAN])) == 0.0
        assert values_difference(np.array([1.0, INF]), np.array([1.0, -INF])) == INF
        assert values_difference(np.array([NAN, 1.0]), np.array([1.0, NAN])) == INF
        assert values_difference(np.zeros(2), np.zeros(2, np.float32)) == 0.0

    def test_of_whole_numbers_and_of_what_is_not_finite(self) -> None:
        assert statistics_difference(leaf([1, 2], "int64"), leaf([1, 3], "int64")) == 1.0
        assert statistics_difference(leaf([1.0, NAN]), leaf([1.0, 2.0])) == INF
        assert statistics_difference(leaf([INF, 1.0]), leaf([INF, 1.0])) == 0.0

    def test_of_files(self, tmp_path: Path) -> None:
        parts: list[DumpPart] = []
        for name, array in (("one", [1.0, 2.0, 3.0]), ("other", [3.0, 2.0, 1.0])):
            part = write_part(tmp_path / name, {})
            (part.folder / "dump_tensor_data").mkdir()
            np.save(part.folder / "dump_tensor_data" / "x.npy", np.float32(array))
            parts.append(part)
        comparer = Comparer(parts[0], parts[1])
        a, b = tensor(3, data_name="x.npy"), tensor(3, data_name="x.npy")
        assert not comparer.same(a, b), "the statistics are the same, the values are not"
        assert comparer.delta(a, b) == pytest.approx(math.sqrt(8 / 14))
        gone = tensor(3, data_name="gone.npy")
        assert comparer.same(gone, gone)


def test_what_tells_a_tensor_from_others() -> None:
    a = leaf(drawn("a", 6))
    assert fingerprint(a) == fingerprint(leaf(drawn("a", 6)))
    assert fingerprint(a) != fingerprint(leaf(drawn("b", 6)))
    assert fingerprint(leaf(drawn("a", 6), digests=False)) == fingerprint(
        leaf(drawn("a", 2, 3).reshape(6), digests=False)
    )
    assert fingerprint(leaf(np.ones(6), digests=False)) is None, "constants are too many"
    assert fingerprint(leaf(np.zeros(0), digests=False)) is None
    assert fingerprint(plain("int", 1)) is None


@pytest.mark.parametrize(("shape", "count"), [([], 1), ([2, 3], 6), ([0, 3], 0), (None, 1)])
def test_numbers_of_elements(shape: Any, count: int) -> None:
    assert numel({"shape": shape}) == count


def test_types() -> None:
    assert is_integer(leaf([1], "int64"))
    assert is_integer(leaf([True], "bool"))
    assert not is_integer(leaf([1.0]))
    assert is_floating(leaf([1.0], "bfloat16"))
    assert is_floating({"dtype": "Float32", "type": "mindspore.Tensor"})
    assert is_floating({"dtype": "torch.complex64", "type": "torch.Tensor"})
    assert not is_floating(plain("float", 1.0))
