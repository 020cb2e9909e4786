"""Two runs in different parallel layouts: tensors whole, module by module, and what is at fault.

Calls of one layout do not answer to those of another, but modules and parameters do, by their names: what the ranks
hold of their tensors is put together where values were recorded, and compared by what follows from the statistics of
the parts where not (see ``diagnose/layout``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import described
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.layout.annotation import Annotation
from msprobe.diagnose.layout.guess import Guesses
from msprobe.diagnose.layout.pairs import Pairs
from msprobe.diagnose.layout.search import Search
from msprobe.diagnose.layout.sides import LayoutSide, number_both, number_stages
from msprobe.diagnose.layout.steps import look_at_steps
from msprobe.diagnose.steps.argument_names import argument_name
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.errors import InvalidInputError
from msprobe.messages import Wording, joined, said
from msprobe.store.part import DumpPart

_SIDES = ("candidate", "reference")
_SOURCES = {
    "placements": "placements of DTensors",
    "annotation": "the annotation file",
    "guess": "shapes and values",
}
_METHODS = {
    "reassembled": "put together from what ranks hold",
    "invariants": "by what the statistics of their pieces imply",
    "whole": "as they are",
}
_SORTS = {"parameter": "parameters", "activation": "inputs and results of modules"}
_MOST_SHOWN = 6


@dataclass(frozen=True)
class ComparedLayouts:
    """What came out for one step: findings in order, counts of records, the layouts and how tensors were compared."""

    findings: list[Finding]
    counts: dict[str, int]
    described: dict[str, Any]
    #: Tensor files that could not be read, by side.
    unread: dict[str, list[str]] = field(default_factory=dict)

    @property
    def compared(self) -> bool:
        """True if any tensor could be compared."""
        return any(self.described["tensors"].get(key) for key in ("reassembled", "invariants", "whole"))


class Layouts:
    """Compares the steps of two runs one after the other; what a step leaves is known in the next."""

    def __init__(self, annotations: Mapping[str, Annotation] | None = None) -> None:
        self._annotations = dict(annotations or {})
        self._guesses = Guesses()
        self._drifted: dict[str, float] = {}
        # What the candidate's gradients are multiplied with, once that is known.
        self._factor: float | None = None

    def compare(
        self, candidate: Sequence[DumpPart], reference: Sequence[DumpPart], first_step: bool
    ) -> ComparedLayouts:
        """Compare one step; all ranks of it on both sides, which are closed then.

        Raises InvalidInputError if an annotation is of fewer ranks than there are.
        """
        sides = (
            LayoutSide(candidate, self._annotations.get("candidate")),
            LayoutSide(reference, self._annotations.get("reference")),
        )
        try:
            for name, side in zip(_SIDES, sides, strict=True):
                _check_mesh(name, side)
            staged = number_stages(*sides), number_stages(*sides[::-1])
            if not any(staged) and number_both(*sides):
                staged = True, True
            pairs = Pairs(self._guesses, self._factor)
            search = Search(*sides, pairs, first_step, self._drifted)
            search.forward()
            pairs.learn_factor(*sides)
            self._factor = pairs.factor
            search.backward()
            search.gradients()
            self._drifted = look_at_steps(search)
            alone = [
                sorted({place.path for place in first.records} - {place.path for place in other.records} - {""})
                for first, other in (sides, sides[::-1])
            ]
            described = {**_described(sides, pairs, staged, alone), "arguments": other_arguments(*sides)}
            counts = _counts(search, alone, self._drifted)
            unread = {name: side.unread for name, side in zip(_SIDES, sides, strict=True) if side.unread}
            return ComparedLayouts(search.result(), counts, described, unread)
        finally:
            for side in sides:
                side.close()


class LayoutCounts:
    """What was compared in all steps so far: sums, and the layouts as the last step shows them."""

    def __init__(self) -> None:
        self.steps = 0
        self._counts: Counter[str] = Counter()
        self._tensors: Counter[str] = Counter()
        self._problems: Counter[str] = Counter()
        self._interrupted: set[str] = set()
        self._described: dict[str, Any] = {}

    def add(self, result: ComparedLayouts) -> None:
        """Fold a step in."""
        self.steps += result.compared
        self._described = result.described
        self._counts.update(result.counts)
        self._tensors.update(result.described["tensors"])
        self._problems.update(result.described["not_comparable"])
        self._interrupted.update(result.described["interrupted"])

    @property
    def pairs(self) -> int:
        """How many modules and parameters answer to one of the other side."""
        return self._counts["pairs"]

    def summary(self) -> dict[str, Any]:
        """For the summary of a verdict."""
        described = self._described
        layouts = {**described, "tensors": dict(self._tensors), "not_comparable": dict(self._problems)}
        ranks = max(described[side]["ranks"] for side in _SIDES)
        summary = {"steps_compared": self.steps, "ranks": ranks, **self._counts, "layouts": layouts}
        return {**summary, "interrupted": sorted(self._interrupted)} if self._interrupted else summary


def notes_of_layouts(counts: LayoutCounts) -> list[str]:
    """What is to be said of the layouts of two runs and of how their tensors were compared."""
    summary = counts.summary()["layouts"]
    notes: list[str] = []
    for side in _SIDES:
        counted = summary[side]
        if counted["ranks"] == 1:
            text = said("layout-of-one-rank", side)
        else:
            sources = joined(", ", [_SOURCES[key] for key in counted["found_from"]]) or "nothing that was recorded"
            text = said("layout-of-ranks", side, counted["ranks"], sources)
            if counted["mesh"] not in (None, counted["ranks"]):
                text += said("recorded-of-layout", counted["ranks"], counted["mesh"])
        for sort, held in counted["held"].items():
            text += Wording(
                "; {}: {}",
                _SORTS[sort],
                joined(", ", [said("count-as", count, words) for words, count in held.items()]),
            )
        notes.append(text + (Wording("; {}", counted["stages"]) if counted["stages"] else ""))
    tensors = summary["tensors"]
    stated = [Wording("{} {}", tensors[key], text) for key, text in _METHODS.items() if tensors[key]]
    notes.append(said("layouts-differ", joined(", ", stated) or "none"))
    for side, ranks in summary["interrupted"].items():
        shown = ", ".join(map(str, ranks))
        notes.append(said("interrupted-on-rank", side, shown))
    for left, right in summary["types"]:
        notes.append(said("precision-differs", left, right))
    if summary["of_several_passes"]:
        notes.append(said("tensors-of-several-passes", summary["of_several_passes"]))
    left = tensors["without_numbers"] + tensors["not_comparable"]
    if left:
        reasons = [Wording("{}: {}", count, why) for why, count in summary["not_comparable"].items()]
        if tensors["without_numbers"]:
            reasons.append(said("values-cannot-be-added", tensors["without_numbers"]))
        notes.append(said("tensors-not-comparable", left, joined("; ", reasons)))
    for side in _SIDES:
        names = summary[f"only_in_{side}"]
        if names:
            more = said("and-more", len(names) - _MOST_SHOWN) if len(names) > _MOST_SHOWN else ""
            notes.append(said("modules-on-one-side", side, ", ".join(names[:_MOST_SHOWN]), more))
    arguments = summary["arguments"]
    if arguments:
        more = said("and-more", len(arguments) - _MOST_SHOWN) if len(arguments) > _MOST_SHOWN else ""
        notes.append(said("arguments-not-compared", joined("; ", arguments[:_MOST_SHOWN]), more))
    if summary["gradient_factor"] != 1.0:
        notes.append(said("gradients-multiplied", summary["gradient_factor"]))
    return notes


def _check_mesh(name: str, side: LayoutSide) -> None:
    last = max(map(side.position, side.ranks), default=0)
    if side.annotation is not None and last >= side.annotation.size:
        raise InvalidInputError(said("layout-mesh-too-small", name, side.annotation.size, last))


def _described(
    sides: tuple[LayoutSide, LayoutSide], pairs: Pairs, staged: tuple[bool, bool], alone: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """The layouts and how tensors were compared, as JSON values."""
    tally = pairs.tally
    described: dict[str, Any] = {}
    for name, side, numbered in zip(_SIDES, sides, staged, strict=True):
        sources = tally.sources[name]
        described[name] = {
            "ranks": len(side.ranks),
            "mesh": None if side.annotation is None else side.annotation.size,
            "found_from": [key for key in _SOURCES if sources[key]],
            "held": {
                sort: dict(Counter(tally.spreads[name][sort]).most_common(_MOST_SHOWN))
                for sort in _SORTS
                if tally.spreads[name][sort]
            },
            "stages": _stages(side, numbered),
        }
    described["tensors"] = {key: tally.methods[key] for key in (*_METHODS, "without_numbers", "not_comparable")}
    described["not_comparable"] = dict(tally.problems)
    described["types"] = [[word.removeprefix("torch.") for word in pair] for pair in sorted(tally.types)]
    described["interrupted"] = {
        name: ranks
        for name, side in zip(_SIDES, sides, strict=True)
        if (ranks := [rank for rank, part in side.parts.items() if not part.complete])
    }
    described["of_several_passes"] = tally.several_passes
    described["gradient_factor"] = pairs.factor
    described["only_in_candidate"], described["only_in_reference"] = (list(names) for names in alone)
    return described


def _stages(side: LayoutSide, numbered: bool) -> str | None:
    """What is said of a pipeline: ranks that have other modules than others."""
    shares: dict[frozenset[str], list[str]] = {}
    for rank in side.ranks:
        own = frozenset(place.path for place, records in side.records.items() if rank in records)
        shares.setdefault(own, []).append(str(rank))
    if len(shares) < 2:
        return None
    groups = "; ".join(", ".join(ranks) for ranks in shares.values())
    stated = side.annotation is not None and side.annotation.stage_axis is not None
    source = "the annotation file" if stated else "the order of the ranks" if numbered else "the names of the modules"
    return said("stages-of-ranks", len(shares), groups, source)


def _counts(search: Search, alone: Sequence[Sequence[str]], drifted: Mapping[str, float]) -> dict[str, int]:
    counts = dict(search.counts)
    if not counts["pairs"]:
        # Without modules, what is compared are the parameters.
        counts["pairs"] = len(search.candidate.parameters.keys() & search.reference.parameters.keys())
        counts["rounding"] = len(drifted)
        counts["same"] = counts["pairs"] - counts["rounding"]
    return {**counts, "candidate_only": len(alone[0]), "reference_only": len(alone[1])}


#: Their arguments say how something is stored, how large it is, or where it lies.
_QUIET = operators.MOVES | operators.CASTS | operators.IDLE
#: Whole numbers are sizes and places, which another layout has others of; truth values say how, not what.
_COMPARED_TYPES = ("float", "str")
#: By module and function: the values that its calls are given, by argument.
_Given = dict[tuple[str, str], dict[str, dict[str, None]]]


def other_arguments(candidate: LayoutSide, reference: LayoutSide) -> list[str]:
    """What the calls of a function in a module are given in no pass of the other side, in words; in order."""
    mine, theirs = _given(candidate), _given(reference)
    lines: list[str] = []
    for key, arguments in mine.items():
        others = theirs.get(key, {})
        for name, values in arguments.items():
            if name in others and not values.keys() & others[name].keys():
                module, function = key
                there = _in_words(others[name])
                lines.append(said("argument-differs-in-layout", function, module, name, _in_words(values), there))
    return lines


def _given(side: LayoutSide) -> _Given:
    given: _Given = {}
    for rank, timeline in side.timelines.items():
        for event in timeline:
            if event.direction != "forward" or event.parts.kind != "api" or event.module is None:
                continue
            if operation(event.stem) in _QUIET:
                continue
            own = given.setdefault((side.name(event.module, rank), event.stem), {})
            for name, leaf in _plain(event):
                own.setdefault(name, {})[described(leaf)] = None
    return given


def _plain(event: Event) -> Iterator[tuple[str, Any]]:
    for slot, leaf in event.inputs():
        if isinstance(leaf, dict) and not is_tensor(leaf) and leaf.get("type") in _COMPARED_TYPES:
            yield argument_name(event, slot), leaf


def _in_words(values: dict[str, None]) -> str:
    return joined(" or ", values)
