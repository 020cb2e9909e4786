"""Tensors of kernels and operators of two dumps: which answers to which, and how far they are apart."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from msprobe.compare.kernels import MAPPING_FILE, long_names
from msprobe.errors import InvalidInputError, MsprobeError, PathError
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.store.kernel_files.acl_dump import read_acl_dump
from msprobe.store.kernel_files.convert import values_of
from msprobe.store.reader import open_dump
from msprobe.store.values import read_values

Array = npt.NDArray[Any]
# What is compared, and of several with the same name the how many-th.
Key = tuple[str, str, int]

_CONVERTED = re.compile(
    r"(?P<op>.+)\.(?P<task>\d+)\.(?P<stream>\d+)\.(?P<time>\d+)(?P<more>(?:\.\d+)*)\.(?P<io>(?:input|output)\.\d+)"
)
_RAW = re.compile(r"[^.]+\.[^.]+(?:\.\d+){2,}")
_PIECE = 1 << 20
_CLOSE = 1e-3


@dataclass(frozen=True)
class Item:
    """One tensor; ``load`` reads its values, and raises MsprobeError."""

    name: str
    load: Callable[[], Array]


@dataclass(frozen=True)
class KernelRow:
    """One tensor of both sides. Numbers are None where they cannot be had; ``message`` says why."""

    candidate: str | None
    reference: str | None
    mean: Any = None
    reference_mean: Any = None
    same_crc: bool | None = None
    max_error: Any = None
    max_relative_error: Any = None
    cosine: float | None = None
    mean_error: float | None = None
    max_ulp: int | None = None
    within: float | None = None
    message: str = ""


def items_of(path: StrPath) -> dict[Key, Item]:
    """The tensors of a folder: converted files at any depth or dump files of kernels, in the order of their times, or
    those of a dump of ours. Raises PathError if there are none.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise PathError(said("kernel-folder-missing", folder))
    try:
        dump = open_dump(folder)
    except MsprobeError:
        dump = None
    files = list(_arrays_in_files(folder)) if dump is None else []
    if dump is not None:
        for part in dump.parts():
            place = f"step{part.step}/rank{part.rank} "
            files += [((place, name), Item(name, _reader(part.tensor_path(name)))) for name in _files_of(part)]
    if not files:
        raise PathError(said("no-kernel-files", folder))
    counts: dict[tuple[str, str], int] = defaultdict(int)
    keys: dict[Key, Item] = {}
    for base, item in files:
        keys[(*base, counts[base])] = item
        counts[base] += 1
    return keys


_PlacedItem = tuple[tuple[str, str], Item]


def _arrays_in_files(folder: Path) -> Iterator[_PlacedItem]:
    files: list[tuple[int, str, _PlacedItem]] = []
    names = RealNames()
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        real = names.of(path)
        if path.suffix in (".npy", ".pt"):
            match = _CONVERTED.fullmatch(real.removesuffix(path.suffix))
            base = (match["op"], match["io"]) if match else (str(path.relative_to(folder).with_suffix("")), "")
            time = int(match["time"]) if match else 0
            files.append((time, path.name, (base, Item(path.name, _reader(path)))))
        elif _RAW.fullmatch(real):
            files += _arrays_in_raw(path, real)
    yield from (item for *_, item in sorted(files, key=lambda file: file[:2]))


class RealNames:
    """The names of dump files that were too long for the file system, as the ``mapping.csv`` beside them says."""

    def __init__(self) -> None:
        self._folders: dict[Path, dict[str, str]] = {}

    def of(self, path: Path) -> str:
        """The name that a file would have, without a way to another folder in it."""
        known = self._folders.get(path.parent)
        if known is None:
            listed = long_names(path.parent / MAPPING_FILE)
            known = {short.removesuffix(".npy"): real.removesuffix(".npy") for short, real in listed.items()}
            self._folders[path.parent] = known
        kind = path.suffix if path.suffix in (".npy", ".pt") else ""
        real = known.get(path.name.removesuffix(kind))
        return path.name if real is None or "/" in real or "\0" in real else f"{real}{kind}"


def _arrays_in_raw(path: Path, real: str) -> Iterator[tuple[int, str, _PlacedItem]]:
    words = real.split(".")
    op = ".".join(words[:2])
    time = max(int(word) for word in words[2:])
    try:
        dump = read_acl_dump(path)
    except MsprobeError as problem:
        error = problem

        def fail() -> Array:
            raise error

        yield time, path.name, ((op, "file"), Item(path.name, fail))
        return
    for tensor in dump.tensors:
        if tensor.role in ("input", "output"):
            name = f"{path.name}.{tensor.role}.{tensor.index}.npy"
            base = (op, f"{tensor.role}.{tensor.index}")
            yield time, name, (base, Item(name, partial(values_of, tensor)))


def _reader(path: Path) -> Callable[[], Array]:
    return lambda: read_values(path).array


def _files_of(part: Any) -> Iterator[str]:
    for _, record in part.records():
        yield from _names_in(record)


def _names_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        name = value.get("data_name")
        if isinstance(name, str) and name != "-1":
            yield name
            return
        value = value.values()
    elif not isinstance(value, list):
        return
    for item in value:
        yield from _names_in(item)


def compare_folders(candidate: StrPath, reference: StrPath) -> Iterator[KernelRow]:
    """A row for each tensor, in the candidate's order, then those that the reference alone has.

    Raises InvalidInputError if both are one folder, PathError if one has no tensors.
    """
    if Path(candidate).resolve() == Path(reference).resolve():
        raise InvalidInputError(said("same-folder-twice"))
    ours, theirs = items_of(candidate), items_of(reference)
    for key, item in ours.items():
        other = theirs.get(key)
        yield compare_items(item, other) if other else KernelRow(item.name, None, message=said("other-side-has-none"))
    for key, item in theirs.items():
        if key not in ours:
            yield KernelRow(None, item.name, message=said("other-side-has-none"))


def compare_items(candidate: Item, reference: Item) -> KernelRow:
    """Read and compare two tensors; what is wrong with them is reported in the row."""
    try:
        ours, theirs = candidate.load(), reference.load()
    except MsprobeError as problem:
        return KernelRow(candidate.name, reference.name, message=problem.message)
    means = {"mean": mean(ours), "reference_mean": mean(theirs)}
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        sides = (f"{array.dtype}{list(array.shape)}" for array in (ours, theirs))
        apart = said("kernels-do-not-fit", *sides)
        return KernelRow(candidate.name, reference.name, **means, message=apart)
    measured = {**means, "same_crc": crc(ours) == crc(theirs)}
    return KernelRow(candidate.name, reference.name, **measured, **_measures(ours, theirs))


def mean(array: Array) -> Any:
    """The mean in the array's own type, as numpy has it; None of nothing."""
    with np.errstate(all="ignore"):
        return array.mean() if array.size else None


def crc(array: Array) -> int:
    """CRC-32 of the elements in C order."""
    checksum = 0
    for piece in _pieces(array):
        checksum = zlib.crc32(np.ascontiguousarray(piece).view(np.uint8).data, checksum)
    return checksum


def _pieces(array: Array) -> Iterator[Array]:
    flat = array.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        yield flat[start : start + _PIECE]


def _measures(ours: Array, theirs: Array) -> dict[str, Any]:
    """Source of the relative error: mindstudio-probe 8.1.1, |a - b| / |b| with the type's epsilon in place of zeros."""
    if not ours.size:
        return {"message": said("no-elements-to-compare")}
    floating = np.issubdtype(ours.dtype, np.inexact)
    kind = ours.dtype if floating else np.dtype(np.float64)
    epsilon = np.finfo(kind).eps
    largest = relative = kind.type(0).real
    total = dot = squares = other_squares = 0.0
    close = ulp = odd = 0
    with np.errstate(all="ignore"):
        for a, b in zip(_pieces(ours), _pieces(theirs), strict=True):
            a, b = a.astype(kind, copy=False), b.astype(kind, copy=False)
            apart = np.abs(a - b)
            apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
            size = np.abs(b)
            share = apart / np.where(size == 0, epsilon, size)
            share[apart == 0] = 0
            odd += int((np.isfinite(a) != np.isfinite(b)).sum())
            # A NaN on one side alone stays one.
            largest, relative = np.maximum(largest, apart.max()), np.maximum(relative, share.max())
            total += float(apart.sum(dtype=np.float64))
            close += int((share <= _CLOSE).sum())
            if kind.kind == "f":
                wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
                dot += float(wide_a @ wide_b)
                squares += float(wide_a @ wide_a)
                other_squares += float(wide_b @ wide_b)
                ulp = max(ulp, _ulp(a, b) if floating else 0)
    return {
        "max_error": largest,
        "max_relative_error": relative,
        "cosine": cosine(dot, squares, other_squares) if kind.kind == "f" else None,
        "mean_error": total / ours.size,
        "max_ulp": ulp if floating and kind.kind == "f" else None,
        "within": 100.0 * close / ours.size,
        "message": said("not-finite-on-one-side", odd) if odd else "",
    }


def cosine(dot: float, squares: float, other_squares: float) -> float:
    """The cosine of the angle between two vectors; 1 if both are zero."""
    if squares == other_squares == 0:
        return 1.0
    size = float(np.sqrt(squares) * np.sqrt(other_squares))
    return max(-1.0, min(1.0, dot / size)) if size else 0.0


def _ulp(a: Array, b: Array) -> int:
    """How many numbers of their type lie between the two that are furthest apart so; of finite ones."""
    finite = np.isfinite(a) & np.isfinite(b)
    if a.dtype.itemsize > 8 or not finite.any():
        return 0
    whole = np.dtype(f"i{a.dtype.itemsize}")
    places = []
    for values in (a[finite], b[finite]):
        bits = np.ascontiguousarray(values).view(whole).astype(np.int64)
        # Negative numbers grow with their bits in the other direction.
        places.append(np.where(bits < 0, np.iinfo(whole).min - bits, bits))
    return int(np.abs(places[0].astype(np.float64) - places[1].astype(np.float64)).max())
