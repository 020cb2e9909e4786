"""``msprobe monitor report``: a monitored run, or two, as one page."""

from __future__ import annotations

import argparse

from msprobe.foreign.console import say


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor report``."""
    parser.epilog = (
        "With a second folder, the page says at which step and in which tensor the second run leaves the band of the "
        "first. Exit status: 0 done; 1 a folder cannot be read, or the page cannot be written."
    )
    parser.add_argument("folder", metavar="DIR", help="output folder of the monitor, or the folder of one run in it")
    parser.add_argument("second", metavar="DIR_B", nargs="?", help="that of a run to hold against the first")
    parser.add_argument(
        "-o", "--output", default="monitor.html", metavar="FILE", help="the page (default: monitor.html)"
    )


def execute(args: argparse.Namespace) -> int:
    """Write the page."""
    from msprobe.monitor.report.page import write_report

    say(f"report: {write_report(args.folder, args.second, args.output)}")
    return 0
