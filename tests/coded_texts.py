"""What texts are made of, for tests: by names of the catalogue, and never by their words."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.messages import Wording, code_of


def names_of(texts: Iterable[str]) -> list[str]:
    """The name of the message of each text; of one that has none, nothing."""
    return [name for text in texts for _, name in [code_of(text)] if name]


def pieces_of(text: object) -> set[str]:
    """The names of the message and of all pieces that a text is made of."""
    if not isinstance(text, Wording):
        return set()
    own = {text.entry.name} if text.entry is not None else set()
    return own.union(*map(pieces_of, text.values))
