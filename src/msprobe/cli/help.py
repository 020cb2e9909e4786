"""``msprobe help``: the commands, or the help of one."""

from __future__ import annotations

import argparse

from msprobe.cli.parser import UsageError, did_you_mean, refuse_unused
from msprobe.foreign.console import say
from msprobe.messages import both, said


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "command",
        nargs="*",
        metavar="COMMAND",
        help=both("the command to explain, as `compare`", "要说明的命令，如 `compare`"),
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help=both("list further names of commands, too", "同时列出命令的其他名称"),
    )


def execute(args: argparse.Namespace) -> int:
    """Print the help that was asked for."""
    from msprobe.cli import answers, commands, family_help, top_help

    if not args.command:
        say(top_help(args.all), end="")
        answers.note(commands={name: command.purpose for name, command in commands.COMMANDS.items()})
        return 0
    refuse_unused({"--all": args.all}, both("it is for the list of all commands", "它用于列出全部命令"))
    name = " ".join([commands.named(args.command[0]), *args.command[1:]])
    if commands.family(name):
        say(family_help(name))
        return 0
    command = commands.ALIASES.get(name, name)
    if command not in commands.COMMANDS:
        meant = did_you_mean(name, [*commands.COMMANDS, *commands.ALIASES])
        raise UsageError(said("command-unknown", name, meant or said("help-lists-commands")))
    say(commands.parser_of(commands.COMMANDS[command], name).format_help(), end="")
    return 0
