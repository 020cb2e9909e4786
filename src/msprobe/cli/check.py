"""``msprobe check DUMP``: what is wrong in a recorded training, read from one dump alone."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from msprobe.cli import answers
from msprobe.cli.common import add_output, add_workers
from msprobe.cli.parser import did_you_mean, refuse_unused
from msprobe.errors import InvalidInputError
from msprobe.foreign.console import say
from msprobe.messages import both, said
from msprobe.report import formats

if TYPE_CHECKING:
    from msprobe.diagnose.check import Check, CheckResult

_EPILOG = (
    (
        "Reads a dump (its root, or the folder of a step or rank) and looks for faults that show without "
        "a second run. Prints the first one in full; with -o DIR it also writes {}."
    ),
    (
        "读取一份 dump（根目录，或某个 step、rank 的文件夹），查找无需第二次运行即可发现的问题。完整打印"
        "第一个问题；给出 -o DIR 时还会写出 {}。"
    ),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    names = [row.file for row in formats.always("check")]
    parser.epilog = both(*_EPILOG, ", ".join(f"DIR/{name}" for name in names))
    parser.add_argument(
        "dump",
        nargs="?",
        metavar="DUMP",
        help=both(
            "folder of a dump, of a step or of a rank, or a dump.json", "dump、step 或 rank 的文件夹，或 dump.json"
        ),
    )
    add_output(parser, both("write {} there", "在此写出 {}", ", ".join(names)), "--output_path")
    parser.add_argument(
        "--only",
        metavar="NAMES",
        help=both("run these checks alone, with commas between", "只运行这些检查项，以逗号分隔"),
    )
    parser.add_argument(
        "--skip",
        metavar="NAMES",
        help=both("leave these checks out", "略过这些检查项"),
    )
    add_workers(
        parser,
        both("ranks that are checked at once", "同时检查多少个 rank"),
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help=both("list the checks and end", "列出检查项并退出"),
    )


def execute(args: argparse.Namespace) -> int:
    """Check the dump, print what was found, and return the exit status."""
    from msprobe.cli.output_folder import usable_output
    from msprobe.cli.progress import progress
    from msprobe.diagnose.check import CHECKS, check_run
    from msprobe.engine import Workers

    if args.list:
        given = {"DUMP": args.dump, "-o": args.output_path, "--only": args.only, "--skip": args.skip}
        refuse_unused(given, both("--list shows the checks and ends", "--list 列出检查项后即退出"))
        width = max(len(check.name) for check in CHECKS)
        answers.note(checks={check.name: check.text for check in CHECKS})
        for check in CHECKS:
            say(f"{check.name:<{width}}  {check.text}")
        return 0
    if args.dump is None:
        raise InvalidInputError(said("check-without-dump"))
    workers = Workers(args.jobs, args.engine)
    chosen = _chosen(CHECKS, args.only, args.skip)
    wanted = formats.always("check")
    folder = usable_output(args.output_path, [row.file for row in wanted]) if args.output_path is not None else None
    with progress("checking") as bar:
        result = check_run(args.dump, chosen, bar, workers)
    written: list[str] = []
    try:
        if folder is not None:
            written += map(str, formats.write_files(result, wanted, folder))
    finally:
        _print(result, written)
    return result.exit_code


def _chosen(checks: tuple[Check, ...], only: str | None, skip: str | None) -> list[Check]:
    """The checks that are asked for. Raises InvalidInputError for names that there are not."""
    wanted = [name.strip() for name in only.split(",")] if only else [check.name for check in checks]
    unwanted = [name.strip() for name in skip.split(",")] if skip else []
    known = {check.name for check in checks}
    unknown = [name for name in (*wanted, *unwanted) if name not in known]
    if unknown:
        meant = did_you_mean(unknown[0], known) if len(unknown) == 1 else ""
        raise InvalidInputError(
            said(
                "check-unknown",
                ", ".join(map(repr, unknown)),
                meant,
                both(" The" if meant else "the", ""),
                ", ".join(sorted(known)),
            )
        )
    chosen = [check for check in checks if check.name in wanted and check.name not in unwanted]
    if not chosen:
        raise InvalidInputError(said("no-check-chosen"))
    return chosen


def _print(result: CheckResult, written: list[str]) -> None:
    from msprobe.report.console import print_lines

    answers.whole(formats.always("check")[0].content(result))
    lines = formats.printed("check").render()
    print_lines(lambda width: lines(result, written, width))
