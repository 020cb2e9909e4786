"""``msprobe confirm VERDICT -- SCRIPT``: does the training agree once the named call alone is put right?"""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.lockstep import run_against
from msprobe.cli.lockstep import split as split
from msprobe.cli.parser import finding_numbers
from msprobe.cli.statuses import CLEAN, COULD_NOT, FOUND
from msprobe.errors import InvalidInputError
from msprobe.foreign.console import say
from msprobe.messages import said


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe confirm``."""
    from msprobe.cli.run import add_step_on, step_number

    parser.usage = (
        "msprobe confirm VERDICT [--finding N[,N]] [--every-call] [-o DIR] [--config FILE] -- SCRIPT [ARGUMENT ...]"
    )
    parser.epilog = (
        "Runs SCRIPT as `msprobe run` does, and replaces what the named call returns, and its gradients, by what the "
        "reference of the verdict has; all else is the script's own. Then both trainings are compared."
    )
    parser.add_argument("verdict", metavar="VERDICT", help="verdict.json of `msprobe compare` or `msprobe lockstep`")
    parser.add_argument(
        "--finding",
        type=finding_numbers,
        default=[1],
        metavar="N[,N]",
        help="which of its findings, from 1; of several the calls are put right together (1)",
    )
    parser.add_argument(
        "--every-call",
        action="store_true",
        help="put all calls of the named API right: a kernel that is wrong is wrong wherever it is called",
    )
    add_output(parser, "where the training is recorded", "--output_path", default="./confirm")
    parser.add_argument("--config", metavar="FILE", help="the config.json that the reference was recorded with")
    parser.add_argument(
        "--first-step", "--first_step", type=step_number, metavar="N", help="the number of the first step (0)"
    )
    add_step_on(parser)


def execute(args: argparse.Namespace) -> int:
    """Run the script with one call put right, and say whether that is all."""
    return _confirm(args)


def _confirm(args: argparse.Namespace) -> int:
    from msprobe import log
    from msprobe.compare.entry_names import operation
    from msprobe.diagnose.operators import AVERAGING
    from msprobe.lockstep import account_files
    from msprobe.lockstep.confirm import confirmed, named_calls

    named = named_calls(args.verdict, args.finding, args.every_call)
    for why in named.left_out:
        log.warning(f"left out: {why}")
    status = run_against(args, str(named.reference), named.entries)
    account = account_files.read(args.output_path)
    replaced = sum(
        account["counts"].get(f"{what}_replaced", 0) for what in ("results", "gradients", "optimizer_tensors", "inputs")
    )
    if status:
        raise InvalidInputError(said("confirm-script-failed", status))
    if not replaced:
        why = "the script made no such call, or its values are the reference's"
        if any(operation(one.rpartition(".")[0].rpartition(".")[0]) in AVERAGING for one in named.entries):
            why += ", and running averages that it keeps are put right in the steps that follow, of which there is none"
        say(f"{named.in_words}: nothing was replaced; {why}.")
        return COULD_NOT
    found = confirmed(named, Path(args.output_path))
    answers.note(is_confirmed=found.is_confirmed, status=found.verdict.status, sentence=found.sentence())
    answers.wrote([args.output_path])
    if not args.quiet:
        say(found.sentence())
    if found.verdict.status == "incomparable":
        return COULD_NOT
    return CLEAN if found.is_confirmed else FOUND
