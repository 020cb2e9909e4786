"""The catalogue of messages: every text that a user meets, with its code, in English and in Chinese, side by side.

A message is made by its name, ``said("argument-differs", call, argument, candidate, reference)``, in no other way; texts
are never read back. Files of this room hold the messages of one subject each; :mod:`.topics` says what they mean, what
usually causes them and what to do, :mod:`.pieces` has what sentences are put together from.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from msprobe.messages.languages import Said, in_both, language, translated
from msprobe.messages.wording import (
    Wording,
    arguments_of,
    both,
    code_of,
    coded,
    explained,
    in_language,
    joined,
    messages_in,
    said,
    text_of,
    with_first,
)

if TYPE_CHECKING:
    from msprobe.messages.catalogue import ENTRIES, MESSAGES, TOPICS, find
    from msprobe.messages.entry import Both, Language, Message, Piece, Severity, Topic

__all__ = [
    "ENTRIES",
    "MESSAGES",
    "TOPICS",
    "Both",
    "Language",
    "Message",
    "Piece",
    "Said",
    "Severity",
    "Topic",
    "Wording",
    "arguments_of",
    "both",
    "code_of",
    "coded",
    "explained",
    "find",
    "in_both",
    "in_language",
    "joined",
    "language",
    "messages_in",
    "said",
    "text_of",
    "translated",
    "with_first",
]

_OF_CATALOGUE = ("ENTRIES", "MESSAGES", "TOPICS", "find")


def __getattr__(name: str) -> Any:
    """The catalogue is loaded when something is said, or when somebody asks for it."""
    if name in __all__:
        module = "catalogue" if name in _OF_CATALOGUE else "entry"
        return getattr(importlib.import_module(f"msprobe.messages.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
