"""The word that was probably meant, for messages: bounded, as a file may have many wrong names, and long ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_LETTERS = 120
#: Pairs of words that one process compares at most; a hundred thousand take a second or two.
_MOST_PAIRS = 300_000
_left = [_MOST_PAIRS]


def near_words(word: object, known: Iterable[object], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """The ``n`` known words that are most like ``word``, the nearest first.

    None for a word of more than :data:`MOST_LETTERS` letters, and once a process has compared very many.
    """
    text = str(word)
    if not text or len(text) > MOST_LETTERS or _left[0] < 0:
        return []
    words = [name for name in map(str, known) if len(name) <= MOST_LETTERS]
    _left[0] -= len(words)
    return difflib.get_close_matches(text, words, n=n, cutoff=cutoff) if _left[0] >= 0 else []
