"""A step in at most a kilobyte: enough to find the step at which two trainings diverge, small enough to keep them all.

A sketch has the loss, the learning rate, the norm of all gradients, a digest of the batch, and two numbers for each of
some dozens of groups of tensors: the norm of the group, and a sum of one number of each tensor under signs that are the
same in every run (a projection: a tensor that changes without changing its norm changes it). The number is the operator
``projection`` where it was measured (a dot product with random signs), else the mean, else the norm.

The file ``sketch.bin`` is a chain of frames: kind, length, checksum, content. The layout of the groups is a frame of
its own, and is repeated when it changes. What a killed process leaves torn at its end is passed over.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.json_text import parse_json
from msprobe.foreign.opening import file_bytes, open_regular
from msprobe.messages import said
from msprobe.monitor.measurements import MonitorRun, Quantity, Row, StepMetrics
from msprobe.monitor.series import place_of
from msprobe.paths import StrPath, create_file, write_atomically

FILE_NAME = "sketch.bin"
MOST_BYTES = 1024

_FRAME = struct.Struct("<cII")
_HEAD = struct.Struct("<qddd8s")
_LAYOUT, _STEP = b"L", b"S"
_MOST_GROUPS = (MOST_BYTES - _FRAME.size - _HEAD.size) // 8
_MOST_FILE_BYTES = 8 << 30
# What a training goes through, not what is derived from it.
_QUANTITIES = (
    "actv",
    "actv_grad",
    "grad_unreduced",
    "grad_reduced",
    "exp_avg",
    "exp_avg_sq",
    "param_origin",
    "update",
    "param_updated",
    "state",
)
_PROJECTED = ("projection", "mean", "norm", "max")

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Doubles = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors of one quantity that share two numbers. ``first``, ``last``: names at both ends; ``count``: how many."""

    quantity: str
    first: str
    last: str
    count: int

    def __str__(self) -> str:
        names = self.first if self.count == 1 else f"{self.first} ... {self.last}"
        return f"{self.quantity} {names}"


@dataclass(frozen=True, slots=True)
class Sketch:
    """``loss``, ``rate``, ``norm``: NaN where not measured. ``batch``: 8 bytes, zero without a digest. ``numbers``:
    [groups, 2], norm and projection in float32; an infinity where a number is not finite.
    """

    step: int
    loss: float
    rate: float
    norm: float
    batch: bytes
    groups: tuple[Group, ...]
    numbers: Numbers


class Sketcher:
    """Makes sketches of the steps of one run."""

    def __init__(self) -> None:
        self._known: list[tuple[str, tuple[tuple[int, str, int | None], ...]]] = []
        self._groups: tuple[Group, ...] = ()
        self._bounds: list[tuple[str, int, int]] = []
        self._signs: dict[str, Doubles] = {}
        self._aligned_for: tuple[list[tuple[int, str, int | None]], int] = ([], 0)
        self._order: list[int] = []

    def sketch(self, metrics: StepMetrics) -> Sketch:
        """The sketch of a step."""
        wanted: list[tuple[Quantity, Sequence[Row]]] = [
            (quantity, metrics.rows[quantity])
            for quantity in sorted(metrics.rows, key=place_of)
            if quantity in _QUANTITIES and metrics.rows[quantity]
        ]
        wanted = self._aligned(wanted)
        known: list[tuple[str, tuple[tuple[int, str, int | None], ...]]] = [
            (quantity, tuple((row.stage, row.name, row.micro_step) for row in rows)) for quantity, rows in wanted
        ]
        if known != self._known:
            self._known = known
            self._arrange(wanted)
        columns: dict[str, tuple[Doubles, Doubles]] = {
            quantity: self._columns(quantity, rows, metrics) for quantity, rows in wanted
        }
        numbers = np.zeros((len(self._groups), 2))
        with np.errstate(all="ignore"):
            for at, (quantity, begin, end) in enumerate(self._bounds):
                norms, projected = columns[quantity]
                numbers[at] = np.sqrt(np.square(norms[begin:end]).sum()), projected[begin:end].sum()
            numbers[~np.isfinite(numbers)] = np.inf
            packed = numbers.astype(np.float32)
        return Sketch(
            metrics.step,
            float(metrics.scalars.get("loss", math.nan)),
            float(metrics.scalars.get("lr", math.nan)),
            float(metrics.scalars.get("grad_norm", _total(columns))),
            hashlib.blake2b(metrics.batch.encode(), digest_size=8).digest() if metrics.batch else bytes(8),
            self._groups,
            packed,
        )

    def _arrange(self, wanted: Sequence[tuple[Quantity, Sequence[Row]]]) -> None:
        """Share the groups among the quantities; neighbours are in one group."""
        self._bounds, groups = [], []
        self._signs = {}
        for quantity, rows in wanted:
            room = min(len(rows), max(1, _MOST_GROUPS // len(wanted)))
            edges = np.linspace(0, len(rows), room + 1).astype(int).tolist()
            for begin, end in pairwise(edges):
                self._bounds.append((quantity, begin, end))
                groups.append(Group(quantity, _label(rows[begin]), _label(rows[end - 1]), end - begin))
            self._signs[quantity] = np.array([_sign(row.name) for row in rows])
        self._groups = tuple(groups)

    def _aligned(self, wanted: list[tuple[Quantity, Sequence[Row]]]) -> list[tuple[Quantity, Sequence[Row]]]:
        """Unreduced gradients come in the order of the backward pass: here in that of the reduced ones, so that a group
        is of the same tensors in both.
        """
        rows = dict(wanted)
        reduced, unreduced = rows.get("grad_reduced"), rows.get("grad_unreduced")
        if reduced is None or unreduced is None:
            return wanted
        key = [(row.stage, row.name, row.micro_step) for row in unreduced], len(reduced)
        if key != self._aligned_for:
            places = {(row.stage, row.name): at for at, row in enumerate(reduced)}
            last = len(places)
            order = sorted(
                range(len(unreduced)),
                key=lambda at: (places.get((unreduced[at].stage, unreduced[at].name), last), at),
            )
            self._aligned_for, self._order = key, order
        ordered = [unreduced[at] for at in self._order]
        return [(name, ordered if name == "grad_unreduced" else rows_given) for name, rows_given in wanted]

    def _columns(self, quantity: Quantity, rows: Sequence[Row], metrics: StepMetrics) -> tuple[Doubles, Doubles]:
        """[rows]: the norm of each tensor, and its number under its sign."""
        ops = metrics.ops_of(quantity)
        values = np.array([row.values for row in rows], dtype=np.float64).reshape(len(rows), len(ops))
        values[[row.dtype is None for row in rows]] = 0.0
        other = next((ops.index(op) for op in _PROJECTED if op in ops), 0)
        norm = ops.index("norm") if "norm" in ops else other
        return values[:, norm], values[:, other] * self._signs[quantity]


def _total(columns: Mapping[str, tuple[Doubles, Doubles]]) -> float:
    """The norm of all gradients together, NaN if there are none."""
    gradients = columns.get("grad_reduced", columns.get("grad_unreduced"))
    return math.nan if gradients is None else float(np.sqrt(np.square(gradients[0]).sum()))


class SketchSink:
    """Keeps a sketch of each step: in ``sketch.bin`` of the run, or, with ``last``, the last so many in memory only,
    until :meth:`write_ring` puts them on the disk.
    """

    def __init__(self, last: int | None = None) -> None:
        #: A ring has the step of an alert before the alert is raised.
        self.is_first = last is not None
        self._ring: deque[Sketch] | None = None if last is None else deque(maxlen=last)
        self._sketcher = Sketcher()
        self._layout: tuple[Group, ...] | None = None
        self._descriptor = -1

    def open(self, run: MonitorRun) -> None:
        """Begin the file, or go on with it. Raises PathError."""
        self._folder = run.folder
        if self._ring is not None:
            return
        path = Path(run.folder, FILE_NAME)
        whole = _whole_length(file_bytes(path)) if path.exists() else 0
        create_file(path, append=True).close()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
        os.ftruncate(self._descriptor, whole)

    def write(self, metrics: StepMetrics) -> None:
        """Add the sketch of a step. Raises PathError."""
        sketch = self._sketcher.sketch(metrics)
        if self._ring is not None:
            self._ring.append(sketch)
            return
        data = _packed(sketch, sketch.groups != self._layout)
        self._layout = sketch.groups
        try:
            if os.write(self._descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as problem:
            raise PathError(said("sketch-not-written", self._folder, FILE_NAME, problem)) from problem

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """End the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def write_ring(self, step: int) -> Path:
        """Write what is kept in memory to ``sketch_{step}.bin`` in the run's folder; its path. Raises PathError."""
        path = Path(self._folder, f"sketch_{step}.bin")
        known: tuple[Group, ...] | None = None
        pieces = []
        for sketch in list(self._ring or ()):
            pieces.append(_packed(sketch, sketch.groups != known))
            known = sketch.groups
        write_atomically(path, b"".join(pieces), fsync=False)
        return path


def read_sketches(path: StrPath) -> list[Sketch]:
    """The sketches of a file, in its order; of a step that a resumed run repeated the last one counts.

    Raises PathError if it cannot be read, InvalidInputError if it is no file of sketches.
    """
    data = _bytes_of(path)
    by_step: dict[int, Sketch] = {}
    groups: tuple[Group, ...] = ()
    try:
        for kind, content in _frames(data):
            if kind == _LAYOUT:
                groups = tuple(Group(*entry) for entry in parse_json(content, path))
            else:
                step, loss, rate, norm, batch = _HEAD.unpack_from(content)
                numbers = np.frombuffer(content, "<f4", offset=_HEAD.size).reshape(len(groups), 2)
                by_step.pop(step, None)
                by_step[step] = Sketch(step, loss, rate, norm, batch, groups, numbers)
    except (ValueError, TypeError, struct.error) as problem:
        raise InvalidInputError(said("no-sketches-file", path, problem)) from None
    return list(by_step.values())


def unread_bytes(path: StrPath) -> int:
    """How many bytes of a file of sketches lie behind the first frame that is whole in length and wrong in content;
    0 of a file that ends whole or, as a killed process leaves it, torn. Raises PathError.
    """
    data = _bytes_of(path)
    rest = data[_whole_length(data) :]
    if len(rest) < _FRAME.size:
        return 0
    kind, length, _ = _FRAME.unpack_from(rest)
    is_torn = kind in (_LAYOUT, _STEP) and len(rest) < _FRAME.size + length
    return 0 if is_torn else len(rest)


def _bytes_of(path: StrPath) -> bytes:
    try:
        with open_regular(path) as file:
            # Python makes room at once for all that it is asked for.
            return file.read(min(_MOST_FILE_BYTES, os.fstat(file.fileno()).st_size))
    except OSError as problem:
        raise PathError(said("file-unreadable", path, reason_of(problem))) from None


def _packed(sketch: Sketch, with_layout: bool) -> bytes:
    head = _HEAD.pack(sketch.step, sketch.loss, sketch.rate, sketch.norm, sketch.batch)
    frames = _frame(_STEP, head + sketch.numbers.astype("<f4").tobytes())
    if with_layout:
        entries = [[group.quantity, group.first, group.last, group.count] for group in sketch.groups]
        frames = _frame(_LAYOUT, json.dumps(entries).encode()) + frames
    return frames


def _frame(kind: bytes, content: bytes) -> bytes:
    return _FRAME.pack(kind, len(content), zlib.crc32(content)) + content


def _frames(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All whole frames from the beginning on."""
    at = 0
    while at + _FRAME.size <= len(data):
        kind, length, checksum = _FRAME.unpack_from(data, at)
        content = data[at + _FRAME.size : at + _FRAME.size + length]
        if kind not in (_LAYOUT, _STEP) or len(content) < length or zlib.crc32(content) != checksum:
            return
        at += _FRAME.size + length
        yield kind, content


def _whole_length(data: bytes) -> int:
    return sum(_FRAME.size + len(content) for _, content in _frames(data))


def _label(row: Row) -> str:
    return row.name if row.micro_step is None else f"{row.name} [micro step {row.micro_step}]"


def _sign(name: str) -> float:
    """The same in every run, of either value for about half of the names."""
    return 1.0 if hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=1).digest()[0] & 1 else -1.0
