"""Texts in lines of a terminal's width, in which a Chinese letter takes two columns and needs no space behind it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

#: What no line begins with.
_CLOSING = "，。；：、？！）》」』”’,.;:)?!"
#: What no line ends with.
_OPENING = "（《「『“‘("
_WIDE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
#: A word, or one wide letter with what may not be taken from it.
_PIECE = re.compile(rf"[{_OPENING}]*(?:[{_WIDE}]|[^\s{_WIDE}]+)[{_CLOSING}”]*")


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def lines(text: str, width: int, first: str = "", further: str = "") -> list[str]:
    """A text in lines of at most so many columns; what is longer than a line and has no place to break stays whole.

    ``first`` and ``further``: what the first line, and all others, begin with.
    """
    wrapped: list[str] = []
    line, is_empty = first, True
    for space, piece in _pieces(text):
        if not is_empty and columns(line) + len(space) + columns(piece) > width:
            wrapped.append(line)
            line, is_empty = further, True
        line += piece if is_empty else f"{space}{piece}"
        is_empty = False
    return [*wrapped, line] if not is_empty else wrapped


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """What a line may begin with, and the spaces before it."""
    end = 0
    for each in _PIECE.finditer(text):
        yield " " * (each.start() - end), each[0]
        end = each.end()
