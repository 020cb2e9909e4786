"""What argparse itself says of a wrong command line, as messages of the catalogue."""

from __future__ import annotations

import argparse
import re

from msprobe.messages import Wording, said

#: Its sentences, and the message of each, which takes the groups as its values.
_SENTENCES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), name)
    for pattern, name in (
        (r"the following arguments are required: (.*)", "arguments-required"),
        (r"one of the arguments (.*) is required", "one-argument-required"),
        (r"expected one argument", "one-value-expected"),
        (r"expected at most one argument", "one-value-at-most"),
        (r"expected at least one argument", "one-value-at-least"),
        (r"expected (\d+) arguments?", "values-expected"),
        (r"not allowed with argument (.*)", "option-excluded-by"),
        (r"ignored explicit argument (.*)", "option-takes-no-value"),
    )
)


def message_of(text: str) -> str:
    """The message of a sentence of argparse, without a full stop; a sentence that it does not have stays."""
    if isinstance(text, Wording):
        return text
    for pattern, name in _SENTENCES:
        if found := pattern.fullmatch(text):
            return said(name, *found.groups())
    return text.rstrip(".")


def message_of_option(problem: argparse.ArgumentError) -> str:
    """The message of an error about one option, or about none."""
    message = message_of(problem.message)
    return said("option-wrong", problem.argument_name, message) if problem.argument_name else message
