"""``msprobe demo``: a wrong line in a small training, found; the first minute with msprobe."""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli import answers
from msprobe.cli.common import add_output

FOLDER = "msprobe-demo"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = "Needs PyTorch and less than a minute."
    add_output(parser, "a new or empty folder for all files", default=FOLDER)
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")


def execute(args: argparse.Namespace) -> int:
    """Show the demo; the exit status."""
    from msprobe.demo.showing import show

    show(Path(args.output), opens_page=not args.no_open and not args.json)
    answers.wrote([args.output])
    return 0
