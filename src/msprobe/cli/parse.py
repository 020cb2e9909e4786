"""``msprobe parse``: dump files of kernels converted, printed and compared; at once, or in a shell."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.parser import refuse_unused
from msprobe.cli.statuses import CLEAN, COULD_NOT

_EPILOG = """\
With -d: converts a dump file of a kernel, or all in a folder, as in 26.2. Without: a shell, as in 8.1.1, which also
reads a pipe; its commands are dc (convert), cad (convert, sorted), vc (compare two dumps), pt (print an array), cn
(compare two arrays), ph (print the header of a dump file), pk (statistics of an API), quit; each knows -h.
Neither needs the vendor's tools nor torch.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("-d", "--dump_path", metavar="PATH", help="dump file, or folder of them, to be converted")
    parser.add_argument("-t", "--type", choices=("npy", "pt"), help="type of the files (default: pt)")
    add_output(parser, "folder for the files", "--output_path", otherwise="./output")


def execute(args: argparse.Namespace) -> int:
    """Convert, or run the shell."""
    from msprobe.cli.parse_shell import Shell, convert

    if args.dump_path is None:
        refuse_unused({"--json": args.json}, "for -d; the shell prints what its commands are asked for")
        refuse_unused(
            {"-t": args.type, "-o": args.output_path}, "for -d; commands of the shell have options of their own"
        )
        return Shell().run(sys.stdin)
    folder = Path(args.output_path or "./output")
    answers.wrote([folder])
    return CLEAN if convert(Path(args.dump_path), folder, "auto", args.type or "pt") else COULD_NOT
