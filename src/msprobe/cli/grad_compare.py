"""``msprobe grad_compare CANDIDATE REFERENCE -o OUT``: where gradients differ that ``grad_probe`` has recorded."""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.runs import add_runs, two_runs
from msprobe.foreign.console import say

_FURTHER = 9
_EPILOG = """\
Give the dump_path of both runs, or a folder rank{N} of each. Writes gradients.html (all curves), verdict.csv (what is
suspicious, in the order in which to look at it) and, for each rank, similarities.csv and pictures (with matplotlib).
A gradient is suspicious where fewer than 97 in 100 of its elements point the same way in the first step, or 3 in 100
more than a step before do not.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EPILOG
    parser.usage = "msprobe grad_compare CANDIDATE REFERENCE -o DIR [OPTION ...]"
    add_runs(parser, "runs", "candidate and reference: dump_path of each run, or a folder rank{N} in it")
    add_output(parser, "folder for the results", "--output_path", required=True)
    parser.add_argument(
        "--plot",
        choices=("all", "summary", "none"),
        help="pictures of each parameter, of all together, or none; default: all up to 50 parameters, else summary",
    )
    parser.add_argument("--least", type=_share, default=None, metavar="S", help="in the first step; default: 0.97")
    parser.add_argument("--drop", type=_share, default=None, metavar="S", help="most lost in a step; default: 0.03")
    parser.add_argument(
        "--mapping",
        metavar="FILE",
        help='JSON file {"name in the candidate": "name in the reference"}; regular expressions, too',
    )


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, found {text}")
    return value


def execute(args: argparse.Namespace) -> int:
    """Compare, print what was found, and return the exit status."""
    return _execute(args)


def _execute(args: argparse.Namespace) -> int:
    from msprobe.grad_probe import layout
    from msprobe.grad_probe.comparator import GradComparator
    from msprobe.grad_probe.verdict import DROP, FIRST

    candidate, reference = two_runs(args, args.runs)
    first = Path(candidate)
    is_rank = first.is_dir() and not layout.ranks_of(first) and bool(layout.summaries_of(first))
    compare = GradComparator.compare if is_rank else GradComparator.compare_distributed
    result = compare(
        candidate,
        reference,
        args.output_path,
        plot=args.plot,
        first=FIRST if args.least is None else args.least,
        drop=DROP if args.drop is None else args.drop,
        mapping=args.mapping,
        quiet=True,
    )
    answers.wrote(result.written)
    answers.note(problems=[one.line for one in result.problems], notes=list(result.notes))
    say(_printable(result.line))
    # One line for each parameter, the first one has been printed.
    seen = {(one.rank, one.parameter) for one in result.problems[:1]}
    further = 0
    for one in result.problems:
        if (one.rank, one.parameter) not in seen:
            seen.add((one.rank, one.parameter))
            further += 1
            if further <= _FURTHER:
                say(_printable(f"  then: {one.line}"))
    if further > _FURTHER:
        say(f"  and {further - _FURTHER} more in verdict.csv")
    for note in result.notes[:20]:
        say(_printable(f"  note: {note}"))
    if len(result.notes) > 20:
        say(f"  and {len(result.notes) - 20} more notes in gradients.html")
    for path in result.written[:2]:
        say(_printable(f"  {path}"))
    return result.exit_code


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
