"""``msprobe monitor report``: a monitored run, or two, as one page."""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.parser import UsageError
from msprobe.cli.runs import add_runs, runs_of
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor report``."""
    parser.usage = "msprobe monitor report CANDIDATE [REFERENCE] [OPTION ...]"
    parser.epilog = both(
        "For two runs, the page shows at which step and in which tensor the candidate leaves the range "
        "of the reference.",
        "对两次运行，页面显示待比对侧在哪个 step、哪个张量离开了标杆侧的范围。",
    )
    add_runs(
        parser,
        "runs",
        both(
            "output folder of the monitor, or the folder of one run in it; of two, the candidate first",
            "监控的输出文件夹，或其中某次运行的文件夹；给出两个时待比对侧在前",
        ),
        "DIR",
    )
    add_output(
        parser,
        both("the page", "页面文件"),
        default="monitor.html",
        metavar="FILE",
    )


def execute(args: argparse.Namespace) -> int:
    """Write the page."""
    from msprobe.monitor.report.page import write_report

    runs = runs_of(args, args.runs)
    if len(runs) not in (1, 2):
        raise UsageError(said("monitor-report-runs", len(runs)))
    page, covered = write_report(runs[-1], runs[0] if len(runs) == 2 else None, args.output)
    answers.wrote([page])
    answers.note(coverage=covered.as_json())
    say(f"report: {page}")
    if not covered.is_complete:
        say(translated(covered.sentence("shown")))
    return covered.status(has_findings=False)
