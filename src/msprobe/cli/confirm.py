"""``msprobe confirm VERDICT -- SCRIPT``: does the training agree once the named call alone is put right?"""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.lockstep import add_recording_of_script, run_against
from msprobe.cli.lockstep import split as split
from msprobe.cli.parser import finding_numbers
from msprobe.cli.statuses import COULD_NOT, FOUND
from msprobe.errors import InvalidInputError
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe confirm``."""
    parser.usage = (
        "msprobe confirm VERDICT [--finding N[,N]] [--every-call] [-o DIR] [--config FILE] -- SCRIPT [ARGUMENT ...]"
    )
    parser.epilog = both(
        "Runs SCRIPT as `msprobe run` does, and replaces the results of the named call, and its "
        "gradients, by those of the reference; everything else is computed by the script. Then both "
        "trainings are compared.",
        "与 `msprobe run` 一样运行 SCRIPT，并把所指调用的结果及其梯度替换为标杆侧的值；其余都由脚本自己计"
        "算。然后比对两次训练。",
    )
    parser.add_argument(
        "verdict",
        metavar="VERDICT",
        help=both(
            "verdict.json of `msprobe compare` or `msprobe lockstep`",
            "`msprobe compare` 或 `msprobe lockstep` 的 verdict.json",
        ),
    )
    parser.add_argument(
        "--finding",
        type=finding_numbers,
        default=[1],
        metavar="N[,N]",
        help=both(
            "number of the finding, from 1; with several, all their calls are replaced at once (1)",
            "第几个问题项，从 1 开始；给出多个时同时替换它们的调用（1）",
        ),
    )
    parser.add_argument(
        "--every-call",
        action="store_true",
        help=both(
            "replace the results of all calls of the named API: a faulty kernel is faulty wherever it is called",
            "替换该 API 的所有调用：有问题的 kernel 在每次调用时都有问题",
        ),
    )
    add_output(
        parser,
        both("where the training is recorded", "训练采集到哪里"),
        "--output_path",
        default="./confirm",
    )
    add_recording_of_script(parser)


def execute(args: argparse.Namespace) -> int:
    """Run the script with one call put right, and say whether that is all."""
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
        why = said("no-such-call-made")
        if any(operation(entry.rpartition(".")[0].rpartition(".")[0]) in AVERAGING for entry in named.entries):
            why += said("averages-follow-later")
        say(translated(said("nothing-replaced", named.in_words, why)))
        return COULD_NOT
    confirmation = confirmed(named, Path(args.output_path))
    answers.note(
        is_confirmed=confirmation.is_confirmed,
        status=confirmation.verdict.status,
        sentence=confirmation.sentence(),
        coverage=confirmation.verdict.coverage.as_json(),
    )
    answers.wrote([args.output_path])
    if not args.quiet:
        say(translated(confirmation.sentence()))
    if not confirmation.is_confirmed and confirmation.verdict.status != "incomparable":
        return FOUND
    return confirmation.verdict.exit_code
