"""Text from files of others for a terminal: light, for those who show something while the rest is loaded."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text in one line: what would drive a terminal, or turn the direction of writing, is ``_``."""
    return "".join(letter if letter.isprintable() else " " if letter in "\n\t" else "_" for letter in text)
