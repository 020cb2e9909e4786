"""``msprobe config_check``: what differs before training starts. Each part of it is a module of this package.

A part has ``add_arguments(parser)``, ``is_asked(args)`` and ``execute(args) -> int``. Exit status, of all
parts: 0 nothing that matters differs, or a pack was written; 1 something does; 2 bad input.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from msprobe.errors import MsprobeError

BAD_INPUT_STATUS = 2
#: Modules of this package, in the order in which they are asked.
PARTS = ("rl_logs", "packs", "checkpoints")
_EPILOG = """\
Exit status: 0 nothing that matters differs, or a pack was written; 1 something does, and is named; 2 bad input.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of all parts."""
    parser.epilog = _EPILOG
    parser.usage = (
        "msprobe config_check -d [FILE ...] [-o PACK.zip] [--env-all]\n"
        "       msprobe config_check -c BENCH.zip CMP.zip [-o DIR] [--tolerance REL] [--variables FILE.yaml] ...\n"
        "       msprobe config_check -c A B [-o FILE.json] [--name-map MAP] [--metrics full] [--jobs N] ...\n"
        "       msprobe -f {pytorch,mindspore} config_check {-d,-c} ...\n"
        "       msprobe config_check {-vc,-sc} NPU_LOG BENCH_LOG | -vv [BENCH_YAML] LOG [-o DIR]"
    )
    operations = parser.add_mutually_exclusive_group(required=True)
    operations.add_argument(
        *("-c", "--compare"),
        nargs=2,
        metavar=("A", "B"),
        help="two packs (.zip), or two checkpoints of any formats: files or folders",
    )
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="where the result goes; what it is depends on the operation"
    )
    for name in PARTS:
        _part(name).add_arguments(parser, operations)


def execute(args: argparse.Namespace) -> int:
    """Let the part that is asked for do its work."""
    try:
        status: int = next(part for part in map(_part, PARTS) if part.is_asked(args)).execute(args)
        return status
    except MsprobeError as problem:
        if args.debug:
            raise
        print(f"msprobe: {problem.message}", file=sys.stderr)
        return BAD_INPUT_STATUS


def _part(name: str) -> Any:
    return importlib.import_module(f"msprobe.cli.config_check.{name}")
