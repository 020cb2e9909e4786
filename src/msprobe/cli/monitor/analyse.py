"""``msprobe monitor analyse``: which alert came first, on all ranks."""

from __future__ import annotations

import argparse
import os

from msprobe.foreign.console import say


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor analyse``."""
    parser.epilog = (
        "Writes anomaly_analyse.json, and names the alerts. Exit status: 0 there are none (with -s: none of these "
        "steps); 1 there are some, or ranks that held the same numbers no longer do; 2 the folder cannot be read."
    )
    parser.add_argument(
        "folder", metavar="DIR", help="output folder of the monitor, or the folder anomaly_detected in it"
    )
    parser.add_argument(
        "-o", "--out_path", "--output", default="", metavar="DIR", help="folder for the result, made if it is not there"
    )
    parser.add_argument("-k", "--topk", type=int, default=8, metavar="N", help="how many to name (default: 8)")
    parser.add_argument(
        "-s", "--step", default="[]", metavar="LIST", help='only these steps, as "[1,2]" (default: all)'
    )


_NONE = 'There are no alerts. They are written where the field "alert" of the monitor has "dump": true.'


def execute(args: argparse.Namespace) -> int:
    """Name them."""
    from msprobe.cli.parser import UsageError
    from msprobe.errors import MsprobeError
    from msprobe.monitor.alerts.analysis import analyse, first_alerts, read_alerts, steps_of
    from msprobe.monitor.alerts.ranks import divergences
    from msprobe.monitor.alerts.sink import FOLDER
    from msprobe.monitor.files import by_rank, find_runs

    below = os.path.join(args.folder, FOLDER)
    folder = below if os.path.isdir(below) else args.folder
    try:
        runs = find_runs(os.path.dirname(folder) if folder == below else folder)
        steps = steps_of(args.step)
        apart = [one for one in divergences(by_rank(runs)) if not steps or one.step in steps]
        alerts = read_alerts(folder)
        lines = analyse(folder, args.out_path, args.topk, args.step) if alerts else [_NONE]
    except MsprobeError as problem:
        raise UsageError(problem.message) from problem
    say("\n".join([*lines, *map(str, apart)]))
    return 1 if first_alerts(alerts, steps=steps) or apart else 0
