"""Regular expressions that a file brings: compiled and matched so that none of them can stop a command.

A pattern whose matching may take exponential time (``(a+)+$``) is refused when it is compiled. What is left grows with
a power of the text's length; a text that is too long for it is refused, and so are patterns that take too long in all.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from msprobe.errors import InvalidInputError
from msprobe.foreign.budget import SETTINGS, factor
from msprobe.messages import said

#: How ``re`` itself reads patterns; of other names before Python 3.11.
_READER = ("re._parser", "re._constants") if sys.version_info >= (3, 11) else ("sre_parse", "sre_constants")
_reading, _signs = (cast("Any", importlib.import_module(name)) for name in _READER)

MOST_LETTERS = 10_000
#: Steps that one match may take at worst; a step takes some ten nanoseconds.
_MOST_STEPS = 50_000_000
#: Seconds above which a match counts as slow.
_SLOW = 0.001
#: Letters that are distinguished; all others are one.
_LETTERS = 256
_ANY = (1 << (_LETTERS + 1)) - 1
_OTHER = 1 << _LETTERS
_REPEATS = {
    getattr(_signs, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(_signs, name)
}


_Result = TypeVar("_Result")


class PatternError(InvalidInputError):
    """A pattern is no regular expression, or one that may take too long: write it in a simpler way.

    ``reason`` is the message without its place. What ``re`` says of a broken pattern is the cause.
    """

    reason = ""

    @classmethod
    def at(cls, where: str, reason: str) -> PatternError:
        """The error of a pattern of this file and field."""
        error = cls(f"{where}: {reason}.")
        error.reason = reason
        return error


class Pattern:
    """A compiled pattern; its methods are those of ``re.Pattern`` and raise PatternError for what takes too long."""

    __slots__ = ("_compiled", "_left", "_optional", "_unbounded", "_where")

    def __init__(self, compiled: re.Pattern[str], unbounded: int, optional: int, where: str) -> None:
        self._compiled, self._unbounded, self._optional, self._where = compiled, unbounded, optional, where
        self._left = SETTINGS.seconds * factor()

    @property
    def pattern(self) -> str:
        """The pattern as it is written."""
        return self._compiled.pattern

    @property
    def compiled(self) -> re.Pattern[str]:
        """The bare pattern, for texts of the user's own program; it takes no exponential time."""
        return self._compiled

    @property
    def groups(self) -> int:
        """How many groups it has."""
        return self._compiled.groups

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """The match of the whole text."""
        return self._timed(self._compiled.fullmatch, text, 0)

    def match(self, text: str) -> re.Match[str] | None:
        """The match at the beginning of the text."""
        return self._timed(self._compiled.match, text, 0)

    def search(self, text: str) -> re.Match[str] | None:
        """The first match in the text."""
        return self._timed(self._compiled.search, text, 1)

    def sub(self, new: str, text: str, count: int = 0) -> str:
        """The text with matches replaced. Raises re.error and IndexError for a ``new`` that does not fit."""
        if len(new) > MOST_LETTERS:
            raise PatternError.at(self._where, said("replacement-too-long", MOST_LETTERS))
        return self._timed(lambda held: self._compiled.sub(new, held, count=count), text, 1)

    def _timed(self, run: Callable[[str], _Result], text: str, more: int) -> _Result:
        if len(text) > MOST_LETTERS:
            self._refuse(said("pattern-text-too-long", len(text)))
        if len(text) > 64 or self._unbounded > 2 or self._optional > 10:
            steps = (len(text) + 1.0) ** (self._unbounded + more) * 2.0**self._optional
            for divisor in range(2, self._unbounded + more + 1):
                steps /= divisor  # the ends of several pieces are in order
            if steps > _MOST_STEPS:
                self._refuse(said("pattern-slow-for-text", len(text)))
        begun = time.perf_counter()
        answer = run(text)
        taken = time.perf_counter() - begun
        if taken > _SLOW:
            self._left -= taken
            if self._left < 0:
                self._refuse(said("pattern-slow-for-all"))
        return answer

    def _refuse(self, what: str) -> None:
        raise PatternError.at(self._where, said("pattern-problem", _shown(self.pattern), what))


def compile_pattern(text: str, where: str) -> Pattern:
    """The pattern of a file. ``where`` begins messages: the file and field that it comes from.

    Raises PatternError for what is no regular expression, and for one that may take exponential time.
    """
    if len(text) > MOST_LETTERS:
        raise PatternError.at(where, said("pattern-too-long", MOST_LETTERS))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = re.compile(text)
            tree = _reading.parse(text)
        counted = _Choices(bool(compiled.flags & re.IGNORECASE))
        counted.sequence(list(tree), 0)
    except _TooManyChoicesError as problem:
        raise PatternError.at(where, said("pattern-endless", _shown(text), problem)) from None
    except (re.error, RecursionError, OverflowError, MemoryError, ValueError) as problem:
        reason = " ".join(str(problem).split())[:120] or type(problem).__name__
        raise PatternError.at(where, said("no-regular-expression", _shown(text), reason)) from problem
    return Pattern(compiled, counted.unbounded, counted.optional, where)


def _shown(text: str) -> str:
    shown = repr(text) if text.isprintable() else ascii(text)
    return shown if len(shown) <= 80 else f"{shown[:60]}...{shown[-10:]}"


class _TooManyChoicesError(Exception):
    pass


_Follow = int  # letters, as bits, that may come next


class _Choices:
    """How many ways there are to match: pieces of any length that what follows does not end, and choices of two."""

    def __init__(self, ignores_case: bool) -> None:
        self.ignores_case = ignores_case
        self.unbounded = self.optional = 0

    def sequence(self, items: Sequence[Any], follow: _Follow, is_repeated: bool = False) -> None:
        """Count the choices of items one after the other; within a repetition there may be none."""
        for place, (sign, value) in enumerate(items):
            rest = self.first(items[place + 1 :], follow)
            self.item(sign, value, rest, is_repeated)

    def item(self, sign: Any, value: Any, follow: _Follow, is_repeated: bool) -> None:
        if sign in _REPEATS:
            self.repeat(value, follow, is_repeated)
        elif sign is _signs.BRANCH:
            self.branch(value[1], follow, is_repeated)
        elif sign is _signs.SUBPATTERN:
            self.sequence(list(value[-1]), follow, is_repeated)
        elif sign in (_signs.ASSERT, _signs.ASSERT_NOT):
            self.sequence(list(value[1]), _ANY, is_repeated)
        elif sign is _signs.GROUPREF_EXISTS:
            for branch in value[1:]:
                self.sequence(list(branch or ()), follow, is_repeated)
        elif sign is getattr(_signs, "ATOMIC_GROUP", None):
            self.sequence(list(value), _ANY, is_repeated)

    def repeat(self, value: Any, follow: _Follow, is_repeated: bool) -> None:
        least, most, body = value[0], value[1], list(value[2])
        begins = self.first(body, 0)
        repeats = most > 1
        if repeats and self.can_be_empty(body):
            raise _TooManyChoicesError(said("pattern-repeats-empty"))
        self.sequence(body, follow | begins if repeats else follow, is_repeated or repeats)
        if least == most or not begins & follow:
            return  # where it ends is shown by the next letter
        if is_repeated:
            raise _TooManyChoicesError(said("pattern-repeats-lengths"))
        if most == 1:
            self.optional += 1
        else:
            self.unbounded += 1

    def branch(self, branches: Sequence[Any], follow: _Follow, is_repeated: bool) -> None:
        texts = [_literal(list(branch)) for branch in branches]
        firsts = [self.first(list(branch), follow) for branch in branches]
        seen = overlap = 0
        for first in firsts:
            overlap |= seen & first
            seen |= first
        # Of different texts of which none begins as the whole of a second, one fits at most.
        whole = [text for text in texts if text is not None]
        is_one = not overlap or (
            len(whole) == len(texts)
            and all(not second.startswith(first) for first, second in zip(sorted(whole), sorted(whole)[1:]))  # noqa: B905
        )
        if not is_one:
            if is_repeated:
                raise _TooManyChoicesError(said("pattern-repeats-choice"))
            self.optional += 1
        for branch in branches:
            self.sequence(list(branch), follow, is_repeated)

    def first(self, items: Sequence[Any], follow: _Follow) -> _Follow:
        """The letters with which the items may begin; ``follow`` where they may be empty."""
        letters = 0
        for sign, value in items:
            letters |= self.first_of(sign, value)
            if not self.is_optional(sign, value):
                return letters
        return letters | follow

    def first_of(self, sign: Any, value: Any) -> int:
        if sign in _REPEATS:
            return self.first(list(value[2]), 0)
        if sign is _signs.BRANCH:
            letters = 0
            for branch in value[1]:
                letters |= self.first(list(branch), 0)
            return letters
        if sign is _signs.SUBPATTERN:
            return self.first(list(value[-1]), 0)
        if sign is getattr(_signs, "ATOMIC_GROUP", None):
            return self.first(list(value), 0)
        if sign in (_signs.AT, _signs.ASSERT, _signs.ASSERT_NOT):
            return 0
        return self.letters(sign, value)

    def can_be_empty(self, items: Sequence[Any]) -> bool:
        return all(self.is_optional(sign, value) for sign, value in items)

    def is_optional(self, sign: Any, value: Any) -> bool:
        if sign in _REPEATS:
            return value[0] == 0 or self.can_be_empty(list(value[2]))
        if sign is _signs.BRANCH:
            return any(self.can_be_empty(list(branch)) for branch in value[1])
        if sign is _signs.SUBPATTERN:
            return self.can_be_empty(list(value[-1]))
        if sign is getattr(_signs, "ATOMIC_GROUP", None):
            return self.can_be_empty(list(value))
        return sign in (_signs.AT, _signs.ASSERT, _signs.ASSERT_NOT, _signs.GROUPREF, _signs.GROUPREF_EXISTS)

    def letters(self, sign: Any, value: Any) -> int:
        """The letters that one sign stands for."""
        if sign is _signs.LITERAL:
            return self.cased(_bit(value))
        if sign is _signs.NOT_LITERAL:
            return (_ANY & ~_bit(value)) | _OTHER
        if sign is _signs.RANGE:
            low, high = value
            bits = ((1 << (min(high, _LETTERS - 1) + 1)) - 1) & ~((1 << low) - 1) if low < _LETTERS else 0
            return self.cased(bits | (_OTHER if high >= _LETTERS else 0))
        if sign is _signs.CATEGORY:
            return _category(value) | _OTHER
        if sign is _signs.IN:
            letters, is_negated = 0, False
            for inner, argument in value:
                if inner is _signs.NEGATE:
                    is_negated = True
                else:
                    letters |= self.letters(inner, argument)
            return (_ANY & ~letters) | _OTHER if is_negated else letters
        return _ANY

    def cased(self, bits: int) -> int:
        if not self.ignores_case:
            return bits
        letters = [chr(at) for at in range(_LETTERS) if bits >> at & 1]
        for letter in letters:
            for cased_letter in (letter.lower(), letter.upper()):
                bits |= _bit(ord(cased_letter)) if len(cased_letter) == 1 else _OTHER
        return bits | _OTHER


def _bit(code: int) -> int:
    return 1 << code if code < _LETTERS else _OTHER


def _category(name: Any) -> int:
    text = str(name)
    kinds: dict[str, Callable[[str], bool]] = {
        "DIGIT": str.isdecimal,
        "SPACE": str.isspace,
        "WORD": lambda letter: letter.isalnum() or letter == "_",
    }
    kind = next((test for word, test in kinds.items() if text.endswith(word)), None)
    if kind is None:
        return _ANY
    bits = sum(1 << at for at in range(_LETTERS) if kind(chr(at)))
    return _ANY & ~bits if "NOT" in text else bits


def _literal(items: Sequence[Any]) -> str | None:
    """The text that the items are, None where they are no plain letters."""
    if all(sign is _signs.LITERAL for sign, _ in items):
        return "".join(chr(value) for _, value in items)
    return None
