"""``statistic.csv`` where MindSpore refuses to write it (on the CPU): made of the tensors that it dumps instead."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from msprobe import log
from msprobe.capture.mindspore.graphs.kernel_config import NET_NAME, USUAL_KINDS
from msprobe.foreign import csv_cells
from msprobe.messages import said
from msprobe.paths import write_atomically
from msprobe.store.dtypes import Array

STATISTIC_FILE = "statistic.csv"
_HEAD = (
    "Op Type",
    "Op Name",
    "Task ID",
    "Stream ID",
    "Timestamp",
    "IO",
    "Slot",
    "Data Size",
    "Data Type",
    "Shape",
)
_PARTS = 9


def _norm(array: Array) -> Any:
    with np.errstate(all="ignore"):
        return np.float32(np.sqrt(np.square(array.astype(np.float64)).sum()))


def _mean(array: Array) -> Any:
    with np.errstate(all="ignore"):
        return np.float32(array.astype(np.float64).mean())


# What a configuration calls a statistic -> its column, and how it is found. MindSpore counts elements below and above
# zero under "negative zero count" and "positive zero count".
_KINDS: dict[str, tuple[str, Callable[[Array], Any]]] = {
    "max": ("Max Value", np.max),
    "min": ("Min Value", np.min),
    "mean": ("Avg Value", _mean),
    "count": ("Count", np.size),
    "negative zero count": ("Negative Zero Count", lambda array: np.count_nonzero(array < 0)),
    "positive zero count": ("Positive Zero Count", lambda array: np.count_nonzero(array > 0)),
    "nan count": ("NaN Count", lambda array: np.count_nonzero(np.isnan(array))),
    "negative inf count": ("Negative Inf Count", lambda array: np.count_nonzero(np.isneginf(array))),
    "positive inf count": ("Positive Inf Count", lambda array: np.count_nonzero(np.isposinf(array))),
    "zero count": ("Zero Count", lambda array: np.count_nonzero(array == 0)),
    "md5": ("MD5", lambda array: hashlib.md5(array.tobytes(), usedforsecurity=False).hexdigest()),
    "l2norm": ("L2Norm Value", _norm),
}


class _Dumped(NamedTuple):
    """One dumped tensor, by the parts of its file's name."""

    path: Path
    op_type: str
    op_name: str
    task: str
    stream: str
    time: str
    side: str
    slot: str
    dtype: str


def summarise(folder: Path, kinds: Sequence[str] = USUAL_KINDS) -> None:
    """Turn the tensors of each iteration below ``folder`` into rows of its ``statistic.csv``, and remove them."""
    # In the order of MindSpore's own columns; it has none for a hash on the CPU.
    chosen = [column for kind, column in _KINDS.items() if kind in kinds]
    for iteration in sorted(folder.glob(f"rank_*/{NET_NAME}/*/*")):
        dumped = sorted(
            _dumped(iteration), key=lambda tensor: (tensor.time, tensor.op_name, tensor.side, int(tensor.slot))
        )
        if not dumped:
            continue
        file = iteration / STATISTIC_FILE
        lines = io.StringIO()
        writer = csv_cells.writer(lines, lineterminator="\n")
        if not file.exists():
            writer.writerow([*_HEAD, *(title for title, _ in chosen)])
        for tensor in dumped:
            try:
                array = np.load(tensor.path, allow_pickle=False)
            except (OSError, ValueError) as problem:
                text = said("kernel-statistics-unreadable", tensor.path, problem)
                log.once(("kernel file", str(folder)), "warning", text)
                continue
            writer.writerow([*_head(tensor, array), *(_value(find, array) for _, find in chosen)])
        earlier = file.read_bytes() if file.exists() else b""
        write_atomically(file, earlier + lines.getvalue().encode(), fsync=False)
        for tensor in dumped:
            tensor.path.unlink()


def _dumped(iteration: Path) -> Iterator[_Dumped]:
    for path in iteration.glob("*.npy"):
        parts = path.name[: -len(".npy")].split(".")
        if len(parts) == _PARTS and parts[6].isdecimal():
            op_type, op_name, task, stream, time, side, slot, _, dtype = parts
            yield _Dumped(path, op_type, op_name, task, stream, time, side, slot, dtype)


def _head(tensor: _Dumped, array: Array) -> list[Any]:
    shape = "(" + ",".join(map(str, array.shape)) + ")"
    head = [
        tensor.op_type,
        tensor.op_name,
        tensor.task,
        tensor.stream,
        tensor.time,
        tensor.side,
        tensor.slot,
        array.nbytes,
    ]
    return [*head, tensor.dtype.lower(), shape]


def _value(find: Callable[[Array], Any], array: Array) -> Any:
    if array.size == 0 or array.dtype.kind not in "biuf":
        return "null"
    with np.errstate(all="ignore"):
        value = find(array)
    return value.item() if hasattr(value, "item") else value
