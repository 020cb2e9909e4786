"""The options that commands have in common, each declared here and nowhere else.

Those of every command stand before its name or behind it. A command that writes takes the place from ``-o``, one that
does many things at once takes their number from ``--jobs``; it says what is meant, and what counts without the option.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from msprobe.errors import InvalidInputError
from msprobe.foreign.budget import factor_of
from msprobe.messages import both, said

#: Of these a value is the next word.
VALUED = ("--limit",)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    group = parser.add_argument_group(both("options of every command", "所有命令共有的选项"))
    group.add_argument(
        "--json",
        action="store_true",
        help=both("print the result as one JSON object, and nothing else", "只打印一个 JSON 对象作为结果"),
    )
    group.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help=both("print nothing but errors; the exit status has the answer", "只打印错误；结果看退出码"),
    )
    group.add_argument(
        "--debug",
        action="store_true",
        help=both("show the traceback of an error", "显示错误的调用栈"),
    )
    group.add_argument(
        "--limit",
        metavar="FACTOR",
        type=_limit,
        help=both(
            "multiply the limits on bytes, values and seconds for reading one input (1; or the variable MSPROBE_LIMIT)",
            "把读取一个输入的字节数、数值个数与秒数上限乘以该倍数（1；或用变量 MSPROBE_LIMIT）",
        ),
    )
    group.add_argument(
        "--follow-links",
        action="store_true",
        help=both(
            "follow symbolic links that lead out of a dump (or the variable MSPROBE_FOLLOW_LINKS)",
            "跟随指向 dump 之外的符号链接（或用变量 MSPROBE_FOLLOW_LINKS）",
        ),
    )


def add_output(
    parser: argparse._ActionsContainer,
    what: str,
    *older: str,
    default: str | None = None,
    otherwise: str = "",
    metavar: str = "DIR",
    **more: Any,
) -> None:
    """Add ``-o`` and ``--output``: where results go. ``what``: its help. ``older``: spellings of before, the first of
    which names the value in what is parsed. ``otherwise``: what is taken where ``default`` does not say it. ``more``:
    for argparse.
    """
    names = ("-o", *older, "--output")
    help_text = _with_default(what, otherwise or default)
    given = _folder if metavar in ("DIR", "OUT") else str
    parser.add_argument(*names, type=given, default=default, metavar=metavar, help=help_text, **more)


def _folder(text: str) -> str:
    """A folder for results, as it was given: not an empty text, which a variable that is not set becomes."""
    if not text:
        raise argparse.ArgumentTypeError(said("path-is-empty", "folder"))
    return text


def add_jobs(
    parser: argparse._ActionsContainer,
    what: str,
    *older: str,
    default: int | None = None,
    otherwise: str = "",
    most: int | None = None,
) -> None:
    """Add ``--jobs``: how many processes work at once. As in :func:`add_output`; without ``default`` the value is None,
    for one. ``most``: the largest that is allowed.
    """
    names = (*older, "--jobs")
    text = _with_default(what, otherwise or str(default or 1))
    parser.add_argument(*names, type=_number_up_to(most), default=default, metavar="N", help=text)


def add_workers(
    parser: argparse._ActionsContainer, what: str, *older: str, default: int | None = None, most: int | None = None
) -> None:
    """Add ``--jobs`` and ``--engine``, for processes that may be those of a Ray cluster."""
    otherwise = "" if default else both("1; all CPUs of a Ray cluster", "1；Ray 集群则为全部 CPU")
    add_jobs(parser, what, *older, default=default, otherwise=otherwise, most=most)
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help=both(
            "where: processes here, or a Ray cluster whose nodes have the inputs at the same paths (local)",
            "在哪里运行：本机进程（local），或 Ray 集群（ray），其各节点须在相同路径下有这些输入（local）",
        ),
    )


def joined(args: argparse.Namespace, before: argparse.Namespace) -> None:
    """Let count what stood before the command's name, too."""
    for name in ("json", "quiet", "debug", "follow_links"):
        setattr(args, name, getattr(args, name) or getattr(before, name))
    args.limit = before.limit if args.limit is None else args.limit


def plain_json(words: Sequence[str]) -> list[str]:
    """The words with ``--json`` in place of its older form ``--json -``."""
    return [word for place, word in enumerate(words) if word != "-" or place == 0 or words[place - 1] != "--json"]


def _limit(text: str) -> str:
    try:
        factor_of(text)
    except InvalidInputError:
        raise argparse.ArgumentTypeError(said("number-wanted", "1e6", text[:40])) from None
    return text


def _with_default(what: str, default: str | None) -> str:
    return both("{} ({})", "{}（{}）", what, default) if default else what


def _number_up_to(most: int | None) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= (most or int(text)):
            given = text[:40]
            text = said("count-wanted", given) if most is None else said("count-up-to-wanted", most, given)
            raise argparse.ArgumentTypeError(text)
        return int(text)

    return number
