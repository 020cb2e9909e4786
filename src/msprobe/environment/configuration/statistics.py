"""Statistics of weights and of a forward pass's inputs, of two packs, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msprobe.environment.configuration.differences import ConfigurationFinding, DifferenceSheet, short
from msprobe.environment.configuration.pack import Pack, PackPlace, digests_entry
from msprobe.messages import said

KEYS = ("max", "min", "mean", "norm")
ONLY_BENCH, ONLY_CMP = "only bench have", "only cmp have"
_DIFFERENCES = tuple(f"{key}_relative_diff" for key in KEYS)
_HEADERS = {
    "dataset": ("step", "rank", "tag", "equal", *_DIFFERENCES),
    "weights": ("step", "rank", "weight_name", "equal", *_DIFFERENCES),
}
#: Ours, behind the columns of 8.1.1: whether all bits are equal, where both packs can say.
DIGESTS = "crc_equal"
_SHOWN = 3

Statistics = Mapping[str, Any]
StatisticsPart = Literal["dataset", "weights"]


def compare(name: StatisticsPart, bench: Pack, cmp: Pack, tolerance: float = 0.0) -> DifferenceSheet:
    """A row for each tensor of the steps that both packs have.

    ``tolerance`` is relative to the bench's statistic; 0 asks for equal statistics, and equal bits where both packs
    have digests. Steps that one pack alone has are noted: it collected longer. Raises InvalidInputError.
    """
    part = DifferenceSheet(name, _HEADERS[name])
    places = bench.places(name), cmp.places(name)
    steps = [{place.step for place in side} for side in places]
    common = steps[0] & steps[1]
    for side, own in (("bench", steps[0] - common), ("cmp", steps[1] - common)):
        if own:
            part.notes.append(said("micro-steps-in-one-pack", name, _ranges(own), side))
    if not common:
        part.add(
            ConfigurationFinding(
                name, "error", "micro-steps", _ranges(steps[0]), _ranges(steps[1]), said("no-step-in-both-packs"), 90
            )
        )
        return part
    part.header = (*part.header, DIGESTS) if bench.has("digests") and cmp.has("digests") else part.header
    differing: dict[PackPlace, list[str]] = {}
    for place in sorted(
        place_of_either for place_of_either in {*places[0], *places[1]} if place_of_either.step in common
    ):
        sides = [_read(name, pack, place, own) for pack, own in zip((bench, cmp), places, strict=True)]
        digests = [_digests(name, pack, place) for pack in (bench, cmp)]
        for row in _rows(place, sides[0], sides[1], digests, tolerance):
            part.rows.append(row[: len(part.header)])
            if row[3] is not True:
                differing.setdefault(place, []).append(row[2])
    part.differing = sum(map(len, differing.values()))
    if differing:
        _find(part, differing, places)
    return part


def is_equal_at_start(part: DifferenceSheet | None) -> bool:
    """Whether both packs have the part, and nothing differs at its first step."""
    if part is None or not part.rows or part.missing_in:
        return False
    first = part.rows[0][0]
    return all(row[3] is True for row in part.rows if row[0] == first)


def _read(name: StatisticsPart, pack: Pack, place: PackPlace, places: Mapping[PackPlace, str]) -> dict[str, Statistics]:
    if place not in places:
        return {}
    tree = pack.json(places[place])
    if name == "weights":
        return {weight: value for weight, value in tree.items() if isinstance(value, dict)}
    return dict(_tensors(tree))


def _tensors(tree: Mapping[str, Any]) -> Iterator[tuple[str, Statistics]]:
    """All tensors of nested arguments with their path, ``kwargs.mask`` or ``args.0``."""
    held: list[tuple[str, Any]] = [("", tree)]
    while held:
        path, value = held.pop()
        if not isinstance(value, dict):
            continue
        if set(KEYS) <= value.keys() and not any(isinstance(value[key], dict) for key in KEYS):
            yield path, value
        else:
            held += [(f"{path}.{key}" if path else key, inner) for key, inner in reversed(value.items())]


def _digests(name: StatisticsPart, pack: Pack, place: PackPlace) -> Mapping[str, Any]:
    entry = digests_entry(*place)
    digests = pack.json(entry).get(name) if entry in pack else None
    return digests if isinstance(digests, dict) else {}


def _rows(
    place: PackPlace,
    bench: Mapping[str, Statistics],
    cmp: Mapping[str, Statistics],
    digests: list[Mapping[str, Any]],
    tolerance: float,
) -> Iterator[tuple[Any, ...]]:
    for name in dict.fromkeys((*bench, *cmp)):
        ours, two = bench.get(name), cmp.get(name)
        if ours is None or two is None:
            yield (*place, name, ONLY_BENCH if two is None else ONLY_CMP, None, None, None, None, None)
            continue
        values = [(_number(ours.get(key)), _number(two.get(key))) for key in KEYS]
        bits = [side.get(name) for side in digests]
        same_bits = bits[0] == bits[1] if None not in bits else None
        equal = all(_is_near(first, second, tolerance) for first, second in values)
        if not tolerance and same_bits is False:
            equal = False
        yield (*place, name, equal, *(_relative(first, second) for first, second in values), same_bits)


def _number(value: Any) -> float | None:
    return float(value) if (isinstance(value, (int, float)) and abs(value) < 1e308) or value != value else None


def _is_near(first: float | None, two: float | None, tolerance: float) -> bool:
    if first is None or two is None:
        return first is two
    return first == two or (first != first and two != two) or abs(first - two) <= tolerance * abs(first)


def _relative(first: float | None, two: float | None) -> float | None:
    if first is None or two is None or first == 0:
        return None
    return abs(first - two) / abs(first)


def _find(
    part: DifferenceSheet,
    differing: Mapping[PackPlace, list[str]],
    places: tuple[Mapping[PackPlace, str], Mapping[PackPlace, str]],
) -> None:
    """The first step at which something differs says what it means."""
    step = min(place.step for place in differing)
    begin = min(row[0] for row in part.rows)
    at_first = {place: names for place, names in differing.items() if place.step == step}
    alone = [[place.rank for place in at_first if place not in other] for other in (places[1], places[0])]
    names = list(dict.fromkeys(name for names in at_first.values() for name in names))
    total = len({row[2] for row in part.rows if row[0] == step})
    what = said("weights-in-count") if part.name == "weights" else said("inputs-in-count")
    ranks = said(
        "on-rank" if len({place.rank for place in at_first}) == 1 else "on-ranks",
        _ranges({place.rank for place in at_first}),
    )
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    if part.name == "dataset":
        why, weight = said("data-of-trainings-differ"), 95
    elif step == begin:
        why, weight = said("start-weights-differ"), 97
    else:
        why, weight = said("an-update-differs", step), 70
    if alone[0] or alone[1]:
        why = said("some-ranks-in-one-pack")
    here, there = (said("only-on-these-ranks", _on_ranks(set(own))) if own else "" for own in alone)
    text = said("inputs-or-weights-at-step", len(names), total, what, step, ranks, short(shown, 200))
    part.add(ConfigurationFinding(part.name, "error", text, here, there, why, weight))


def _on_ranks(ranks: set[int]) -> str:
    return said("rank-numbers" if len(ranks) > 1 else "rank", _ranges(ranks))


def _ranges(numbers: set[int]) -> str:
    """``0-7, 12``."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    return ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else "")
