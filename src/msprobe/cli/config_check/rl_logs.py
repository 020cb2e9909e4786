"""``msprobe config_check -vc | -vv | -sc``: the parameters in logs of verl and slime."""

from __future__ import annotations

import argparse
from typing import Any

from msprobe.cli import answers
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated


def add_arguments(parser: argparse.ArgumentParser, operations: Any) -> None:
    """The three operations on logs."""
    logs = ("NPU_LOG", "BENCH_LOG")
    operations.add_argument(
        *("-vc", "--verl-compare"),
        nargs=2,
        metavar=logs,
        help=both(
            "parameters in two logs of verl; -o: ./verl_param_compare_result",
            "比对两份 verl 日志中的参数；-o：./verl_param_compare_result",
        ),
    )
    operations.add_argument(
        *("-vv", "--verl-verify"),
        nargs="+",
        metavar="FILE",
        help=both(
            "[BENCH_YAML] LOG: compare parameters in a log of verl with expected values; -o: "
            "./verl_param_verify_result",
            "[BENCH_YAML] LOG：把一份 verl 日志中的参数与期望值比对；-o：./verl_param_verify_result",
        ),
    )
    operations.add_argument(
        *("-sc", "--slime-compare"),
        nargs=2,
        metavar=logs,
        help=both(
            "parameters in two logs of slime; -o: ./slime_param_compare_result",
            "比对两份 slime 日志中的参数；-o：./slime_param_compare_result",
        ),
    )


def is_asked(args: argparse.Namespace) -> bool:
    """True for an operation on logs."""
    return any(option is not None for option in (args.verl_compare, args.verl_verify, args.slime_compare))


def execute(args: argparse.Namespace) -> int:
    """Compare or verify; 1 if a parameter is not what it should be, 2 if none is and a log was cut off."""
    from msprobe.cli.output_folder import usable_output
    from msprobe.environment.rl_logs import compare_logs, verify_log

    if args.verl_verify is not None:
        folder = str(usable_output(args.output or "./verl_param_verify_result"))
        comparison = verify_log(args.verl_verify, folder)
    else:
        tool = "verl" if args.verl_compare is not None else "slime"
        folder = str(usable_output(args.output or f"./{tool}_param_compare_result"))
        first, second = args.verl_compare or args.slime_compare
        comparison = compare_logs(first, second, folder, tool)
    answers.wrote([folder])
    answers.note(apart=comparison.apart, coverage=comparison.coverage.as_json())
    for note in comparison.notes:
        say("  " + translated(said("note-before", note)))
    of = comparison.coverage.read["parameters"]
    say(
        translated(
            said("parameters-in-logs-differ", comparison.apart, of, folder)
            if comparison.apart
            else said("no-parameter-in-logs-differs", of, folder)
        )
    )
    if not comparison.coverage.is_complete:
        say(translated(comparison.coverage.sentence()))
    return comparison.coverage.status(comparison.apart > 0)
