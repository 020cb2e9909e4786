"""``msprobe demo``: a wrong line in a small training, found; the first minute with msprobe."""

from __future__ import annotations

import argparse
from pathlib import Path

BAD_INPUT_STATUS = 2
FOLDER = "msprobe-demo"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = (
        "Needs PyTorch and less than a minute. Exit status: 0; 2 if the folder is not empty, PyTorch is missing or a "
        "command of the demo failed."
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", default=FOLDER, help=f"a new or empty folder for all files ({FOLDER})"
    )
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")


def execute(args: argparse.Namespace) -> int:
    """Show the demo; the exit status."""
    from msprobe.demo.showing import show

    show(Path(args.output), opens_page=not args.no_open)
    return 0
