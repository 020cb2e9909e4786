"""What recording costs in two checkouts of msprobe, or without parts of the C extension, measured in turn.

    git worktree add /tmp/before COMMIT && (cd /tmp/before && python setup.py -q build_ext --inplace)
    python bench/capture/versions.py /tmp/before [--sizes tiny,small] [--levels L0,L1,mix] [--task statistics]
    python bench/capture/versions.py --without memo,encode,gather+memory [--sizes ...] ...

Processes, one for each side, do one iteration without and one with recording in turn, so that whatever else the machine
does falls on all. Told are the medians: on/off of each; of a part that is left out also by how much recording costs
more, as a share of what it costs with all parts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from measure import REPOSITORY, WARM_UP, Worker
from parts import PARTS

PAIRS = {"tiny": 40, "small": 25, "medium": 9}


@dataclass(frozen=True)
class Side:
    """What is measured: a working tree, and the parts of its C extension that are left out."""

    checkout: Path = REPOSITORY
    without: tuple[str, ...] = ()


def overheads(sides: Sequence[Side], size: str, level: str, task: str, times_more: int) -> list[tuple[float, float]]:
    """Off and on of each side: process CPU time of an iteration in milliseconds, medians."""
    workers = [Worker(Path(sys.executable), size, side.checkout) for side in sides]
    with ExitStack() as stack:
        times: dict[Worker, tuple[list[float], list[float]]] = {}
        for side, worker in zip(sides, workers, strict=True):
            times[stack.enter_context(worker)] = ([], [])
            worker.ask("off", n=WARM_UP)
            worker.ask("construct", name="ours", level=level, task=task, options={}, without=side.without)
            worker.ask("on", n=WARM_UP)
        for _ in range(times_more * PAIRS[size]):
            for worker, (off, on) in times.items():
                # Two of each in a row, of which the second counts: the first finds the caches cold.
                off.append(worker.ask("off", n=2)["times"][1]["cpu"])
                on.append(worker.ask("on", n=2)["times"][1]["cpu"])
    return [(1000 * statistics.median(off), 1000 * statistics.median(on)) for off, on in times.values()]


def compare_checkouts(other: Path, cases: Iterable[tuple[str, str]], task: str, times_more: int) -> None:
    """A table: on/off of this checkout and of the ``other``."""
    print("| model | level | task | on/off here | on/off there |\n|---|---|---|---|---|")
    for size, level in cases:
        here, there = overheads((Side(), Side(checkout=other)), size, level, task, times_more)
        print(f"| {size} | {level} | {task} | {here[1] / here[0]:.2f} | {there[1] / there[0]:.2f} |", flush=True)


def compare_parts(parts: Sequence[str], cases: Iterable[tuple[str, str]], task: str, times_more: int) -> None:
    """A table: what each part saves, as a share of what recording costs with all of them."""
    print(f"| model | level | task | on/off | {' | '.join(f'without {part}' for part in parts)} |")
    print("|---|---|---|---|" + "---|" * len(parts))
    for size, level in cases:
        whole, *others = overheads(
            [Side(), *(Side(without=tuple(part.split("+"))) for part in parts)], size, level, task, times_more
        )
        cost = whole[1] - whole[0]
        saved = [f"{one[1] / one[0]:.2f} ({(one[1] - one[0] - cost) / cost:+.0%})" for one in others]
        print(f"| {size} | {level} | {task} | {whole[1] / whole[0]:.2f} | {' | '.join(saved)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", help="working tree to compare with, its C extension built")
    parser.add_argument(
        "--without",
        default="",
        help=f"parts of the C extension, in turn; + between those that are left out together: {','.join(PARTS)}",
    )
    parser.add_argument("--sizes", default="tiny,small")
    parser.add_argument("--levels", default="L0,L1,mix")
    parser.add_argument("--task", default="statistics")
    parser.add_argument("--times-more", type=int, default=1, help="so many times as many iterations")
    asked = parser.parse_args()
    parts = [part for part in asked.without.split(",") if part]
    if (asked.other is None) == (not parts):
        parser.error("name another working tree, or parts with --without")
    if asked.other is not None and not list(asked.other.glob("src/msprobe/capture/_native*.so")):
        # Without it the workers would measure the installed msprobe, or the Python path.
        parser.error(f'"{asked.other}" is no checkout of msprobe with its C extension built in place; see above')
    levels = ("L0", "L1", "mix")
    for words, known in ((asked.sizes, PAIRS), (asked.levels, levels), (asked.without.replace("+", ","), PARTS)):
        unknown = [word for word in words.split(",") if word and word not in known]
        if unknown:
            parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    cases = product(asked.sizes.split(","), asked.levels.split(","))
    if parts:
        compare_parts(parts, cases, asked.task, asked.times_more)
    else:
        compare_checkouts(asked.other.resolve(), cases, asked.task, asked.times_more)


if __name__ == "__main__":
    main()
