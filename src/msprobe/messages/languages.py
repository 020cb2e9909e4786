"""Which language people are answered in, and texts in both."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict

from msprobe.messages.wording import in_language

if TYPE_CHECKING:
    from msprobe.messages.entry import Language


class Both(TypedDict):
    """A text in both languages."""

    en: str
    zh: str


#: A text for the page: in both languages, or alone where both are the same.
Said = str | Both


def in_both(text: str) -> Said:
    """A text as the page takes it: ``{"en": ..., "zh": ...}``, or the text alone where both are the same."""
    chinese = in_language(text, "zh")
    return str(text) if chinese == text else {"en": str(text), "zh": chinese}


def language() -> Language:
    """The language that is asked for: by ``MSPROBE_LANG`` (``en``, ``zh``), else by the locale; English without one."""
    for name in ("MSPROBE_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name, "")
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def translated(text: str) -> str:
    """The text in the language that is asked for."""
    return in_language(text, language())
