"""Write pairs of dumps of any size, as a training step of a transformer would leave them.

Nothing of msprobe is used: the files have the form that mindstudio-probe 8.1.1 writes, so every tool can read them.
"""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np

# A block of a transformer: name, inputs, outputs. 2.6 rows a call.
_CALLS = (
    ("Functional.layer_norm", 3, 1),
    ("Functional.linear", 3, 1),
    ("Tensor.reshape", 1, 1),
    ("Tensor.transpose", 1, 1),
    ("Torch.matmul", 2, 1),
    ("Tensor.__mul__", 1, 1),
    ("Functional.softmax", 1, 1),
    ("Functional.dropout", 1, 1),
    ("Tensor.__add__", 2, 1),
    ("Functional.gelu", 1, 1),
)
_SHAPES = ([2, 32, 64], [2, 32, 256], [64, 64], [2, 4, 32, 32], [64])
STACK = [
    "File /home/user/model.py, line {line}, in forward, \n y = self.f(x)",
    "File /home/user/train.py, line 10, in <module>, \n step()",
]


def write_statistics(folder: Path, calls: int, seed: int, md5: bool = False) -> int:
    """A dump of statistics (with digests if ``md5``); half of the tensors differ a little from
    seed to seed, every 50th much. Returns its rows."""
    same, own = random.Random(0), random.Random(seed)
    data: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    rows = 0
    for index in range(calls):
        name, given, made = _CALLS[index % len(_CALLS)]
        number = numbers.get(name, 0)
        numbers[name] = number + 1
        shape = same.choice(_SHAPES)
        tensors = [_tensor(same, own, shape, md5) for _ in range(given + made)]
        rows += given + made
        data[f"{name}.{number}.forward"] = {
            "input_args": tensors[:given],
            "input_kwargs": {},
            "output": tensors[given:],
            "is_recompute": False,
        }
    _write(folder, "statistics", data)
    return rows


def write_tensors(folder: Path, count: int, nbytes: int, seed: int) -> None:
    """A dump of ``count`` tensors of ``nbytes`` bytes each, in .pt files."""
    import torch

    data: dict[str, Any] = {}
    values = folder / "dump_tensor_data"
    values.mkdir(parents=True)
    base = np.random.default_rng(0).standard_normal(nbytes // 4).astype(np.float32)
    noise = np.float32(1 + 1e-6 * seed)
    for index in range(count):
        name = f"Functional.linear.{index // 2}.forward"
        place = ("input.0", "output.0")[index % 2]
        array = base * noise * np.float32(1 + index % 7)
        file = f"{name}.{place}.pt"
        torch.save(torch.from_numpy(array), values / file)
        leaf = {**_leaf(array, [array.size]), "data_name": file}
        entry = data.setdefault(name, {"input_args": [], "input_kwargs": {}, "output": []})
        entry["input_args" if index % 2 == 0 else "output"].append(leaf)
    _write(folder, "tensor", data)


def _tensor(same: random.Random, own: random.Random, shape: list[int], md5: bool) -> dict[str, Any]:
    numbers = [same.uniform(1, 5), same.uniform(-5, -1), same.uniform(-0.1, 0.1), same.uniform(10, 500)]
    if same.random() < 0.5:
        numbers = [number * (1 + own.uniform(-1e-6, 1e-6)) for number in numbers]
    if same.random() < 0.02:
        numbers = [number * own.uniform(0.5, 2) for number in numbers]
    leaf = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": shape,
        "Max": numbers[0],
        "Min": numbers[1],
        "Mean": numbers[2],
        "Norm": numbers[3],
        "requires_grad": True,
    }
    if md5:
        leaf["md5"] = f"{zlib.crc32(repr(numbers).encode()):08x}"
    return leaf


def _leaf(array: Any, shape: list[int]) -> dict[str, Any]:
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": shape,
        "Max": float(array.max()),
        "Min": float(array.min()),
        "Mean": float(array.mean()),
        "Norm": float(np.linalg.norm(array)),
        "requires_grad": False,
    }


def _write(folder: Path, task: str, data: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    head = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": str(folder / "dump_tensor_data")}
    (folder / "dump.json").write_text(json.dumps({**head, "data": data}, indent=1))
    names = list(data)
    stacks = {
        str(number): [names[start : start + 10], [STACK[0].format(line=number), STACK[1]]]
        for number, start in enumerate(range(0, len(names), 10))
    }
    (folder / "stack.json").write_text(json.dumps(stacks, indent=1))
    (folder / "construct.json").write_text(json.dumps(dict.fromkeys(data)))
