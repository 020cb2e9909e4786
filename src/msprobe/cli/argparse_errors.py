"""What argparse itself says of a wrong command line, as messages of the catalogue."""

from __future__ import annotations

import argparse
import re

from msprobe.messages import Wording, said

#: Its sentences, and the message of each, which takes the groups as its values.
_SENTENCES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile("the following arguments are required: (.*)"), "arguments-required"),
    (re.compile("one of the arguments (.*) is required"), "one-argument-required"),
    (re.compile("expected one argument"), "one-value-expected"),
    (re.compile("expected at most one argument"), "one-value-at-most"),
    (re.compile("expected at least one argument"), "one-value-at-least"),
    (re.compile("expected ([0-9]+) arguments?"), "values-expected"),
    (re.compile("not allowed with argument (.*)"), "option-excluded-by"),
    (re.compile("ignored explicit argument (.*)"), "option-takes-no-value"),
)


def message_of(text: str) -> str:
    """The message of a sentence of argparse, without a full stop; a sentence that it does not have stays."""
    if isinstance(text, Wording):
        return text
    for pattern, name in _SENTENCES:
        if match := pattern.fullmatch(text):
            return said(name, *match.groups())
    return text.rstrip(".")


def message_of_option(problem: argparse.ArgumentError) -> str:
    """The message of an error about one option, or about none."""
    message = message_of(problem.message)
    return said("option-wrong", problem.argument_name, message) if problem.argument_name else message
