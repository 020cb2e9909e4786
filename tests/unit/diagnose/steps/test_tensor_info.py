"""What is worked out once of a tensor is what is worked out of any description of it."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
from support.row_by_row import for_each

from msprobe.diagnose.steps.tensor_info import (
    Known,
    RecordedTensor,
    describe_tensors,
    described,
    fingerprint,
    is_floating,
    is_integer,
    is_tensor,
    not_finite,
    numbers,
    numel,
    rms,
    statistics,
    tensors_of,
)
from msprobe.diagnose.steps.timeline import flatten

USUAL = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [2, 3],
    "Max": 1.5,
    "Min": -2.0,
    "Mean": 0.25,
    "Norm": 3.0,
    "requires_grad": True,
}
DESCRIPTIONS = {
    "usual": USUAL,
    "constant": {**USUAL, "Max": 1.0, "Min": 1.0},
    "of one element": {**USUAL, "shape": [], "Max": 1.0, "Min": 1.0},
    "empty": {**USUAL, "shape": [0, 3]},
    "whole numbers": {**USUAL, "dtype": "torch.int64", "Max": 3, "Min": 1},
    "truth values": {**USUAL, "dtype": "torch.bool", "Max": True, "Min": False, "Mean": None, "Norm": None},
    "NaN": {**USUAL, "Max": math.nan, "nan": 2},
    "words for what is not finite": {**USUAL, "Max": "Infinity", "Min": "-Infinity", "Mean": "NaN"},
    "infinities that are counted": {**USUAL, "inf": 1},
    "a norm that is infinite": {**USUAL, "Norm": math.inf},
    "digest": {**USUAL, "digest": "xxh3:12"},
    "md5": {**USUAL, "md5": "12"},
    "file": {**USUAL, "data_name": "a.pt"},
    "unset": {**USUAL, "Max": None, "Min": None, "Mean": None, "Norm": None, "unset": True},
    "structure alone": {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3]},
    "no shape": {"type": "torch.Tensor", "dtype": "complex64", "Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0},
    "shape of words": {**USUAL, "shape": [2, "j1"]},
    "a negative extent": {**USUAL, "shape": [-1]},
}


def _same(one, other):
    return one == other or repr(one) == repr(other)  # a NaN is like another here


@for_each("leaf", DESCRIPTIONS.values())
@for_each("question", [numel, statistics, numbers, rms, not_finite, fingerprint, is_floating, is_integer, is_tensor])
def test_a_description_that_remembers_answers_as_any_other(question, leaf):
    expected = question(leaf)
    assert type(leaf) is dict
    assert _same(question(RecordedTensor(leaf)), expected), "asked for the first time"
    assert _same(question(described(leaf)), expected), "worked out before"


def test_only_what_four_finite_numbers_tell_is_plain():
    plain = {name for name, leaf in DESCRIPTIONS.items() if described(leaf).plain}
    assert plain == {
        "usual",
        "constant",
        "of one element",
        "empty",
        "no shape",
        "shape of words",
        "a negative extent",
    }


def test_what_is_written_to_a_description_counts():
    info = described(USUAL)
    before = info.fingerprint
    info["digest"] = "values:1"
    assert (info.fingerprint, info.plain) == (("values:1", 6), False) != (before, True)
    info["shape"] = [4]
    assert (numel(info), rms(info)) == (4, 1.5)


def test_a_description_is_copied_and_sent_to_other_processes_as_it_is():
    info = described(USUAL)
    for one in (pickle.loads(pickle.dumps(info)), copy.deepcopy(info), copy.copy(info)):
        assert one == USUAL
        assert (one.rms, one.plain) == (info.rms, True)
    with pytest.raises(AttributeError):
        _ = info.nothing


def test_tensors_of_a_record_become_descriptions_that_remember_in_the_record_itself():
    record = [dict(USUAL), {"type": "int", "value": 1}, {"key": dict(USUAL), "none": None}, [dict(USUAL)]]
    found: list = []
    flatten("input", record, found)
    assert [slot for slot, _ in found] == ["input.0", "input.1", "input.2.key", "input.2.none", "input.3.0"]
    assert record[0] is found[0][1]
    assert record[2]["key"] is found[2][1]
    assert all(type(leaf) is RecordedTensor for leaf in (record[0], record[2]["key"], record[3][0]))
    assert tensors_of(found) == [USUAL] * 3
    again: list = []
    flatten("input", record, again)
    assert [leaf for _, leaf in again] == [leaf for _, leaf in found]
    assert all(one is other for (_, one), (_, other) in zip(found, again, strict=True) if is_tensor(one))


class TestSharing:
    def shared(self, *leaves: dict[str, object]) -> list[RecordedTensor]:
        known: Known = {}
        records = [{"output": [dict(leaf)], "input_kwargs": {"deep": {"er": dict(leaf)}}} for leaf in leaves]
        for record in records:
            describe_tensors(record, known)
            assert record["input_kwargs"]["deep"]["er"] == record["output"][0]
        return [record["output"][0] for record in records]

    def test_what_is_described_alike_is_one_object(self) -> None:
        one, other = self.shared(USUAL, USUAL)
        assert one is other
        assert one == USUAL
        assert one.plain

    @pytest.mark.parametrize(
        "change", [{"shape": [3, 2]}, {"requires_grad": False}, {"Max": 1.75}, {"digest": "xxh3:1"}]
    )
    def test_what_is_described_otherwise_is_another(self, change: dict[str, object]) -> None:
        one, other, again = self.shared(USUAL, {**USUAL, **change}, USUAL)
        assert other == {**USUAL, **change}
        assert one == again == USUAL

    def test_the_sign_of_zero_stays(self) -> None:
        one, other = self.shared({**USUAL, "Mean": 0.0}, {**USUAL, "Mean": -0.0})
        assert [math.copysign(1.0, leaf["Mean"]) for leaf in (one, other)] == [1.0, -1.0]

    @pytest.mark.parametrize("leaf", [{"type": "int", "value": 3}, {"type": "slice", "value": [dict(USUAL)]}])
    def test_what_is_no_tensor_stays_as_it_is(self, leaf: dict[str, object]) -> None:
        record = {"output": [leaf, None, 1.5]}
        describe_tensors(record, {})
        assert type(record["output"][0]) is dict

    @pytest.mark.parametrize("odd", [{"Max": [1.0]}, {"Norm": {}}, {"Max": None}])
    def test_statistics_that_are_no_numbers_are_described_all_the_same(self, odd: dict[str, object]) -> None:
        (found,) = self.shared({**USUAL, **odd})
        assert type(found) is RecordedTensor
