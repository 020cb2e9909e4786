"""``msprobe demo``: a wrong line in a small training, found; the first minute with msprobe."""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.messages import both

FOLDER = "msprobe-demo"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = both("Needs PyTorch and less than a minute.", "需要 PyTorch，不到一分钟。")
    add_output(
        parser,
        both("a new or empty folder for all files", "存放全部文件的文件夹，新建或为空"),
        default=FOLDER,
    )
    parser.add_argument(
        "--no-open",
        action="store_true",
        help=both("do not open the page in a browser", "不在浏览器中打开页面"),
    )


def execute(args: argparse.Namespace) -> int:
    """Show the demo; the exit status."""
    from msprobe.demo.showing import show

    show(Path(args.output), opens_page=not args.no_open and not args.json)
    answers.wrote([args.output])
    return 0
