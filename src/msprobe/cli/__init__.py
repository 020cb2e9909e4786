"""The command ``msprobe``: finds the sub-command, runs it, and turns errors into one line and an exit status.

Exit status: 0 done; 1 an error that the message explains; 2 wrong usage, a command this version does not have, or an
input that costs too much to read. A command may define others, as ``BAD_INPUT_STATUS``: those that read dumps answer
with 1 for what they found there and with 2 for bad input (docs/configuration.md, "Exit status").
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from msprobe import __version__
from msprobe.cli import commands
from msprobe.cli.parser import USAGE_STATUS, Parser, UsageError, did_you_mean
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.foreign.budget import BudgetError, factor, factor_of, multiplied
from msprobe.foreign.console import clean_errors, say
from msprobe.foreign.links import followed

INTERRUPTED_STATUS = 130
# Of a message: names and numbers in it may come from a file.
_MOST_LETTERS = 4000
FRAMEWORKS = ("pytorch", "mindspore")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv`` by default) and return its exit status.

    Raises SystemExit for ``-h``, ``--version`` and wrong usage, as argparse does.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    position = _command_position(words)
    top = top_parser()
    options = top.parse(words[:position], intermixed=False)
    if position == len(words):
        top.print_help()
        return 0
    name = words[position]
    if name not in commands.AVAILABLE:
        return _say(f"there is no command {name!r}; {_nearest(name)}", USAGE_STATUS)
    command, purpose = commands.load(name), commands.AVAILABLE[name][1]
    parts: dict[str, tuple[str, str]] | None = getattr(command, "SUBCOMMANDS", None)
    if parts is not None:
        position += 1
        part = words[position] if position < len(words) else "-h"
        if part in ("-h", "--help"):
            say(_help_of_parts(name, purpose, parts))
            if position == len(words):
                return 0
            raise SystemExit(0)
        if part not in parts:
            known = did_you_mean(part, parts, 0.5) or f"these are {', '.join(parts)}."
            return _say(f"{name}: there is no command {part!r}; {known}", USAGE_STATUS)
        command, purpose = commands.load_part(name, parts[part][0]), parts[part][1]
        name = f"{name} {part}"
    parser = Parser(prog=f"msprobe {name}", description=_sentence(purpose))
    command.configure(parser)
    _add_common(parser)
    if hasattr(command, "split"):
        own, foreign = command.split(words[position + 1 :])
        args = parser.parse(own, intermixed=False)
    else:
        foreign = []
        # Options may stand between the paths: `msprobe compare A --html B`.
        args = parser.parse(words[position + 1 :], intermixed=True)
    args.debug = args.debug or options.debug
    args.follow_links = args.follow_links or options.follow_links
    args.limit = options.limit if args.limit is None else args.limit
    args.framework = options.framework
    args.foreign = foreign
    if argv is None and not foreign:  # a script of the user answers for its own output
        clean_errors()
    return _execute(command, args)


def _execute(command: commands.Command, args: argparse.Namespace) -> int:
    from msprobe import distribution
    from msprobe.children import places

    status = 1
    if not hasattr(command, "split"):  # a script of the user is searched for modules as Python does it
        places.leave_working_directory()
    distribution.warn_once()
    try:
        factor()
    except InvalidInputError as problem:
        return _say(problem.message, USAGE_STATUS)
    try:
        with multiplied(args.limit), followed(args.follow_links):
            status = command.execute(args)
        if not args.foreign:
            sys.stdout.flush()
    except MsprobeError as problem:
        if args.debug:
            raise
        bad_input = getattr(command, "BAD_INPUT_STATUS", 1)
        return _say(problem.message, USAGE_STATUS if isinstance(problem, (UsageError, BudgetError)) else bad_input)
    except (MemoryError, RecursionError, OverflowError, UnicodeError) as problem:
        if args.foreign or args.debug:
            raise
        return _say(_of_input(problem), USAGE_STATUS)
    except BrokenPipeError:
        if args.foreign:
            raise  # the user's script met it, and Python answers it
        # The reader of our output has gone (`msprobe summary d | head`): nobody is left to tell. What the command found
        # still counts, if it had come to an end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status
    except KeyboardInterrupt:
        if args.foreign or args.debug:
            raise
        return INTERRUPTED_STATUS
    return status


def _of_input(problem: Exception) -> str:
    """What an error says that only an input can cause which no reader has refused."""
    if isinstance(problem, MemoryError):
        what = "it does not fit into the memory of this process"
    elif isinstance(problem, RecursionError):
        what = "it is nested too deeply"
    else:
        what = f"it has a number or a text that nothing here can hold ({ascii(str(problem))[1:-1]:.120})"
    return f"an input cannot be read: {what}. Leave it out, or show with --debug where it was met."


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command has, before its name or behind it."""
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument(
        "--limit",
        metavar="FACTOR",
        type=_limit,
        help="multiply what reading one input may cost in bytes, values and seconds (1; or the variable MSPROBE_LIMIT)",
    )
    parser.add_argument(
        "--follow-links",
        action="store_true",
        help="follow symbolic links that lead out of a dump (or the variable MSPROBE_FOLLOW_LINKS)",
    )


def _limit(text: str) -> str:
    try:
        factor_of(text)
    except InvalidInputError:
        raise argparse.ArgumentTypeError(f"must be a number above 0, at most 1e6, found {text[:40]!r}") from None
    return text


def top_parser() -> Parser:
    parser = Parser(
        prog="msprobe",
        usage="msprobe [-h] [--version] [--debug] [--limit FACTOR] [-f {pytorch,mindspore}] COMMAND ...",
        description="Names the first call in which two neural-network trainings differ, and why.",
        epilog=_command_list(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action=_ShowVersion,
        nargs=0,
        help="say which version this is, and whether the C extension is in use",
    )
    _add_common(parser)
    parser.add_argument(
        "-f",
        "--framework",
        choices=FRAMEWORKS,
        help="accepted for old command lines; dumps name their framework",
    )
    return parser


class _ShowVersion(argparse.Action):
    """Prints the version, and whether the recorder's C extension is in use; only then the recorder is imported."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from msprobe.capture import native

        say(f"msprobe {__version__}\n{native.status()}")
        parser.exit()


def _command_position(words: Sequence[str]) -> int:
    """The index of the first word that is neither an option nor the value of one; else the length."""
    skip = False
    for position, word in enumerate(words):
        if skip:
            skip = False
        elif word in ("-f", "--framework", "--limit"):
            skip = True
        elif not word.startswith("-"):
            return position
    return len(words)


def _command_list() -> str:
    width = max(map(len, commands.AVAILABLE))
    lines = ["commands:"]
    lines += [f"  {name:<{width}}  {text}" for name, (_, text) in commands.AVAILABLE.items()]
    return "\n".join([*lines, "", "`msprobe COMMAND -h` explains a command."])


def _help_of_parts(name: str, purpose: str, parts: dict[str, tuple[str, str]]) -> str:
    width = max(map(len, parts))
    lines = [f"usage: msprobe {name} COMMAND ...", "", _sentence(purpose), "", "commands:"]
    lines += [f"  {part:<{width}}  {text}" for part, (_, text) in parts.items()]
    return "\n".join(
        [*lines, "", f"`msprobe {name} COMMAND -h` explains a command; each knows --debug, --limit and --follow-links."]
    )


def _nearest(name: str) -> str:
    return did_you_mean(name, [*commands.AVAILABLE], 0.5) or f"the commands are {', '.join(commands.AVAILABLE)}."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _say(message: str, status: int) -> int:
    if len(message) > _MOST_LETTERS:
        message = f"{message[: _MOST_LETTERS // 2]} ... {message[-_MOST_LETTERS // 4 :]}"
    say(f"msprobe: {message}", file=sys.stderr)
    return status
