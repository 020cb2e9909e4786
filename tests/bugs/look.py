"""Our own look at a recorded pair, without the tool that is measured: where do the digests part first?

    python -m bugs.look FOLDER PATTERN[:DRAW]...      (in tests/)

Records each pattern with digests, and checks that what it says it plants is there: the first entry in the order of
execution whose content differs lies at or after the first right answer, and what must be the same is the same.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bugs import truth
from bugs.planting import draw
from bugs.record import SIDES, Pair, record


def differences(pair: Pair) -> Iterator[tuple[int, str, str, str]]:
    """Step, rank, entry and what differs first; of several ranks, the one whose difference comes first."""
    for step in range(pair.pattern.steps):
        sides = {side: {rank: data for rank, data, _ in truth._parts(pair.dump(side), step)} for side in SIDES}
        found = []
        for rank, ours in sides["candidate"].items():
            first = _first(ours, sides["reference"].get(rank, {}))
            if first:
                found.append((first[0], step, rank, *first[1:]))
        for _, *told in sorted(found):
            yield tuple(told)  # type: ignore[misc]


def _first(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[int, str, str] | None:
    """Place, entry and what differs, of the first entry that differs."""
    order, other = truth._in_order(ours), truth._in_order(theirs)
    for place, name in enumerate(order):
        if place >= len(other) or other[place] != name:
            return place, name, f"reference has {other[place] if place < len(other) else 'nothing'}"
        part = _part(ours[name], theirs[name], name)
        if part:
            return place, name, part
    if len(other) > len(order):
        return len(order), other[len(order)], f"reference has {other[len(order)]}"
    for name in ours:
        if name not in order and _part(ours[name], theirs.get(name), name):
            return len(order), name, "parameters"
    return None


def _part(ours: Any, theirs: Any, name: str) -> str | None:
    """The first part of a record that differs.

    Not the results of what holds other calls, which come after it, and not memory that nobody has written to.
    """
    holds_calls = name.startswith(("Module.", "Function."))
    for key in ours:
        if key == "msprobe" or (holds_calls and key == "output"):
            continue
        if "empty" in name or ("all_gather" in name and key != "output"):
            continue
        if _bare(ours[key]) != _bare((theirs or {}).get(key)):
            return str(key)
    return None


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(content) for key, content in value.items() if key not in ("data_name", "row")}
    if isinstance(value, list):
        return [_bare(content) for content in value]
    return repr(value)


def verified(pair: Pair) -> list[str]:
    """What is wrong with the planting; empty if all is as the pattern says."""
    problems: list[str] = []
    mine, other = pair.outcome("candidate"), pair.outcome("reference")
    if pair.pattern.expected:
        return distances(pair)
    try:
        answers = truth.resolve(pair)
    except ValueError as problem:
        return [str(problem)]
    first = next(differences(pair), None)
    if first is None:
        return ["nothing differs"]
    step, rank, name, part = first
    right = {entry for one in answers for entry in one.entries}
    at = truth._parts(pair.dump("candidate"), step)
    for its_rank, data, _ in at:
        if its_rank != rank or name not in data:
            continue
        place = data[name].get("msprobe", {}).get("order", 10**9)
        places = [
            data[entry]["msprobe"]["order"]
            for its_step, of_rank, entry in right
            if its_step == step and of_rank == rank and entry in data and "order" in data[entry].get("msprobe", {})
        ]
        named = {(step, rank, name), (step, rank, part.removeprefix("reference has "))} & right
        mark = "" if named else " NOT ITSELF RIGHT"
        print(f"   first difference: step {step} {name} {part} (order {place}); right: {sorted(places)[:4]}{mark}")
        if places and place < min(places) and not named:
            problems.append("something differs before the first right answer")
    for what in ("loss", "gradients", "weights"):
        equal = _text(mine[0], what) == _text(other[0], what)
        if what in pair.pattern.same and not equal:
            problems.append(f"{what} differ although they must not")
        if what in pair.pattern.differs and equal:
            problems.append(f"{what} are the same although they must differ")
    moved = [what for what in ("loss", "gradients", "weights") if _text(mine[0], what) != _text(other[0], what)]
    print(f"   losses {mine[-1]['loss']} / {other[-1]['loss']}; step 0 differs in {moved}")
    return problems


def distances(pair: Pair) -> list[str]:
    """Of a clean pair: how far the losses are apart, told and judged."""
    mine, other = (pair.outcome(side)[-1]["loss"] for side in SIDES)
    if isinstance(mine, dict) or isinstance(other, dict):
        mine, other = ([sum(values[-1] for values in each) / 1] for each in (_by_rank(mine), _by_rank(other)))
        if pair.pattern.id in ("C02", "C03"):
            mine = [mine[0] / 2]
    if len(mine) != len(other):
        mine, other = [sum(mine)], [sum(other)]
    apart = max(abs(a - b) / abs(b) for a, b in zip(mine, other, strict=True))
    print(f"   losses apart by {apart:.1e}; first difference: {next(differences(pair), None)}")
    return [] if apart < (3e-2 if pair.pattern.id.startswith("P") else 1e-5) else ["this pair is not clean"]


def _by_rank(losses: Any) -> list[list[float]]:
    return list(losses.values()) if isinstance(losses, dict) else [losses]


def _text(step: Any, what: str) -> str:
    return json.dumps(step[what])


def main() -> None:
    from bugs.clean import CLEAN
    from bugs.patterns import PATTERNS

    known = {**PATTERNS, **CLEAN}
    folder, *wanted = sys.argv[1:]
    for name in wanted or list(known):
        pattern_id, _, number = name.partition(":")
        pattern = known[pattern_id]
        drawn = draw(pattern, int(number or 0))
        begin = time.perf_counter()
        try:
            pair = record(pattern, drawn, "digest", Path(folder) / f"{pattern_id}-{drawn.number}")
        except Exception as problem:
            print(f"{pattern_id}: NOT RECORDED: {type(problem).__name__}: {problem}")
            continue
        print(
            f"{pattern_id}:{drawn.number} layer {drawn.layer} {dict(drawn.words)} {time.perf_counter() - begin:.2f} s"
        )
        for problem in verified(pair):
            print(f"   PROBLEM: {problem}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.dont_write_bytecode = True
    main()
