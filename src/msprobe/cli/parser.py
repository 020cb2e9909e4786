"""Command lines: what is wrong is said in one line, with the word that was probably meant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from msprobe.cli.argparse_errors import message_of, message_of_option
from msprobe.cli.spellings import HELP_OF_HELP, Help, settle
from msprobe.cli.statuses import COULD_NOT
from msprobe.errors import InvalidInputError
from msprobe.foreign.console import discard, flush_output, say
from msprobe.messages import Wording, both, code_of, joined, said, translated


class UsageError(InvalidInputError):
    """Options that do not belong together, or one that is missing: correct the command line."""


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """``did you mean 'x'?`` for the known word that is nearest; empty if none is near."""
    from msprobe.foreign.nearest import near_words

    words = list(known)
    longer = [name for name in words if len(word) > 3 and name.startswith(word)]
    near = longer[:1] or near_words(word, words, n=1, cutoff=cutoff)
    return said("did-you-mean-word", near[0]) if near else ""


def refuse_unused(given: Mapping[str, object], why: str) -> None:
    """Raises UsageError for options that would do nothing: ``given`` has the value of each, which is false where the
    option was not given. ``why`` ends the sentence "--x: ...".
    """
    names = [name for name, value in given.items() if value]
    if names:
        raise UsageError(said("option-unused", ", ".join(names), why, said("it" if len(names) == 1 else "them")))


_MOST_SECONDS = 1e6
#: What the values of an option are read as -> what a message calls that.
_KINDS: dict[Any, str] = {int: "a-whole-number", float: "a-number"}


def seconds(text: str) -> float:
    """How long to wait at most, as the command line gives it: above 0, and no longer than processes can wait."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST_SECONDS:  # NaN is not in between, either
        raise argparse.ArgumentTypeError(said("seconds-wanted", f"{_MOST_SECONDS:g}", text))
    return number


def finding_number(text: str) -> int:
    """Which finding of a verdict is meant, as the command line counts them."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(said("finding-number-wanted", text))
    return int(text)


def finding_numbers(text: str) -> list[int]:
    """Which findings of a verdict are meant, with commas, each once."""
    return list(dict.fromkeys(finding_number(number.strip()) for number in text.split(",")))


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without abbreviations whose errors are one line, in the language that is asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = {"allow_abbrev": False, "formatter_class": Help, "exit_on_error": False, **kwargs}
        super().__init__(*args, **given)
        self._given: Sequence[str] = ()
        for action in self._actions:
            if isinstance(action, argparse._HelpAction):
                action.help = HELP_OF_HELP

    def settle(self) -> None:
        """Let all options have the spellings of today beside those that they were added with, and say how it is called.

        Where the module has not said it: what must be given, and that there is more.
        """
        settle(self)
        if self.usage is None:
            formatter = self._get_formatter()
            assert isinstance(formatter, Help)
            words = [formatter.in_usage(action) for action in self._actions]
            self.usage = " ".join([self.prog, *filter(None, words), "[OPTION ...]"])

    def add_statuses(self, text: str) -> None:
        """Put what the exit statuses say at the end of the help."""
        self.epilog = joined("\n\n", filter(None, [self.epilog, text]))

    def _print_message(self, message: str, file: Any = None) -> None:
        if message:
            say(message, end="", file=file or sys.stderr)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End behind what was printed. Raises SystemExit, and OutputError if that cannot be written."""
        if message:
            self._print_message(message, sys.stderr)
        try:
            flush_output()
        except BrokenPipeError:
            discard(sys.stdout)
        raise SystemExit(status)

    def parse(self, words: Sequence[str], intermixed: bool) -> argparse.Namespace:
        """Parse these words; ``intermixed``: options may stand between the positional ones. Raises SystemExit."""
        self._given = words
        try:
            namespace, left = self.parse_known_intermixed_args(words) if intermixed else self.parse_known_args(words)
        except argparse.ArgumentError as problem:
            self._refuse_unknown(words)
            self._end(message_of_option(problem))
        if left:
            self._refuse_unknown(left)
            self._end(said("one-argument-too-many", left[0]))
        return namespace

    def error(self, message: str) -> NoReturn:
        """Print the message and end with status 2. An unknown option goes first: it explains the rest."""
        self._refuse_unknown(self._given)
        self._end(message_of(message))

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        # Those of today first: they are what is suggested.
        known = sorted(self._option_string_actions, key=lambda name: ("_" in name, not name.startswith("--")))
        for word in words:
            if word == "--":
                return
            name = word.partition("=")[0]
            # A number below zero, and letters of options in one word (-sc, -oDIR), are no unknown option.
            if not name.startswith("-") or name in known or _is_number(word):
                continue
            if not name.startswith("--") and (name == "-" or name[:2] in known):
                continue
            self._end(joined("; ", filter(None, [said("option-unknown", name), did_you_mean(name, known)])))

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        kind = self._registry_get("type", action.type, action.type)
        try:
            return kind(text)
        except argparse.ArgumentTypeError as problem:
            raise argparse.ArgumentError(action, problem.args[0]) from None
        except (TypeError, ValueError):
            raise argparse.ArgumentError(action, said("value-of-wrong-type", text[:80], said(_KINDS[kind]))) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            wrong = said("value-not-allowed", value, ", ".join(choices))
            raise argparse.ArgumentError(action, joined("; ", filter(None, [wrong, did_you_mean(str(value), choices)])))

    def _end(self, message: str) -> NoReturn:
        whole = Wording("{}{}", self._place(), both("{} (see `{} -h`)", "{}（见 `{} -h`）", message, self.prog))
        code = code_of(message)[0]
        say(f"msprobe: {translated(whole)}{f' [{code}]' if code else ''}", file=sys.stderr)
        raise SystemExit(COULD_NOT)

    def _place(self) -> str:
        """The command that the message is about, as the beginning of it."""
        command = self.prog.partition(" ")[2]
        return f"{command}: " if command else ""


def add_fail_on(parser: argparse._ActionsContainer, what: str) -> None:
    """Add ``--fail-on`` to a command that answers with 0 whatever it finds, as it was published; ``what`` it finds."""
    parser.add_argument(
        "--fail-on",
        choices=("found", "never"),
        default="never",
        help=both("found: exit with 1 if there is {} (never)", "found：如有{}则退出码为 1（never）", what),
    )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
