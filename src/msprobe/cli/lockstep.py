"""``msprobe lockstep REFERENCE -o DIR -- SCRIPT``: run a training against a recorded one and name every wrong call."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.statuses import COULD_NOT
from msprobe.distribution import install
from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.foreign.console import say
from msprobe.messages import both, said


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe lockstep``."""
    parser.usage = (
        "msprobe lockstep REFERENCE -o DIR [--config FILE] [--first-step N] [--step-on WHAT] -- SCRIPT [ARGUMENT ...]"
    )
    parser.epilog = both(
        "SCRIPT runs as with `msprobe run`. REFERENCE is a dump of task tensor at level L1 or mix: after "
        "each call of SCRIPT is recorded in DIR, its results and gradients are replaced by those of "
        "REFERENCE, so that every call gets the inputs of the reference. DIR/verdict.json has the form "
        "of `msprobe compare`.",
        "SCRIPT 与 `msprobe run` 一样运行。REFERENCE 是 task 为 tensor、level 为 L1 或 mix 的 dump："
        "SCRIPT 的每个调用采集到 DIR 之后，其结果与梯度替换为 REFERENCE 的值，因此每个调用都得到标杆侧的"
        "输入。DIR/verdict.json 的格式与 `msprobe compare` 相同。",
    )
    parser.add_argument(
        "reference",
        metavar="REFERENCE",
        help=both("the dump of the trusted run", "标杆侧的 dump"),
    )
    add_output(
        parser,
        both("where the candidate's dump and the verdict go", "待比对侧的 dump 与比对结论写到哪里"),
        "--output_path",
        required=True,
    )
    add_recording_of_script(parser)


def add_recording_of_script(parser: argparse.ArgumentParser) -> None:
    """Add how the script is recorded: the configuration of the reference, and its steps."""
    from msprobe.cli.run import add_step_on, step_number

    parser.add_argument(
        "--config",
        metavar="FILE",
        help=both("the config.json that the reference was recorded with", "采集标杆侧时使用的 config.json"),
    )
    parser.add_argument(
        "--first-step",
        "--first_step",
        type=step_number,
        metavar="N",
        help=both("the number of the first step (0)", "第一个 step 的编号（0）"),
    )
    add_step_on(parser)


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of msprobe, and the script with its arguments, which stand behind ``--``."""
    words = list(argv)
    if "--" in words:
        place = words.index("--")
        return words[:place], words[place + 1 :]
    return words, []


def execute(args: argparse.Namespace) -> int:
    """Run the script, judge, print the verdict and write it."""
    from msprobe.lockstep.verdict import FILE, judge_and_write
    from msprobe.report import formats
    from msprobe.report.console import print_lines

    status = run_against(args, args.reference)
    verdict, _ = judge_and_write(args.output_path, Path(args.reference).resolve())
    answers.whole(formats.always("verdict")[0].content(verdict))
    lines = formats.printed("verdict").render()
    if not args.quiet:
        print_lines(lambda width: lines(verdict, [str(Path(args.output_path) / FILE)], width))
    if status:
        say(
            f"msprobe: {said('lockstep-script-failed', status)}",
            file=sys.stderr,
        )
        return verdict.exit_code or COULD_NOT
    return verdict.exit_code


def run_against(args: argparse.Namespace, reference: str, only: Sequence[str] = ()) -> int:
    """Run the script of ``args`` against ``reference``, recorded into the output folder; the script's exit status.

    ``only``: the calls that alone are put right; empty: all are. Raises the errors of bad input.
    """
    if not args.foreign:
        command = "confirm" if only else "lockstep"
        raise InvalidInputError(said("lockstep-without-script", command))
    if args.framework == "mindspore":
        raise NotAvailableError(said("lockstep-command-for-mindspore"))
    try:
        from msprobe.launcher.runscript import run_script
    except ModuleNotFoundError as problem:
        if problem.name != "torch":
            raise
        raise NotAvailableError(said("lockstep-without-torch", install("torch"))) from problem
    from msprobe.lockstep import account_files

    account_files.forget(args.output_path)
    own = {"only": ",".join(only)} if only else {}
    return run_script(
        args.config,
        args.foreign,
        first_step=args.first_step,
        step_on=args.step_on,
        task="lockstep",
        dump_path=str(Path(args.output_path).resolve()),
        reference=str(Path(reference).resolve()),
        verdict="later",
        **own,
    )
