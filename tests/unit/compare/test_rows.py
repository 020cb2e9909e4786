from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import raising

from msprobe.compare.problems import DamagedDataError
from msprobe.compare.rows import (
    BOOL,
    FLOAT,
    GRADIENT,
    INPUT,
    NULL,
    OUTPUT,
    PARAMETER,
    TEXT,
    WHOLE,
    Rows,
    read_rows,
    slots_of,
)
from msprobe.store.reader import open_dump


def tensor(**more: Any) -> dict[str, Any]:
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0, "Mean": 0.5}
    return {**leaf, "Norm": 1.0, "requires_grad": True, **more}


def rows_of(folder: Path, data: dict[str, Any], name: str = "dump.json") -> Rows:
    (folder / name).write_text(json.dumps({"task": "statistics", "data": data}, indent=1))
    return read_rows(open_dump(folder / name).part())


def test_rows_of_a_call_are_inputs_parameters_outputs(tmp_path: Path) -> None:
    record = {
        "output": [tensor()],
        "parameters": {"weight": tensor(), "bias": None},
        "is_recompute": False,
        "input_kwargs": {"p": {"type": "float", "value": 0.5}},
        "input_args": [tensor(), [tensor(), tensor()]],
        "msprobe": {"order": 1},
    }
    rows = rows_of(tmp_path, {"Module.f.Linear.forward.0": record})
    assert rows.slot == [
        "input.0", "input.1.0", "input.1.1", "input.p", "parameters.weight", "parameters.bias", "output.0",
    ]  # fmt: skip
    assert rows.state.tolist() == [INPUT] * 4 + [PARAMETER] * 2 + [OUTPUT]
    assert rows.name[0] == "Module.f.Linear.forward.0.input.0"
    assert rows.is_tensor.tolist() == [True, True, True, False, True, False, True]


def test_lists_of_parameter_gradients_are_transparent(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {"Module.f.Linear.parameters_grad": {"weight": [tensor()], "bias": [None]}})
    assert rows.name == ["Module.f.Linear.parameters_grad.weight", "Module.f.Linear.parameters_grad.bias"]
    assert rows.state.tolist() == [GRADIENT, GRADIENT]


def test_only_the_last_parts_of_a_name_say_what_a_record_is(tmp_path: Path) -> None:
    call = {"input_args": [tensor()], "input_kwargs": {}, "output": [tensor()]}
    rows = rows_of(
        tmp_path, {"Module.debug.parameters_grad.Linear.forward.0": call, "Module.debug.Linear.forward.0": call}
    )
    assert set(rows.slot) == {"input.0", "output.0"}


def test_saved_variables_keep_their_lists(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {"x.0.debug": {"k": [tensor()]}, "y.0.debug": tensor()}, "debug.json")
    assert rows.name == ["x.0.debug.k.0", "y.0.debug"]


def test_the_slots_of_a_record_are_those_of_its_rows(tmp_path: Path) -> None:
    number = {"type": "int", "value": 3}
    data = {
        "Torch.cat.0.forward": {
            "input_args": [[tensor(), tensor()], number], "input_kwargs": {"dim": number}, "output": [tensor()],
        },
        "Torch.cat.0.backward": {"input": [tensor()], "output": [tensor()], "input_grads": {"input.0": tensor()}},
        "Module.a.Linear.forward.0": {"input_args": [], "parameters": {"weight": tensor()}, "output": [tensor()]},
        "Module.a.Linear.parameters_grad": {"weight": [tensor(), tensor()], "bias": [tensor()]},
        "seen.0.debug": {"x": [tensor(), {"deep": number}]},
        "one.0.debug": tensor(),
    }  # fmt: skip
    rows = rows_of(tmp_path, data)
    expected = [(rows.entries[entry], slot) for entry, slot in zip(rows.entry.tolist(), rows.slot, strict=True)]
    found = [(name, slot) for name, record in data.items() for slot, leaf in slots_of(name, record)]
    assert found == expected


def test_data_name_gives_the_row_its_name(tmp_path: Path) -> None:
    call = {"input_args": [tensor(data_name="short.7.pt"), tensor(data_name="-1")], "input_kwargs": {}, "output": []}
    rows = rows_of(tmp_path, {"Torch.f.0.forward": call})
    assert rows.name == ["short.7", "Torch.f.0.forward.input.1"]
    assert rows.data_name == ["short.7.pt", None]


@pytest.mark.parametrize(
    ("leaf", "dtype", "shape", "value", "digested"),
    [
        ({"type": "int", "value": 3}, "<class 'int'>", "[]", 3.0, "3"),
        ({"type": "bool", "value": True}, "<class 'bool'>", "[]", 1.0, "True"),
        ({"type": "str", "value": "a"}, "<class 'str'>", "[]", "a", "a"),
        ({"type": "torch.device", "value": "cpu"}, "<class 'str'>", "[]", "cpu", "cpu"),
        ({"type": "torch.Size", "value": [2, 3]}, "torch.Size", "[2, 3]", None, "[2, 3]"),
        ({"type": "slice", "value": [0, 2, None]}, "slice", "(3,)", None, "[0, 2, None]"),
        ({"type": "ellipsis", "value": "..."}, "ellipsis", "[]", "...", "..."),
        ({"type": "torch.ProcessGroup", "group_ranks": [0, 1]}, "torch.ProcessGroup", "[]", "[0, 1]", None),
        ({"type": "torch.memory_format", "format": "x"}, "<class 'NoneType'>", "[]", None, None),
        (None, "None", "None", None, "N/A"),
    ],
)
def test_what_is_no_tensor(
    leaf: Any, dtype: str, shape: str, value: float | str | None, digested: str | None, tmp_path: Path
) -> None:
    rows = rows_of(tmp_path, {"Torch.f.0.forward": {"input_args": [leaf], "input_kwargs": {}, "output": []}})
    assert (rows.dtypes[rows.dtype[0]], rows.shapes[rows.shape[0]]) == (dtype, shape)
    if isinstance(value, str):
        assert rows.texts == {0: value}
        assert {int(rows.kind(statistic)[0]) for statistic in range(4)} == {TEXT}
    elif value is None:
        assert rows.kind(0)[0] == NULL
        assert np.isnan(rows.numbers[:, 0]).all()
    else:
        assert rows.numbers[:, 0].tolist() == [value] * 4
    digest = "00000000" if digested is None else digested
    assert rows.md5 == [digest if digest in ("00000000", "N/A") else f"{zlib.crc32(digest.encode()):08x}"]


def test_statistics_of_other_kinds(tmp_path: Path) -> None:
    leaves = [
        tensor(Max=True, Min=False, Mean=None, Norm=None, dtype="torch.bool"),
        tensor(Max=2**60 + 1, Min=-3, dtype="torch.int64"),
        tensor(Max="Infinity", Min="NaN"),
        tensor(Max=10**400),
    ]
    rows = rows_of(tmp_path, {"Torch.f.0.forward": {"input_args": leaves, "input_kwargs": {}, "output": []}})
    assert [int(rows.kind(statistic)[0]) for statistic in range(4)] == [BOOL, BOOL, NULL, NULL]
    assert [int(rows.kind(statistic)[1]) for statistic in range(4)] == [WHOLE, WHOLE, FLOAT, FLOAT]
    # A whole number of more than 64 bits is none that a tensor can have: it is read as the nearest float.
    assert rows.exact == {(0, 1): 2**60 + 1}
    assert rows.numbers[0, 3] == np.inf
    assert rows.numbers[0, 2] == np.inf
    assert np.isnan(rows.numbers[1, 2])


def test_empty_containers_and_records_have_no_rows(tmp_path: Path) -> None:
    rows = rows_of(
        tmp_path,
        {
            "Torch.f.0.forward": {"input_args": [], "input_kwargs": {}, "output": [{}]},
            "Torch.g.0.forward": {"input_args": [tensor()], "input_kwargs": {}, "output": []},
        },
    )
    assert rows.entries == ["Torch.g.0.forward"]
    assert rows.starts.tolist() == [0]


@pytest.mark.parametrize("record", [None, 5, "text", [1]])
def test_a_record_that_is_no_object_is_named(record: Any, tmp_path: Path) -> None:
    with raising(DamagedDataError, "record-is-no-object", name="Torch.f.0.forward"):
        rows_of(tmp_path, {"Torch.f.0.forward": record})
