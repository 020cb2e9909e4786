"""Compare what two runs saved with ``SingleSave``: array by array, where both have one.

Source of the measures: SingleComparator of mindstudio-probe 8.1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msprobe import log
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.store.dtypes import Array
from msprobe.store.values import read_npy

_STEP = re.compile(r"step(\d+)")
_RANK = re.compile(r"rank(\d+)")
_MICRO_STEP = re.compile(r"micro_step(\d+)")


@dataclass(frozen=True, order=True)
class ArrayPlace:
    """Where an array was saved. ``id`` is its index in a list (0 for a single tensor), or its key in a dict."""

    step: int
    rank: int
    micro_step: int
    id: int | str

    @property
    def order(self) -> tuple[int, int, int, bool, int | str]:
        """What places are sorted by: indices before keys."""
        return self.step, self.rank, self.micro_step, isinstance(self.id, str), self.id


@dataclass(frozen=True)
class SingleMeasures:
    """How far two arrays are apart, inside the shape that both have.

    Shares are in percent. ``first_difference`` is an index into the flattened arrays, None if there is none.
    """

    shape1: tuple[int, ...]
    shape2: tuple[int, ...]
    equal_share: float
    first_difference: int | None
    largest_error: float
    largest_relative_error: float
    share_within_thousandth: float
    share_within_hundredth: float


def saved_arrays(folder: StrPath) -> dict[str, dict[ArrayPlace, Path]]:
    """Key -> place -> file of all arrays below a folder that ``SingleSave`` wrote to (or its ``data``).

    Raises PathError if there is no such folder.
    """
    given = Path(folder)
    if not given.is_dir():
        raise PathError(said("single-save-missing", folder))
    data = given / "data" if (given / "data").is_dir() else given
    by_name: dict[str, dict[ArrayPlace, Path]] = {}
    try:
        for key in sorted(path for path in data.iterdir() if path.is_dir()):
            arrays = {place: path for path in key.rglob("*.npy") if (place := _place(key, path)) is not None}
            if arrays:
                by_name[key.name] = arrays
    except OSError as problem:
        raise PathError(said("folder-unreadable", folder, problem.strerror)) from problem
    return by_name


def _place(key: Path, path: Path) -> ArrayPlace | None:
    """The place that a file stands for; None for a file of another name."""
    parts = path.relative_to(key).parts[:-1]
    patterns = (_STEP, _RANK, _MICRO_STEP)[: len(parts)]
    matches = [pattern.fullmatch(part) for pattern, part in zip(patterns, parts, strict=False)]
    if not 2 <= len(parts) <= 3 or None in matches:
        return None
    numbers = [int(match.group(1)) for match in matches if match is not None]
    stem = path.name.removesuffix(".npy")
    if stem == key.name:
        item: int | str = 0
    elif stem.startswith(f"{key.name}."):
        word = stem[len(key.name) + 1 :]
        item = int(word) if word.isascii() and word.isdigit() else word
    else:
        return None
    return ArrayPlace(numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 0, item)


def common_places(
    first: Mapping[str, Mapping[ArrayPlace, Path]], second: Mapping[str, Mapping[ArrayPlace, Path]]
) -> dict[str, list[ArrayPlace]]:
    """Key -> places that both have, in order; what only one side has is reported in one line for each side.

    Raises InvalidInputError if they have nothing in common.
    """
    common = {
        key: sorted(first[key].keys() & second[key].keys(), key=lambda place: place.order)
        for key in first
        if key in second
    }
    common = {key: places for key, places in common.items() if places}
    for mine, theirs, word in ((first, second, said("the-first")), (second, first, said("the-second"))):
        alone = [(key, place) for key, places in mine.items() for place in places if place not in theirs.get(key, {})]
        if alone:
            keys = ", ".join(dict.fromkeys(key for key, _ in alone))
            log.warning(said("arrays-of-one-folder", len(alone), word, keys))
    if not common:
        raise InvalidInputError(said("no-common-array"))
    return common


def compare_files(first: Path, second: Path) -> SingleMeasures:
    """Compare two files of values. Raises PathError or InvalidInputError if one cannot be read."""
    return compare_arrays(read_npy(first).array, read_npy(second).array)


def compare_arrays(first: Array, second: Array) -> SingleMeasures:
    """Compare two arrays inside the shape that both have (flattened, where their numbers of dimensions differ)."""
    a, b = _common(first, second)
    equal = (a == b).ravel()
    with np.errstate(all="ignore"):
        x, y = _reckonable(a), _reckonable(b)
        error = np.abs(x - y)
        size = np.maximum(np.abs(x), np.abs(y))
        relative = np.nan_to_num(error / size, nan=0.0, posinf=np.inf)
        within = [error <= np.asarray(limit, size.dtype) * size for limit in (0.001, 0.01)]
    different = np.flatnonzero(~equal)
    return SingleMeasures(
        tuple(first.shape),
        tuple(second.shape),
        _percent(equal),
        int(different[0]) if len(different) else None,
        float(error.max()) if error.size else 0.0,
        float(relative.max()) if relative.size else 0.0,
        _percent(within[0]),
        _percent(within[1]),
    )


def _common(first: Array, second: Array) -> tuple[Array, Array]:
    if first.ndim != second.ndim:
        length = min(first.size, second.size)
        return first.reshape(-1)[:length], second.reshape(-1)[:length]
    cut = tuple(slice(min(n, m)) for n, m in zip(first.shape, second.shape, strict=True))
    return first[cut], second[cut]


def _reckonable(array: Array) -> Array:
    """Whole numbers and booleans as float64, whose differences do not wrap around."""
    return array.astype(np.float64) if array.dtype.kind in "biu" else array


def _percent(mask: Array) -> float:
    return 100.0 * float(np.count_nonzero(mask)) / mask.size if mask.size else 100.0


def measured(
    first: Mapping[ArrayPlace, Path], second: Mapping[ArrayPlace, Path], places: list[ArrayPlace]
) -> Iterator[tuple[ArrayPlace, SingleMeasures]]:
    """Place and measures of all pairs of one key; a file that cannot be read is reported and left out."""
    for place in places:
        try:
            yield place, compare_files(first[place], second[place])
        except (PathError, InvalidInputError) as problem:
            log.error(said("pair-left-out", problem.message))
