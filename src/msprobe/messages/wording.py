"""Texts for people that remember how they were made: of which message, and of which values.

:func:`said` makes one from the catalogue. To everybody else it is its English text; :func:`in_language` says it in
another language, :func:`code_of` and :func:`arguments_of` give what a program reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from numbers import Number
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from msprobe.messages.entry import Entry, Language


_IN_BRACKETS = re.compile(r" ?\(([^()]*)\)")


class Wording(str):
    """An English text made of a template and of what was put into it; to everybody else it is that text.

    ``template`` has the places of :meth:`str.format`, in the order of ``values``; values may be wordings themselves.
    ``entry``: what the catalogue has of it; None for punctuation around values.

    >>> text = said("so-differs", "output.0", "Functional.linear.3.forward", "")
    >>> text
    '; as a result, output.0 of Functional.linear.3.forward differs'
    >>> in_language(text, "zh")
    '；Functional.linear.3.forward 的 output.0 因此不同'
    """

    # No dictionary: findings of many steps are kept.
    __slots__ = ("entry", "template", "values")

    template: str
    values: tuple[Any, ...]
    entry: Entry | None

    def __new__(cls, template: str, *values: object, entry: Entry | None = None) -> Wording:
        made = super().__new__(cls, _filled(template, entry, values))
        # What is neither text nor number is there to be read.
        made.template = template
        made.values = tuple(value if isinstance(value, str | Number) else _kept(value) for value in values)
        made.entry = entry
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        if self.entry is not None and not self.entry.name:
            texts = (self.entry.english, self.entry.chinese)
            return both, (*(texts if self.values else [text.format() for text in texts]), *self.values)
        if self.entry is not None:
            return said, (self.entry.name, *self.values)
        return Wording, (self.template, *self.values)

    def __add__(self, other: str) -> Wording:
        return Wording("{}{}", self, other) if other else self

    def __radd__(self, other: str) -> Wording:
        return Wording("{}{}", other, self) if other else self

    def having(self, values: Iterable[object]) -> Wording:
        """The same message of other values."""
        return Wording(self.template, *values, entry=self.entry)

    def strip(self, chars: str | None = None, /) -> str:
        """As that of a text; what has nothing to be taken away stays a wording."""
        bare = super().strip(chars)
        return self if bare == self else bare

    def with_values(self, change: Callable[[str], str]) -> Wording:
        """The same wording with all texts in it changed."""
        return self.having(
            value.with_values(change)
            if isinstance(value, Wording)
            else change(value)
            if isinstance(value, str)
            else value
            for value in self.values
        )


def said(name: str, *values: object) -> Wording:
    """The message, or the piece of one, that the catalogue has under a name, of these values."""
    from msprobe.messages.catalogue import ENTRIES  # when something is said: much else begins without

    entry = ENTRIES[name]
    return Wording(entry.english, *values, entry=entry)


def both(english: str, chinese: str, *values: object) -> Wording:
    """A text that stands in both languages where it is declared, as the help of an option does; it has no code. With
    values, both are templates of :meth:`str.format`.
    """
    from msprobe.messages.entry import Piece

    texts = (english, chinese)
    if not values:
        texts = (str(english).replace("{", "{{").replace("}", "}}"), chinese.replace("{", "{{").replace("}", "}}"))
    return Wording(texts[0], *values, entry=Piece("", "", *texts))


def text_of(value: object) -> str:
    """The text of a value; of an error that was raised with a wording, the wording."""
    first = value.args[0] if isinstance(value, BaseException) and len(value.args) == 1 else None
    return first if isinstance(first, Wording) else str(value)


def explained(topic: str, what: Literal["meaning", "cause", "advice"]) -> str:
    """What messages of a topic mean, what usually causes them, or what to do; empty if there is no such topic."""
    from msprobe.messages.catalogue import TOPICS

    return said(f"{what} {topic}") if topic in TOPICS else ""


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
    return text.having(values)


def in_language(text: str, language: Language) -> str:
    """A text in a language. What the catalogue does not have stays as it is; so does a word in a wording that is none
    itself, as it may be a name: ``sum``, ``module``; and what stands in quotes, as a folder that is called
    ``reference``.
    """
    if language == "en":
        return str(text)
    from msprobe.messages.words import WORDS

    if not isinstance(text, Wording):
        return WORDS.get(text, text)
    quoted = _quoted(text.template, text.entry.names if text.entry is not None else ())
    values = [
        in_language(value, language)
        if isinstance(value, Wording) or (isinstance(value, str) and place not in quoted and _is_ours(value))
        else value
        for place, value in enumerate(text.values)
    ]
    template = _in_chinese(text.template) if text.entry is None else text.entry.text(language)
    return _filled(template, text.entry, values)


#: What stands between values -> what Chinese has there; formats such as ``{:.0%}`` have no blank.
_BETWEEN = ((", ", "，"), ("; ", "；"), (": ", "："), (". ", "。"), (" and ", " 和 "), (" or ", " 或 "))


def _in_chinese(template: str) -> str:
    """What is put around values and between them, as Chinese has it."""
    from msprobe.messages.words import WORDS

    if template in WORDS:
        return WORDS[template]
    chinese = _IN_BRACKETS.sub(r"（\1）", template)
    for english, between in _BETWEEN:
        chinese = chinese.replace(english, between)
    return f"{chinese[:-1]}。" if chinese.endswith("}.") else chinese


def code_of(text: str) -> tuple[str, str]:
    """Code and name of the first message that a text is made of; empty if it is made of none."""
    for each in _wordings_in(text):
        if each.entry is not None and each.entry.code:
            return each.entry.code, each.entry.name
    return "", ""


def arguments_of(text: str) -> dict[str, Any]:
    """The values of all messages that a text is made of, by their names; of two of one name the first."""
    arguments: dict[str, Any] = {}
    for each in _wordings_in(text):
        if each.entry is not None:
            for name, value in zip(each.entry.names, each.values, strict=False):
                arguments.setdefault(name, str(value) if isinstance(value, str) else value)
    return arguments


def messages_in(text: str) -> list[Wording]:
    """The messages that a text is put together from, each as a whole; itself, if it is one."""
    if not isinstance(text, Wording):
        return []
    if text.entry is not None and text.entry.code:
        return [text]
    return [message for value in text.values for message in messages_in(value)]


def coded(texts: Iterable[str]) -> list[dict[str, Any]]:
    """For a program: code, name, text and arguments of each text that has a code."""
    coded_messages = []
    for text in texts:
        code, name = code_of(text)
        if code:
            coded_messages.append({"code": code, "name": name, "text": str(text), "arguments": arguments_of(text)})
    return coded_messages


class Shown(str):
    """The text of a value that is none, with the ``repr`` of the value."""

    __slots__ = ("form",)

    form: str

    def __new__(cls, text: str, form: str) -> Shown:
        made = super().__new__(cls, text)
        made.form = form
        return made

    def __repr__(self) -> str:
        return self.form

    def __reduce__(self) -> tuple[Any, ...]:
        return Shown, (str(self), self.form)


def _kept(value: object) -> str:
    """What is kept of a value that is neither a text nor a number: it may be large, and change."""
    text = text_of(value)
    return text if isinstance(text, Wording) else Shown(text, repr(value))


def _wordings_in(text: object) -> Iterable[Wording]:
    if isinstance(text, Wording):
        yield text
        for value in text.values:
            yield from _wordings_in(value)


def _filled(template: str, entry: Entry | None, values: Iterable[object]) -> str:
    if entry is not None and entry.arguments:
        return template.format(**dict(zip(entry.names, values, strict=True)))
    given = tuple(values)
    return template.format(*given) if given or entry is not None else template


@lru_cache(4096)
def _quoted(template: str, names: tuple[str, ...]) -> frozenset[int]:
    """The places of the values that a template has in quotes."""
    pieces = [*Formatter().parse(template), ("", None, None, None)]
    fields = [(piece, then) for piece, then in pairwise(pieces) if piece[1] is not None]
    places = set()
    for number, ((before, field, _, form), then) in enumerate(fields):
        if form == "r" or (before.endswith('"') and then[0].startswith('"')):
            places.add(names.index(field) if field in names else int(field) if field and field.isdigit() else number)
    return frozenset(places)


def _is_ours(value: str) -> bool:
    return " " in value or value in ("candidate", "reference")
