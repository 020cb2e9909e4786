"""Score a judge on wrong kernels behind other kernels.

    python -m tests.bugs.kernels.run [--precision float32,bfloat16] [--networks decoder] [--keep DIR] [--judge today]
        [--noise N|jitter] [--level L0|L1]

Prints, for each precision, how many wrong kernels are detected, how many of them are named first exactly (the record
whose result differs first from the same device without the fault), how many healthy devices are said to diverge, and
how many calls the judge could not judge. ``--each`` prints an answer a line, ``--keep`` keeps the recordings for the
next time. ``--level L0``: the same recordings without the records of calls, and named first is the module that the
wrong call runs in; faults that no module shows are left out. ``--level L1``: without those of modules. ``--noise N``:
the verdict knows a second healthy run, of the device that comes N places after the candidate's, or (``jitter``) of the
reference's device, recorded with ``--jitter``.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

from .coarse import Coarse, coarse_pairs
from .judges import BesideHealthy, Judge, Measured, Score, today
from .looked import SecondLook
from .networks import ALL, NETWORKS, PRECISIONS
from .recordings import every_pair

JUDGES = ("today", "measured", "second-look")


def main() -> None:
    parser = argparse.ArgumentParser(description="Score a judge on wrong kernels behind other kernels.")
    parser.add_argument("--precision", default=",".join(PRECISIONS), help="some of " + ", ".join(PRECISIONS))
    parser.add_argument("--networks", default=",".join(NETWORKS), help="some of " + ", ".join(ALL))
    parser.add_argument("--judge", choices=JUDGES, default="today", help="whose answers are scored")
    parser.add_argument("--keep", type=Path, help="folder where recordings are kept (a temporary one)")
    parser.add_argument(
        "--noise",
        type=lambda text: 0 if text == "jitter" else int(text),
        metavar="N",
        help="with a healthy run of the N-th device after this one, or with jitter",
    )
    parser.add_argument("--level", choices=("mix", "L0", "L1"), default="mix", help="of the dumps that are compared")
    parser.add_argument("--margins", action="store_true", help="print the healthy calls nearest to their limits, too")
    parser.add_argument("--each", action="store_true", help="print each answer, too")
    chosen = parser.parse_args()
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as temporary:
        cache = chosen.keep or Path(temporary)
        print("| precision | detected | first exactly | healthy called different | calls not judged |")
        print("|---|---|---|---|---|")
        for precision in chosen.precision.split(","):
            score, begin = Score(), time.perf_counter()
            look = SecondLook() if chosen.judge == "second-look" else None
            judge: Judge = look or (today if chosen.judge == "today" else Measured(precision, cache))
            if chosen.noise is not None:
                judge = BesideHealthy(cache, chosen.noise)
            if chosen.level != "mix":
                judge = Coarse(chosen.level)
            for network in chosen.networks.split(","):
                pairs = every_pair(network, precision, cache)
                for pair in pairs if chosen.level == "mix" else coarse_pairs(pairs, cache, chosen.level):
                    answer = judge(pair)
                    word = score.add(pair, answer)
                    if chosen.each:
                        truth = pair.truth.entry if pair.truth else ""
                        print(f"{word:9}{pair.id}: {answer.first} / {truth}", flush=True)
            if look is not None:
                look.close()
            print(f"| {precision} | {score.row()} |", flush=True)
            if chosen.margins and isinstance(judge, Measured):
                print("\n".join(judge.margins()), flush=True)
            print(f"{precision}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
