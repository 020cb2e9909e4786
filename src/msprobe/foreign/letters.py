"""Text from files of others for a terminal: light, for those who show something while the rest is loaded."""

from __future__ import annotations

_MOST_OF_VALUE = 60


def printable(text: str) -> str:
    """The text in one line: what would drive a terminal, or turn the direction of writing, is ``_``."""
    return "".join(letter if letter.isprintable() else " " if letter in "\n\t" else "_" for letter in text)


def printable_name(text: str) -> str:
    """The same for names, where the ends of lines and tabs are ``_`` as well."""
    return "".join(letter if letter.isprintable() else "_" for letter in text)


def short_repr(value: object) -> str:
    """A value that should not be there, as a message quotes it."""
    text = repr(value)
    return text if len(text) <= _MOST_OF_VALUE else f"{text[: _MOST_OF_VALUE - 3]}..."
