"""``msprobe.open``: a recorded run to look into. Nothing is read before it is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.errors import InvalidInputError
from msprobe.foreign.nearest import near_words
from msprobe.messages import said
from msprobe.report.phrases import clean
from msprobe.results.columns import STEPS, TENSORS
from msprobe.results.notebook import more_rows, table_html
from msprobe.results.records import Record, module_of
from msprobe.results.tables import Table, Tabular, rank_column
from msprobe.statistics_table import USUAL_WORDS, meanings
from msprobe.store.reader import Dump, open_dump

if TYPE_CHECKING:
    from msprobe.paths import StrPath
    from msprobe.store.part import DumpPart

_SHOWN = 12


class Part(Tabular, Mapping[str, Record]):
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
        framework = self._part.header.get("framework")
        return framework if isinstance(framework, str) else None

    @property
    def table(self) -> Table:
        """All tensors, one row for each; ``table.meanings`` says what the columns hold."""
        tensors = self._part.tensors()
        numbers = {
            name: [
                None if nulls & bit else value
                for value, nulls in zip(getattr(tensors, name).tolist(), tensors.nulls.tolist(), strict=True)
            ]
            for name, bit in _STATISTICS.items()
        }
        for column in tensors.further:
            numbers[column.statistic.word] = [
                value if known else None
                for value, known in zip(column.values.tolist(), column.known.tolist(), strict=True)
            ]
        meaning = TENSORS | meanings(column.statistic for column in tensors.further)
        modules = {entry: module_of(self._part, entry) for entry in dict.fromkeys(tensors.entry)}
        return Table(
            {
                "record": tensors.entry,
                "module": [modules[entry] for entry in tensors.entry],
                "slot": tensors.slot,
                "dtype": [dtype.removeprefix("torch.") for dtype in tensors.dtype],
                "shape": [None if shape is None else str(list(shape)) for shape in tensors.shape],
                **numbers,
                "digest": [digest or other for digest, other in zip(tensors.digest, tensors.md5, strict=True)],
            },
            "tensors",
            meaning,
            _not_finite(numbers),
        )

    def __getitem__(self, name: str) -> Record:
        if name not in self._part:
            near = near_words(str(name), self._part.names(), 1)
            raise KeyError(said("no-such-record", name, repr(self), said("did-you-mean", near[0]) if near else ""))
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
        return table_html(("record", "tensors"), rows, more_rows(_SHOWN, len(self)), repr(self))


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
        """The steps in order; None for a folder that has no number."""
        return tuple(self._dump.steps)

    def ranks(self, step: int | None = None) -> tuple[int | str, ...]:
        """The ranks of a step (of the only one, if none is named); a rank without number is its folder's name."""
        return tuple(self._dump.ranks(step))

    def part(self, step: int | None = None, rank: int | str | None = None) -> Part:
        """One step of one rank; both may be left out where there is only one. Raises InvalidInputError for what there
        is not, PathError if it cannot be read.
        """
        return Part(self._dump.part(step, rank))

    def step_table(self) -> Table:
        """Loss, norm of the gradients and norm of the weights, one row for each rank of each step.

        The columns: ``step``, ``rank``, ``loss``, ``gradient_norm``, ``weight_norm``; ``table.meanings`` and
        ``docs/python.md`` say what they hold.
        """
        from msprobe.view.curve import sizes_of

        places = [(step, rank) for step in self._dump.steps for rank in self._dump.ranks(step)]
        sizes = [sizes_of(self._dump, *place) for place in places]
        columns: dict[str, list[Any]] = {"step": [step for step, _ in places]}
        columns["rank"] = rank_column([rank for _, rank in places])
        for number, name in enumerate(("loss", "gradient_norm", "weight_norm")):
            columns[name] = [size[number] for size in sizes]
        return Table(columns, "steps", STEPS)

    def __getitem__(self, place: int | tuple[int | None, int | str]) -> Part:
        step, rank = place if isinstance(place, tuple) and len(place) == 2 else (place, None)
        if isinstance(step, tuple):
            raise KeyError(said("no-such-place", place))
        try:
            return self.part(step, rank)
        except InvalidInputError as problem:
            ranks = self.ranks(step) if step in self.steps else ()
            if rank in ranks or (rank is None and len(ranks) == 1):
                raise  # it is there, and broken
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
        return table_html(("step", "ranks"), rows, more_rows(_SHOWN, len(self.steps)), repr(self))


# Statistics, and the bit that says in ``Columns.nulls`` that one was not recorded.
_STATISTICS = {word: 1 << place for place, word in enumerate(USUAL_WORDS)}


def open_run(path: StrPath) -> Run:
    """Open a dump, ours or one of mindstudio-probe, finished or interrupted, to look into it.

    ``path`` is its root, the folder of a step or of a rank, or a ``dump.json``. Raises PathError if there is no dump.
    """
    return Run(open_dump(path))


def _not_finite(numbers: Mapping[str, Sequence[float | None]]) -> list[int]:
    """The rows in which a number is NaN or infinite."""
    return [
        number
        for number, values in enumerate(zip(*numbers.values(), strict=True))
        if any(value is not None and not math.isfinite(value) for value in values)
    ]
