"""Shell patterns (``*``, ``?``, ``[a-z]``) matched in time that grows with the text alone, never with its choices.

Only words of at most ``MOST_SIGNS`` signs are patterns; a longer one matches nothing but itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_SIGNS = 1000

_SIGN = re.compile(r"\*|\?|\[[!^]?\]?[^\]]*\]|.", re.DOTALL)
_SPECIAL = frozenset("*?[")


class Glob:
    """A pattern of the shell. It is a set of places in itself, held as bits, that a letter moves on."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.is_plain = not _SPECIAL.intersection(pattern) or len(pattern) > MOST_SIGNS
        signs = [pattern] if self.is_plain else _SIGN.findall(pattern)
        self._signs: list[str] = []
        #: Bits of the places at which a star stands.
        self._stars = 0
        for sign in () if self.is_plain else signs:
            if sign == "*":
                self._stars |= 1 << len(self._signs)
            else:
                self._signs.append(sign)
        self._end = 1 << len(self._signs)
        self._moves: dict[str, int] = {}
        #: How many letters have been looked at in all.
        self.steps = 0

    def matches(self, text: str) -> bool:
        """Whether the pattern stands for the whole text."""
        if self.is_plain:
            return text == self.text
        places = 1
        for letter in text:
            places = self._after(places, letter)
            if not places:
                return False
        return bool(places & self._end)

    def ends(self, text: str, start: int = 0) -> Iterator[int]:
        """Where a piece ends that begins at ``start`` and that the pattern stands for, ascending."""
        if self.is_plain:
            if text.startswith(self.text, start):
                yield start + len(self.text)
            return
        places = 1
        if places & self._end:
            yield start
        for end in range(start, len(text)):
            self.steps += 1
            places = self._after(places, text[end])
            if not places:
                return
            if places & self._end:
                yield end + 1

    def reversed(self) -> Glob:
        """The pattern for texts read from their end."""
        if self.is_plain:
            return Glob(self.text[::-1])
        return Glob("".join(reversed(_SIGN.findall(self.text))))

    def _after(self, places: int, letter: str) -> int:
        move = self._moves.get(letter)
        if move is None:
            move = self._moves[letter] = sum(1 << at for at, sign in enumerate(self._signs) if _is(sign, letter))
        return ((places & move) << 1) | (places & self._stars)


def _is(sign: str, letter: str) -> bool:
    if sign == "?":
        return True
    if len(sign) < 2:
        return sign == letter
    inner = sign[1:-1]
    is_negated = inner[:1] in ("!", "^")
    inner = inner[is_negated:]
    place, is_in = 0, False
    while place < len(inner) and not is_in:
        if inner[place + 1 : place + 2] == "-" and place + 2 < len(inner):
            is_in = inner[place] <= letter <= inner[place + 2]
            place += 3
        else:
            is_in = inner[place] == letter
            place += 1
    return is_in != is_negated
