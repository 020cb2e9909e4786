"""``msprobe config_check``: what differs before training starts. Each part of it is a module of this package.

A part has ``add_arguments(parser)``, ``is_asked(args)`` and ``execute(args) -> int``.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from msprobe.cli.common import add_output
from msprobe.cli.parser import UsageError
from msprobe.cli.runs import add_runs, two_runs
from msprobe.messages import both, joined, said

#: Modules of this package, in the order in which they are asked.
PARTS = ("rl_logs", "packs", "checkpoints")
#: Operations, and the options that belong to each alone, with their defaults.
_OPTIONS: dict[str, dict[str, Any]] = {
    "-d": {"env_all": False},
    "packs-operation": {"tolerance": 0.0, "variables": None, "package": []},
    "checkpoints-operation": {
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


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of all parts."""
    parser.usage = (
        "msprobe config_check -d [FILE ...] [-o PACK.zip] [--env-all]\n"
        "       msprobe config_check -c BENCH.zip CMP.zip [-o DIR] [--tolerance REL] [--variables FILE.yaml] ...\n"
        "       msprobe config_check -c A B [-o FILE.json] [--name-map MAP] [--metrics full] [--jobs N] ...\n"
        "       msprobe -f {pytorch,mindspore} config_check {-d,-c} ...\n"
        "       msprobe config_check {-vc,-sc} NPU_LOG BENCH_LOG | -vv [BENCH_YAML] LOG [-o DIR]"
    )
    operations = parser.add_mutually_exclusive_group()
    operations.add_argument(
        *("-c", "--compare"),
        nargs=2,
        metavar=("A", "B"),
        help=both(
            "two packs (.zip), or two checkpoints of any formats: files or folders; the trusted one first, "
            "as in mindstudio-probe",
            "两个配置包（.zip），或任意格式的两个检查点：文件或文件夹；标杆侧在前，同 mindstudio-probe",
        ),
    )
    add_runs(parser, None)
    add_output(
        parser,
        both(
            "where the result goes; what it is depends on the operation",
            "结果写到哪里；是文件还是文件夹取决于所做的操作",
        ),
        metavar="OUT",
    )
    for name in PARTS:
        _part(name).add_arguments(parser, operations)


def execute(args: argparse.Namespace) -> int:
    """Let the part that is asked for do its work."""
    _take_runs(args)
    _check_options(args)
    status: int = next(part for part in map(_part, PARTS) if part.is_asked(args)).execute(args)
    return status


def _take_runs(args: argparse.Namespace) -> None:
    """The two that are given by name, as ``-c`` has them. Raises UsageError, also where nothing is asked for."""
    asked = [part for part in map(_part, PARTS) if part.is_asked(args)]
    if args.candidate is not None or args.reference is not None:
        if asked:
            raise UsageError(said("config-sides-twice"))
        candidate, reference = two_runs(args, ())
        args.compare = [reference, candidate]
    elif not asked:
        raise UsageError(said("config-check-without-task"))


def _check_options(args: argparse.Namespace) -> None:
    """Raise UsageError for options of another operation than the one that is asked for: they would do nothing."""
    asked = "-d" if args.dump is not None else None
    if args.compare is not None:
        is_packs = any(path.endswith(".zip") for path in args.compare)
        asked = "packs-operation" if is_packs else "checkpoints-operation"
    wrong = [
        said("option-of-operation", f"--{name.replace('_', '-')}", operation if operation == "-d" else said(operation))
        for operation, options in _OPTIONS.items()
        for name, default in options.items()
        if operation != asked and getattr(args, name) != default
    ]
    if wrong:
        raise UsageError(said("option-does-nothing-here", joined("; ", wrong)))


def _part(name: str) -> Any:
    return importlib.import_module(f"msprobe.cli.config_check.{name}")
