"""``msprobe multi_run_ut`` and ``multi_acc_check``: the same check by several processes.

One process reads the dump and writes the files; the files are those of ``run_ut``, in the same order.
"""

from __future__ import annotations

import argparse

from msprobe.cli import run_ut


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    run_ut.configure(parser, several=True)


def execute(args: argparse.Namespace) -> int:
    """Check with several workers."""
    return run_ut.check(args, args.num_splits)
