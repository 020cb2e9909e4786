"""What the measuring judge says of the planted bugs and the healthy pairs of ``tests/bugs``, beside the right answers.

    python -m bugs.kernels.shadow [--precision float32] [--only clean|bugs] [--keep DIR]      (in tests/)

Pairs of one rank alone, step by step. A line for each: ``quiet`` and ``alarm`` of a healthy pair; ``right``, ``other``
(a call that is no right answer, as where what is planted is another argument, which the judge leaves to others) and
``silent`` of a bug.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from msprobe.diagnose.measured.judge import judge_step
from msprobe.diagnose.pairing.step import pair_timelines
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.store.reader import open_dump

from ..cache import recorded
from ..clean import CLEAN
from ..patterns import PATTERNS
from ..planting import draw
from ..precision import PRECISIONS
from ..record import Pair
from ..truth import is_right, resolve


def named(pair: Pair) -> tuple[int, str] | None:
    """The step and the record that the judge names first; None if it names none."""
    for step in range(pair.pattern.steps):
        with no_collection():
            parts = [open_dump(pair.dump(side) / f"step{step}").part() for side in ("candidate", "reference")]
            candidate, reference = map(Timeline, parts)
            paired = pair_timelines(candidate, reference, None, step > 0)
            first = judge_step(paired.pairing, is_alone=True).first
            name = first.node.event.name if first is not None else None
            for timeline in (candidate, reference):
                timeline.close()
                timeline.part.close()
        if name is not None:
            return step, name
    return None


def word_for(pair: Pair) -> str:
    """What the answer on a pair is worth, and the answer."""
    found = named(pair)
    if pair.pattern.expected:
        return "quiet" if found is None else f"alarm {found}"
    if found is None:
        return "silent"
    right = is_right({"step": found[0], "entry": found[1], "rank": None, "kind": None}, resolve(pair))
    return f"{'right' if right else 'other'} {found}"


def main() -> None:
    parser = argparse.ArgumentParser(description="What the measuring judge says of the pairs of tests/bugs.")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--only", choices=("clean", "bugs"), help="healthy pairs, or planted bugs")
    parser.add_argument("--keep", type=Path, help="folder where recordings are kept (a temporary one)")
    chosen = parser.parse_args()
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    patterns = [
        *(CLEAN.values() if chosen.only != "bugs" else ()),
        *(PATTERNS.values() if chosen.only != "clean" else ()),
    ]
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        for pattern in patterns:
            if pattern.world > 1 or pattern.large or chosen.precision not in pattern.precisions:
                continue
            pair = recorded(pattern, draw(pattern, 0), "statistics", chosen.precision, chosen.keep or Path(temporary))
            word = word_for(pair)
            counts[word.partition(" ")[0]] += 1
            print(f"{pattern.id:6} {word}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
