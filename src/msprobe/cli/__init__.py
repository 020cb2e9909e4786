"""The command ``msprobe``: finds the command, runs it, and turns errors into one line and an exit status.

What the statuses say is the same everywhere (:mod:`msprobe.cli.statuses`); what a command makes of them stands in its
declaration (:mod:`msprobe.cli.commands`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from msprobe import __version__
from msprobe.cli import answers, commands, common
from msprobe.cli.command import CommandModule
from msprobe.cli.parser import Parser, did_you_mean
from msprobe.cli.statuses import COULD_NOT, INTERRUPTED
from msprobe.errors import MsprobeError, PathError, reason_of
from msprobe.foreign.budget import factor, multiplied
from msprobe.foreign.console import OutputError, clean_errors, discard, flush_output, open_missing_streams, say
from msprobe.foreign.links import followed
from msprobe.messages import Wording, both, code_of, said, translated

# Of a message: names and numbers in it may come from a file.
_MOST_LETTERS = 4000
_OBJECT_STORAGE = tuple(f"{scheme}://" for scheme in "s3 s3a gs gcs az abfs abfss oss obs hdfs".split())
FRAMEWORKS = ("pytorch", "mindspore")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv`` by default) and return its exit status.

    Raises SystemExit for ``-h``, ``--version`` and wrong usage, as argparse does.
    """
    open_missing_streams()
    try:
        return _run(list(sys.argv[1:] if argv is None else argv), is_process=argv is None)
    except OutputError as problem:
        return _say(problem.message)


def _run(words: list[str], is_process: bool) -> int:
    position = _command_position(words)
    options = top_parser().parse(common.plain_json(words[:position]), intermixed=False)
    if position == len(words):
        say(top_help(), end="", flush=True)
        return 0
    name = commands.named(words[position])
    if name not in commands.known_names():
        return _say(said("command-unknown", words[position], _nearest(name)))
    position += 1
    family = commands.family(name)
    if family:
        part = words[position] if position < len(words) else "-h"
        if part in ("-h", "--help"):
            say(family_help(name), flush=True)
            if position == len(words):
                return 0
            raise SystemExit(0)
        if part not in family:
            known = did_you_mean(part, family, 0.5) or said("these-are", ", ".join(family))
            return _say(Wording("{}: {}", name, said("command-unknown", part, known)))
        position += 1
        name = f"{name} {part}"
    declared = commands.COMMANDS[commands.ALIASES.get(name, name)]
    command = declared.load()
    parser = commands.parser_of(declared, name)
    own, foreign = words[position:], []
    if hasattr(command, "split"):
        own, foreign = command.split(own)
    # Options may stand between the paths: `msprobe compare A --html B`.
    args = parser.parse(common.plain_json(own), intermixed=not hasattr(command, "split"))
    common.joined(args, options)
    args.framework = options.framework
    args.foreign = foreign
    if is_process and not foreign:  # a script of the user answers for its own output
        clean_errors()
    with answers.collected(name, args.json, args.quiet, bool(foreign)) as status:
        status.append(_execute(command, args))
    return status[0]


def _refuse_urls(args: argparse.Namespace) -> None:
    """Raise PathError for the first path that is in object storage: who reads a dump reads it many times."""
    for value in vars(args).values():
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, str) and item.startswith(_OBJECT_STORAGE) and value is not args.foreign:
                raise PathError(said("path-in-object-storage", item))


def _execute(command: CommandModule, args: argparse.Namespace) -> int:
    from msprobe import distribution
    from msprobe.children import places

    status = 1
    if not hasattr(command, "split"):  # a script of the user is searched for modules as Python does it
        places.leave_working_directory()
    distribution.warn_once()
    try:
        factor()
        if not hasattr(command, "TAKES_URLS"):
            _refuse_urls(args)
        with multiplied(args.limit), followed(args.follow_links):
            status = command.execute(args)
        if not args.foreign:
            flush_output()
    except MsprobeError as problem:
        if args.debug:
            raise
        return _say(problem.message)
    except (MemoryError, RecursionError, OverflowError, UnicodeError) as problem:
        if args.foreign or args.debug:
            raise
        return _say(_input_error(problem))
    except BrokenPipeError:
        if args.foreign:
            raise  # the user's script met it, and Python answers it
        # The reader of our output has gone (`msprobe summary d | head`): nobody reads a word. What the command found
        # still counts, if it had come to an end.
        discard(sys.stdout)
        return status
    except OSError as problem:
        if args.foreign or args.debug:
            raise
        return _say(_refusal(problem))
    except KeyboardInterrupt:
        if args.foreign or args.debug:
            raise
        return INTERRUPTED
    return status


def _refusal(problem: OSError) -> str:
    """What an error of the system says for which no reader or writer has a sentence of its own."""
    path = problem.filename
    if isinstance(path, (str, bytes)) and path:
        return said("system-refuses-path", ascii(os.fsdecode(path))[1:-1][:200], reason_of(problem))
    return said("system-refuses", reason_of(problem))


def _input_error(problem: Exception) -> str:
    """What an error says that only an input can cause which no reader has refused."""
    if isinstance(problem, MemoryError):
        what = said("not-in-memory")
    elif isinstance(problem, RecursionError):
        what = said("nested-too-deeply")
    else:
        what = said("number-or-text-too-large", ascii(str(problem))[1:-1][:120])
    return said("input-cannot-be-read", what)


def top_parser() -> Parser:
    """What stands before the name of a command."""
    parser = Parser(
        prog="msprobe",
        usage="msprobe [OPTION ...] [-f {pytorch,mindspore}] COMMAND ...",
        description=both(
            "Names the first call in which two neural-network trainings differ, and why.",
            "指出两次神经网络训练首个不同的调用，以及原因。",
        ),
        add_help=False,
    )
    parser.add_argument(
        "-h",
        "--help",
        action=_ShowHelp,
        nargs=0,
        help=both("show this help and end", "显示本帮助并退出"),
    )
    parser.add_argument(
        "--version",
        action=_ShowVersion,
        nargs=0,
        help=both("show the version, and whether the C extension is in use", "显示版本，以及是否使用了 C 扩展"),
    )
    parser.add_argument(
        "-f",
        "--framework",
        choices=FRAMEWORKS,
        help=both("accepted for old command lines; dumps name their framework", "为旧命令行保留；dump 中已写明框架"),
    )
    common.add_common(parser)
    return parser


class _ShowHelp(argparse.Action):
    """Prints the help: the commands first, then the options."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        say(top_help(), end="")
        parser.exit()


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
        elif word in ("-f", "--framework", *common.VALUED):
            skip = True
        elif not word.startswith("-"):
            return position
    return len(words)


def top_help(every_name: bool = False) -> str:
    """The help of all: commands by what one does with them. ``every_name``: further names of commands, too."""
    parser = top_parser()
    width = max(len(name) for name in commands.COMMANDS)
    lines: list[str] = []
    for group, text in commands.GROUPS.items():
        lines += [Wording("{}: {}", group, text)]
        lines += [
            Wording("  {}  {}", f"{command.name:<{width}}", command.purpose)
            for command in commands.commands_of_group(group)
        ]
        lines += [""]
    if every_name:
        lines += [both("further names, as mindstudio-probe has them:", "mindstudio-probe 的其他名称：")]
        lines += [
            both("  {}  the same as {}", "  {}  同 {}", f"{alias:<{width}}", name)
            for alias, name in commands.ALIASES.items()
        ]
        lines += [""]
    ending = both(
        "`msprobe COMMAND -h` explains a command, `msprobe help --all` has further names of commands.",
        "`msprobe 命令 -h` 说明一个命令，`msprobe help --all` 列出命令的其他名称。",
    )
    usage, _, rest = parser.format_help().partition("\n\n")
    about, _, options = rest.partition("\n\n")
    return "\n".join([usage, "", about, "", *map(translated, lines), options.rstrip("\n"), "", translated(ending), ""])


def family_help(name: str) -> str:
    """The help of a command of several."""
    family = commands.family(name)
    width = max(map(len, family))
    lines = [
        both("usage: msprobe {} COMMAND ...", "用法：msprobe {} COMMAND ...", name),
        "",
        both("commands:", "命令："),
        *(Wording("  {}  {}", f"{part:<{width}}", command.purpose) for part, command in family.items()),
        "",
        both(
            "`msprobe {} COMMAND -h` explains a command; each has --json, --quiet, --debug, --limit, --follow-links.",
            "`msprobe {} 命令 -h` 说明一个命令；每个都有 --json、--quiet、--debug、--limit 和 --follow-links。",
            name,
        ),
    ]
    return "\n".join(map(translated, lines))


def _nearest(name: str) -> str:
    names = commands.known_names()
    return did_you_mean(name, names, 0.5) or said("the-commands-are", ", ".join(names))


def _say(message: str) -> int:
    """Say what a command could not do, and why; its exit status."""
    code, text = code_of(message)[0], translated(message)
    if len(text) > _MOST_LETTERS:
        text = f"{text[: _MOST_LETTERS // 2]} ... {text[-_MOST_LETTERS // 4 :]}"
    answers.failed(message)
    say(f"msprobe: {text}{f' [{code}]' if code else ''}", file=sys.stderr)
    return COULD_NOT
