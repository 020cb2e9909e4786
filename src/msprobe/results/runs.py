"""``msprobe.open``: a recorded run to look into. Nothing is read before it is asked for."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.compare.entry_names import read_name
from msprobe.errors import InvalidInputError
from msprobe.report.phrases import clean
from msprobe.results.notebook import table_html
from msprobe.results.tables import Table
from msprobe.store.columns import is_tensor, leaves
from msprobe.store.reader import Dump, open_dump

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas
    import polars

    from msprobe.paths import StrPath
    from msprobe.store.part import DumpPart

_SHOWN = 12


@dataclass(frozen=True)
class Tensor:
    """What was recorded of one tensor.

    ``max``, ``min``, ``mean`` and ``norm`` (L2) are None where they were not recorded. ``dtype`` is the framework's
    word without its prefix (``bfloat16``). ``digest`` has its kind before a colon. ``file`` names the file of its
    values, if they were written.
    """

    slot: str
    dtype: str
    shape: tuple[int, ...] | None
    max: float | None = None
    min: float | None = None
    mean: float | None = None
    norm: float | None = None
    requires_grad: bool | None = None
    digest: str | None = None
    file: str | None = None
    _part: DumpPart | None = field(default=None, repr=False, compare=False)

    @property
    def values(self) -> npt.NDArray[np.generic] | None:
        """The values as an array of numpy, read now (bfloat16 as float32); None where they were not written, or cannot
        be read.
        """
        if self.file is None or self._part is None:
            return None
        found: npt.NDArray[np.generic] | None = self._part.array(self.file)
        return found


class Record:
    """One recorded call, or pass of a module."""

    __slots__ = ("_content", "_leaves", "_part", "name")

    def __init__(self, name: str, content: Any, part: DumpPart) -> None:
        self.name = name
        self._content = content
        self._part = part
        self._leaves: list[tuple[str, Any]] | None = None

    @property
    def content(self) -> Any:
        """The record as it stands in the file."""
        return self._content

    @property
    def module(self) -> str | None:
        """The path of the module that it is a pass of, or ran in; None outside of all."""
        own = read_name(self.name)
        if own.path:
            return own.path
        above = self._part.parent(self.name)
        above = above[0] if isinstance(above, list) and above else above
        return read_name(above).path or None if isinstance(above, str) else None

    @property
    def stack(self) -> list[str]:
        """The call stack that it came from, innermost frame first; empty if none was written."""
        return list(self._part.stack(self.name))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by their place: ``input.0``, ``input.weight``, ``output.0``, ``parameters.bias``."""
        return {slot: _tensor(slot, leaf, self._part) for slot, leaf in self._all() if is_tensor(leaf)}

    @property
    def arguments(self) -> dict[str, Any]:
        """What was given and is no tensor, by its place."""
        return {
            slot: leaf.get("value", leaf) if isinstance(leaf, dict) else leaf
            for slot, leaf in self._all()
            if not is_tensor(leaf)
        }

    def _all(self) -> list[tuple[str, Any]]:
        if self._leaves is None:
            self._leaves = leaves(self.name, self._content)
        return self._leaves

    def __getitem__(self, slot: str) -> Tensor:
        found = self.tensors
        if slot not in found:
            raise KeyError(f"{self.name} has no tensor {slot!r}; it has {', '.join(found) or 'none'}")
        return found[slot]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and (self.name, self._content) == (other.name, other._content)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<Record {clean(self.name)}: {', '.join(self.tensors) or 'no tensor'}>"

    def _repr_html_(self) -> str:
        rows = [
            [one.slot, one.dtype, "" if one.shape is None else list(one.shape), one.max, one.min, one.mean, one.norm]
            for one in self.tensors.values()
        ]
        names = ("tensor", "dtype", "shape", "max", "min", "mean", "norm")
        return table_html(names, rows[:_SHOWN], len(rows), self.name)


class Part(Mapping[str, Record]):
    """One step of one rank: its records by name, in their order."""

    def __init__(self, part: DumpPart) -> None:
        self._part = part
        self.step = part.step
        self.rank = part.rank

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._part.folder

    @property
    def complete(self) -> bool:
        """False if the recording was interrupted in this step."""
        return self._part.complete

    @property
    def framework(self) -> str | None:
        """What recorded it: ``pytorch``, ``mindspore``; None if the dump does not say."""
        found = self._part.header.get("framework")
        return found if isinstance(found, str) else None

    @property
    def table(self) -> Table:
        """All tensors, one row for each."""
        found = self._part.tensors()
        numbers = {
            name: [
                None if nulls & bit else value
                for value, nulls in zip(getattr(found, name).tolist(), found.nulls.tolist(), strict=True)
            ]
            for name, bit in _STATISTICS.items()
        }
        return Table(
            {
                "record": found.entry,
                "slot": found.slot,
                "dtype": [dtype.removeprefix("torch.") for dtype in found.dtype],
                "shape": [None if shape is None else str(list(shape)) for shape in found.shape],
                **numbers,
                "digest": [one or other for one, other in zip(found.digest, found.md5, strict=True)],
            },
            "tensors",
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All tensors, one dict for each."""
        return self.table.rows

    def to_polars(self) -> polars.DataFrame:
        """All tensors for polars. Raises NotAvailableError if it is not installed."""
        return self.table.to_polars()

    def to_pandas(self) -> pandas.DataFrame:
        """All tensors for pandas. Raises NotAvailableError if it is not installed."""
        return self.table.to_pandas()

    def __getitem__(self, name: str) -> Record:
        if name not in self._part:
            near = difflib.get_close_matches(name, self._part.names(), 1)
            raise KeyError(f"no record {name!r} in {self!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return Record(name, self._part.record(name), self._part)

    def __contains__(self, name: object) -> bool:
        return name in self._part

    def __iter__(self) -> Iterator[str]:
        return iter(self._part.names())

    def __len__(self) -> int:
        return len(self._part)

    def __hash__(self) -> int:
        return hash(self._part.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self._part.path == other._part.path

    def __repr__(self) -> str:
        step = "" if self.step is None else f"step {self.step}, "
        rank = f"rank {self.rank}" if isinstance(self.rank, int) else str(self.rank)
        return f"<Part {step}{rank}: {len(self)} records{'' if self.complete else ', interrupted'}>"

    def _repr_html_(self) -> str:
        rows = [[name, ", ".join(self[name].tensors)] for name in self._part.names()[:_SHOWN]]
        return table_html(("record", "tensors"), rows, len(self), repr(self))


class Run:
    """A recorded run: its steps, their ranks, and their records. ``run[step]`` or ``run[step, rank]`` is a part."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump

    @property
    def path(self) -> Path:
        """What was opened."""
        return self._dump.path

    @property
    def steps(self) -> tuple[int | None, ...]:
        """The steps in order; None for a folder that tells no number."""
        return tuple(self._dump.steps)

    def ranks(self, step: int | None = None) -> tuple[int | str, ...]:
        """The ranks of a step (of the only one, if none is named); a rank without number is its folder's name."""
        return tuple(self._dump.ranks(step))

    def part(self, step: int | None = None, rank: int | str | None = None) -> Part:
        """One step of one rank; both may be left out where there is only one. Raises InvalidInputError for what there
        is not, PathError if it cannot be read.
        """
        return Part(self._dump.part(step, rank))

    def __getitem__(self, place: int | tuple[int | None, int | str]) -> Part:
        try:
            return self.part(*place) if isinstance(place, tuple) else self.part(place)
        except InvalidInputError as problem:
            raise KeyError(problem.message) from problem

    def __iter__(self) -> Iterator[Part]:
        for step in self._dump.steps:
            for rank in self._dump.ranks(step):
                yield self.part(step, rank)

    def __len__(self) -> int:
        return sum(len(self._dump.ranks(step)) for step in self._dump.steps)

    def __fspath__(self) -> str:
        return str(self._dump.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        steps = "1 step" if len(self.steps) == 1 else f"{len(self.steps)} steps"
        most = max((len(self.ranks(step)) for step in self.steps), default=0)
        return f'<Run "{clean(self.path)}": {steps}, {"1 rank" if most == 1 else f"{most} ranks"}>'

    def _repr_html_(self) -> str:
        rows = [["" if step is None else step, ", ".join(map(str, self.ranks(step)))] for step in self.steps[:_SHOWN]]
        return table_html(("step", "ranks"), rows, len(self.steps), repr(self))


# Statistics, and the bit that says in ``Columns.nulls`` that one was not recorded.
_STATISTICS = {"max": 1, "min": 2, "mean": 4, "norm": 8}


def open_run(path: StrPath) -> Run:
    """Open a dump, ours or one of mindstudio-probe, finished or interrupted, to look into it.

    ``path`` is its root, the folder of a step or of a rank, or a ``dump.json``. Raises PathError if there is no dump.
    """
    return Run(open_dump(path))


def _tensor(slot: str, leaf: dict[str, Any], part: DumpPart) -> Tensor:
    shape = leaf.get("shape")
    grad = leaf.get("requires_grad")
    digest = leaf.get("digest") or leaf.get("md5")
    file = leaf.get("data_name")
    largest, least, mean, norm = (_statistic(leaf.get(name)) for name in ("Max", "Min", "Mean", "Norm"))
    return Tensor(
        slot,
        str(leaf["dtype"]).removeprefix("torch."),
        tuple(shape) if isinstance(shape, list) else None,
        max=largest,
        min=least,
        mean=mean,
        norm=norm,
        requires_grad=grad if isinstance(grad, bool) else None,
        digest=digest if isinstance(digest, str) else None,
        file=file if isinstance(file, str) and file != "-1" else None,
        _part=part,
    )


def _statistic(value: Any) -> float | None:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value.replace("Infinity", "inf"))
    return float(value) if isinstance(value, (int, float)) else None
