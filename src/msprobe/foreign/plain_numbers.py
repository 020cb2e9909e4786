"""Numbers in what a stranger may have written, where Python takes True for 1 and a text may stand for a number."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_number(value: object) -> TypeGuard[int | float]:
    """True for a number; not for true and false."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def count_or_none(value: object) -> int | None:
    """The value if it is a whole number of at least 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def number_or_text(text: str) -> Any:
    """The number that a text is, whole where it can be; else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
