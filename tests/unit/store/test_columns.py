from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from msprobe.store.columns import STATISTICS, Columns, columns, leaves


def tensor(**changes: Any) -> dict[str, Any]:
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [2, 3],
        "Max": 3.0,
        "Min": 1.0,
        "Mean": 2.0,
        "Norm": 4.0,
        "requires_grad": False,
        **changes,
    }


T = tensor()


def rows(name: str, record: Any, with_values: bool = False) -> list[tuple[str, str]]:
    found = columns([(name, record)], with_values)
    return list(zip(found.slot, found.dtype, strict=True))


def test_rows_are_the_tensors_of_a_record_in_the_order_of_the_sheets() -> None:
    record = {
        "input_args": [T, [T, {"a": T}], None],
        "input_kwargs": {"other": T, "alpha": {"type": "int", "value": 2}},
        "output": [T],
        "parameters": {"weight": T, "bias": T},
        "is_recompute": False,
    }
    assert [slot for slot, _ in rows("Module.a.Linear.forward.0", record)] == [
        *("input.0", "input.1.0", "input.1.1.a", "input.other", "output.0", "parameters.weight", "parameters.bias")
    ]


def test_gradients_of_a_call_have_input_and_output() -> None:
    assert rows("Torch.mul.0.backward", {"input": [T], "output": [None, T]}) == [
        ("input.0", "torch.float32"),
        ("output.1", "torch.float32"),
    ]


@pytest.mark.parametrize("name", ["Module.a.Linear.parameters_grad", "Module.a.Linear.parameters_grad.2"])
def test_gradients_of_parameters_have_the_parameter_s_name(name: str) -> None:
    record = {"weight": [T], "sub.bias": [T], "frozen": [None]}
    assert [slot for slot, _ in rows(name, record)] == ["weight", "sub.bias"]


def test_debug_variables_have_their_path_alone() -> None:
    assert rows("x.0.debug", T) == [("", "torch.float32")]
    assert [slot for slot, _ in rows("x_grad.0.debug", {"a": T, "b": [None, {"c": T}]})] == ["a", "b.1.c"]
    assert rows("x.0.debug", None) == []


def test_arguments_that_are_no_tensors_are_rows_when_asked_for() -> None:
    record = {
        "input_args": [
            None,
            {"type": "int", "value": 5},
            {"type": "str", "value": "-inf"},
            {"type": "slice", "value": [1, None, 2]},
            {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "77849d8c"},
            {"type": "torch.memory_format", "format": "preserve_format"},
            {"class_type": "torch.distributed.P2POp", "tensor": T, "op": "isend", "peer": 1},
            {"type": "bool", "value": True},
        ],
        "output": [],
    }
    found = columns([("Distributed.x.0.forward", record)], with_values=True)
    assert list(zip(found.slot, found.dtype, found.value, strict=True)) == [
        ("input.0", "NoneType", None),
        ("input.1", "int", 5),
        ("input.2", "str", "-inf"),
        ("input.3", "slice", [1, None, 2]),
        ("input.4", "torch.ProcessGroup", [0, 1]),
        ("input.5", "torch.memory_format", "preserve_format"),
        ("input.6.class_type", "str", "torch.distributed.P2POp"),
        ("input.6.tensor", "torch.float32", None),
        ("input.6.op", "str", "isend"),
        ("input.6.peer", "int", 1),
        ("input.7", "bool", True),
    ]
    assert found.max[1] == found.norm[1] == 5
    assert found.max[10] == 1
    assert list(found.nulls[:4]) == [15, 0, 15, 15]
    assert [slot for slot, _ in rows("Distributed.x.0.forward", record)] == ["input.6.tensor"]


def test_a_null_is_not_a_nan() -> None:
    found = one(tensor(Max=True, Min=False, Mean=None, Norm=float("nan")))
    assert (found.max[0], found.min[0]) == (1, 0)
    assert np.isnan(found.mean[0])
    assert np.isnan(found.norm[0])
    assert found.nulls[0] == 0b0100


def one(leaf: dict[str, Any]) -> Columns:
    found = columns([("Torch.x.0.forward", {"output": [leaf]})])
    assert len(found) == 1
    return found


def test_whole_numbers_beyond_float64_are_kept_exactly() -> None:
    found = one(tensor(Max=2**62 + 1, Min=-(2**62) - 1, Mean=5, Norm=2**53))
    assert found.exact == {("max", 0): 2**62 + 1, ("min", 0): -(2**62) - 1}
    assert found.max[0] == float(2**62)
    assert one(tensor(Max=10**400)).max[0] == np.inf


def test_strict_json_s_strings_are_numbers_again() -> None:
    found = one(tensor(Max="Infinity", Min="-Infinity", Mean="NaN", Norm="nonsense"))
    assert found.max[0] == np.inf
    assert found.min[0] == -np.inf
    assert np.isnan(found.mean[0])
    assert found.nulls[0] == 0b1000


def test_what_is_said_of_a_tensor_is_in_its_row() -> None:
    found = columns(
        [
            ("a", {"output": [tensor(md5="1939e524", data_name="a.pt", requires_grad=True)]}),
            ("b", {"output": [tensor(digest="xxh3:0123456789abcdef", shape=None)]}),
            ("c", {"output": [{"type": "mindspore.Tensor", "dtype": "Float32", "shape": [], "Max": 1.0}]}),
        ]
    )
    assert found.entry == ["a", "b", "c"]
    assert found.md5 == ["1939e524", None, None]
    assert found.digest == [None, "xxh3:0123456789abcdef", None]
    assert found.data_name == ["a.pt", None, None]
    assert list(found.requires_grad) == [1, 0, -1]
    assert found.shape == [(2, 3), None, ()]
    assert found.dtype[2] == "Float32"
    assert list(found.nulls) == [0, 0, 0b1110]


def test_nothing_gives_columns_of_nothing() -> None:
    found = columns([])
    assert len(found) == 0
    assert all(getattr(found, name).dtype == np.float64 for name in STATISTICS)


def test_a_tree_without_end_is_cut() -> None:
    tree: Any = T
    for _ in range(5000):
        tree = [tree]
    assert leaves("Torch.x.0.forward", {"output": tree}) == []
