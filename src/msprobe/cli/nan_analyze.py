"""``msprobe nan_analyze -i DUMP -o OUT`` (``overflow_check`` since 26.2): the first bad value over all ranks."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from msprobe.cli import answers
from msprobe.cli.common import add_output, add_workers
from msprobe.cli.parser import UsageError, add_fail_on
from msprobe.cli.statuses import CLEAN
from msprobe.messages import both, joined, said

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe.diagnose.check.first_overflow import Asked, OverflowAnswer

_EPILOG = both(
    "Reads the dump of a step with all its ranks (or the root of a dump, whose steps are searched in "
    "order), and follows NaN\nand infinities through calls, collectives and messages to the call that "
    "made the first one. Prints it with its evidence\nand how it spread; writes "
    "OUT/anomaly_analyze_{time}.json if there is one. `msprobe view` shows that file with the dump.",
    "读取一个 step 所有 rank 的 dump（或 dump 的根目录，按次序搜索各 step），沿着调用、集合通信与消息"
    "追踪 NaN 与无穷，直到产生第一个的调用。打印该调用、证据与传播过程；如有则写出 "
    "OUT/anomaly_analyze_{time}.json。`msprobe view` 可将该文件与 dump 一起显示。",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        *("-i", "--input_path"),
        required=True,
        metavar="DIR",
        help=both(
            "folder of a step (with rank0, rank1, ...) or of a dump",
            "step 的文件夹（含 rank0、rank1 等）或 dump 的文件夹",
        ),
    )
    add_output(
        parser,
        both("folder of the result", "结果文件夹"),
        "--output_path",
        otherwise="./output",
    )
    parser.add_argument(
        "--all-steps",
        action="store_true",
        help=both("search all steps, not only up to the first bad one", "搜索所有 step，而不是到第一个异常 step 为止"),
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help=both(
            "leave out ranks that cannot be read, and use the intact records of truncated files",
            "略过无法读取的 rank，并使用截断文件中完整的内容",
        ),
    )
    parser.add_argument(
        "--treat-neg-inf",
        choices=("mask", "bad"),
        default="mask",
        help=both(
            "mask (default): infinities that a mask removes later do not count; bad: every infinity counts",
            "mask（默认）：随后被掩码去掉的无穷不计；bad：所有无穷都计入",
        ),
    )
    parser.add_argument(
        "--threshold",
        metavar="X",
        help=both("numbers above X in magnitude count as bad values, too", "绝对值大于 X 的数也视为异常值"),
    )
    parser.add_argument(
        "--growth",
        metavar="K",
        help=both(
            "a result whose norm is more than K times that of its inputs counts as bad",
            "范数超过输入 K 倍的结果也视为异常",
        ),
    )
    add_workers(
        parser,
        both("ranks that are read at once", "同时读取多少个 rank"),
    )
    add_fail_on(
        parser,
        both("a NaN or an infinity", "NaN 或无穷"),
    )


def execute(args: argparse.Namespace) -> int:
    """Search the dump, print what was found, write the result."""
    from msprobe.cli.progress import progress
    from msprobe.diagnose.check.first_overflow import find_first_overflow
    from msprobe.engine import Workers
    from msprobe.report.anomaly_file import anomaly_bytes
    from msprobe.report.overflow_files import analyze, say_where

    asked, workers = _asked(args), Workers(args.jobs, args.engine)
    if args.json and args.output_path is None:  # the result goes to stdout, and to a file where one is asked for
        with progress("searching") as bar:
            answer = find_first_overflow(args.input_path, asked, bar, workers)
        answers.whole(anomaly_bytes(answer))
        return _status(answer, args.fail_on)
    from msprobe.cli.output_folder import usable_output

    output = "./output" if args.output_path is None else args.output_path
    usable_output(output)
    with progress("searching") as bar:
        answer, file = analyze(args.input_path, output, asked, bar, workers)
    answers.whole(anomaly_bytes(answer))
    _print(answer, file)
    say_where(file)
    return _status(answer, args.fail_on)


def _status(answer: OverflowAnswer, fail_on: str) -> int:
    """0 whatever was found, but with ``--fail-on found``; 2 where nothing was and not all of the dump was searched."""
    has_nodes = bool(answer.nodes)
    return CLEAN if has_nodes and fail_on == "never" else answer.coverage.status(has_nodes)


def _asked(args: argparse.Namespace) -> Asked:
    from msprobe.diagnose.check.bad_values import GrowthLimits
    from msprobe.diagnose.check.first_overflow import Asked

    numbers: dict[str, float | None] = {}
    problems: list[str] = []
    for name in ("threshold", "growth"):
        text = getattr(args, name)
        try:
            numbers[name] = float(text) if text is not None else None
        except ValueError:
            numbers[name] = math.nan
        number = numbers[name]
        if number is not None and not 0 < number < math.inf:
            problems.append(said("limit-not-above-zero", name, repr(text)))
    if problems:
        raise UsageError(joined(" ", problems))
    limits = GrowthLimits(args.treat_neg_inf == "bad", numbers["threshold"], numbers["growth"])
    return Asked(limits, args.all_steps, args.partial)


def _print(answer: OverflowAnswer, file: Path | None) -> None:
    from msprobe.report.console import print_lines
    from msprobe.report.overflow_text import overflow_lines

    written = [said("view-shows-with-dump", file)] if file is not None else []
    print_lines(lambda width: overflow_lines(answer, written, width))
