"""``msprobe monitor diff``: the first step at which two trainings part."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from msprobe.cli.parser import UsageError
from msprobe.errors import MsprobeError
from msprobe.foreign.console import say

if TYPE_CHECKING:
    from msprobe.monitor.diff import Difference


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor diff``."""
    parser.epilog = (
        "Differences that grow as rounding errors do are passed over. Reads sketch.bin of both runs, or their csv "
        "files. Exit status: 0 no bad step; 1 there is one; 2 a folder cannot be read, or there is none in what was "
        "compared and something was not (a rank, a run, a quantity, steps in between)."
    )
    parser.add_argument(
        "first", metavar="RUN_A", help="output folder of the monitor of a good run, or one run's folder"
    )
    parser.add_argument("second", metavar="RUN_B", help="that of the run in question")
    parser.add_argument(
        "--json", choices=("-",), metavar="-", help="print the answer as JSON: the step, all reasons, what was compared"
    )
    parser.add_argument("--top", type=int, default=5, metavar="N", help="how many reasons to name (default: 5)")


def execute(args: argparse.Namespace) -> int:
    """Name the step."""
    from msprobe.monitor.diff import diff

    try:
        result = diff(args.first, args.second)
    except MsprobeError as problem:
        raise UsageError(problem.message) from problem
    if args.json is not None:
        say(json.dumps(_as_json(result), indent=1))
        return _status(result)
    compared = f"{result.steps} steps of {result.ranks} rank{'s' if result.ranks > 1 else ''}"
    if result.found is None:
        alone = "" if not result.unread else " in what was compared"
        say(f"no bad step{alone}: in {compared}, the second run does what the first does, up to rounding")
        _say_unread(result, args.top)
        return _status(result)
    run = f" of the run {result.run}" if result.run else ""
    say(f"first bad step: {result.found.step} (rank {result.rank}{run}; compared {compared})")
    for reason in result.found.what[: args.top]:
        say(f"  {reason}")
    more = len(result.found.what) - args.top
    if more > 0:
        say(f"  and {more} more")
    if not result.by_sketches:
        say("  read from csv files; sketches tell smaller differences")
    _say_unread(result, args.top)
    return _status(result)


def _status(result: Difference) -> int:
    return result.coverage.status(result.found is not None)


def _as_json(result: Difference) -> dict[str, Any]:
    found = result.found
    step = found and {
        "step": found.step,
        "rank": result.rank,
        "run": result.run,
        "certain": found.certain,
        "what": list(found.what),
    }
    return {
        "version": 1,
        "first_bad_step": step,
        "first_step": result.first,
        "ends": list(result.ends),
        "by_sketches": result.by_sketches,
        "coverage": result.coverage.as_json(),
    }


def _say_unread(result: Difference, top: int) -> None:
    """Name what was not compared."""
    if result.ends:
        ours, theirs = result.ends
        say(f"the first ends at step {ours}, the second at step {theirs}; what both have is compared")
    for one in result.unread[:top]:
        say(f"not compared: {one}")
    if len(result.unread) > top:
        say(f"not compared: {len(result.unread) - top} more")
