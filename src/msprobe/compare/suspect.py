"""The row where two dumps first part: what the advisor names.

Rows are taken in the order of execution, so parameter gradients come after the backward calls, although they stand
beside the forward call of their module. Of a call whose inputs already differ, what made them is to blame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from msprobe.compare.comparison import Comparison
from msprobe.compare.entry_names import read_name
from msprobe.compare.measures_statistics import Mask
from msprobe.compare.rows import GRADIENT, INPUT, OUTPUT, PARAMETER, Rows
from msprobe.store.handed_through import is_of_the_call_before

Kind = Literal[
    "nonfinite", "argument", "input", "parameter", "output", "extra_call", "backward", "parameters_grad", "saved"
]

# Arguments that say where or how a tensor is kept; they differ between devices and precisions.
_PLACES = ("torch.device", "torch.dtype", "cpu", "cuda", "npu", "mps", "xpu", "meta", "torch.")


@dataclass(frozen=True)
class Suspect:
    """``row`` of the candidate, and what is wrong there. ``evidence`` are further sentences for the reader."""

    row: int
    kind: Kind
    evidence: tuple[str, ...] = ()


def find_suspect(comparison: Comparison) -> Suspect | None:
    """The first row that is to blame, or None if nothing fails."""
    ours = comparison.candidate
    if not len(ours):
        return None
    starts = ours.starts
    ends = np.append(starts[1:], len(ours))
    failing = comparison.failing
    arguments = _differing_arguments(comparison)
    if not failing.any() and not arguments.any():
        return None
    unmatched = ~comparison.pairing.matched
    extra: int | None = None
    for place in _execution_order(comparison):
        rows = np.arange(starts[place], ends[place])
        if unmatched[rows].all():
            if extra is None and not ours.entries[ours.entry[rows[0]]].endswith("parameters_grad"):
                extra = int(rows[0])
            continue
        bad = rows[failing[rows] | arguments[rows]]
        if len(bad) and _is_of_the_call_before(comparison, place):
            # What it was given is its own; what it gave is told where it was made.
            bad = bad[ours.state[bad] != OUTPUT]
        if len(bad):
            return _blame(comparison, bad, arguments, extra)
        if comparison.pairing.matched[rows].any():
            extra = None
    return None


def _blame(comparison: Comparison, bad: npt.NDArray[np.int64], arguments: Mask, extra: int | None) -> Suspect:
    ours = comparison.candidate
    states = ours.state[bad]
    new_nonfinite = comparison.statistics.new_nonfinite
    given = bad[(states == INPUT) & ~arguments[bad]]
    if len(given) and extra is not None:
        name = ours.entries[ours.entry[extra]]
        made = f"What it made is first seen as {ours.name[int(given[0])]}."
        return Suspect(extra, "extra_call", (f"{name} is called by the target only.", made))
    if arguments[bad].any():
        row = int(bad[arguments[bad]][0])
        return Suspect(row, "argument", (_values(comparison, row),))
    if len(given):
        return Suspect(int(given[0]), "nonfinite" if new_nonfinite[given[0]] else "input")
    weights = bad[states == PARAMETER]
    if len(weights):
        return Suspect(int(weights[0]), "parameter")
    row = int(bad[0])
    if new_nonfinite[row]:
        return Suspect(row, "nonfinite")
    if ours.state[row] == OUTPUT:
        backward = read_name(ours.entries[ours.entry[row]]).direction == "backward"
        return Suspect(row, "backward" if backward else "output")
    return Suspect(row, "parameters_grad" if ours.state[row] == GRADIENT else "saved")


def _values(comparison: Comparison, row: int) -> str:
    """What the two sides have for an argument."""
    ours, theirs = comparison.candidate, comparison.reference
    partner = int(comparison.pairing.partner[row])
    return f"{ours.name[row]} is {_value(ours, row)} in the target and {_value(theirs, partner)} in the bench."


def _value(rows: Rows, row: int) -> str:
    if row in rows.texts:
        return repr(rows.texts[row])
    number = rows.numbers[0, row]
    if np.isnan(number):
        return str(rows.shapes[rows.shape[row]])
    word = rows.dtypes[rows.dtype[row]]
    if "bool" in word:
        return str(bool(number))
    return str(int(number)) if "int" in word else str(float(number))


def _differing_arguments(comparison: Comparison) -> Mask:
    """Rows of arguments that are no tensors and have another value on the other side."""
    ours, theirs = comparison.candidate, comparison.reference
    found = np.zeros(len(ours), np.bool_)
    matched = comparison.pairing.matched
    candidates = np.flatnonzero(matched & ~ours.is_tensor & (ours.state == INPUT))
    for row in candidates.tolist():
        partner = int(comparison.pairing.partner[row])
        if theirs.is_tensor[partner] or comparison.agreement.null[row] or ours.md5[row] == theirs.md5[partner]:
            continue
        text = ours.texts.get(row, "")
        found[row] = not text.startswith(_PLACES)
    return found


def _execution_order(comparison: Comparison) -> list[int]:
    """The records in the order of execution, as places in ``starts``."""
    ours = comparison.candidate
    names = [ours.entries[number] for number in ours.entry[ours.starts].tolist()]
    gradients = [place for place, name in enumerate(names) if "parameters_grad" in name.rsplit(".", 2)[1:]]
    if not gradients:
        return list(range(len(names)))
    moved = set(gradients)
    last = max((place for place, name in enumerate(names) if _is_backward(name)), default=len(names) - 1)
    before = [place for place in range(last + 1) if place not in moved]
    return [*before, *gradients, *(place for place in range(last + 1, len(names)) if place not in moved)]


def _is_of_the_call_before(comparison: Comparison, place: int) -> bool:
    """True for a backward record whose gradients are those of the call before, on either side."""
    ours, theirs = comparison.candidate, comparison.reference
    first = int(ours.starts[place])
    name, partner = ours.entries[int(ours.entry[first])], int(comparison.pairing.partner[first])
    if not _is_backward(name):
        return False
    names = [name] + ([theirs.entries[int(theirs.entry[partner])]] if comparison.pairing.matched[first] else [])
    return any(is_of_the_call_before(part, one) for part, one in zip(comparison.parts, names, strict=False))


def _is_backward(name: str) -> bool:
    return "backward" in name.rsplit(".", 2)[1:]
