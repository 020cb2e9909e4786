"""Level L2 of a static graph: MindSpore itself dumps the kernels, told by a file that ``MINDSPORE_DUMP_CONFIG`` names.

What it writes: ``rank_{id}/Net/{graph}/{iteration}/{op type}.{op name}.{task}.{stream}.{time}.{input|output}.{slot}.
{format}.{dtype}.npy`` in ``dump_path``. Statistics are refused by MindSpore on the CPU: there tensors are dumped, and
``statistic.csv`` is made of them here.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mindspore
import numpy as np

from msprobe import log
from msprobe.capture.mindspore.executor import wait_for_all
from msprobe.config.settings import Settings
from msprobe.paths import make_folder, write_atomically
from msprobe.store.dtypes import Array

CONFIG_NAME = "kernel_kbyk_dump.json"
VARIABLE = "MINDSPORE_DUMP_CONFIG"
NET_NAME = "Net"
STATISTIC_FILE = "statistic.csv"
COLUMNS = (
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
    "Max Value",
    "Min Value",
    "L2Norm Value",
)
_PARTS = 9


class GraphKernels:
    """The kernel dump of this process: one configuration, made before the graph is compiled."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = Path(os.path.abspath(settings.dump_path))
        # Statistics of our own making.
        self.makes_statistics = settings.task == "statistics" and mindspore.get_context("device_target") == "CPU"
        self._before = os.environ.get(VARIABLE)
        make_folder(self.folder)
        file = self.folder / CONFIG_NAME
        write_atomically(file, json.dumps(dump_config(settings, self.makes_statistics), indent=4).encode(), fsync=False)
        os.environ[VARIABLE] = str(file)
        if self._before is not None and self._before != str(file):
            log.warning(f"{VARIABLE} was set already; the recording puts its own file in its place until it ends.")
        _tell("_dump_set_dynamic")

    def start(self) -> None:
        """Dump from here on."""
        _tell("_dump_start")

    def stop(self) -> None:
        """Dump no more. The CPU does not listen to this: there the steps of the configuration decide alone."""
        wait_for_all()
        _tell("_dump_stop")
        if self.makes_statistics:
            summarise(self.folder)

    def step(self) -> None:
        """The next iteration begins."""
        wait_for_all()
        _tell("_dump_step", 1)

    def close(self) -> None:
        """The program, or the recording, ends."""
        wait_for_all()
        if self.makes_statistics:
            summarise(self.folder)
        if self._before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = self._before


def dump_config(settings: Settings, as_tensors: bool = False) -> dict[str, Any]:
    """What MindSpore is told. ``as_tensors``: whole tensors are dumped, whatever the task."""
    both = settings.input == settings.output
    common: dict[str, Any] = {
        "dump_mode": 1 if settings.api_list else 0,
        "path": os.path.abspath(settings.dump_path),
        "net_name": NET_NAME,
        "iteration": "|".join(map(str, settings.steps)) or "all",
        "saved_data": "tensor" if as_tensors or settings.task == "tensor" else "statistic",
        "input_output": 0 if both else 1 if settings.input else 2,
        "kernels": list(settings.api_list),
        "support_device": list(settings.ranks) or list(range(8)),
    }
    return {
        "common_dump_settings": common,
        "e2e_dump_settings": {"enable": not settings.async_dump, "trans_flag": True},
    }


def _tell(name: str, *args: Any) -> None:
    """Call one of the switches of MindSpore's dump, where it has them."""
    try:
        switch = getattr(__import__("mindspore._c_expression", fromlist=[name]), name)
    except (ImportError, AttributeError):
        return
    switch(*args)


# ------------------------------------------------------------ statistics of dumped tensors


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


def summarise(folder: Path) -> None:
    """Turn the tensors of each iteration below ``folder`` into rows of its ``statistic.csv``, and remove them."""
    for iteration in sorted(folder.glob(f"rank_*/{NET_NAME}/*/*")):
        found = sorted(_dumped(iteration), key=lambda one: (one.time, one.op_name, one.side, int(one.slot)))
        if not found:
            continue
        file = iteration / STATISTIC_FILE
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        if not file.exists():
            writer.writerow(COLUMNS)
        for one in found:
            try:
                writer.writerow(_row(one, np.load(one.path, allow_pickle=False)))
            except (OSError, ValueError) as problem:
                log.once(("kernel file", str(folder)), "warning", f'"{one.path}" cannot be read: {problem}.')
                continue
        earlier = file.read_bytes() if file.exists() else b""
        write_atomically(file, earlier + lines.getvalue().encode(), fsync=False)
        for one in found:
            one.path.unlink()


def _dumped(iteration: Path) -> Iterator[_Dumped]:
    for path in iteration.glob("*.npy"):
        parts = path.name[: -len(".npy")].split(".")
        if len(parts) == _PARTS and parts[6].isdecimal():
            op_type, op_name, task, stream, time, side, slot, _, dtype = parts
            yield _Dumped(path, op_type, op_name, task, stream, time, side, slot, dtype)


def _row(one: _Dumped, array: Array) -> list[Any]:
    head = [one.op_type, one.op_name, one.task, one.stream, one.time, one.side, one.slot, array.nbytes]
    shape = "(" + ",".join(map(str, array.shape)) + ")"
    return [*head, one.dtype.lower(), shape, *_numbers(array)]


def _numbers(array: Array) -> list[Any]:
    if array.size == 0 or array.dtype.kind not in "biuf":
        return ["null", "null", "null"]
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        norm = float(np.sqrt(np.square(wide).sum()))
        return [_text(array.max()), _text(array.min()), _text(np.float32(norm))]


def _text(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
