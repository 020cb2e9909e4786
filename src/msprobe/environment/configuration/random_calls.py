"""Calls of random functions of two packs, by where they came from; and seeds, generators, dropout layers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from msprobe.environment.configuration.differences import ConfigurationFinding, DifferenceSheet, Level, cell_of, short
from msprobe.environment.configuration.pack import Pack
from msprobe.messages import Wording, both, said

HEADER = ("op", "rank", "bench_stack", "cmp_stack", "bench_count", "cmp_count", "check_result")
STATE_HEADER = ("rank", "what", "name", "bench", "cmp", "level")
NO_STACK = "no match stack"
_LEAST_SCORE = 0.8  # of each frame, as 8.1.1 has it
_MOST_COMPARED = 10_000
_MOST_LINE = 400
_FRAME = re.compile(r"File (?P<file>.*?), line \d+, in (?P<function>[^,\n]*)(?:, *(?P<code>.*))?", re.DOTALL)
_SHOWN = 3
_STATES = (
    (
        "seeds",
        both("initial weights, data order and dropout masks differ", "初始权重、数据次序与 dropout mask 不同"),
        92,
    ),
    ("dropout", both("different elements are dropped", "dropout 丢弃的元素不同"), 88),
    ("states", both("the generators do not give the same numbers", "生成器产生的随机数不同"), 62),
)
_OF_PYTHON = (" python", " numpy")
_LESS = 30

Frame = tuple[str, str, str]
Stack = tuple[list[Frame], str, int]


def compare(bench: Pack, cmp: Pack) -> DifferenceSheet:
    """A row for each stack of each function and rank. Line numbers do not count. Raises InvalidInputError."""
    part = DifferenceSheet("random", HEADER)
    ranks = bench.ranks("random"), cmp.ranks("random")
    only = {*ranks[0]} ^ {*ranks[1]}
    if only and {*ranks[0]} & {*ranks[1]}:
        part.notes.append(said("ranks-in-one-pack", "random", ", ".join(map(str, sorted(only)[:20]))))
    for rank in sorted({*ranks[0]} & {*ranks[1]}):
        ours, two = bench.json(ranks[0][rank]), cmp.json(ranks[1][rank])
        for function in dict.fromkeys((*ours, *two)):
            part.rows += _rows(function, rank, _stacks(ours.get(function)), _stacks(two.get(function)))
    bad = [row for row in part.rows if row[-1] is not True]
    part.differing = len(bad)
    if bad:
        functions = list(dict.fromkeys(row[0] for row in bad))
        shown = ", ".join(functions[:_SHOWN]) + (", ..." if len(functions) > _SHOWN else "")
        first, second = (f"{sum(row[column] for row in bad)} times" for column in (4, 5))
        why = said("random-numbers-drawn-before")
        part.add(ConfigurationFinding("random", "error", shown, first, second, why, 60))
    return part


def _rows(function: str, rank: int, bench: list[Stack], cmp: list[Stack]) -> Iterator[tuple[Any, ...]]:
    left = dict(enumerate(cmp))
    by_text: dict[tuple[Frame, ...], list[int]] = {}
    for place, stack in left.items():
        by_text.setdefault(tuple(stack[0]), []).append(place)
    partners: dict[int, int] = {}
    for place, stack in enumerate(bench):  # those that are the same need no scores
        same = by_text.get(tuple(stack[0]))
        if same:
            partners[place] = same.pop(0)
            del left[partners[place]]
    tried = 0
    for place, stack in enumerate(bench):
        if place in partners:
            continue
        for other in left:
            tried += 1
            if tried > _MOST_COMPARED:
                break
            if _match(stack[0], left[other][0]):
                partners[place] = other
                del left[other]
                break
    for place, (_, text, count) in enumerate(bench):
        if place in partners:
            _, other_text, other_count = cmp[partners[place]]
            yield function, rank, text, other_text, count, other_count, count == other_count
        else:
            yield function, rank, text, NO_STACK, count, 0, False
    for _, text, count in left.values():
        yield function, rank, NO_STACK, text, 0, count, False


def _stacks(recorded: Any) -> list[Stack]:
    stacks: list[Stack] = []
    for entry in recorded if isinstance(recorded, list) else []:
        if isinstance(entry, dict):
            lines = entry.get("stack")
            frames = [str(line) for line in lines] if isinstance(lines, list) else [str(lines)]
            count = entry.get("count")
            stacks.append(([_frame(line) for line in frames], "\n".join(frames), count if type(count) is int else 0))
    return stacks


def _frame(line: str) -> Frame:
    recorded = _FRAME.match(line)
    if recorded is None:
        return "", "", line.strip()[:_MOST_LINE]
    return (
        os.path.basename(recorded["file"]),
        recorded["function"].strip(),
        (recorded["code"] or "").strip()[:_MOST_LINE],
    )


def _match(first: Sequence[Frame], two: Sequence[Frame]) -> bool:
    return len(first) == len(two) and all(_score(*frames) >= _LEAST_SCORE for frames in zip(first, two, strict=True))


def _score(frame: Frame, two: Frame) -> float:
    same = (frame[0] == two[0]) + (frame[1] == two[1])
    if same == 0:
        return 0.0
    likeness = 1.0 if frame[2] == two[2] else SequenceMatcher(None, frame[2], two[2], autojunk=False).ratio()
    return (same + likeness) / 3


def compare_states(bench: Pack, cmp: Pack) -> DifferenceSheet:
    """The differences of seeds that were set, of the states of generators before each step, and of dropout layers."""
    part = DifferenceSheet("random_state", STATE_HEADER)
    ranks = bench.ranks("random_state"), cmp.ranks("random_state")
    for rank in sorted({*ranks[0]} & {*ranks[1]}):
        ours, two = (_flat(pack.json(own[rank])) for pack, own in zip((bench, cmp), ranks, strict=True))
        for what, name in dict.fromkeys((*ours, *two)):
            first, second = ours.get((what, name)), two.get((what, name))
            if first != second and (what != "states" or (first is not None and second is not None)):
                # Without a seed these two differ in every run, and most trainings draw nothing from them.
                level: Level = "warning" if what == "states" and name.endswith(_OF_PYTHON) else "error"
                part.rows.append((rank, what, name, cell_of(first), cell_of(second), level))
    part.differing = len(part.rows)
    for what, why, weight in _STATES:
        _find(part, what, "error", why, weight)
        _find(part, what, "warning", said("if-any-are-drawn", why), weight - _LESS)
    return part


def _find(part: DifferenceSheet, what: str, level: Level, why: str, weight: int) -> None:
    rows = [row for row in part.rows if row[1] == what and row[5] == level]
    if rows:
        _, _, name, first, second, _ = rows[0]
        more = said("and-more-of", len(rows) - 1) if len(rows) > 1 else ""
        part.add(
            ConfigurationFinding(
                part.name, level, Wording("{}{}", name, more), short(first), short(second), why, weight
            )
        )


def _flat(recorded: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    states: dict[tuple[str, str], Any] = {}
    seeds = recorded.get("seeds")
    for number, seed in enumerate(seeds if isinstance(seeds, list) else []):
        name, value = seed if isinstance(seed, list) and len(seed) == 2 else ("seed", seed)
        states["seeds", f"{name} (call {number + 1})"] = value
    for what in ("states", "dropout"):
        for name, value in recorded[what].items() if isinstance(recorded.get(what), dict) else ():
            for key, inner in value.items() if isinstance(value, dict) else (("", value),):
                place = f"micro-step {name} {key}" if what == "states" else f"{name} {key}"
                states[what, place.strip()] = inner
    return states
