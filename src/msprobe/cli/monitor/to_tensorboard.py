"""``msprobe monitor to-tensorboard``: csv files of monitored runs as event files."""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_jobs, add_output
from msprobe.foreign.console import say


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor to-tensorboard``."""
    parser.epilog = (
        "Look at them with `tensorboard --logdir DIR`. Several runs of a rank are merged. Exit status: 0 "
        "done; 1 bad input; 2 done, and a part was not read."
    )
    parser.add_argument("folder", metavar="DIR", help="output folder of the monitor")
    add_output(parser, "folder for the event files", otherwise="a new one in DIR")
    parser.add_argument("--from", dest="begin", metavar="TIME", help="first run, as Dec03_21-34-40")
    parser.add_argument("--to", dest="end", metavar="TIME", help="last run")
    parser.add_argument("--types", nargs="+", metavar="TYPE", help="actv, grad_reduced, ... (default: all)")
    add_jobs(parser, "processes", default=1)


def execute(args: argparse.Namespace) -> int:
    """Write the files."""
    from msprobe.monitor.convert.csv_to_tensorboard import convert

    path, covered = convert(args.folder, args.begin, args.end, args.jobs, args.types, args.output)
    answers.wrote([path])
    say(f"event files: {path}")
    if not covered.is_complete:
        say(covered.sentence("converted"))
    return covered.status(found=False)
