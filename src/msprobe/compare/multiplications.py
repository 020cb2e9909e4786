"""Tensors that are multiplied by matrices before they are compared: what rotates or scales them in one of two runs.

The file, as mindstudio-probe 26.2 reads it; all parts may be left out::

    right_matmul:                       # tensor @ matrix
      target_tensor_map:
        matrix.pt: [Module.fc.Linear.forward.0.output.0.pt]
      golden_tensor_map: {...}
    left_matmul: {...}                  # matrix @ tensor
    left_right_matmul:                  # left @ tensor @ right
      left_target_tensor_map: {...}     # also right_target_, left_golden_, right_golden_tensor_map
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from msprobe import log
from msprobe.config.jsonc import FieldPath
from msprobe.config.mistakes import Mistake, Source, did_you_mean, raise_mistakes, shown
from msprobe.config.yaml_source import read_yaml
from msprobe.errors import InvalidInputError
from msprobe.paths import StrPath
from msprobe.store.dtypes import Array
from msprobe.store.values import read_values

TARGET, GOLDEN = range(2)
_MAPS = ("target_tensor_map", "golden_tensor_map")
# Section -> field -> which side's tensors, and on which side of them the matrix stands.
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "right_matmul": {name: (side, "right") for side, name in enumerate(_MAPS)},
    "left_matmul": {name: (side, "left") for side, name in enumerate(_MAPS)},
    "left_right_matmul": {
        f"{place}_{name}": (side, place) for place in ("left", "right") for side, name in enumerate(_MAPS)
    },
}


@dataclass(frozen=True)
class Factors:
    """The files of the matrices for one tensor; None where there is none on that side of it."""

    left: Path | None = None
    right: Path | None = None


@dataclass(frozen=True)
class Multiplications:
    """Which tensors are multiplied by what: for target and golden, data name -> factors.

    A data name may be given with its ending or without. Matrices are read once, when they are first needed.
    """

    sides: tuple[Mapping[str, Factors], Mapping[str, Factors]]
    _known: dict[Path, Array] = field(default_factory=dict, repr=False, compare=False)
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def apply(self, side: int, data_name: str, values: Array) -> Array:
        """The values as they are to be compared. Raises PathError or InvalidInputError."""
        factors = self.sides[side].get(data_name) or self.sides[side].get(os.path.splitext(data_name)[0])
        if factors is None:
            return values
        wide = np.result_type(values.dtype, np.float32)
        result: Array = values.astype(wide, copy=False)
        for path, is_left in ((factors.left, True), (factors.right, False)):
            if path is None:
                continue
            matrix = self._matrix(path)
            try:
                result = matrix @ result if is_left else result @ matrix
            except ValueError as problem:
                product = (matrix.shape, result.shape) if is_left else (result.shape, matrix.shape)
                raise InvalidInputError(
                    f'{data_name} cannot be multiplied by "{path}": the shapes are '
                    f"{list(product[0])} and {list(product[1])}."
                ) from problem
        return result

    def unknown(self, side: int, data_names: set[str]) -> list[str]:
        """The names that no tensor of that side has."""
        known = data_names | {os.path.splitext(name)[0] for name in data_names}
        return [name for name in self.sides[side] if name not in known]

    def _matrix(self, path: Path) -> Array:
        with self._lock:
            if path not in self._known:
                self._known[path] = read_values(path).array
            return self._known[path]


def read_multiplications(path: StrPath) -> Multiplications:
    """Read the file; paths of matrices are relative to the working directory.

    Raises PathError if it or a matrix is not there, InvalidInputError with all mistakes otherwise.
    """
    source = read_yaml(path, "configuration of multiplications")
    content = source.document.value
    mistakes: list[Mistake] = []
    sides: tuple[dict[str, Factors], dict[str, Factors]] = ({}, {})
    if not isinstance(content, dict) or not content:
        raise InvalidInputError(
            f"{source.name}: the configuration must be an object with {', '.join(_FIELDS)}, found {shown(content)}."
        )
    for section, fields in content.items():
        known = _FIELDS.get(section)
        if known is None:
            near = did_you_mean(section, _FIELDS)
            log.warning(f"{source.where((section,))} is not a field of this file{near}; it is left out.")
        elif not isinstance(fields, dict):
            mistakes.append(source.mistake((section,), f"must be an object with {', '.join(known)}"))
        else:
            for name in fields:
                if name in known:
                    _read_map(source, (section, name), sides[known[name][0]], known[name][1], mistakes)
                else:
                    near = did_you_mean(name, known)
                    log.warning(f"{source.where((section, name))} is not a field of it{near}; it is left out.")
    if mistakes:
        raise_mistakes(mistakes, source.name)
    return Multiplications(sides)


def _read_map(source: Source, path: FieldPath, side: dict[str, Factors], place: str, mistakes: list[Mistake]) -> None:
    section, name = (str(part) for part in path)
    content = source.document.value[section][name]
    if not isinstance(content, dict):
        mistakes.append(source.mistake(path, f"must be an object {{matrix file: [tensors]}}, found {shown(content)}"))
        return
    for file, tensors in content.items():
        where = (*path, file)
        if not os.path.isfile(file):
            mistakes.append(source.mistake(where, "the file does not exist", "path"))
        elif not file.endswith((".pt", ".npy")):
            mistakes.append(source.mistake(where, "must be a .pt or .npy file"))
        if not isinstance(tensors, list) or not all(isinstance(tensor, str) and tensor for tensor in tensors):
            mistakes.append(source.mistake(where, f"must be a list of data names, found {shown(tensors)}"))
            continue
        for number, tensor in enumerate(tensors):
            old = side.get(tensor, Factors())
            if getattr(old, place) is not None:
                mistakes.append(source.mistake((*where, number), f"{tensor} has another {place} matrix already"))
            left, right = (Path(file), old.right) if place == "left" else (old.left, Path(file))
            side[tensor] = Factors(left, right)
