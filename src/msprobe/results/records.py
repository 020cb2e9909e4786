"""What was recorded of one call and of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from msprobe.compare.entry_names import read_name
from msprobe.messages import said
from msprobe.report.phrases import clean
from msprobe.results.notebook import more_rows, table_html
from msprobe.results.tables import same_values
from msprobe.statistics_table import FURTHER, USUAL_KEYS, USUAL_WORDS
from msprobe.store.columns import is_tensor, leaves

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from msprobe.store.part import DumpPart

_SHOWN = 12


@dataclass(frozen=True, eq=False)
class Tensor:
    """What was recorded of one tensor.

    ``max``, ``min``, ``mean`` and ``norm`` (L2) are None where they were not recorded; ``further`` has the statistics
    beyond them that were, by their names. ``dtype`` is the framework's word without its prefix (``bfloat16``).
    ``digest`` has its kind before a colon. ``file`` names the file of its values, if they were written.
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
    further: Mapping[str, float | None] = field(default_factory=dict)
    _part: DumpPart | None = field(default=None, repr=False, compare=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and same_values(self._key(), other._key())

    def __hash__(self) -> int:
        return hash((self.slot, self.dtype, self.shape, self.digest))

    def _key(self) -> tuple[Any, ...]:
        """All but the dump that it is of."""
        return tuple(getattr(self, column.name) for column in fields(self) if column.compare)

    @property
    def values(self) -> npt.NDArray[np.generic] | None:
        """The values as an array of numpy, read now (bfloat16 as float32); None where they were not written, or cannot
        be read.
        """
        if self.file is None or self._part is None:
            return None
        array: npt.NDArray[np.generic] | None = self._part.array(self.file)
        return array


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
        return module_of(self._part, self.name)

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
        tensors = self.tensors
        if slot not in tensors:
            raise KeyError(said("record-without-tensor", self.name, slot, ", ".join(tensors) or "none"))
        return tensors[slot]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.name == other.name and same_values(self._content, other._content)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<Record {clean(self.name)}: {', '.join(self.tensors) or 'no tensor'}>"

    def _repr_html_(self) -> str:
        tensors = list(self.tensors.values())
        further = [
            statistic.word for statistic in FURTHER if any(statistic.word in tensor.further for tensor in tensors)
        ]
        rows = [
            [
                *(statistic.slot, statistic.dtype, "" if statistic.shape is None else list(statistic.shape)),
                *(getattr(statistic, word) for word in USUAL_WORDS),
                *(statistic.further.get(word) for word in further),
            ]
            for statistic in tensors
        ]
        names = ("tensor", "dtype", "shape", *USUAL_WORDS, *further)
        return table_html(names, rows[:_SHOWN], more_rows(_SHOWN, len(rows)), self.name)


def module_of(part: DumpPart, name: str) -> str | None:
    """The path of the module that a record is a pass of, or ran in; None outside of all."""
    own = read_name(name)
    if own.path:
        return own.path
    above = part.parent(name)
    above = above[0] if isinstance(above, list) and above else above
    return read_name(above).path or None if isinstance(above, str) else None


def _tensor(slot: str, leaf: dict[str, Any], part: DumpPart) -> Tensor:
    shape = leaf.get("shape")
    grad = leaf.get("requires_grad")
    digest = leaf.get("digest") or leaf.get("md5")
    file = leaf.get("data_name")
    largest, least, mean, norm = (_statistic(leaf.get(key)) for key in USUAL_KEYS)
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
        further={statistic.word: _statistic(leaf[statistic.key]) for statistic in FURTHER if statistic.key in leaf},
        _part=part,
    )


def _statistic(value: Any) -> float | None:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value.replace("Infinity", "inf"))
    return float(value) if isinstance(value, (int, float)) else None
