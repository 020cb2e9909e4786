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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from msprobe.config.mistakes import raise_mistakes
from msprobe.config.yaml_source import read_yaml
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.store.dtypes import Array
from msprobe.store.values import read_values

TARGET, GOLDEN = range(2)


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
                    said("multiplication-shapes", data_name, path, list(product[0]), list(product[1]))
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
    from msprobe.compare.multiplication_fields import CONFIGURATION
    from msprobe.config.declared import read_declared

    source = read_yaml(path, "configuration of multiplications")
    read = read_declared(CONFIGURATION, source, "the configuration", unknown="ignored")
    mistakes = list(read.mistakes)
    sides: tuple[dict[str, Factors], dict[str, Factors]] = ({}, {})
    for section, fields in () if read.value is None else read.value:
        for name, files in fields or ():
            place = (section if name.startswith(("target", "golden")) else name).partition("_")[0]
            side = sides[GOLDEN if "golden" in name else TARGET]
            for file, tensors in files.items():
                if not os.path.isfile(file):
                    mistakes.append(source.mistake((section, name, file), said("value-file-missing"), "path"))
                elif not file.endswith((".pt", ".npy")):
                    mistakes.append(source.mistake((section, name, file), said("must-be-value-file")))
                for number, tensor in enumerate(tensors):
                    old = side.get(tensor, Factors())
                    if getattr(old, place) is not None:
                        text = said("has-matrix-already", tensor, place)
                        mistakes.append(source.mistake((section, name, file, number), text))
                    side[tensor] = replace(old, **{place: Path(file)})
    if mistakes:
        raise_mistakes(mistakes, source.name)
    return Multiplications(sides)
