"""What the catalogue holds: messages with codes, pieces of sentences, and what there is to say about sorts of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "zh"]
#: ``finding``: something differs or is wrong in what was recorded; ``note``: what an answer does not cover, or what else
#: to know of it; ``warning``: the work goes on, with something less; ``error``: it could not be done.
Severity = Literal["finding", "note", "warning", "error"]


@dataclass(frozen=True)
class Message:
    """One message in both languages.

    ``code``: a letter by room and a number; it never changes, and none is used again. ``name``: the same for people and
    for the source, which makes a message by it. ``topic``: the :class:`Topic` that explains it. ``arguments``: the names
    of its values, in the order in which the source gives them; the texts have them in braces.
    """

    code: str
    name: str
    topic: str
    arguments: str
    english: str
    chinese: str
    severity: Severity = "finding"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its values."""
        return tuple(self.arguments.split())

    def text(self, language: Language) -> str:
        """The template in a language."""
        return self.chinese if language == "zh" else self.english


@dataclass(frozen=True)
class Piece:
    """A piece of a sentence, or a line that no one asks about: it has no code. ``arguments`` as those of a message, or
    empty where the texts have places by position.
    """

    name: str
    arguments: str
    english: str
    chinese: str
    code: Literal[""] = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its values."""
        return tuple(self.arguments.split())

    def text(self, language: Language) -> str:
        """The template in a language."""
        return self.chinese if language == "zh" else self.english


Entry = Message | Piece
#: A text in English and in Chinese.
Both = tuple[str, str]


@dataclass(frozen=True)
class Topic:
    """A sort of messages: what they mean, what usually causes them, what to do."""

    meaning: Both
    cause: Both
    advice: Both
