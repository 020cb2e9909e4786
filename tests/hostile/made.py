"""Small inputs made by hand: a dump of one step and rank, files of tensors, and runs of the monitor."""

from __future__ import annotations

import csv
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

#: Bytes that an entry of an archive unpacks to where it is made large.
ZEROS = 3 << 29
TENSOR: dict[str, Any] = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [2, 3],
    "Max": 1.0,
    "Min": -1.0,
    "Mean": 0.0,
    "Norm": 1.0,
    "requires_grad": False,
}


def record(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """A call with these arguments: one tensor where none is given."""
    return {"input_args": list(args or (TENSOR,)), "input_kwargs": kwargs, "output": [TENSOR]}


def dump(folder: Path, data: dict[str, Any], task: str = "statistics", level: str = "L1") -> Path:
    """A dump with these records; the path of its dump.json."""
    place = Path(folder, "step0", "rank")
    place.mkdir(parents=True)
    values = str(place / "dump_tensor_data") if task == "tensor" else None
    head = {"task": task, "level": level, "framework": "pytorch", "dump_data_dir": values}
    (place / "dump.json").write_text(json.dumps({**head, "data": data}))
    return place / "dump.json"


def text(letters: str) -> bytes:
    """The letters as a pickle has them."""
    return b"X" + struct.pack("<I", len(letters)) + letters.encode()


def tensor_pickle(
    count: int = 4, shape: bytes = b"(K\x04t", strides: bytes = b"(K\x01t", kind: str = "FloatStorage"
) -> bytes:
    """data.pkl of a tensor of four floats."""
    storage = b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text("0") + text("cpu")
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + b"J"
        + struct.pack("<i", count)
        + b"tQK\x00"
        + shape
        + strides
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )


def pt(path: Path, pickle: bytes | None = None, packed: str | None = None) -> Path:
    """A .pt file; the entry ``packed`` is one and a half gibibytes of zeros, deflated to a thousandth."""
    entries = {"a/data.pkl": pickle or tensor_pickle(), "a/byteorder": b"little", "a/data/0": b"\0" * 16}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in entries.items():
            if name != packed:
                archive.writestr(name, data, zipfile.ZIP_STORED)
                continue
            with archive.open(name, "w", force_zip64=True) as file:
                for _ in range(ZEROS >> 20):
                    file.write(b"\0" * (1 << 20))
    return path


def two_dumps(folder: Path, **hostile: Any) -> tuple[object, ...]:
    """The words of a comparison of two dumps with values, one of which has a hostile file; see :func:`pt`."""
    for side, most in (("A", 1.0), ("B", 2.0)):
        one = {**TENSOR, "shape": [4], "data_name": "relu.pt", "Max": most}
        call = {**record(one), "output": [one]}
        place = dump(folder / side, {"Functional.relu.0.forward": call}, "tensor").parent / "dump_tensor_data"
        place.mkdir()
        pt(place / "relu.pt", **(hostile if side == "B" else {}))
    return "compare", folder / "A", folder / "B", "-o", folder / "out", "--csv"


def monitored(folder: Path, name: str = "layer.weight", change: float = 0.0) -> Path:
    """A run of the monitor with one csv file of two steps."""
    place = Path(folder, "Nov01_10-00-00-rank0-0123abcd")
    place.mkdir(parents=True)
    with open(place / "grad_reduced_0-1.csv", "w", encoding="utf-8", newline="") as file:
        rows = [[0, name, step, 1.5 + change * step, -1.0, 1.0 + change, 0.1] for step in range(2)]
        csv.writer(file).writerows([["vpp_stage", "name", "step", "norm", "min", "max", "mean"], *rows])
    return folder
