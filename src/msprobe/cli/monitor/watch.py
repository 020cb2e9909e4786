"""``msprobe monitor watch``: a training while it runs, in the terminal."""

from __future__ import annotations

import argparse

from msprobe.messages import both, said

# Seconds between two looks.
_EVERY = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor watch``."""
    parser.epilog = both(
        "Ends with Ctrl-C. Reads the files that the monitor writes, and nothing of the training itself.",
        "按 Ctrl-C 结束。只读取监控写出的文件，不接触训练本身。",
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        help=both(
            "output folder of the monitor, or the folder of one run in it", "监控的输出文件夹，或其中某次运行的文件夹"
        ),
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help=both("show the present state, and end", "显示当前状态并退出"),
    )
    parser.add_argument(
        "--every",
        type=float,
        metavar="SECONDS",
        help=both("seconds between two looks (default: 2)", "隔多少秒刷新一次（默认 2）"),
    )
    parser.add_argument(
        "--top",
        type=int,
        default=12,
        metavar="N",
        help=both("how many tensors to show (default: 12)", "显示多少个张量（默认 12）"),
    )


def execute(args: argparse.Namespace) -> int:
    """Show it."""
    from msprobe.cli.parser import UsageError, refuse_unused
    from msprobe.monitor.watch import watch

    every = _EVERY if args.every is None else args.every
    if not every >= 0.1:
        raise UsageError(said("watch-every-too-short", every))
    refuse_unused(
        {"--every": args.once and args.every is not None},
        both("--once shows the state a single time", "--once 只显示一次"),
    )
    if args.json and not args.once:
        raise UsageError(said("watch-json-needs-once"))
    if args.top < 1:
        raise UsageError(said("watch-top-too-small", args.top))
    watch(args.folder, once=args.once, every=every, top=args.top)
    return 0
