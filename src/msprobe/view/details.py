"""What the page shows of one row: its tensors and arguments on both sides, where it was called, who made what."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from msprobe.diagnose.differences.records import (
    Comparer,
    Difference,
    described,
    fingerprint,
    numbers,
    numel,
    pair_slots,
    statistics,
)
from msprobe.diagnose.differences.words import at_least, relation_of
from msprobe.diagnose.findings import plain
from msprobe.diagnose.pairing.slots import answering_slots
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor
from msprobe.diagnose.tolerance import units
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import Wording, in_both, joined, said
from msprobe.report.phrases import clean
from msprobe.report.source_frames import frames
from msprobe.statistics_table import USUAL_KEYS
from msprobe.view.columns import (
    EXPLAINED,
    NOTHING,
    OF_CANDIDATE,
    OF_REFERENCE,
    ROUNDING,
    SAME,
    UNEXPLAINED,
    is_measured,
    rounded,
)
from msprobe.view.judged import JudgedStep
from msprobe.view.protocol import (
    Figure,
    Group,
    Link,
    NodeAnswer,
    PlaceAnswer,
    Statistic,
    TensorAnswer,
    TensorSide,
)
from msprobe.view.rows import CALL, CANDIDATE_ONLY, MODULE, REFERENCE_ONLY, TreeRow
from msprobe.view.source_lines import in_words, stack_of

_MOST_LINKS = 20
_MOST_TEXT = 2000
_MOST_FRAMES = 60
_LARGEST = sys.float_info.max
_STATISTICS: tuple[Statistic, ...] = ("max", "min", "mean", "norm")
_FIGURES: dict[str, Figure] = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
_WORDS = {
    "dtype": "different dtype",
    "shape": "different shape",
    "layout": "different strides",
    "requires_grad": "requires a gradient on one side only",
    "argument": "different value",
}


def details_of(step: JudgedStep, row: TreeRow, columns: PlaceAnswer, single: bool) -> NodeAnswer:
    """The answer of ``/api/node``, without partners and findings yet."""
    event = row.event
    judged = step.judged.get(row.candidate) if row.candidate is not None else None
    return {
        "name": row.name,
        "twin": row.twin,
        "kind": row.kind,
        "side": columns["sides"][row.number],
        "status": columns["status"][row.number],
        "order": columns["orders"][row.number],
        "module": event.module if event is not None else None,
        "why_unmatched": None if single or (why := why_unmatched(step, row)) is None else in_both(why),
        "tensors": tensors_of(step, row, single),
        "source": {
            "candidate": _frames(step, row.candidate),
            "reference": _frames(step, row.reference),
        },
        "producers": _producers(step, event),
        "consumers": _consumers(step, event),
        "partners": [],
        "findings": [],
        "notes": list(map(in_both, _notes(step, row, judged))),
    }


def why_unmatched(step: JudgedStep, row: TreeRow) -> str | None:
    """Why a record of one side has no partner, in a sentence; None if it has one."""
    event = row.event
    if event is None or row.side not in (CANDIDATE_ONLY, REFERENCE_ONLY):
        return None
    side, other = ("candidate", "reference") if row.side == CANDIDATE_ONLY else ("reference", "candidate")
    timeline = step.reference if row.side == CANDIDATE_ONLY else step.candidate
    if timeline is None:
        return said("only-side-with-step", side)
    if row.above is not None and row.above.side == row.side:
        return said("runs-inside-extra-module", clean(row.above.name), side)
    own = step.candidate if row.side == CANDIDATE_ONLY else step.reference
    if event.direction == "backward" and own is not None and (forward := own.forward_of(event)) is not None:
        lone = step.row_of.get(forward)
        if lone is not None and lone.side == row.side:
            return said("forward-on-one-side", clean(forward.name), side)
        return said("no-backward-recorded", other)
    if not timeline.part.complete and event.index >= len(timeline.events):
        return said("interrupted-before-call", other)
    siblings = row.above.below if row.above is not None else [root for root in step.rows if root.above is None]
    alike = [
        sibling
        for sibling in siblings
        if sibling.event is not None and sibling.event.stem == event.stem and sibling is not row
    ]
    facing = [sibling for sibling in alike if sibling.side not in (row.side, 0)]
    if facing:
        return said(
            "stands-elsewhere",
            other,
            clean(facing[0].name),
        )
    if alike:
        return said("one-more-call", side, clean(event.stem), other)
    return said("side-does-not-call", other, clean(event.stem))


def slots_of(step: JudgedStep, row: TreeRow) -> list[tuple[str, Group, Any, Any]]:
    """Slot, group (``input``, ``parameter``, ``output``) and the values of both sides; None where a side has none.

    Slots answer to each other as they do when the pair is judged.
    """
    left, right = row.candidate, row.reference
    inputs, parameters, outputs = (
        (_of(left, what), _of(right, what)) for what in (Event.inputs, Event.parameters, Event.outputs)
    )
    if left is not None and right is not None:
        inputs, judged = answering_slots(left, right, step.comparer is not None and step.comparer.crossing)
        # Results that cannot be compared can be looked at.
        outputs = judged if any(judged) else outputs
    slots: list[tuple[str, Group, Any, Any]] = []
    groups: dict[Group, tuple[list[Slot], list[Slot]]] = {"input": inputs, "parameter": parameters, "output": outputs}
    for group, (ours, theirs) in groups.items():
        pairs, alone, missing = pair_slots(ours, theirs)
        listed = {mine[0]: (group, mine[1], other[1]) for mine, other in pairs}
        listed.update({slot: (group, value, None) for slot, value in alone})
        slots += [(slot, *listed[slot]) for slot, _ in ours]
        slots += [(slot, group, None, value) for slot, value in missing]
    return slots


def _of(event: Event | None, what: Callable[[Event], list[Slot]]) -> list[Slot]:
    return what(event) if event is not None else []


def tensors_of(step: JudgedStep, row: TreeRow, single: bool) -> list[TensorAnswer]:
    """All tensors and arguments of a row, each with what it is on both sides and how these are apart."""
    judged = step.judged.get(row.candidate) if row.candidate is not None else None
    differences: dict[tuple[str, str], list[Difference]] = {}
    if judged is not None:
        groups = (("input", judged.inputs), ("parameter", judged.parameters), ("output", judged.outputs))
        for group, group_differences in groups:
            for difference in group_differences:
                differences.setdefault((group, difference.slot), []).append(difference)
    listed = []
    for slot, group, left, right in slots_of(step, row):
        slot_differences = differences.get((group, slot), [])
        listed.append(_slot(step, slot, group, left, right, slot_differences, judged, single))
    return listed


def _slot(
    step: JudgedStep,
    slot: str,
    group: Group,
    left: Any,
    right: Any,
    differences: list[Difference],
    judged: Judged | None,
    single: bool,
) -> TensorAnswer:
    value = next((difference for difference in differences if difference.what in ("value", "not_finite")), None)
    unit = units.pair_unit(value) if value is not None else 0.0
    listed: TensorAnswer = {
        "slot": slot,
        "group": group,
        "candidate": leaf_of(left),
        "reference": leaf_of(right),
        "status": _status_of_slot(group, left, right, differences, judged) if not single else NOTHING,
        "relative": rounded(value.delta) if value is not None else None,
        "units": rounded(value.delta / unit) if value is not None and unit else None,
        "allowed": None,
        "at_least": value is not None and math.isfinite(value.delta) and "lower_bound" in at_least(value),
        "differences": _statistics_differences(left, right),
        "words": in_both(_in_words(differences, step.comparer)),
    }
    if judged is None or single:
        listed["relative"] = listed["units"] = None
    elif value is None and is_measured(left) and is_measured(right):
        listed["relative"] = listed["units"] = 0.0
    elif value is not None:
        listed["allowed"] = rounded(judged.allowed if group == "output" else unit)
    return listed


def _status_of_slot(group: str, left: Any, right: Any, differences: list[Difference], judged: Judged | None) -> int:
    if judged is None:
        return OF_REFERENCE if left is None and right is not None else OF_CANDIDATE
    kinds = {difference.what for difference in differences}
    if "missing" in kinds:
        return OF_CANDIDATE if right is None else OF_REFERENCE
    value = next((difference for difference in differences if difference.what in ("value", "not_finite")), None)
    if value is not None and group == "output":
        if judged.status == "unexplained":
            return UNEXPLAINED if not value.delta <= judged.allowed or judged.allowed == 0.0 else EXPLAINED
        return ROUNDING if judged.status == "rounding" else EXPLAINED
    if value is not None:
        return ROUNDING if value.delta <= units.pair_unit(value) else EXPLAINED
    if kinds & {"argument", "shape"}:
        return UNEXPLAINED
    if "dtype" in kinds:
        return EXPLAINED
    known = is_measured(left) and is_measured(right) if is_tensor(left) or is_tensor(right) else left is not None
    return SAME if known else NOTHING


def _in_words(differences: list[Difference], comparer: Comparer | None) -> str:
    words: list[str] = []
    for difference in differences:
        if difference.what in ("value", "not_finite") and comparer is not None:
            relation = relation_of(difference, comparer)
            # A mere size stands beside it already.
            words.append("" if relation.is_size else str(relation))
        elif difference.what == "missing":
            words.append("only in the candidate" if difference.right is None else "only in the reference")
        elif difference.what in _WORDS:
            extra = said("values-in-brackets", described(difference.left), described(difference.right))
            words.append(Wording(_WORDS[difference.what]) + (extra if difference.what in ("argument", "dtype") else ""))
    return clean(joined("; ", dict.fromkeys(filter(None, words))))


def leaf_of(leaf: Any) -> TensorSide | None:
    """A tensor or an argument as the page shows it; None where there is none."""
    if leaf is None:
        return None
    if not isinstance(leaf, dict):
        return _plain_leaf(type(leaf).__name__, leaf)
    if not is_tensor(leaf):
        kind = str(leaf.get("type"))
        rest = {key: value for key, value in leaf.items() if key not in ("type", *USUAL_KEYS)}
        return _plain_leaf(kind, rest.get("value", rest))
    largest, least, mean, norm = (_statistic(value) for value in statistics(leaf))
    strides = leaf.get("stride")
    return {
        "type": clean(leaf.get("type")),
        "dtype": clean(leaf["dtype"]).removeprefix("torch."),
        "shape": plain(leaf.get("shape")) if isinstance(leaf.get("shape"), list) else None,
        "strides": plain(strides) if isinstance(strides, list) else None,
        "max": largest,
        "min": least,
        "mean": mean,
        "norm": norm,
        "nan": leaf.get("nan") if isinstance(leaf.get("nan"), int) else None,
        "inf": leaf.get("inf") if isinstance(leaf.get("inf"), int) else None,
        "digest": _text(leaf.get("digest") or leaf.get("md5")),
        "requires_grad": leaf.get("requires_grad") if isinstance(leaf.get("requires_grad"), bool) else None,
        "value": None,
        "file": isinstance(leaf.get("data_name"), str) and leaf["data_name"] != "-1",
        "unset": leaf.get("unset") is True,
    }


def _plain_leaf(kind: str, value: Any) -> TensorSide:
    text = clean(value)
    return {
        "type": clean(kind),
        "dtype": None,
        "shape": None,
        "strides": None,
        "max": None,
        "min": None,
        "mean": None,
        "norm": None,
        "nan": None,
        "inf": None,
        "digest": None,
        "requires_grad": None,
        "value": text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}...",
        "file": False,
        "unset": False,
    }


def _statistic(value: Any) -> Figure:
    if isinstance(value, str):
        return _FIGURES.get(value)
    if not isinstance(value, (int, float)):
        return None
    # Whole numbers may be larger than any float.
    if value != value:
        return "nan"
    if abs(value) > _LARGEST:
        return "inf" if value > 0 else "-inf"
    return float(value)


def _text(value: Any) -> str | None:
    return clean(value) if isinstance(value, str) else None


def _statistics_differences(left: Any, right: Any) -> dict[Statistic, tuple[float | None, float | None]]:
    """Absolute and relative difference of each statistic; relative to the size that rounding of it has."""
    if not (is_tensor(left) and is_tensor(right)):
        return {}
    ours, other = numbers(left), numbers(right)
    if ours is None or other is None:
        return {}
    extreme = max(abs(ours[0]), abs(ours[1]), abs(other[0]), abs(other[1]))
    typical = max(ours[3] / math.sqrt(max(numel(left), 1)), other[3] / math.sqrt(max(numel(right), 1)))
    sizes = (extreme, extreme, typical or extreme, max(ours[3], other[3]))
    recorded = zip(statistics(left), statistics(right), strict=True)
    statistics_of_sides: dict[Statistic, tuple[float | None, float | None]] = {}
    for name, a, b, size, known in zip(_STATISTICS, ours, other, sizes, recorded, strict=True):
        if None in known:
            continue
        apart = 0.0 if a == b else a - b
        if not math.isfinite(apart):
            statistics_of_sides[name] = None, None
        else:
            share = abs(apart) / size if apart and size else 0.0
            statistics_of_sides[name] = apart, rounded(share) if math.isfinite(share) else None
    return statistics_of_sides


def _frames(step: JudgedStep, event: Event | None) -> list[str]:
    return [in_words(frame) for frame in frames(stack_of(step, event)[:_MOST_FRAMES])]


def _producers(step: JudgedStep, event: Event | None) -> list[Link]:
    if event is None:
        return []
    makers = step.makers_of(event)
    producers: list[Link] = []
    for slot, leaf in event.inputs():
        maker = makers.of(leaf, event) if is_tensor(leaf) else None
        row = step.row_of.get(maker) if maker is not None else None
        if maker is not None and row is not None:
            producers.append({"slot": slot, "row": row.number, "name": maker.name})
    return producers[:_MOST_LINKS]


def _consumers(step: JudgedStep, event: Event | None) -> list[Link]:
    if event is None:
        return []
    takers = step.takers[0 if step.is_of_candidate(event) else -1]
    consumers: dict[int, Link] = {}
    for slot, leaf in event.outputs():
        mark = fingerprint(leaf)
        for taker in takers.get(mark, ()) if mark is not None else ():
            row = step.row_of.get(taker)
            if taker.index <= event.index or row is None:
                continue
            # Every layer may make the same mask anew: what takes it took that of the last.
            maker = step.makers_of(taker).of(leaf, taker)
            if maker is None or maker.index <= event.index:
                consumers.setdefault(row.number, {"slot": slot, "row": row.number, "name": taker.name})
            if len(consumers) >= _MOST_LINKS:
                return list(consumers.values())
    return list(consumers.values())


def _notes(step: JudgedStep, row: TreeRow, judged: Judged | None) -> list[str]:
    notes: list[str] = []
    event = row.event
    if event is not None and (value := step.born.get(event)) is not None:
        name = {"nan": "NaN", "inf": said("infinity"), "-inf": "minus infinity"}[value]
        notes.append(said("first-appears-here", name))
    if judged is not None and judged.chosen:
        notes.append("its result depends on a choice that rounding may change")
    if judged is not None and judged.vanishing:
        notes.append("gradients that cancel down to rounding are not measured")
    if event is None and row.kind == MODULE:
        notes.append("its end was not recorded: the recording was interrupted inside it")
    if row.kind == CALL and step.pairing is not None and row.candidate in step.pairing.loose:
        notes.append("it was matched by what it computes, not by its name")
    return notes
