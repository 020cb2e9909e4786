"""Reads what a probe wrote: ours, or that of mindstudio-probe 8.1.1 (its static graphs write other letters in the
header).
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msprobe.errors import InvalidInputError, PathError, in_one_line, reason_of
from msprobe.foreign.budget import Budget
from msprobe.foreign.csv_cells import plain_text
from msprobe.foreign.opening import open_regular, read_bounded
from msprobe.grad_probe import layout
from msprobe.messages import said
from msprobe.store.values import npy_header

Array = NDArray[Any]
#: Of a csv; a model of a million parameters' names has a fifth of it.
_LARGEST_CSV = 1 << 30
# Columns of every level, by their name in lower case.
NUMBERS = ("max", "min", "norm")


class StepRows:
    """The rows of one step, by the name of the parameter and the name of the column in lower case."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: dict[str, dict[str, str]] = {}
        try:
            if file.stat().st_size > _LARGEST_CSV:
                raise PathError(said("gradients-file-too-large", file, _LARGEST_CSV))
            text = read_bounded(file, Budget(file)).decode("utf-8-sig")
        except OSError as problem:
            raise PathError(said("file-unreadable", file, reason_of(problem))) from problem
        except UnicodeDecodeError:
            raise InvalidInputError(said("gradients-file-no-utf8", file)) from None
        try:
            lines = list(csv.reader(io.StringIO(text, newline="")))
        except csv.Error as problem:
            raise InvalidInputError(said("csv-unreadable", file, problem)) from None
        header = [name.lower() for name in lines[0]] if lines else []
        if not header or header[0] != "param_name":
            columns = lines[0][:3] if lines else "nothing"
            raise InvalidInputError(said("gradients-file-first-column", file, columns))
        for line in lines[1:]:
            if line:
                self.rows.setdefault(plain_text(line[0]), dict(zip(header[1:], line[1:], strict=False)))


class RankFolder:
    """What one rank wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def steps(self) -> Mapping[int, Path]:
        """The csv of each step, ascending."""
        return layout.summaries_of(self.path)

    @cached_property
    def direction_steps(self) -> Mapping[int, Path]:
        """The folder with directions of each step, ascending."""
        return layout.directions_of(self.path)

    def rows(self, step: int) -> StepRows:
        """The rows of a step that is there."""
        return StepRows(self.steps[step])

    def direction(self, step: int, parameter: str) -> Array | None:
        """The direction of a parameter as its file has it, mapped rather than read; None if there is no file.

        Raises InvalidInputError for what is no direction: bool, int8 (ternary) or uint8 (packed).
        """
        folder = self.direction_steps.get(step)
        if folder is None:
            return None
        names = [layout.direction_name(parameter)]
        if not set(parameter) & set("/\\\0") and len(parameter) < 250:
            names.append(f"{parameter}.npy")  # as earlier tools name it
        file = next((folder / name for name in names if (folder / name).is_file()), None)
        if file is None:
            return None
        return read_direction(file)


def read_direction(file: Path) -> Array:
    """The direction in a file, mapped rather than read. Nothing that is pickled is loaded, and no size that a header
    says is believed. Raises InvalidInputError for what is no direction: bool, int8 (ternary) or uint8 (packed).
    """
    try:
        with open_regular(file) as opened:
            whole = os.fstat(opened.fileno()).st_size
            shape, is_fortran, dtype = npy_header(opened)
            offset = opened.tell()
            size = whole - offset
    except (OSError, ValueError, MemoryError) as problem:
        raise InvalidInputError(said("direction-unreadable", file, in_one_line(problem))) from None
    if dtype not in (np.bool_, np.int8, np.uint8):
        raise InvalidInputError(said("direction-type-wrong", file, dtype))
    if math.prod(shape) != size:
        raise InvalidInputError(said("direction-size-wrong", file, size, list(shape)))
    if not size:
        return np.zeros(shape, dtype)
    return np.memmap(file, dtype, "r", offset, shape, "F" if is_fortran else "C")


def shape_of(row: Mapping[str, str]) -> tuple[int, ...] | None:
    """The shape of the direction of a row; None if the row does not say it."""
    text = (row.get("local_shape") or row.get("shape") or "").strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    parts = [part.strip() for part in text[1:-1].split(",") if part.strip()]
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else None
