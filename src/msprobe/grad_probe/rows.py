"""What is written of a gradient: rows of ``grad_summary_{step}.csv``, in the form of mindstudio-probe 8.1.1."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msprobe.config.settings import GradientLevel
from msprobe.foreign import csv_cells

BOM = b"\xef\xbb\xbf"
#: What stands for NaN in a ternary direction.
NAN_DIRECTION = 2


@dataclass(frozen=True, slots=True)
class GradientRow:
    """The numbers of one gradient.

    ``maximum``, ``minimum`` and ``norm`` (L2) are float32 values, NaN if the gradient has a NaN or no element.
    ``shape``: of the whole gradient; ``local_shape``: of the part that this rank holds, where it is a part.
    ``checksum``: eight or 32 hexadecimal digits (L0). ``shares``: which part of the elements lies in each interval,
    ``zeros``: which part is zero, 0 to 1 (L2).
    """

    name: str
    shape: tuple[int, ...]
    maximum: float = math.nan
    minimum: float = math.nan
    norm: float = math.nan
    local_shape: tuple[int, ...] | None = None
    checksum: str = ""
    shares: tuple[float, ...] = ()
    zeros: float = math.nan


def interval_names(bounds: Sequence[int | float]) -> list[str]:
    """``(-inf, b0]``, ``(b0, b1]``, ..., ``(bn, inf)``: open on the left, closed on the right."""
    if not bounds:
        return ["(-inf, inf)"]
    inner = [f"({low}, {high}]" for low, high in itertools.pairwise(bounds)]
    return [f"(-inf, {bounds[0]}]", *inner, f"({bounds[-1]}, inf)"]


def header(level: GradientLevel, bounds: Sequence[int | float], with_local: bool = False) -> list[str]:
    """The names of the columns; ``with_local``: some row is of a part of a gradient."""
    own = {"L0": ["MD5"], "L1": [], "L2": [*interval_names(bounds), "=0"]}[level]
    return ["param_name", *own, "max", "min", "norm", "shape", *(["local_shape"] if with_local else [])]


def csv_bytes(lines: Iterable[Sequence[object]]) -> bytes:
    """Lines as all csv files of the probe have them: UTF-8 with BOM, CRLF."""
    rows = iter(lines)
    header = list(itertools.islice(rows, 1))  # it has a column "=0"
    return _encoded(itertools.chain(header, map(csv_cells.safe_row, rows)))


def _encoded(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv_cells.writer(text, lineterminator="\r\n").write_safe_rows(rows)
    return BOM + text.getvalue().encode("utf-8", "backslashreplace")


def summary_csv(rows: Sequence[GradientRow], level: GradientLevel, bounds: Sequence[int | float]) -> bytes:
    """The csv of one step."""
    with_local = any(row.local_shape is not None for row in rows)
    lines: list[Sequence[object]] = [header(level, bounds, with_local)]
    for row in rows:
        line: list[object] = [csv_cells.safe_text(row.name)]  # the only text that is not ours
        if level == "L0":
            line.append(row.checksum)
        elif level == "L2":
            line += [*row.shares, row.zeros]
        line += [row.maximum, row.minimum, row.norm, str(list(row.shape))]
        if with_local:
            line.append("" if row.local_shape is None else str(list(row.local_shape)))
        lines.append(line)
    return _encoded(lines)
