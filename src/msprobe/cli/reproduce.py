"""``msprobe reproduce OUT/verdict.json``: the script of the call that a verdict names, from the dump at hand."""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli.common import add_output
from msprobe.cli.op_generate import add_script_options, write_and_run
from msprobe.cli.parser import finding_number

_HINTS = {
    "argument": (
        "The two runs called it with different arguments, so the call itself is probably right: compare the arguments "
        "in the script with those of the reference, and look at the line that makes the call."
    ),
    "structure": (
        "One of the two runs alone makes this call, so the call itself is probably right: look at the line that makes "
        "it, and at what the other run does there."
    ),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("verdict", metavar="VERDICT", help="verdict.json, as `msprobe compare A B -o OUT` writes it")
    parser.add_argument(
        "--finding", type=finding_number, default=1, metavar="N", help="which of its findings, from 1 (1)"
    )
    parser.add_argument("--dump", metavar="PATH", help="the dump, if it was moved since (the verdict's candidate)")
    add_output(parser, "folder for the script", "--output_path", default=".")
    parser.add_argument("--seed", type=int, default=1234, help="of values that the dump does not have (1234)")
    add_script_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the script, and run it for ``--minimize``."""
    from msprobe.cli.output_folder import usable_output
    from msprobe.precheck.verdicts import call_of_finding

    folder = usable_output(args.output_path)
    requests, api, propagation, kind = call_of_finding(args.verdict, args.finding, args.dump)
    return write_and_run(requests, args, api, propagation, args.seed, Path(folder), _HINTS.get(kind, ""))
