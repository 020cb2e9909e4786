"""Texts for people that remember how they were made, so that another language can say them too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Number
from typing import Any


class Wording(str):
    """An English text made of a template and of what was put into it; to everybody else it is that text.

    ``template`` has the places of :meth:`str.format`, in the order of ``values``; values may be wordings themselves.

    >>> text = Wording("{} of {} differs", "output.0", "Functional.linear.3.forward")
    >>> text
    'output.0 of Functional.linear.3.forward differs'
    >>> said_in({"{} of {} differs": "{1} 的 {0} 不同"}, text)
    'Functional.linear.3.forward 的 output.0 不同'
    """

    # No dictionary: findings of many steps are kept.
    __slots__ = ("template", "values")

    template: str
    values: tuple[Any, ...]

    def __new__(cls, template: str, *values: object) -> Wording:
        made = super().__new__(cls, template.format(*values) if values else template)
        # What is neither text nor number is there to be read.
        made.template = template
        made.values = tuple(value if isinstance(value, str | Number) else str(value) for value in values)
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.template, *self.values)

    def __add__(self, other: str) -> Wording:
        return Wording("{}{}", self, other) if other else self

    def __radd__(self, other: str) -> Wording:
        return Wording("{}{}", other, self) if other else self

    def with_values(self, change: Callable[[str], str]) -> Wording:
        """The same wording with all texts in it changed."""
        return Wording(
            self.template,
            *(
                value.with_values(change)
                if isinstance(value, Wording)
                else change(value)
                if isinstance(value, str)
                else value
                for value in self.values
            ),
        )


def joined(separator: str, texts: Iterable[str]) -> str:
    """Texts one after the other, as :meth:`str.join` puts them, each still a wording."""
    parts = list(texts)
    if len(parts) == 1:
        return parts[0]
    return Wording(separator.replace("{", "{{").replace("}", "}}").join("{}" for _ in parts), *parts) if parts else ""


def with_first(text: str, old: str, new: str) -> str:
    """The text with ``new`` where ``old`` stands first, as :meth:`str.replace` puts it."""
    if not isinstance(text, Wording):
        return text.replace(old, new, 1)
    values = list(text.values)
    for place, value in enumerate(values):
        if isinstance(value, str) and old in value:
            values[place] = new if value == old else with_first(value, old, new)
            break
    return Wording(text.template, *values)


def said_in(phrases: Mapping[str, str], text: str) -> str:
    """A text in another language: ``phrases`` has a template of that language for each English one. What has none stays
    as it is; so does a word in a wording that is none itself, as it may be a name: ``sum``, ``module``.
    """
    if not isinstance(text, Wording):
        return phrases.get(text, text)
    values = [
        said_in(phrases, value) if isinstance(value, Wording) or (isinstance(value, str) and _is_told(value)) else value
        for value in text.values
    ]
    template = phrases.get(text.template, text.template)
    return template.format(*values) if values else template


def _is_told(value: str) -> bool:
    return " " in value or value in ("candidate", "reference")
