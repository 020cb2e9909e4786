"""What recording costs in two checkouts of msprobe, measured in turn: does a change make it slower?

    git worktree add /tmp/before COMMIT && (cd /tmp/before && python setup.py -q build_ext --inplace)
    python bench/capture/versions.py /tmp/before [--sizes tiny,small] [--levels L0,L1,mix] [--task statistics]

Two processes, one for each checkout, do one iteration without and one with recording in turn, so that whatever else
the machine does falls on both. Told are the medians of each: on/off, and the other checkout's on/off.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from measure import REPOSITORY, WARM_UP, Worker

PAIRS = {"tiny": 40, "small": 25, "medium": 9}


def ratios(other: Path, size: str, level: str, task: str) -> tuple[float, float]:
    """On/off of this checkout and of the ``other``: process CPU time of an iteration, medians."""
    here, there = (Worker(Path(sys.executable), size, checkout) for checkout in (REPOSITORY, other))
    with here, there:
        times: dict[Worker, tuple[list[float], list[float]]] = {here: ([], []), there: ([], [])}
        for worker in times:
            worker.ask("off", n=WARM_UP)
            worker.ask("construct", name="ours", level=level, task=task, options={})
            worker.ask("on", n=WARM_UP)
        for _ in range(PAIRS[size]):
            for worker, (off, on) in times.items():
                # Two of each in a row, of which the second counts: the first finds the caches cold.
                off.append(worker.ask("off", n=2)["times"][1]["cpu"])
                on.append(worker.ask("on", n=2)["times"][1]["cpu"])
    of_here, of_there = (statistics.median(on) / statistics.median(off) for off, on in times.values())
    return of_here, of_there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="working tree to compare with, its C extension built in place")
    parser.add_argument("--sizes", default="tiny,small")
    parser.add_argument("--levels", default="L0,L1,mix")
    parser.add_argument("--task", default="statistics")
    asked = parser.parse_args()
    if not list(asked.other.glob("src/msprobe/capture/_native*.so")):
        # Without it the workers would measure the installed msprobe, or the Python path.
        parser.error(f'"{asked.other}" is no checkout of msprobe with its C extension built in place; see above')
    for words, known in ((asked.sizes, PAIRS), (asked.levels, ("L0", "L1", "mix"))):
        unknown = [word for word in words.split(",") if word not in known]
        if unknown:
            parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    print("| model | level | task | on/off here | on/off there |\n|---|---|---|---|---|")
    for size, level in product(asked.sizes.split(","), asked.levels.split(",")):
        here, there = ratios(asked.other.resolve(), size, level, asked.task)
        print(f"| {size} | {level} | {asked.task} | {here:.2f} | {there:.2f} |", flush=True)


if __name__ == "__main__":
    main()
