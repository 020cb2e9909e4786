"""``msprobe monitor analyse``: which alert came first, on all ranks."""

from __future__ import annotations

import argparse
import os

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor analyse``."""
    parser.epilog = both(
        "Writes anomaly_analyse.json, and names the alerts.", "写出 anomaly_analyse.json，并列出告警。"
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        help=both(
            "output folder of the monitor, of one run, or the folder anomaly_detected",
            "监控或某次运行的输出文件夹，或 anomaly_detected 文件夹",
        ),
    )
    what = both("folder for the result, made if missing", "结果文件夹，没有时新建")
    add_output(
        parser,
        what,
        "--out_path",
        otherwise=both("the folder of the alerts", "告警所在的文件夹"),
    )
    parser.add_argument(
        "-k",
        "--topk",
        type=int,
        default=8,
        metavar="N",
        help=both("number of alerts to show (default: 8)", "显示多少个告警（默认 8）"),
    )
    parser.add_argument(
        "-s",
        "--step",
        default="[]",
        metavar="LIST",
        help=both('only these steps, as "[1,2]" (default: all)', '只看这些 step，如 "[1,2]"（默认：全部）'),
    )


def execute(args: argparse.Namespace) -> int:
    """Name them."""
    from msprobe.cli.parser import UsageError
    from msprobe.errors import MsprobeError
    from msprobe.monitor.alerts.analysis import first_alerts, steps_of, write_first_alerts
    from msprobe.monitor.alerts.headline import headline
    from msprobe.monitor.alerts.ranks import divergences
    from msprobe.monitor.alerts.reading import read_all_alerts
    from msprobe.monitor.alerts.sink import FOLDER
    from msprobe.monitor.whole_runs import ranks_of_monitors

    try:
        steps = steps_of(args.step)
        alerts = read_all_alerts(args.folder)
        first = first_alerts(alerts.records, args.topk, steps)
        sides = ranks_of_monitors(alerts.folders)
        apart = [
            divergence for side in sides for divergence in divergences(side) if not steps or divergence.step in steps
        ]
        lines = []
        if first:
            below = os.path.join(args.folder, FOLDER)
            path = write_first_alerts(first, args.out_path or (below if os.path.isdir(below) else args.folder))
            number = len(first_alerts(alerts.records, max(1, len(alerts.records)), steps))
            answers.wrote([path])
            lines += [translated(headline(alerts, steps)), f"anomaly_analyse.json: {path}"]
            lines.append(translated(said("first-alerts-of", len(first), number)))
            texts = [record.get("text") or record.get("message", key) for key, record in first.items()]
            lines += [f"{at}: {text}" for at, text in enumerate(texts)]
        elif alerts.read:
            steps_text = said("of-steps", steps) if steps else ""
            lines.append(translated(said("no-alerts-found", steps_text)))
        else:
            lines.append(translated(said("alerts-unknown")))
    except MsprobeError as problem:
        raise UsageError(problem.message) from problem
    lines += [f"  {file}" for file in alerts.read] if not first else []
    lines += ["Not read:", *(f"  {file}" for file in alerts.unread)] if alerts.unread else []
    answers.note(
        alerts=list(first),
        apart=[str(divergence) for divergence in apart],
        not_read=[str(file) for file in alerts.unread],
    )
    say("\n".join([*lines, *(translated(divergence.message) for divergence in apart)]))
    if first or apart:
        return 1
    return 0 if alerts.is_whole else 2
