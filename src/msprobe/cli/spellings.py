"""How options are spelled: ``--`` and hyphens, and beside that every spelling that mindstudio-probe has.

A module adds its options as they were published. :func:`settle` adds the spelling of today to each, so both work in
every command; :class:`Help` shows that one, and the others behind its text.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from msprobe.messages import both, translated
from msprobe.messages.lines import columns, lines

#: A letter means the same in all commands: letter -> the name of its option. Those of published command lines mean what
#: they mean there, and stand in the help behind the text of their option alone.
LETTERS = {"-h": ("--help",), "-o": ("--output",), "-q": ("--quiet",), "-f": ("--framework",)}

# All lines of a paragraph of prose but the last have so many columns.
_LONG = 90
#: What argparse itself writes above the groups of a help.
_HEADINGS = {
    "positional arguments": both("positional arguments", "位置参数"),
    "options": both("options", "选项"),
}
HELP_OF_HELP = both("show this help message and exit", "显示本帮助并退出")
_USAGE = both("usage: ", "用法：")


def modern_spellings(names: Iterable[str]) -> list[str]:
    """What an option of these names is also called: with hyphens in place of underscores, and with two dashes where it
    has no name with two.

    >>> modern_spellings(["-o", "--output_path"]), modern_spellings(["-save_error_data"])
    (['--output-path'], ['--save-error-data'])
    """
    given = list(names)
    long = [name for name in given if name.startswith("--")]
    if not long:
        long = [f"-{name}" for name in given if len(name) > 2]
    spellings = [f"--{name[2:].replace('_', '-')}" for name in long]
    return [name for name in dict.fromkeys(spellings) if name not in given]


def shown(names: Iterable[str]) -> list[str]:
    """What the help calls an option of these names: its letter where all commands have it, and one long name."""
    given = list(names)
    long = [name for name in given if name.startswith("--") and "_" not in name]
    best = [name for name in long if name == "--output"] or long[:1]
    letters = [name for name in given if set(LETTERS.get(name, ())) & set(given)]
    return [*letters, *best] or given


def others(names: Iterable[str]) -> list[str]:
    """The further names of an option, but for those that differ from one before in hyphens and underscores alone."""
    given = list(names)
    best = shown(given)
    alike = {name.replace("_", "-") for name in best}
    other_names = []
    for name in given:
        if name not in best and name.replace("_", "-") not in alike:
            other_names.append(name)
            alike.add(name.replace("_", "-"))
    return other_names


def settle(parser: argparse.ArgumentParser) -> None:
    """Add the spellings of today to all options of a parser, those of its groups included."""
    known = parser._option_string_actions
    for action in parser._actions:
        if action.option_strings:
            new = [name for name in modern_spellings(action.option_strings) if name not in known]
            action.option_strings = [*action.option_strings, *new]
            known.update(dict.fromkeys(new, action))


def filled(text: str, width: int, indent: str = "") -> str:
    """Paragraphs of prose in lines of so many columns; lists and examples stay as they are."""
    paragraphs = []
    for paragraph in text.strip("\n").split("\n\n"):
        given = paragraph.splitlines()
        if all(columns(line) > _LONG for line in given[:-1]):
            paragraph = "\n".join(lines(" ".join(given), width, indent, indent))
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


class Help(argparse.RawDescriptionHelpFormatter):
    """Help in the language that is asked for, which shows each option under its name of today."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return filled(translated(text), width, indent)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return lines(" ".join(text.split()), width)

    def start_section(self, heading: str | None) -> None:
        """Begin a group of options."""
        super().start_section(None if heading is None else translated(_HEADINGS.get(heading, heading)))

    def add_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None) -> None:
        """The line of usage."""
        super().add_usage(usage, actions, groups, translated(_USAGE) if prefix is None else prefix)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        return self._named(action, shown(action.option_strings))

    def _named(self, action: argparse.Action, names: Iterable[str]) -> str:
        typed = ", ".join(names)
        if action.nargs == 0:
            return typed
        return f"{typed} {self._format_args(action, self._get_default_metavar_for_optional(action))}"

    def _get_help_string(self, action: argparse.Action) -> str | None:
        more = ", ".join(others(action.option_strings))
        text = both("{} (also {})", "{}（也可写作 {}）", action.help or "", more) if more else action.help
        return None if text is None else translated(text).lstrip()

    def in_usage(self, action: argparse.Action) -> str:
        """What the line of usage says of an argument: its place, or how it is given where it must be."""
        if not action.option_strings:
            return self._format_args(action, action.metavar if isinstance(action.metavar, str) else action.dest)
        return self._named(action, shown(action.option_strings)[:1]) if action.required else ""
