"""What a step of training costs alone, recorded with tensors, and in lockstep with that recording.

The three ways alternate in one run, each on a model made anew, and the table has medians of the processor time of a
step, as multiples of the training alone. Optimizer and start of the model are outside of what is recorded.

    python bench/lockstep/cost.py [--size tiny|small] [--rounds 5] [--steps 3] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from models import SIZES, Training

from msprobe.pytorch import PrecisionDebugger


def steps_of(size: str, count: int, debugger: PrecisionDebugger | None) -> list[float]:
    """The seconds of processor time of each step after the first."""
    torch.manual_seed(0)
    training = Training(SIZES[size])
    spent = []
    for _ in range(count + 1):
        begun = time.process_time()
        if debugger is not None:
            PrecisionDebugger.start(training.model)
        training.forward_backward()
        if debugger is not None:
            PrecisionDebugger.stop()
            PrecisionDebugger.step()
        training.update()
        spent.append(time.process_time() - begun)
    PrecisionDebugger.reset()
    return spent[1:]


def measured(size: str, rounds: int, steps: int, folder: Path) -> dict[str, list[float]]:
    """Seconds of all steps, by how they were made."""
    found: dict[str, list[float]] = {"alone": [], "recorded": [], "lockstep": []}
    for number in range(rounds):
        reference, own = str(folder / f"reference{number}"), str(folder / f"own{number}")
        ways: dict[str, Callable[[], PrecisionDebugger | None]] = {
            "alone": lambda: None,
            "recorded": lambda to=reference: PrecisionDebugger(task="tensor", level="mix", dump_path=to),
            "lockstep": lambda to=own, of=reference: PrecisionDebugger(
                task="lockstep", reference=of, verdict="later", dump_path=to
            ),
        }
        for way, debugger in ways.items():
            found[way] += steps_of(size, steps, debugger())
    return found


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=[name for name in SIZES if name != "medium"], default="tiny")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print where the processor time of all of it goes")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        if asked.profile:
            profile.enable()
        found = measured(asked.size, asked.rounds, asked.steps, Path(folder))
        profile.disable()
    alone = statistics.median(found["alone"])
    print(f"{'':10} {'ms a step':>10} {'times alone':>12}")
    for way, seconds in found.items():
        median = statistics.median(seconds)
        print(f"{way:10} {median * 1e3:10.1f} {median / alone:12.1f}")
    print(
        f"lockstep is {statistics.median(found['lockstep']) / statistics.median(found['recorded']):.1f} times recording"
    )
    if asked.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(40)


if __name__ == "__main__":
    main()
