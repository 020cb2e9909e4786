"""What texts are made of, for tests: by names of the catalogue, and never by their words."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from msprobe.messages import ENTRIES, Wording, arguments_of, code_of


def names_of(texts: Iterable[str]) -> list[str]:
    """The name of the message of each text; of one that has none, nothing."""
    return [name for text in texts for _, name in [code_of(text)] if name]


def pieces_of(text: object) -> set[str]:
    """The names of the message and of all pieces that a text is made of."""
    if not isinstance(text, Wording):
        return set()
    own = {text.entry.name} if text.entry is not None else set()
    return own.union(*map(pieces_of, text.values))


@contextmanager
def raising(kind: type[BaseException], name: str, /, **arguments: object) -> Iterator[pytest.ExceptionInfo[Any]]:
    """As ``pytest.raises``, of the message of a name in the catalogue, made of these values among others."""
    with pytest.raises(kind) as caught:
        yield caught
    message = getattr(caught.value, "message", None) or caught.value.args[0]
    assert code_of(message)[1] == name, message
    assert arguments_of(message).items() >= arguments.items(), message


def mentions(text: str, name: str, /, **arguments: object) -> int:
    """How often a text, as the lines of the log, has the message of a name, made of these values among others."""
    entry, pattern = ENTRIES[name], ""
    for literal, argument, form, conversion in string.Formatter().parse(entry.english):
        pattern += re.escape(literal)
        if argument is not None:
            place = f"{{{f'!{conversion}' if conversion else ''}:{form}}}"
            pattern += re.escape(place.format(arguments[argument])) if argument in arguments else ".*?"
    return len(re.findall(pattern, text, re.DOTALL))
