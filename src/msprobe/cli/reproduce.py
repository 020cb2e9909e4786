"""``msprobe reproduce OUT/verdict.json``: the script of the call that a verdict names, from the dump at hand."""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli.common import add_output
from msprobe.cli.op_generate import add_script_options, write_and_run
from msprobe.cli.parser import finding_number
from msprobe.messages import both, said

#: Kinds of findings of which the call itself is probably right, and the piece that says so.
_HINTS = {
    "argument": "reproduce-argument",
    "structure": "reproduce-structure",
    "data": "reproduce-data",
    "initial_weights": "reproduce-initial-weights",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "verdict",
        metavar="VERDICT",
        help=both(
            "verdict.json, as `msprobe compare A B -o OUT` writes it",
            "`msprobe compare A B -o OUT` 写出的 verdict.json",
        ),
    )
    parser.add_argument(
        "--finding",
        type=finding_number,
        default=1,
        metavar="N",
        help=both("number of the finding, from 1 (1)", "第几个问题项，从 1 开始（1）"),
    )
    parser.add_argument(
        "--dump",
        metavar="PATH",
        help=both(
            "the dump, if it was moved since (the verdict's candidate)",
            "dump，如果之后移动过（默认为结论中的待比对侧）",
        ),
    )
    add_output(
        parser,
        both("folder for the script", "脚本的文件夹"),
        "--output_path",
        default=".",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1234,
        help=both(
            "random seed of values that the dump does not have (1234)", "dump 中没有的数值所用的随机种子（1234）"
        ),
    )
    add_script_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the script, and run it for ``--minimize``."""
    from msprobe.cli.output_folder import usable_output
    from msprobe.precheck.verdicts import call_of_finding

    folder = usable_output(args.output_path)
    requests, api, propagation, kind = call_of_finding(args.verdict, args.finding, args.dump)
    hint = said(_HINTS[kind]) if kind in _HINTS else ""
    return write_and_run(requests, args, api, propagation, args.seed, Path(folder), hint)
