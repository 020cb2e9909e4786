"""The folder of one ``PtdbgDispatch``: values of operators, and three csv files of what was found."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msprobe.foreign import csv_cells
from msprobe.paths import create_file, make_folder
from msprobe.precheck.dispatch.judging import Array, ResultJudgement
from msprobe.store.tensor_names import safe_file_name

RESULT = ("API name", "Forward Test Success", "Backward Test Success", "Message")
DETAILS = (
    "Npu Name", "Bench Dtype", "NPU Dtype", "Shape", "error_balance", "max_abs_diff", "max_abs_idx", "max_rel_diff",
    "max_rel_idx", "eb_thd", "error_thd", "Status", "Message",
)  # fmt: skip
COMPARED = (
    "NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Shape", "Bench Shape", "NPU max", "NPU min", "NPU mean",
    "Bench max", "Bench min", "Bench mean", "Cosine", "MaxAbsErr", "MaxRelativeErr", "Accuracy Reached or Not", "stack",
    "message",
)  # fmt: skip
NAN = "Nan"


class DispatchFiles:
    """``{dump_path}/msprobe[_{tag}]_rank{rank}_{time}`` with ``npu/`` and ``cpu/`` for values. Any thread may write."""

    def __init__(self, dump_path: Path, tag: str | None, rank: int) -> None:
        stamp = time.strftime("%Y%m%d%H%M%S")
        name = f"msprobe_{safe_file_name(tag)}" if tag else "msprobe"
        folder = dump_path / f"{name}_rank{rank}_{stamp}"
        for number in range(2, 1000):
            if not folder.exists():
                break
            folder = dump_path / f"{name}_rank{rank}_{stamp}_{number}"
        self.folder = make_folder(folder)
        for side in ("npu", "cpu"):
            make_folder(folder / side)
        self._lock = threading.Lock()
        self._paths = {
            RESULT: folder / f"accuracy_checking_result_{stamp}.csv",
            DETAILS: folder / f"accuracy_checking_details_{stamp}.csv",
            COMPARED: folder / f"compare_result_rank{rank}_{stamp}.csv",
        }
        for header, path in self._paths.items():
            _append(path, [header], append=False)

    def save(self, side: str, name: str, values: Array) -> None:
        """``{side}/{name}.npy``."""
        data = io.BytesIO()
        np.save(data, values, allow_pickle=False)
        with create_file(self.folder / side / safe_file_name(f"{name}.npy")) as file:
            file.write(data.getbuffer())

    def add(self, name: str, is_backward: bool, rows: Sequence[ResultRow], message: str = "") -> None:
        """One operator and its results; without rows it could not be compared, and ``message`` says why."""
        agrees: Any = all(row.judgement.agrees for row in rows) if rows else NAN
        reasons = message or "; ".join(
            f"{row.name}: {row.judgement.message}" for row in rows if not row.judgement.agrees
        )
        with self._lock:
            _append(
                self._paths[RESULT], [(name, NAN, agrees, reasons) if is_backward else (name, agrees, NAN, reasons)]
            )
            _append(self._paths[DETAILS], [row.details() for row in rows])
            _append(self._paths[COMPARED], [row.compared() for row in rows])


class ResultRow:
    """One result of one operator on both sides. ``stack``: the line of the program."""

    def __init__(
        self, name: str, judgement: ResultJudgement, device: Array, bench: Array, dtypes: tuple[str, str], stack: str
    ) -> None:
        self.name = name
        self.judgement = judgement
        self._shapes = list(device.shape), list(bench.shape)
        self._dtypes = dtypes
        self._numbers = (*_extent(device), *_extent(bench))
        self._stack = stack

    def details(self) -> tuple[Any, ...]:
        """Its row in ``accuracy_checking_details``."""
        judgement = self.judgement
        limits = judgement.limits or (None, None)
        return (
            self.name, self._dtypes[1], self._dtypes[0], self._shapes[0], judgement.balance, judgement.max_abs,
            judgement.max_abs_place, judgement.max_rel, judgement.max_rel_place, *limits,
            "pass" if judgement.agrees else "error", judgement.message,
        )  # fmt: skip

    def compared(self) -> tuple[Any, ...]:
        """Its row in ``compare_result``."""
        judgement = self.judgement
        return (
            self.name, self.name, *self._dtypes, *self._shapes, *self._numbers, judgement.cosine, judgement.max_abs,
            judgement.max_rel, "Yes" if judgement.agrees else "No", self._stack, judgement.message,
        )  # fmt: skip


def _extent(values: Array) -> tuple[Any, Any, Any]:
    if not values.size or values.dtype.kind not in "fiub":
        return None, None, None
    with np.errstate(all="ignore"):
        return values.max().item(), values.min().item(), float(values.mean(dtype=np.float64))


def _append(path: Path, rows: Sequence[Sequence[Any]], append: bool = True) -> None:
    text = io.StringIO()
    csv_cells.writer(text, lineterminator="\n").writerows(
        [["" if cell is None else cell for cell in row] for row in rows]
    )
    with create_file(path, append=append and os.path.exists(path)) as file:
        file.write(text.getvalue().encode())
