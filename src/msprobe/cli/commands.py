"""The commands: each declared once, in :data:`COMMANDS`. Importing this imports none of them.

Help, parsers, completion and the reference in docs/ are made from these declarations and from what a command's module
adds to its parser.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msprobe.cli.command import Command
from msprobe.cli.declared import DECLARED
from msprobe.messages import both

if TYPE_CHECKING:
    from msprobe.cli.parser import Parser

#: Name -> what one does with its commands, in the order in which a session goes.
GROUPS: dict[str, str] = {
    "record": both("record a training", "采集一次训练"),
    "look": both("look at one recording", "查看一份采集结果"),
    "compare": both("compare two recordings", "比对两份采集结果"),
    "prove": both("prove which call is wrong", "证明哪个调用有问题"),
    "watch": both("watch a training of many steps", "监控多个 step 的训练"),
    "environment": both("installation, settings, weights", "安装、配置与权重"),
}

#: Name -> command, in the order of the groups.
COMMANDS: dict[str, Command] = {command.name: command for command in DECLARED}
#: Further name -> the name of its command.
ALIASES: dict[str, str] = {alias: command.name for command in DECLARED for alias in command.aliases}


def known_names() -> list[str]:
    """Every first word that a command line may have."""
    return list(dict.fromkeys([*(name.split()[0] for name in COMMANDS), *ALIASES]))


def family(word: str) -> dict[str, Command]:
    """Second word -> command, of a command of two words; empty if ``word`` is none."""
    return {name.split()[1]: command for name, command in COMMANDS.items() if name.split()[0] == word and " " in name}


def named(word: str) -> str:
    """A first word as it stands here: hyphens may stand for underscores."""
    return word if word in known_names() else word.replace("-", "_")


def commands_of_group(group: str) -> Sequence[Command]:
    """The commands of a group."""
    return [command for command in DECLARED if command.group == group]


def parser_of(command: Command, called: str = "") -> Parser:
    """The whole parser of a command, with the options of all. ``called``: the name that was typed."""
    from msprobe.cli.common import add_common
    from msprobe.cli.parser import Parser

    parser = Parser(prog=f"msprobe {called or command.name}", description=command.sentence)
    command.load().configure(parser)
    add_common(parser)
    parser.settle()
    parser.add_statuses(command.statuses)
    return parser
