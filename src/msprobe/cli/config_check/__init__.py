"""``msprobe config_check``: what differs before training starts. Each part of it is a module of this package.

A part has ``add_arguments(parser)``, ``is_asked(args)`` and ``execute(args) -> int``. Exit status, of all
parts: 0 nothing that matters differs, or a pack was written; 1 something does; 2 bad input, or nothing differs in
what was read and not all was.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from msprobe.cli.parser import UsageError
from msprobe.errors import MsprobeError
from msprobe.foreign.console import say

BAD_INPUT_STATUS = 2
#: Modules of this package, in the order in which they are asked.
PARTS = ("rl_logs", "packs", "checkpoints")
#: Operations, and the options that belong to each alone, with their defaults.
_OPTIONS: dict[str, dict[str, Any]] = {
    "-d": {"env_all": False},
    "-c with two packs (.zip)": {"tolerance": 0.0, "variables": None, "package": []},
    "-c with two checkpoints": {
        "name_map": "auto",
        "metrics": "classic",
        "with_optim": False,
        "weights_only": False,
        "allow_missing": False,
        "earlier": None,
        "jobs": None,
        "engine": "local",
    },
}
_EPILOG = """\
Exit status: 0 nothing that matters differs, or a pack was written; 1 something does, and is named; 2 bad input, or
nothing differs in what was read and not all of the input was, which is named.
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
        _check_options(args)
        status: int = next(part for part in map(_part, PARTS) if part.is_asked(args)).execute(args)
        return status
    except MsprobeError as problem:
        if args.debug:
            raise
        say(f"msprobe: {problem.message}", file=sys.stderr)
        return BAD_INPUT_STATUS


def _check_options(args: argparse.Namespace) -> None:
    """Raise UsageError for options of another operation than the one that is asked for: they would do nothing."""
    asked = "-d" if args.dump is not None else None
    if args.compare is not None:
        is_packs = any(path.endswith(".zip") for path in args.compare)
        asked = "-c with two packs (.zip)" if is_packs else "-c with two checkpoints"
    wrong = [
        f"--{name.replace('_', '-')} belongs to {operation}"
        for operation, options in _OPTIONS.items()
        for name, default in options.items()
        if operation != asked and getattr(args, name) != default
    ]
    if wrong:
        raise UsageError(f"{'; '.join(wrong)}: leave it out here.")


def _part(name: str) -> Any:
    return importlib.import_module(f"msprobe.cli.config_check.{name}")
