"""``msprobe -f mindspore code_mapping``: which lines of the program a kernel of a static graph comes from."""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.errors import NotAvailableError
from msprobe.foreign.console import say
from msprobe.messages import both, joined, said, translated


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe code_mapping``."""
    parser.epilog = both(
        "For .npy files the result is code_mapping_{time}.csv in the output folder; statistic.csv files "
        "get the columns Code Stack and Scope Name in place. If kernels are not in the IR, or a file of "
        "it is cut off, the result is written, the missing input is named, and the exit status is 2.",
        "对 .npy 文件，结果为输出文件夹中的 code_mapping_{time}.csv；statistic.csv 文件则原地增加 Code "
        "Stack 与 Scope Name 两列。如果 IR 中没有某些 kernel，或 IR 文件不完整，结果照常写出，并说明未读"
        "取的内容，退出码为 2。",
    )
    parser.add_argument(
        "--ir",
        required=True,
        metavar="IR",
        help=both(
            "text of a graph, preferably graph_build_*.ir; or a folder with such files; the dump itself has some",
            "图的文本文件，最好是 graph_build_*.ir；或含有它们的文件夹；dump 本身也带有一些",
        ),
    )
    parser.add_argument(
        "--dump_data",
        "--dump-data",
        required=True,
        metavar="PATH",
        help=both("a .npy file, a statistic.csv, or a folder", ".npy 文件、statistic.csv 或文件夹"),
    )
    add_output(
        parser,
        both("folder for the csv", "csv 的文件夹"),
        default="./",
    )


def execute(args: argparse.Namespace) -> int:
    """Join the dump with the graph, and say what was written."""
    if args.framework == "pytorch":
        raise NotAvailableError(said("code-mapping-of-torch"))
    from msprobe.report.code_mapping import map_code

    result = map_code(args.ir, args.dump_data, args.output)
    tally = result.tally
    answers.wrote(result.written)
    answers.note(kernels=tally.kernels, mapped=tally.mapped, not_found=tally.not_found)
    for path in result.written:
        say(translated(said("code-mapping-file", path)))
    parts = [said("kernels-found-in-graph", tally.mapped, tally.kernels)]
    counts = (
        (tally.without_code, "mapped-without-lines"),
        (tally.parameters, "kernels-are-parameters"),
        (tally.other_graphs, "kernels-of-graphs-apart"),
        (tally.not_found, "kernels-not-found"),
    )
    parts += [said(name, count) for count, name in counts if count]
    say(translated(joined("; ", parts)))
    if not result.coverage.is_complete:
        say(translated(result.coverage.sentence("mapped")))
    return result.coverage.status(has_findings=False)
