"""How a script says its sentences: it has those that it needs, in the language that it was written in."""

from __future__ import annotations

from typing import Any

#: Name in the catalogue -> the names of the values, and the sentence. A script has its own behind its other text.
SENTENCES: dict[str, list[Any]] = {}


def said(name: str, *values: object) -> str:
    """The sentence of a name of these values, as ``msprobe.messages.said`` makes it."""
    names, text = SENTENCES[name]
    filled: str = text.format(**dict(zip(names, values, strict=True)))
    return filled
