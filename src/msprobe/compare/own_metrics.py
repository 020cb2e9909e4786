"""Metrics of users: a file ``alg_{name}.py`` with two functions adds a column to the sheet of tensors.

``column_name()`` gives the column's name; ``compare(n, b)`` gets the values of target and bench as numpy arrays of
equal shape and returns a number or a text, alone or with a message behind it. The functions are run as they are, in
the threads that read the tensors.

Source of the form: own algorithms of mindstudio-probe 26.2.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from msprobe import log
from msprobe.compare.measures_tensor import UNSUPPORTED, Value
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import StrPath, check_readable_file
from msprobe.store.dtypes import Array

_FILE = re.compile(r"alg_(\w+)\.py")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class OwnMetric:
    """One column: its name, the function, and the file both are from."""

    column: str
    function: Callable[[Array, Array], Any]
    path: Path


@dataclass(frozen=True)
class OwnMetrics:
    """All columns, in the order of the files."""

    metrics: tuple[OwnMetric, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(metric.column for metric in self.metrics)

    def measure(self, candidate: Array, reference: Array) -> tuple[Value, ...]:
        """A cell for each column; ``unsupported``, and a line in the log, where a function fails."""
        return tuple(_cell(metric, candidate, reference) for metric in self.metrics)


def load_own_metrics(paths: Iterable[StrPath], taken: Iterable[str] = ()) -> OwnMetrics:
    """Run the files and take their functions. ``taken`` are names that other columns have.

    Raises PathError, or InvalidInputError for a file that has another name, fails, or has no such functions.
    """
    metrics: list[OwnMetric] = []
    for path in paths:
        metric = _load(check_readable_file(path, ".py", _MOST_BYTES, follow_symlink=True))
        if metric.column in {*taken, *(other.column for other in metrics)}:
            raise InvalidInputError(said("metric-column-taken", path, metric.column))
        metrics.append(metric)
    return OwnMetrics(tuple(metrics))


def _load(path: Path) -> OwnMetric:
    match = _FILE.fullmatch(path.name)
    if match is None:
        raise InvalidInputError(said("metric-file-name", path))
    spec = importlib.util.spec_from_file_location(f"msprobe_alg_{match.group(1)}", path)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise InvalidInputError(said("metric-file-fails", path, _line(problem))) from problem
    column = _function(module, "column_name", path)
    compare = _function(module, "compare", path)
    try:
        name = column()
    except Exception as problem:
        raise InvalidInputError(f'"{path}": column_name() fails: {_line(problem)}.') from problem
    if not isinstance(name, str) or not name.strip():
        raise InvalidInputError(said("metric-column-name", path, name))
    return OwnMetric(name, compare, path)


def _function(module: ModuleType, name: str, path: Path) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidInputError(said("metric-function-missing", path, name))
    return function  # type: ignore[no-any-return]


def _cell(metric: OwnMetric, candidate: Array, reference: Array) -> Value:
    if candidate.shape != reference.shape:
        return UNSUPPORTED
    try:
        measured = metric.function(candidate, reference)
        if isinstance(measured, tuple) and measured:
            measured = measured[0]
        return measured if isinstance(measured, str) else float(measured)
    except Exception as problem:
        log.once(
            ("own metric", metric.path, type(problem)),
            "warning",
            said("metric-compare-fails", metric.path, _line(problem), UNSUPPORTED),
        )
        return UNSUPPORTED


def _line(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
