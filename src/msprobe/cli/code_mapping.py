"""``msprobe -f mindspore code_mapping``: which lines of the program a kernel of a static graph comes from."""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.errors import NotAvailableError
from msprobe.foreign.console import say
from msprobe.messages import said


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe code_mapping``."""
    parser.epilog = (
        "For .npy files the result is code_mapping_{time}.csv in the output folder; statistic.csv files are extended "
        "in place by the columns Code Stack and Scope Name. Where kernels are not in the IR, or a text of it is cut "
        "off, the result is written, what was not read is said, and the exit status is 2."
    )
    parser.add_argument(
        "--ir",
        required=True,
        metavar="IR",
        help="text of a graph, best graph_build_*.ir; or a folder with them; the dump itself has some",
    )
    parser.add_argument(
        "--dump_data", "--dump-data", required=True, metavar="PATH", help="a .npy file, a statistic.csv, or a folder"
    )
    add_output(parser, "folder for the csv", default="./")


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
        say(f"code mapping: {path}")
    parts = [f"{tally.mapped} of {tally.kernels} found in the graph"]
    counts = (
        (tally.without_code, "of them without source lines"),
        (tally.parameters, "are parameters"),
        (tally.other_graphs, "are of other graphs than the IR"),
        (tally.not_found, "not found"),
    )
    parts += [f"{count} {words}" for count, words in counts if count]
    say("; ".join(parts))
    if not result.coverage.is_complete:
        say(result.coverage.sentence("mapped"))
    return result.coverage.status(found=False)
