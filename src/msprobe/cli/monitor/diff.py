"""``msprobe monitor diff``: the first step at which two trainings differ."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from msprobe.cli import answers
from msprobe.cli.parser import UsageError
from msprobe.cli.runs import add_runs, two_runs
from msprobe.errors import MsprobeError
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated

if TYPE_CHECKING:
    from msprobe.monitor.diff import RunDifference


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor diff``."""
    parser.usage = "msprobe monitor diff CANDIDATE REFERENCE [OPTION ...]"
    parser.epilog = both(
        "Differences that grow as rounding errors do are not reported. Reads sketch.bin of both runs, or csv files.",
        "像舍入误差那样增长的差异不会报告。读取两次运行的 sketch.bin，或 csv 文件。",
    )
    add_runs(
        parser,
        "runs",
        both(
            "candidate and reference: output folders of the monitor, or folders of one run in them",
            "待比对侧与标杆侧：监控的输出文件夹，或其中某次运行的文件夹",
        ),
    )
    parser.add_argument(
        "--top",
        type=int,
        default=5,
        metavar="N",
        help=both("number of reasons to show (default: 5)", "显示多少个原因（默认 5）"),
    )


def execute(args: argparse.Namespace) -> int:
    """Name the step."""
    from msprobe.monitor.diff import diff

    candidate, reference = two_runs(args, args.runs)
    try:
        result = diff(reference, candidate)
    except MsprobeError as problem:
        raise UsageError(problem.message) from problem
    answers.whole(json.dumps(_as_json(result), indent=1))
    one_rank = result.ranks == 1
    compared = (
        said("steps-of-one-rank", result.steps) if one_rank else said("steps-of-ranks", result.steps, result.ranks)
    )
    if result.first_bad is None:
        alone = "" if not result.unread else said("in-what-was-compared")
        say(translated(said("no-bad-step", alone, compared)))
        _say_unread(result, args.top)
        return _status(result)
    run = said("of-the-run", result.run) if result.run else ""
    say(translated(said("first-bad-step", result.first_bad.step, result.rank, run, compared)))
    for reason in result.first_bad.what[: args.top]:
        say(f"  {translated(reason)}")
    more = len(result.first_bad.what) - args.top
    if more > 0:
        say(f"  {translated(said('and-so-many-more', more))}")
    if not result.by_sketches:
        say(f"  {translated(said('read-from-csv'))}")
    if result.update_in_doubt is not None:
        say(f"  {translated(said('update-not-measured', result.first_bad.step, result.update_in_doubt))}")
    _say_unread(result, args.top)
    return _status(result)


def _status(result: RunDifference) -> int:
    return result.coverage.status(result.first_bad is not None)


def _as_json(result: RunDifference) -> dict[str, Any]:
    difference = result.first_bad
    step = difference and {
        "step": difference.step,
        "rank": result.rank,
        "run": result.run,
        "certain": difference.certain,
        "update_in_doubt": result.update_in_doubt,
        "what": list(difference.what),
    }
    return {
        "version": 1,
        "first_bad_step": step,
        "first_step": result.first,
        "ends": list(result.ends),
        "by_sketches": result.by_sketches,
        "coverage": result.coverage.as_json(),
    }


def _say_unread(result: RunDifference, top: int) -> None:
    """Name what was not compared."""
    if result.ends:
        ours, theirs = result.ends
        say(translated(said("runs-end-at-different-steps", ours, theirs)))
    for unread in result.unread[:top]:
        say(translated(said("not-compared-because", unread)))
    if len(result.unread) > top:
        say(translated(said("not-compared-because", said("and-so-many-more", len(result.unread) - top))))
