"""``msprobe parse``: dump files of kernels converted, printed and compared; at once, or in a shell."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.parser import refuse_unused
from msprobe.cli.statuses import CLEAN, COULD_NOT
from msprobe.messages import both

_EPILOG = both(
    "With -d: converts a dump file of a kernel, or all in a folder, as in 26.2. Without: a shell, as "
    "in 8.1.1, which also reads a pipe; its commands are dc (convert), cad (convert, sorted), vc "
    "(compare two dumps), pt (print an array), cn (compare two arrays), ph (print the header of a "
    "dump file), pk (statistics of an API), quit; each has -h. Needs neither the vendor's tools nor "
    "torch.",
    "给出 -d：转换一个或文件夹中全部 kernel 的 dump 文件，同 26.2。不给：交互命令行，同 8.1.1，也可从"
    "管道读取；命令有 dc（转换）、cad（转换并整理）、vc（比对两份 dump）、pt（打印数组）、cn（比对两"
    "个数组）、ph（打印 dump 文件头）、pk（API 的统计量）、quit；每个都有 -h。不需要厂商工具，也不需"
    "要 torch。",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "-d",
        "--dump_path",
        metavar="PATH",
        help=both("dump file, or folder of such files, to convert", "要转换的 dump 文件或文件夹"),
    )
    parser.add_argument(
        "-t",
        "--type",
        choices=("npy", "pt"),
        help=both("type of the files (default: pt)", "写出文件的类型（默认 pt）"),
    )
    add_output(
        parser,
        both("folder for the files", "写出文件的文件夹"),
        "--output_path",
        otherwise="./output",
    )


def execute(args: argparse.Namespace) -> int:
    """Convert, or run the shell."""
    from msprobe.cli.parse_shell import Shell, convert

    if args.dump_path is None:
        refuse_unused(
            {"--json": args.json},
            both(
                "only for -d; the shell prints the answers of its commands", "只用于 -d；交互命令行会打印各命令的结果"
            ),
        )
        refuse_unused(
            {"-t": args.type, "-o": args.output_path},
            both("for -d; commands of the shell have options of their own", "用于 -d；交互命令行的命令有自己的选项"),
        )
        return Shell().run(sys.stdin)
    folder = Path(args.output_path or "./output")
    answers.wrote([folder])
    return CLEAN if convert(Path(args.dump_path), folder, "auto", args.type or "pt") else COULD_NOT
