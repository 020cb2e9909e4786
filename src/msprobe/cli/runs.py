"""Two runs on a command line: the doubted one first, the trusted one behind it; or by their names, in any order."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from msprobe.cli.parser import UsageError
from msprobe.messages import both, said

CANDIDATE = both("the run that is doubted, in place of the first of two", "待比对侧的运行，代替两个中的第一个")
REFERENCE = both("the run that is trusted, in place of the second of two", "标杆侧的运行，代替两个中的第二个")


def add_runs(
    parser: argparse._ActionsContainer, dest: str | None, what: str = "", metavar: str | tuple[str, ...] = "RUN"
) -> None:
    """Add both names, and the positional arguments ``dest`` if there is one; ``what`` is its help."""
    if dest is not None:
        parser.add_argument(dest, nargs="*", metavar=metavar, help=what)
    parser.add_argument("--candidate", metavar="RUN", help=CANDIDATE)
    parser.add_argument("--reference", metavar="RUN", help=REFERENCE)


def runs_of(args: argparse.Namespace, given: Sequence[str]) -> list[str]:
    """The runs, the doubted one first. ``given``: those without a name. Raises UsageError for a run that has both."""
    if args.candidate is None and args.reference is None:
        return list(given)
    left = list(given)
    both = [args.candidate, args.reference]
    for place, run in enumerate(both):
        if run is None and left:
            both[place] = left.pop(0)
    if left:
        raise UsageError(said("one-run-too-many", left[0]))
    named_runs = [run for run in both if run is not None]
    if both[0] is None:
        raise UsageError(said("reference-without-candidate"))
    return named_runs


def two_runs(args: argparse.Namespace, given: Sequence[str]) -> tuple[str, str]:
    """Exactly two of them. Raises UsageError."""
    runs = runs_of(args, given)
    if len(runs) != 2:
        raise UsageError(said("two-runs-needed", "runs", len(runs)))
    return runs[0], runs[1]
