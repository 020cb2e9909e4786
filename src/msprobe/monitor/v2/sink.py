"""The csv files of ``monitor_v2``: ``rank_{r}/{monitor}_step{a}-{b}.csv``, all digits, lines that end in CRLF."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping, Sequence

from msprobe import log
from msprobe.errors import PathError
from msprobe.foreign import csv_cells
from msprobe.messages import said
from msprobe.monitor.measurements import MonitorRun, Quantity, Row, StepMetrics
from msprobe.monitor.v2.settings import SettingsV2
from msprobe.paths import FILE_MODE, make_folder

#: What is measured -> the monitor in whose file it is, and its scope there.
_PLACES: Mapping[Quantity, tuple[str, str]] = {
    "actv": ("module", "forward"),
    "actv_grad": ("module", "backward"),
    "grad_unreduced": ("weight_grad", "unreduced"),
    "grad_reduced": ("weight_grad", "reduced"),
    "exp_avg": ("optimizer", "exp_avg"),
    "exp_avg_sq": ("optimizer", "exp_avg_sq"),
    "param_origin": ("param", "param_origin"),
    "param_updated": ("param", "param_updated"),
    "other": ("cc", "comm"),
}
# The module, its inputs or results, its number where there are several, and where in a structure it is.
_NAME = re.compile(r"(.*\.)?(input|output)(?:_(\d+))?((?:[._].*)?)", re.DOTALL)


class CsvSinkV2:
    """Writes each step when it comes, one write for each monitor."""

    def __init__(self, settings: SettingsV2, rank: int) -> None:
        self._settings = settings
        self._folder = os.path.join(settings.output_dir, f"rank_{rank}")
        self._written: set[str] = set()

    def open(self, run: MonitorRun) -> None:
        """Make the folder and its parents. Raises PathError."""
        make_folder(self._folder)

    def write(self, metrics: StepMetrics) -> None:
        """Write a step. Raises PathError."""
        for monitor, ops in self._settings.monitors.items():
            lines = [
                line
                for quantity, (owner, scope) in _PLACES.items()
                if owner == monitor
                for line in self._lines(metrics, quantity, scope, ops)
            ]
            if lines:
                self._append(monitor, metrics.step, ops, lines)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """No file is open between steps."""

    def _lines(
        self, metrics: StepMetrics, quantity: Quantity, scope: str, ops: Sequence[str]
    ) -> list[tuple[object, ...]]:
        places = [metrics.ops_of(quantity).index(op) for op in ops]
        with_micro = quantity in ("actv", "actv_grad")
        lines: list[tuple[object, ...]] = []
        for row in metrics.rows.get(quantity, ()):
            # A target that stands for all parameters names the model itself, too.
            if with_micro and self._settings.targets and row.name.startswith("."):
                continue
            micro = (row.micro_step or 0,) if with_micro else ()
            values = (_text(row.values[place]) for place in places)
            lines.append((row.stage, metrics.step, _name(quantity, row), scope, *micro, *values))
        return lines

    def _append(self, monitor: str, step: int, ops: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
        start, count = self._settings.start_step, self._settings.step_count_per_record
        first = start + (step - start) // count * count
        path = os.path.join(self._folder, f"{monitor}_step{first}-{first + count - 1}.csv")
        text = io.StringIO()
        table = csv_cells.writer(text, lineterminator="\r\n")
        try:
            is_new = not os.path.exists(path) or os.path.getsize(path) == 0
            if is_new:
                micro = ("micro_step",) if monitor == "module" else ()
                table.writerow(("vpp_stage", "step", "module_name", "scope", *micro, *ops))
            elif path not in self._written:
                log.warning(said("rows-appended", path))
            table.writerows(lines)
            self._written.add(path)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.getvalue().encode("utf-8", "backslashreplace"))
        except OSError as problem:
            raise PathError(said("file-not-written", path, problem.strerror or problem)) from problem


def _text(value: float | int | bool | None) -> str:
    return "nan" if value is None else repr(value)


def _name(quantity: Quantity, row: Row) -> str:
    """The name in these files: ``fc1.input.0``, ``fc1.grad_output.0``, ``fc1.weight.exp_avg``."""
    if quantity in ("exp_avg", "exp_avg_sq"):
        return f"{row.name}.{quantity}"
    if quantity not in ("actv", "actv_grad"):
        return row.name
    match = _NAME.fullmatch(row.name)
    if match is None:
        return row.name
    module, side, number, rest = match.groups()
    side = f"grad_{side}" if quantity == "actv_grad" else side
    inside = re.sub(r"_(?=\d)", ".", rest)
    return f"{module or ''}{side}.{number or 0}{inside}"
