"""``[ ... ]``, ``[[ ... ]]`` and ``((...))``: true, false, or None for what only running it would say."""

from __future__ import annotations

from collections.abc import Callable

from msprobe.environment.hyperparameters.shell.arithmetic import NoNumberError
from msprobe.environment.hyperparameters.shell.expansion import OUTPUT, UNSET, Variables, as_one_text, fields
from msprobe.foreign.globs import Glob

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_TEXTS = ("=", "==", "!=", "<", ">", "=~")


def is_true(words: list[str], variables: Variables) -> bool | None:
    """What a test says: the words of the command as they are written, with its name."""
    name, rest = words[0], words[1:]
    if name.startswith("(("):
        return _arithmetic(name[2:-2], variables)
    if name in ("[", "[["):
        rest = rest[:-1] if rest and rest[-1] in ("]", "]]") else rest
    return _Test(rest, variables, is_double=name == "[[").value()


def _arithmetic(text: str, variables: Variables) -> bool | None:
    try:
        inner = as_one_text('"' + text.replace('"', "") + '"', variables) if "$" in text else text
        return variables.number(inner) != 0
    except NoNumberError:
        return None


class _Test:
    def __init__(self, words: list[str], variables: Variables, is_double: bool) -> None:
        self.variables, self.is_double, self.place = variables, is_double, 0
        self.words = words if is_double else _visible(words, variables)

    def value(self) -> bool | None:
        answer = self.any_of()
        return answer if self.place >= len(self.words) else False

    def next(self) -> str:
        return self.words[self.place] if self.place < len(self.words) else ""

    def any_of(self) -> bool | None:
        answer = self.all_of()
        while self.next() in ("||", "-o"):
            self.place += 1
            answer = either(answer, self.all_of())
        return answer

    def all_of(self) -> bool | None:
        answer = self.negated()
        while self.next() in ("&&", "-a"):
            self.place += 1
            answer = both(answer, self.negated())
        return answer

    def negated(self) -> bool | None:
        if self.next() == "!":
            self.place += 1
            return opposite(self.negated())
        if self.next() == "(":
            self.place += 1
            answer = self.any_of()
            self.place += 1
            return answer
        return self.single()

    def text(self, word: str) -> str:
        return as_one_text(word, self.variables) if self.is_double else word

    def single(self) -> bool | None:
        left = self.next()
        following = self.words[self.place + 1 : self.place + 3]
        if len(following) == 2 and (following[0] in _NUMBERS or following[0] in _TEXTS):
            self.place += 3
            return self.compared(self.text(left), following[0], self.text(following[1]))
        if following and left in ("-z", "-n", "-v") and following[0] not in ("&&", "||"):
            self.place += 2
            value = _known(self.text(following[0]))
            if left == "-v":
                return self.variables.elements(following[0]) is not None
            return None if value is None else (value == "") == (left == "-z")
        if following and left.startswith("-") and len(left) == 2:
            self.place += 2
            return None  # a question about files
        self.place += 1
        value = _known(self.text(left))
        return None if value is None else value != ""

    def compared(self, left: str, sign: str, right: str) -> bool | None:
        first, second = _known(left), _known(right)
        if first is None or second is None or sign == "=~":
            return None
        if sign in _NUMBERS:
            try:
                return _NUMBERS[sign](*(self.variables.number(text) for text in (first, second)))
            except NoNumberError:
                return False
        if sign in ("<", ">"):
            return first < second if sign == "<" else first > second
        if self.is_double:
            self.variables.spend(len(first))
        same = Glob(second).matches(first) if self.is_double else first == second
        return same if sign != "!=" else not same


def _visible(words: list[str], variables: Variables) -> list[str]:
    """The arguments of ``[``: a variable that has no value and no quotes is not there at all."""
    shown = []
    for word in words:
        parts = fields([word], variables)
        shown += [part for part in parts if not part.startswith(UNSET) or '"' in word]
    return shown


def _known(text: str) -> str | None:
    """The text with nothing where a variable has no value; None if a command would have to be run."""
    if OUTPUT in text:
        return None
    return "" if UNSET in text else text


def both(first: bool | None, second: bool | None) -> bool | None:
    """``&&`` of what may be unknown."""
    if first is False or second is False:
        return False
    return None if first is None or second is None else True


def either(first: bool | None, second: bool | None) -> bool | None:
    """``||`` of what may be unknown."""
    return opposite(both(opposite(first), opposite(second)))


def opposite(value: bool | None) -> bool | None:
    """``!`` of what may be unknown."""
    return None if value is None else not value
