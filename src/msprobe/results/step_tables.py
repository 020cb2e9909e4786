"""One step of one rank of two runs as tables: its calls, its tensors, as the page has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msprobe.compare.entry_names import read_name
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.report import phrases
from msprobe.results.columns import CALLS, STEP_PAIRS, TENSOR_PAIRS
from msprobe.results.tables import Table, rank_column
from msprobe.statistics_table import USUAL_WORDS
from msprobe.view.columns import IS_MASK, IS_NOT_FINITE, NO_SIZE
from msprobe.view.curve import sizes_of
from msprobe.view.places import places_of
from msprobe.view.rows import CANDIDATE_ONLY, COLLECTION, REFERENCE_ONLY

if TYPE_CHECKING:
    from msprobe.diagnose.findings import Finding, Verdict
    from msprobe.store.reader import Dump
    from msprobe.view.dumps import Dumps
    from msprobe.view.protocol import PlaceAnswer

T = TypeVar("T")
_STATUSES = ("not measured", "same", "rounding", "explained", "unexplained", "candidate only", "reference only")
_PHASES = ("forward", "backward", "optimizer")
#: What is looked at first, of what no finding names.
_WORST = ("unexplained", "candidate only", "reference only", "explained", "rounding")
_SIZES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def place_of(source: Dumps, verdict: Verdict, step: int | None, rank: int | str | None) -> int:
    """The number of a step and rank; of the first finding if none is named, or the first that both runs have. Raises
    InvalidInputError if there is none.
    """
    if step is not None and not isinstance(step, int):
        raise InvalidInputError(said("step-no-number", step, type(step).__name__))
    both = [number for number, place in enumerate(source.places) if place.side == 0]
    named = [number for number in both if _is_at(source, number, step, rank)]
    if step is None or rank is None:
        for first in phrases.leading(verdict):
            for number in named:
                if _is_at(source, number, first.step, first.rank):
                    return number
    if named:
        return named[0]
    if not both:
        raise InvalidInputError(said("runs-without-pairs"))
    there = "; ".join(_in_words(source.places[number].step, source.places[number].rank) for number in both[:8])
    more = said("so-many-more-behind", len(both) - 8) if len(both) > 8 else ""
    raise InvalidInputError(said("place-not-in-common", _in_words(step, rank), there, more))


def call_table(source: Dumps, index: int, findings: Sequence[Finding]) -> Table:
    """All calls of a place, in the order of the page."""
    place = source.place(index)
    rows = [row for row, kind in enumerate(place["kinds"]) if kind != COLLECTION]
    names, modules = _names(place), _modules(place)
    named = _named_by(source, index, names, findings)

    def of(column: Sequence[T]) -> list[T]:
        return [column[row] for row in rows]

    def sizes(column: Sequence[float | None]) -> list[float | None]:
        return [math.inf if size == NO_SIZE else size for size in of(column)]

    columns: dict[str, list[Any]] = {
        "name": [names[row][0] for row in rows],
        "reference_name": [names[row][1] for row in rows],
        "module": [modules[row] for row in rows],
        "inside": [_inside(place, row) for row in rows],
        "phase": [_PHASES[phase] for phase in of(place["phases"])],
        "order": of(place["orders"]),
        "status": [_STATUSES[status] for status in of(place["status"])],
        "input_delta": sizes(place["input_difference"]),
        "output_delta": sizes(place["output_difference"]),
        "allowed": sizes(place["allowed"]),
        "largest": of(place["largest"]),
        "norm": of(place["norm"]),
        "not_finite": [bool(flags & (IS_NOT_FINITE | IS_MASK)) for flags in of(place["flags"])],
        "finding": [named[row] for row in rows],
    }
    return Table(columns, "calls", CALLS, _worst_first(columns, "output_delta"))


def tensor_table(source: Dumps, index: int, findings: Sequence[Finding]) -> Table:
    """All tensors of a place, in the order of the page."""
    place = source.place(index)
    names, modules = _names(place), _modules(place)
    named = _named_by(source, index, names, findings)
    columns: dict[str, list[Any]] = {name: [] for name in TENSOR_PAIRS}
    numbers = []
    for row, tensor in source.tensors(index):
        sides: list[Mapping[str, Any]] = [tensor["candidate"] or {}, tensor["reference"] or {}]
        if not any(side.get("dtype") for side in sides):
            continue  # no tensor, but an argument
        values: dict[str, Any] = {
            "name": names[row][0],
            "reference_name": names[row][1],
            "module": modules[row],
            "slot": tensor["slot"],
            "group": tensor["group"],
            "status": _STATUSES[tensor["status"]],
            "difference": math.inf if tensor["relative"] == NO_SIZE else tensor["relative"],
            "units": None if tensor["units"] == NO_SIZE else tensor["units"],
        }
        for prefix, side in zip(("", "reference_"), sides, strict=True):
            values[f"{prefix}dtype"] = side.get("dtype")
            values[f"{prefix}shape"] = None if side.get("shape") is None else str(side["shape"])
            for name in USUAL_WORDS:
                value = side.get(name)
                values[f"{prefix}{name}"] = _SIZES[value] if isinstance(value, str) else value
        for name, value in values.items():
            columns[name].append(value)
        numbers.append(named[row] if tensor["group"] == "output" else None)
    return Table(columns, "tensors", TENSOR_PAIRS, _worst_first({**columns, "finding": numbers}, "difference"))


def step_table(candidate: Dump, reference: Dump) -> Table:
    """Loss, gradients and weights of all steps and ranks of both sides."""
    columns: dict[str, list[Any]] = {name: [] for name in STEP_PAIRS}
    for place in places_of(candidate, reference):
        columns["step"].append(place.step)
        columns["rank"].append(place.rank)
        for prefix, dump, at in (("", candidate, place.candidate), ("reference_", reference, place.reference)):
            sizes = sizes_of(dump, *at) if at is not None else (None, None, None)
            for name, size in zip(("loss", "gradient_norm", "weight_norm"), sizes, strict=True):
                columns[f"{prefix}{name}"].append(size)
    return Table({**columns, "rank": rank_column(columns["rank"])}, "steps", STEP_PAIRS)


def _is_at(source: Dumps, number: int, step: int | None, rank: int | str | None) -> bool:
    place = source.places[number]
    return step in (None, place.step) and rank in (None, place.rank)


def _in_words(step: int | None, rank: int | str | None) -> str:
    parts = [f"step {step}"] if step is not None else []
    # The only rank of a run has a folder without number.
    parts += [f"rank {rank}"] if rank is not None and (rank != "rank" or step is None) else []
    return ", ".join(parts) or "step"


def _names(place: PlaceAnswer) -> list[tuple[str | None, str | None]]:
    """The names of each row on both sides; None where a side has none."""
    return [
        (
            None if side == REFERENCE_ONLY else name,
            None if side == CANDIDATE_ONLY else place["twins"].get(str(row), name),
        )
        for row, (name, side) in enumerate(zip(place["names"], place["sides"], strict=True))
    ]


def _modules(place: PlaceAnswer) -> list[str | None]:
    """The module that each row is a pass of, or runs in. A parent stands before its children."""
    modules: list[str | None] = []
    for name, parent in zip(place["names"], place["parents"], strict=True):
        modules.append(read_name(name).path or (modules[parent] if parent >= 0 else None))
    return modules


def _inside(place: PlaceAnswer, row: int) -> str | None:
    above = place["parents"][row]
    # Calls between modules stand in no module, though the page puts them into a row.
    return place["names"][above] if above >= 0 and place["kinds"][above] != COLLECTION else None


def _named_by(
    source: Dumps, index: int, names: Sequence[tuple[str | None, str | None]], findings: Sequence[Finding]
) -> list[int | None]:
    """For each row the number of the first finding that names it."""
    place = source.places[index]
    wanted: dict[tuple[int, str | None], int] = {}
    for number, finding in enumerate(findings):
        if finding.entry is not None and finding.step == place.step and finding.rank in (None, place.rank):
            wanted.setdefault((1 if finding.evidence.get("side") == "reference" else 0, finding.entry), number)
    sides = [[wanted.get((side, name)) for side, name in enumerate(both)] for both in names]
    return [min((number for number in both if number is not None), default=None) for both in sides]


def _worst_first(columns: dict[str, list[Any]], size: str) -> list[int]:
    """Rows that a finding names, in the order of findings, then what differs: by status, the largest first."""
    weights = {status: weight for weight, status in enumerate(_WORST)}
    places = []
    for number, (finding, status, apart) in enumerate(
        zip(columns["finding"], columns["status"], columns[size], strict=True)
    ):
        if finding is not None or status in weights:
            first = (0, finding) if finding is not None else (1, weights[status])
            places.append((*first, -(apart or 0.0), number))
    return [row[-1] for row in sorted(places)]
