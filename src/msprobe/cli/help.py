"""``msprobe help``: the commands, or the help of one."""

from __future__ import annotations

import argparse

from msprobe.cli.parser import UsageError, did_you_mean, refuse_unused
from msprobe.foreign.console import say
from msprobe.messages import said


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="the command to explain, as `compare`")
    parser.add_argument("--all", action="store_true", help="list further names of commands, too")


def execute(args: argparse.Namespace) -> int:
    """Print the help that was asked for."""
    from msprobe.cli import answers, commands, family_help, top_help

    if not args.command:
        say(top_help(args.all), end="")
        answers.note(commands={name: one.purpose for name, one in commands.COMMANDS.items()})
        return 0
    refuse_unused({"--all": args.all}, "it is for the list of all commands")
    name = " ".join([commands.named(args.command[0]), *args.command[1:]])
    if commands.family(name):
        say(family_help(name))
        return 0
    found = commands.ALIASES.get(name, name)
    if found not in commands.COMMANDS:
        meant = did_you_mean(name, [*commands.COMMANDS, *commands.ALIASES])
        raise UsageError(said("command-unknown", name, meant or "`msprobe help` lists them."))
    say(commands.parser_of(commands.COMMANDS[found], name).format_help(), end="")
    return 0
