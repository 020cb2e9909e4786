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
    """Step, rank, entry and what differs: entries by the order of execution of the candidate, per step and rank."""
    for step in range(pair.pattern.steps):
        sides = {side: {rank: data for rank, data, _ in truth._parts(pair.dump(side), step)} for side in SIDES}
        for rank, ours in sides["candidate"].items():
            theirs = sides["reference"].get(rank, {})
            order, other = truth._in_order(ours), truth._in_order(theirs)
            for place, name in enumerate(order):
                if place >= len(other) or other[place] != name:
                    yield step, rank, name, f"reference has {other[place] if place < len(other) else 'nothing'}"
                    return
                part = _part(ours[name], theirs[name], inside=name.startswith("Module."))
                if part:
                    yield step, rank, name, part
            for name in ours:
                if name not in order and _part(ours[name], theirs.get(name)):
                    yield step, rank, name, "parameters"


def _part(ours: Any, theirs: Any, inside: bool = False) -> str | None:
    """The first part of a record that differs; of a module's, whose calls come after it, only what went in."""
    for key in ours:
        if key == "msprobe" or (inside and key == "output"):
            continue
        if _bare(ours[key]) != _bare((theirs or {}).get(key)):
            return str(key)
    return None


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(content) for key, content in value.items() if key not in ("data_name",)}
    if isinstance(value, list):
        return [_bare(content) for content in value]
    return repr(value)


def verified(pair: Pair) -> list[str]:
    """What is wrong with the planting; empty if all is as the pattern says."""
    problems = []
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
    mine, other = pair.outcome("candidate"), pair.outcome("reference")
    for what in ("loss", "gradients", "weights"):
        equal = _text(mine[0], what) == _text(other[0], what)
        if what in pair.pattern.same and not equal:
            problems.append(f"{what} differ although they must not")
        if what in pair.pattern.differs and equal:
            problems.append(f"{what} are the same although they must differ")
    moved = [what for what in ("loss", "gradients", "weights") if _text(mine[0], what) != _text(other[0], what)]
    print(f"   losses {mine[-1]['loss']} / {other[-1]['loss']}; step 0 differs in {moved}")
    return problems


def _text(step: Any, what: str) -> str:
    return json.dumps(step[what])


def main() -> None:
    from bugs.patterns import PATTERNS

    folder, *wanted = sys.argv[1:]
    for name in wanted or list(PATTERNS):
        pattern_id, _, number = name.partition(":")
        pattern = PATTERNS[pattern_id]
        drawn = draw(pattern, int(number or 0))
        begin = time.perf_counter()
        try:
            pair = record(pattern, drawn, "digest", Path(folder) / pattern_id)
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
