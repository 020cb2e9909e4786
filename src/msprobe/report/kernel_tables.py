"""What ``msprobe parse`` prints and writes: an array, two arrays, a table of all tensors of two dumps."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from msprobe.compare.kernel_arrays import KernelRow, cosine
from msprobe.foreign import csv_cells
from msprobe.messages import said, translated
from msprobe.paths import write_atomically
from msprobe.report.phrases import clean
from msprobe.store.kernel_files.acl_dump import KernelFile

Array = npt.NDArray[Any]
COLUMNS = (
    *("NPU File Name", "Bench File Name", "Mean", "Bench Mean", "Md5 Consistency", "Max Abs Error"),
    *("Max Relative Error", "Cosine", "Mean Abs Error", "Max ULP", "Within 1e-3 %", "Err_message"),
)
_IN_A_ROW = 8
_MOST_ROWS = 16


def comparison_csv(rows: Iterable[KernelRow]) -> bytes:
    """The table of a comparison: the columns of 8.1.1 and ours behind them, as CSV with a byte-order mark."""
    text = io.StringIO()
    writer = csv_cells.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        numbers = (row.mean, row.reference_mean, row.same_crc, row.max_error, row.max_relative_error)
        ours = (row.cosine, row.mean_error, row.max_ulp, row.within)
        names = (_cell(row.candidate), _cell(row.reference))
        writer.writerow([*names, *map(_number, (*numbers, *ours)), _cell(translated(row.message or ""))])
    return text.getvalue().encode("utf-8-sig", "backslashreplace")


def _cell(text: str | None) -> str:
    return "N/A" if text is None else clean(text)


def _number(value: Any) -> str:
    return "N/A" if value is None else str(value)


def header_lines(dump: KernelFile) -> Iterator[str]:
    """What a dump file says of itself and of each tensor."""
    yield f"Op name: {clean(dump.op_name)}   Version: {clean(dump.version)}   Time: {dump.time}"
    for tensor in dump.tensors:
        facts: dict[str, object] = {"size": tensor.size or len(tensor.data)}
        if tensor.role in ("input", "output"):
            facts |= {"dtype": tensor.kind.name, "format": tensor.format, "shape": tensor.shape}
            facts["original shape"] = tensor.original_shape
        yield f"{tensor.role}.{tensor.index}: " + ", ".join(f"{name} {value}" for name, value in facts.items())
    yield from dump.notes


def array_lines(path: Path, array: Array, text_file: Path | None) -> Iterator[str]:
    """The first elements of an array and its numbers."""
    flat = array.reshape(-1)
    yield f"{'Index':<8}Data"
    for start in range(0, min(flat.size, _IN_A_ROW * _MOST_ROWS), _IN_A_ROW):
        shown = " ".join(f"{value:>13.6g}" if array.dtype.kind == "f" else str(value) for value in _row(flat, start))
        yield f"{start:<8}{shown}"
    yield summary(array)
    yield f"Path: {clean(path)}"
    if text_file is not None:
        yield f"TextFile: {clean(text_file)}"


def _row(flat: Array, start: int) -> Array:
    row: Array = flat[start : start + _IN_A_ROW]
    return row


def summary(array: Array) -> str:
    """``[Shape: ...] [Dtype: ...] [Max: ...] [Min: ...] [Mean: ...]``."""
    numbers: Sequence[Any] = ("N/A",) * 3
    if array.size and array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            numbers = (array.max(), array.min(), array.mean())
    largest, least, mean = numbers
    return f"[Shape: {array.shape}] [Dtype: {array.dtype}] [Max: {largest!s}] [Min: {least!s}] [Mean: {mean!s}]"


def write_text(path: Path, array: Array) -> Path:
    """Write ``{name}.npy.txt``, a row of the last axis in a line, unless it is there and newer; returns it."""
    file = path.with_name(f"{path.name}.txt")
    if file.exists() and file.stat().st_mtime_ns >= path.stat().st_mtime_ns:
        return file
    rows = array.reshape(-1, array.shape[-1]) if array.ndim and array.size else array.reshape(1, -1)
    form = "%g" if array.dtype.kind in "fc" else "%s"
    write_atomically(file, ((" ".join(form % value for value in row) + "\n").encode() for row in rows), fsync=False)
    return file


def pair_lines(
    left: tuple[Path, Array], right: tuple[Path, Array], shown: int, absolute: float, relative: float
) -> Iterator[str]:
    """Two arrays element by element: those beyond |l - r| > absolute + relative * |r|, the first ones, and measures."""
    (left_path, ours), (right_path, theirs) = left, right
    a, b = ours.reshape(-1), theirs.reshape(-1)
    if a.size != b.size:
        for path, size, other in ((left_path, a.size, b.size), (right_path, b.size, a.size)):
            yield translated(said("shorter-array" if size < other else "longer-array", clean(path), size, other))
        most = max(a.size, b.size)
        a, b = np.pad(a, (0, most - a.size)), np.pad(b, (0, most - b.size))
    if not a.size:
        yield translated(said("no-elements-in-arrays"))
        return
    wide = np.result_type(a.dtype, b.dtype)
    kind = wide if wide.kind in "fc" else np.dtype(np.float64)
    with np.errstate(all="ignore"):
        x, y = a.astype(kind), b.astype(kind)
        apart = np.abs(x - y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        apart[same] = 0
        wrong = ~same & ~(apart <= absolute + relative * np.abs(y))
        dot, squares, others = (float(np.vdot(first, two).real) for first, two in ((x, y), (x, x), (y, y)))
        alike = cosine(dot, squares, others)
    # Of the size of single precision, as it has always been reported.
    yield from _table("Error Item Table", np.flatnonzero(wrong)[:shown], a, b, apart)
    yield from _table("Top Item Table", np.arange(min(shown, a.size)), a, b, apart)
    for word, path, array in (("Left", left_path, ours), ("Right", right_path, theirs)):
        yield f"{word}:"
        yield f"  NpyFile: {clean(path)}"
        yield f"  NpySpec: {summary(array)}"
    yield f"NumCnt:   {a.size}"
    yield f"AllClose: {not wrong.any()}"
    yield f"CosSim:   {np.float32(alike)!s}" + ("  (both are zero)" if squares == others == 0 else "")
    yield f"ErrorPer: {int(wrong.sum()) / a.size}  (rl= {relative}, al= {absolute})"
    odd = int((np.isfinite(x) != np.isfinite(y)).sum())
    if odd:
        yield f"NotFinite: {translated(said('not-finite-on-one-side', odd))}"


def _table(title: str, places: Array, left: Array, right: Array, apart: Array) -> Iterator[str]:
    yield f"{title}:"
    yield f"  {'Index':<10}{'Left':>16}{'Right':>16}{'Diff':>16}"
    for place in places:
        yield f"  {place:<10}{left[place]!s:>16}{right[place]!s:>16}{apart[place]!s:>16}"
