"""Which row of the reference answers to each row of the candidate.

Rows answer to each other by name. Where shape or element type differ the partner stays, and the difference is said:
hiding it would leave the reader with "no partner" for what is the finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from msprobe.compare.frameworks import dtype_family
from msprobe.compare.rows import Rows

Rename = Callable[[str], str | None]

# How two element types agree.
SAME, FAMILY, DIFFERENT = range(3)
_FLOATS = frozenset(
    [
        *("torch.float16", "torch.float32", "torch.bfloat16", "torch.float64"),
        *("Float16", "Float32", "BFloat16", "Float64"),
    ]
)


@dataclass(frozen=True, eq=False)
class RowPairing:
    """Which rows answer to each other.

    ``partner`` has the row of the reference for each row of the candidate, -1 where there is none.
    ``fuzzy`` is true for pairs of calls with different names.
    """

    partner: npt.NDArray[np.int64]
    fuzzy: npt.NDArray[np.bool_]
    reference_rows: int

    @property
    def matched(self) -> npt.NDArray[np.bool_]:
        """True for rows that have a partner."""
        matched: npt.NDArray[np.bool_] = self.partner >= 0
        return matched

    @property
    def reference_only(self) -> npt.NDArray[np.int64]:
        """The rows of the reference that nobody answers to, in their order."""
        used = np.zeros(self.reference_rows, np.bool_)
        used[self.partner[self.partner >= 0]] = True
        return np.flatnonzero(~used)


@dataclass(frozen=True)
class NameMapping:
    """How names of the candidate are called in the reference.

    ``rename`` gives the name of the reference's row for the name of a row, None for a row that has no partner by
    intention. ``pairs`` names partners by hand (None: there is to be none) and goes before it; shape and type of such
    a pair do not matter, and several rows may have one partner. ``views``: partners with as many elements are compared
    element by element, whatever their shapes.
    """

    rename: Rename | None = None
    pairs: Mapping[str, str | None] = field(default_factory=dict)
    views: bool = False

    def target(self, name: str) -> str | None:
        """The name to look for in the reference."""
        if name in self.pairs:
            return self.pairs[name]
        return name if self.rename is None else self.rename(name)


def match(candidate: Rows, reference: Rows, mapping: NameMapping | None = None) -> RowPairing:
    """Pair rows by name, through ``mapping`` where there is one. Equal names are paired in their order."""
    names: list[str | None] = [*candidate.name]
    if mapping is not None:
        names = [mapping.target(name) for name in candidate.name]
    where = {own: row for row, own in enumerate(reference.name)}
    get = where.get
    partner = np.array([-1 if name is None else get(name, -1) for name in names], np.int64)
    if len(where) < len(reference):
        _pair_repeated(names, reference, partner)
    return RowPairing(partner, np.zeros(len(candidate), np.bool_), len(reference))


def match_records(candidate: Rows, reference: Rows, records: Mapping[str, str]) -> RowPairing:
    """Pair rows by their place in records that answer to each other: ``records`` names that of the reference for one of
    the candidate.
    """
    entries = [reference.entries[entry] for entry in reference.entry[reference.starts].tolist()]
    ends = np.append(reference.starts, len(reference))[1:]
    rows_of = dict(zip(entries, map(range, reference.starts.tolist(), ends.tolist()), strict=True))
    partner = np.full(len(candidate), -1, np.int64)
    fuzzy = np.zeros(len(candidate), np.bool_)
    slots: dict[str, int] = {}
    current = -1
    for row, entry in enumerate(candidate.entry.tolist()):
        if entry != current:
            current = entry
            there = rows_of.get(records.get(candidate.entries[entry], ""), ())
            slots = {reference.slot[place]: place for place in there}
        place = slots.get(candidate.slot[row], -1)
        partner[row] = place
        fuzzy[row] = place >= 0 and candidate.name[row] != reference.name[place]
    return RowPairing(partner, fuzzy, len(reference))


def _pair_repeated(names: Sequence[str | None], reference: Rows, partner: npt.NDArray[np.int64]) -> None:
    """Of names that stand several times, the first with the first; what is over answers to the last."""
    places: dict[str, list[int]] = {}
    for row, own in enumerate(reference.name):
        places.setdefault(own, []).append(row)
    taken: dict[str, int] = {}
    for row, name in enumerate(names):
        if name is None or len(places.get(name, ())) < 2:
            continue
        number = taken.get(name, 0)
        taken[name] = number + 1
        partner[row] = places[name][min(number, len(places[name]) - 1)]


@dataclass(frozen=True, eq=False)
class Agreement:
    """How far paired rows are comparable; the columns are as long as the candidate's rows.

    ``dtype`` is SAME, FAMILY (floats of different width) or DIFFERENT, ``shape`` true where equal, ``null`` true
    where one side has no value. Unmatched rows count as agreeing.
    """

    dtype: npt.NDArray[np.uint8]
    shape: npt.NDArray[np.bool_]
    null: npt.NDArray[np.bool_]


def agreement(
    candidate: Rows, reference: Rows, pairing: RowPairing, cross_framework: bool = False, views: bool = False
) -> Agreement:
    """Compare types and shapes of paired rows; ``cross_framework`` takes MindSpore and PyTorch names as one, ``views``
    shapes with as many elements.
    """
    partner = pairing.partner
    matched = partner >= 0
    other = np.where(matched, partner, 0)
    rows = len(candidate)
    if not rows or not len(reference):
        return Agreement(np.zeros(rows, np.uint8), np.ones(rows, np.bool_), np.zeros(rows, np.bool_))
    table = np.array(
        [[_dtype_agreement(a, b, cross_framework) for b in reference.dtypes] for a in candidate.dtypes], np.uint8
    )
    dtype = np.where(matched, table[candidate.dtype, reference.dtype[other]], SAME)
    codes = {word: code for code, word in enumerate(candidate.shapes)}
    translated = np.array([codes.get(word, -1) for word in reference.shapes], np.int64)
    shape = ~matched | (candidate.shape == translated[reference.shape[other]])
    if views:
        both = candidate.is_tensor & reference.is_tensor[other]
        shape |= both & (candidate.elements == reference.elements[other])
    none_here = np.array([word == "None" for word in candidate.dtypes], np.bool_)[candidate.dtype]
    none_there = np.array([word == "None" for word in reference.dtypes], np.bool_)[reference.dtype[other]]
    return Agreement(dtype.astype(np.uint8), shape, matched & (none_here != none_there))


def _dtype_agreement(candidate: str, reference: str, cross_framework: bool) -> int:
    if candidate == reference:
        return SAME
    if candidate in _FLOATS and reference in _FLOATS:
        return FAMILY if cross_framework or ("." in candidate) == ("." in reference) else DIFFERENT
    if cross_framework and dtype_family(candidate) == dtype_family(reference):
        return SAME
    return DIFFERENT
