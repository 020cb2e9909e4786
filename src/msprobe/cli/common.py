"""The options that every command has, before its name or behind it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from msprobe.errors import InvalidInputError
from msprobe.foreign.budget import factor_of

#: Of these a value is the next word.
VALUED = ("--limit",)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    group = parser.add_argument_group("options of every command")
    group.add_argument("--json", action="store_true", help="print the result as one JSON object, and nothing else")
    group.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors; the exit status says it")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    group.add_argument(
        "--limit",
        metavar="FACTOR",
        type=_limit,
        help="multiply what reading one input may cost in bytes, values and seconds (1; or the variable MSPROBE_LIMIT)",
    )
    group.add_argument(
        "--follow-links",
        action="store_true",
        help="follow symbolic links that lead out of a dump (or the variable MSPROBE_FOLLOW_LINKS)",
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
        raise argparse.ArgumentTypeError(f"must be a number above 0, at most 1e6, found {text[:40]!r}") from None
    return text
