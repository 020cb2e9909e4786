"""``msprobe monitor report``: a monitored run, or two, as one page."""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.parser import UsageError
from msprobe.cli.runs import add_runs, runs_of
from msprobe.foreign.console import say
from msprobe.messages import said


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor report``."""
    parser.usage = "msprobe monitor report CANDIDATE [REFERENCE] [OPTION ...]"
    parser.epilog = (
        "Of two runs, the page says at which step and in which tensor the candidate leaves the band of the reference."
    )
    add_runs(
        parser,
        "runs",
        "output folder of the monitor, or the folder of one run in it; of two, the candidate first",
        "DIR",
    )
    add_output(parser, "the page", default="monitor.html", metavar="FILE")


def execute(args: argparse.Namespace) -> int:
    """Write the page."""
    from msprobe.monitor.report.page import write_report

    runs = runs_of(args, args.runs)
    if len(runs) not in (1, 2):
        raise UsageError(said("monitor-report-runs", len(runs)))
    page = write_report(runs[-1], runs[0] if len(runs) == 2 else None, args.output)
    answers.wrote([page])
    say(f"report: {page}")
    return 0
