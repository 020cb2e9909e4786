"""``msprobe monitor to-tensorboard``: csv files of monitored runs as event files."""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_jobs, add_output
from msprobe.foreign.console import say
from msprobe.messages import both, translated


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor to-tensorboard``."""
    parser.epilog = both(
        "Open them with `tensorboard --logdir DIR`. Several runs of a rank are merged. The exit status "
        "is also 2 if the files were written and not all of the input could be read.",
        "用 `tensorboard --logdir DIR` 查看。同一 rank 的多次运行会合并。文件已写出、但输入没有全部读取时"
        "，退出码也是 2。",
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        help=both("output folder of the monitor", "监控的输出文件夹"),
    )
    add_output(
        parser,
        both("folder for the event files", "事件文件的文件夹"),
        otherwise=both("a new folder in DIR", "DIR 中的新文件夹"),
    )
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="TIME",
        help=both("first run, as Dec03_21-34-40", "首次运行，如 Dec03_21-34-40"),
    )
    parser.add_argument(
        "--to",
        dest="end",
        metavar="TIME",
        help=both("last run", "末次运行"),
    )
    parser.add_argument(
        "--types",
        nargs="+",
        metavar="TYPE",
        help=both("actv, grad_reduced, ... (default: all)", "actv、grad_reduced 等（默认：全部）"),
    )
    add_jobs(
        parser,
        both("processes", "进程数"),
        default=1,
    )


def execute(args: argparse.Namespace) -> int:
    """Write the files."""
    from msprobe.monitor.convert.csv_to_tensorboard import convert

    path, covered = convert(args.folder, args.begin, args.end, args.jobs, args.types, args.output)
    answers.wrote([path])
    say(f"event files: {path}")
    if not covered.is_complete:
        say(translated(covered.sentence("converted")))
    return covered.status(has_findings=False)
