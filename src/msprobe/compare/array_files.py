"""Two files of values side by side, where no dump.json describes them: what MindSpore graphs leave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msprobe.compare import verdicts
from msprobe.compare.measures_tensor import TensorMeasures, all_six, measure_tensors
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import joined, said
from msprobe.store.dtypes import Array
from msprobe.store.values import read_npy

NO_REFERENCE = "No bench data matched."
_WORDS_FOR_NOTHING = ("unsupported", "shape unmatched", "N/A")

Number = float | None
Statistics = tuple[Number, Number, Number, Number]
NO_STATISTICS: Statistics = (None, None, None, None)


@dataclass(frozen=True)
class FileSide:
    """What one file says of itself: max, min, mean and norm are None where it has none."""

    dtype: str = ""
    shape: str = ""
    statistics: Statistics = NO_STATISTICS


@dataclass(frozen=True)
class FilePair:
    """Both sides, the six measures (None where there is none), the word for the accuracy and what is to be said."""

    candidate: FileSide
    reference: FileSide
    measures: tuple[float | str | None, ...]
    accuracy: str
    message: str


def compare_array_files(candidate: Path | None, reference: Path | None) -> FilePair:
    """Compare two ``.npy`` files; None stands for one that is not there. Nothing is raised: the message says."""
    notes: list[str] = []
    ours = _read(candidate, said("target-file-missing"), notes)
    theirs = _read(reference, NO_REFERENCE, notes)
    if ours is None or theirs is None:
        return FilePair(_side(ours), _side(theirs), (None,) * 6, "", joined(" ", notes))
    try:
        if ours.shape != theirs.shape:
            measures = all_six("shape unmatched", said("tensor-shapes-differ", list(ours.shape), list(theirs.shape)))
        else:
            measures = measure_tensors(ours, theirs)
        if ours.dtype != theirs.dtype:
            notes.append(said("element-types-differ", ours.dtype.name, theirs.dtype.name))
        return FilePair(
            _side(ours), _side(theirs), _plain(measures), _accuracy(measures), joined(" ", (*measures.notes, *notes))
        )
    except OSError as problem:  # a mapped file on a disk that fails
        return FilePair(FileSide(), FileSide(), (None,) * 6, "", said("files-cannot-be-read", problem))


def _read(path: Path | None, missing: str, notes: list[str]) -> Array | None:
    if path is None:
        notes.append(missing)
        return None
    try:
        return read_npy(path).array
    except (PathError, InvalidInputError) as problem:
        notes.append(problem.message)
        return None


def _side(array: Array | None) -> FileSide:
    if array is None:
        return FileSide()
    return FileSide(array.dtype.name, str(tuple(array.shape)), _statistics(array))


def _statistics(array: Array) -> Statistics:
    if not array.size or array.dtype.kind not in "biuf":
        return NO_STATISTICS
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        norm = float(np.sqrt(np.square(wide).sum()))
        return float(wide.max()), float(wide.min()), float(wide.mean()), norm


def _plain(measures: TensorMeasures) -> tuple[float | str | None, ...]:
    """The measures, without the words that say that there is none."""
    return tuple(None if value in _WORDS_FOR_NOTHING else value for value in measures.values)


def _accuracy(measures: TensorMeasures) -> str:
    word = verdicts.accuracy(measures)
    return "" if word == verdicts.NONE else word
