"""Dumps of one step of many ranks, one of which goes bad: quick to write, whatever their number.

The text of a rank is that of another with other digits in its numbers, so that a rank costs one replacement and one
write. Names of calls, modules and stacks, and rows of tensors, are the same on all ranks: these files are one, with a
name in each folder.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe.store import row_format
from msprobe.store.encode import encode

#: Digits that stand in a number where each rank has its own.
_OWN = "77777"
_CALLS = 23
_RECORDS = 2 * _CALLS + 4
_APIS = ("linear", "gelu", "linear", "dropout", "layer_norm")


@dataclass(frozen=True)
class Planted:
    """The call that makes the first NaN, and its rank."""

    rank: int
    call: str


def write(folder: Path, ranks: int, records: int, bad_rank: int | None = None) -> Planted | None:
    """Write ``{folder}/step0/rank{R}``; where ``bad_rank`` is given, one of its calls makes a NaN, which an all_reduce
    takes to all others.

    Layers of 50 records: 23 calls, an all_reduce over all ranks and the module; the same backward.
    """
    layers = max(records // _RECORDS, 1)
    bad_layer = layers * 4 // 5
    call = f"Functional.silu.{bad_layer}.forward"
    rows = _Rows()
    kinds = {"reached": _text(ranks, layers, bad_layer if bad_rank is not None else None, "", rows)}
    if bad_rank is not None:
        kinds["bad"] = _text(ranks, layers, bad_layer, call, rows)
    for rank in range(ranks):
        place = folder / "step0" / f"rank{rank}"
        place.mkdir(parents=True)
        text = kinds["bad" if rank == bad_rank else "reached"]
        (place / "dump.json").write_bytes(text.replace(_OWN.encode(), b"%05d" % rank))
        if rank == 0:
            _write_places(place, json.loads(text)["data"])
            (place / "dump_rows.bin").write_bytes(row_format.header() + b"".join(rows.rows))
        else:
            for name in ("construct.json", "stack.json", "dump_rows.bin"):
                os.link(folder / "step0" / "rank0" / name, place / name)
    return Planted(bad_rank, call) if bad_rank is not None else None


class _Rows:
    """A row for each value that a tensor has."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self._numbers: dict[str, int] = {}

    def of(self, value: float | str) -> int:
        """The number of the row."""
        found = self._numbers.get(str(value))
        if found is None:
            found = self._numbers[str(value)] = len(self.rows)
            number = 0.0 if isinstance(value, float) else float(f"1.{value}")
            left_out = 8192 if isinstance(value, float) else 0
            most, least = (math.nan, math.nan) if left_out else (number, -2 * number)
            numbers = (819.2 * number, 81.0 * number * number, *(number * k for k in (9, -7, 8, 11, -9, 6, -10, 9)))
            self.rows.append(row_format.NATIVE.pack(*numbers, *[3.182 * number] * 8, most, least, 0, left_out))
        return found


def _leaf(rows: _Rows, value: float | str, is_own: bool = True) -> dict[str, Any]:
    """What a record says of a tensor; ``value`` is a number with six digits at most, or NaN."""
    if isinstance(value, float):
        numbers = [value] * 4
    else:
        own = _OWN if is_own else ""
        numbers = [float(f"{head}{value}{own}") for head in ("1.", "-2.", "0.1", "9.")]
    statistics = dict(zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True))
    about = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 4096]}
    return {**about, **statistics, "requires_grad": False, "row": rows.of(value)}


def _text(ranks: int, layers: int, bad_layer: int | None, bad_call: str, rows: _Rows) -> bytes:
    """The records of a rank whose own digits are still to be put in; ``bad_call`` makes the NaN, unless it is empty."""
    data: dict[str, Any] = {}
    number = 0
    now: float | str = "000001"
    group = {"type": "torch.ProcessGroup", "group_ranks": list(range(ranks)), "group_id": "world"}

    def next_value(before: float | str) -> float | str:
        nonlocal number
        number += 1
        return before if isinstance(before, float) else f"{number:06d}".replace("7", "8")

    for layer in range(layers):
        start = now
        for place in range(_CALLS):
            name = f"Functional.{_APIS[place % 5]}.{layer * _CALLS + place}.forward"
            given = [_leaf(rows, now)]
            if place == _CALLS - 1:
                name = f"Functional.silu.{layer}.forward"
            elif _APIS[place % 5] == "linear":
                given += [_leaf(rows, f"{layer % 1000:03d}{place:03d}", is_own=False)]
            now = math.nan if name == bad_call else next_value(now)
            data[name] = {"input_args": given, "input_kwargs": {}, "output": [_leaf(rows, now)], "is_recompute": False}
        before = now
        now = math.nan if layer == bad_layer else next_value(now)
        data[f"Distributed.all_reduce.{layer}.forward"] = {
            "input_args": [_leaf(rows, before)],
            "input_kwargs": {"group": group},
            "output": [_leaf(rows, now, is_own=False)],
            "is_recompute": False,
        }
        data[f"Module.layers.{layer}.Block.forward.0"] = {
            "input_args": [_leaf(rows, start)],
            "input_kwargs": {},
            "parameters": {"weight": _leaf(rows, f"{layer:06d}".replace("7", "8"), is_own=False)},
            "output": [_leaf(rows, now, is_own=False)],
            "is_recompute": False,
        }
    for layer in reversed(range(layers)):
        for place in reversed(range(_CALLS)):
            api, count = (_APIS[place % 5], layer * _CALLS + place) if place < _CALLS - 1 else ("silu", layer)
            name = f"Functional.{api}.{count}.backward"
            given = [_leaf(rows, now)]
            now = next_value(now)
            data[name] = {"input": given, "output": [_leaf(rows, now)]}
        data[f"Module.layers.{layer}.Block.backward.0"] = {"input": [_leaf(rows, now)], "output": [_leaf(rows, now)]}
        data[f"Module.layers.{layer}.Block.parameters_grad"] = {"weight": [_leaf(rows, now)]}
    header = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": data}
    return encode(header, 0)


def _write_places(place: Path, data: dict[str, Any]) -> None:
    """The modules and the stacks of all records."""
    parents: dict[str, Any] = {}
    layer = 0
    inside: list[str] = []
    for name in data:
        inside.append(name)
        if name.startswith("Module.") and not name.endswith("parameters_grad"):
            parents |= dict.fromkeys(inside[:-1], name)
            parents[name] = None
            inside = []
            layer += 1
    names = list(data)
    stacks = {
        str(start // 10): [names[start : start + 10], [f"File /train.py, line {start}, in step, \n h = f(h)"]]
        for start in range(0, len(names), 10)
    }
    (place / "construct.json").write_text(json.dumps(parents, indent=1))
    (place / "stack.json").write_text(json.dumps(stacks, indent=1))
