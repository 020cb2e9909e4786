"""What the words of a script stand for: quotes taken away, variables put in.

A script is read as it runs without arguments and in an empty environment. What it does not say itself stays as it is
written (``$1``, ``$HOME``, ``$(date)``), behind a mark: ``UNSET`` for a variable, which counts as empty in
conditions, ``OUTPUT`` for what only running a command would say.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from msprobe.environment.hyperparameters.shell.arithmetic import NoNumberError, computed
from msprobe.environment.hyperparameters.shell.words import after_piece
from msprobe.foreign.globs import Glob

UNSET, OUTPUT = "\0", "\1"
#: A blank of what is not known, where words are not cut.
_HELD_BLANK = "\2"
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]")
_BRACED = re.compile(r"(#|!)?([A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[([^\]]*)\])?(.*)", re.DOTALL)
_BLANKS = " \t\n"
MOST_LETTERS = 1 << 18
#: How many letters may be put in, looked at and computed in all, beyond twice those of the script.
_MOST_STEPS = 4 << 20
_MOST_DEPTH = 30
_MOST_WORDS = 100_000

Value = str | list[str] | dict[str, str]


@dataclass
class Variables:
    """The variables of a script, and the words it was called with (``$0`` first)."""

    values: dict[str, Value] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=lambda: ["$0"])
    #: Names that the script assigns somewhere: empty until it does, in a branch that is not taken, too.
    own: set[str] = field(default_factory=set)
    #: How many letters may still be put in or looked at, in one place for all copies.
    left: list[int] = field(default_factory=lambda: [_MOST_STEPS])

    @property
    def is_full(self) -> bool:
        """True once too many letters have been put in; nothing more is."""
        return self.left[0] < 0

    def spend(self, letters: int) -> None:
        """Note that so many letters are put in or looked at."""
        self.left[0] -= letters

    def text(self, name: str) -> str | None:
        """The value of a variable that is no array, or the first of an array; None if it has none."""
        if name.isdecimal():
            index = int(name)
            return self.arguments[index] if index < len(self.arguments) else None
        if name == "#":
            return str(len(self.arguments) - 1)
        value = self.values.get(name)
        if isinstance(value, list):
            return value[0] if value else None
        return value.get("0") if isinstance(value, dict) else value

    def elements(self, name: str) -> list[str] | None:
        """All values of an array, or of the call (``@``)."""
        if name in "@*":
            return self.arguments[1:]
        value = self.values.get(name)
        if value is None:
            return None
        return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]

    def number(self, text: str) -> int:
        """The value of an arithmetic expression. Raises NoNumberError."""

        def value(name: str, depth: int = 0) -> str:
            shown = self.text(name) or ""
            if UNSET in shown or OUTPUT in shown:
                raise NoNumberError(name)
            return value(shown, depth + 1) if shown.isidentifier() and depth < _MOST_DEPTH else shown

        self.spend(len(text))
        if self.is_full:
            raise NoNumberError("too many steps")
        return computed(text, value)


def fields(words: list[str], variables: Variables) -> list[str]:
    """The words that a command is called with: variables that are not quoted are cut at blanks, empty ones vanish."""
    expanded: list[str] = []
    for word in words:
        expanded += _Expander(variables).fields(word)
        if len(expanded) > _MOST_WORDS:
            return expanded[:_MOST_WORDS]
    return expanded


def as_one_text(word: str, variables: Variables) -> str:
    """A word as one text: of an assignment, or of a condition."""
    return " ".join(_Expander(variables, splits=False).fields(word))


def plain(text: str) -> str:
    """The text without the marks of what is not known."""
    return text.replace(UNSET, "").replace(OUTPUT, "").replace(_HELD_BLANK, " ")


class _Expander:
    def __init__(self, variables: Variables, splits: bool = True, depth: int = 0) -> None:
        self.variables, self.splits, self.depth = variables, splits, depth
        self.done: list[str] = []
        # The pieces of the word that is under way, and how many letters they are; None: there is none.
        self.current: list[str] | None = None
        self.letters = 0

    def fields(self, word: str) -> list[str]:
        place = 0
        self.variables.spend(len(word))
        while place < len(word):
            end = after_piece(word, place)
            self.piece(word[place:end], word, place)
            # A name behind the sign is not a piece of its own.
            place = self.end_of_name(word, place, end)
        self.finish()
        return self.done

    def end_of_name(self, word: str, place: int, end: int) -> int:
        if word[place] == "$" and end == place + 1 and (match := _NAME.match(word, end)):
            return match.end()
        return end

    def piece(self, piece: str, word: str, place: int) -> None:
        letter = piece[0]
        if letter == "\\":
            self.put("" if piece[1:] == "\n" else piece[1:])
        elif letter == "'":
            self.put(piece[1:-1] if len(piece) > 1 and piece.endswith("'") else piece[1:])
        elif letter == '"':
            self.quoted(piece[1:-1] if len(piece) > 1 and piece.endswith('"') else piece[1:])
        elif letter in "$`":
            self.dollar(piece, word, place, is_quoted=False)
        else:
            self.put(letter)

    def quoted(self, text: str) -> None:
        self.put("")
        place = 0
        while place < len(text):
            letter = text[place]
            if letter == "\\" and text[place + 1 : place + 2] in tuple('"\\$`\n'):
                self.put("" if text[place + 1] == "\n" else text[place + 1])
                place += 2
            elif letter in "$`" and text[place + 1 : place + 2] != "'":
                end = after_piece(text, place)
                self.dollar(text[place:end], text, place, is_quoted=True)
                place = self.end_of_name(text, place, end)
            else:
                self.put(letter)
                place += 1

    def dollar(self, piece: str, word: str, place: int, is_quoted: bool) -> None:
        if piece.startswith("$'"):
            self.put(_unescaped(piece[2:-1] if piece.endswith("'") else piece[2:]))
        elif piece.startswith("$((") and piece.endswith("))"):
            self.arithmetic(piece, is_quoted)
        elif piece.startswith(("$(", "`")):
            self.insert(OUTPUT + piece, is_quoted)
        elif piece.startswith("${"):
            self.braced(piece, is_quoted)
        elif piece == "$" and (match := _NAME.match(word, place + 1)):
            self.variable(match[0], f"${match[0]}", is_quoted)
        elif piece == "$" and word[place + 1 : place + 2] == '"' and not is_quoted:
            return
        else:
            self.put(piece)

    def arithmetic(self, piece: str, is_quoted: bool) -> None:
        inner = (
            as_one_text('"' + piece[3:-2].replace('"', "") + '"', self.variables) if "$" in piece[3:-2] else piece[3:-2]
        )
        try:
            self.insert(str(self.variables.number(inner)), is_quoted)
        except NoNumberError:
            self.insert(OUTPUT + piece, is_quoted)

    def variable(self, name: str, written: str, is_quoted: bool) -> None:
        if name in ("@", "*"):
            self.array(self.variables.elements(name) or [], is_quoted, name == "*")
            return
        value = self.variables.text(name)
        if value is None and (name in self.variables.values or name in self.variables.own):
            value = ""
        self.insert(UNSET + written if value is None else value, is_quoted)

    def braced(self, piece: str, is_quoted: bool) -> None:
        match = _BRACED.fullmatch(piece[2:-1] if piece.endswith("}") else piece[2:])
        if match is None or self.depth > _MOST_DEPTH:
            self.insert(UNSET + piece, is_quoted)
            return
        mark, name, index, rest = match.groups()
        if index in ("@", "*") or (name in ("@", "*") and not mark):
            self.all_elements(mark, name, rest, piece, is_quoted)
            return
        value = self.element(name, index) if index is not None else self.variables.text(name)
        if mark == "#":
            self.insert(UNSET + piece if value is None else str(len(value)), is_quoted)
            return
        if mark == "!" and value is not None:
            value = self.variables.text(value)
        if rest:
            value = self.changed(value, name, rest)
        if value is None and (name in self.variables.values or name in self.variables.own) and not mark:
            value = ""
        self.insert(UNSET + piece if value is None else value, is_quoted)

    def all_elements(self, mark: str | None, name: str, rest: str, piece: str, is_quoted: bool) -> None:
        elements = self.variables.elements(name)
        if mark == "#":
            self.insert(str(len(elements or [])), is_quoted)
        elif mark == "!":
            value = self.variables.values.get(name)
            keys = list(value) if isinstance(value, dict) else [str(place) for place in range(len(elements or []))]
            self.array(keys, is_quoted, False)
        elif elements is None and name not in "@*" and name not in self.variables.own:
            changed = self.changed(None, name, rest) if rest else None
            self.insert(UNSET + piece if changed is None else changed, is_quoted)
        else:
            whole = self.variables.arguments if name in "@*" and rest else elements or []
            self.array(self.sliced(whole, rest), is_quoted, "[*]" in piece or name == "*")

    def sliced(self, elements: list[str], rest: str) -> list[str]:
        if not rest.startswith(":") or rest[1:2] in ("-", "=", "+", "?"):
            return elements
        with contextlib.suppress(NoNumberError):
            numbers = [self.variables.number(part) for part in rest[1:].split(":")]
            return elements[numbers[0] :][: numbers[1] if len(numbers) > 1 else None]
        return elements

    def element(self, name: str, index: str) -> str | None:
        value = self.variables.values.get(name)
        if isinstance(value, dict):
            return value.get(as_one_text(index, self.variables))
        elements = self.variables.elements(name)
        if elements is None:
            return None
        try:
            return elements[self.variables.number(as_one_text(index, self.variables))]
        except (NoNumberError, IndexError):
            return None

    def changed(self, value: str | None, name: str, rest: str) -> str | None:
        """``:-default`` and its like; parts cut off; text replaced."""
        size = 2 if rest[:1] == ":" and rest[1:2] in ("-", "=", "+", "?") else 1
        sign, operand = rest[:size], rest[size:]
        is_known = value is not None and not value.startswith(UNSET) and (bool(value) or not sign.startswith(":"))
        if sign.endswith("+"):
            return self.inner(operand) if is_known else ""
        if sign.endswith(("-", "=")):
            if is_known:
                return value
            replacement = self.inner(operand)
            if sign.endswith("="):
                self.variables.values[name] = replacement
            return replacement
        if value is None or sign.endswith("?"):
            return value
        return self.edited(value, sign, rest)

    def edited(self, value: str, sign: str, rest: str) -> str:
        if UNSET in value or OUTPUT in value:
            return value
        if sign == ":":
            return "".join(self.sliced(list(value), rest))
        if sign in ("#", "%"):
            twice = rest[:2] == sign * 2
            self.variables.spend(len(value))
            return _cut(value, self.inner(rest[2 if twice else 1 :]), at_start=sign == "#", longest=twice)
        if sign == "/":
            wanted, _, by = rest.lstrip("/").partition("/")
            return self.replaced(value, Glob(self.inner(wanted)), self.inner(by), is_everywhere=rest.startswith("//"))
        if sign in ("^", ","):
            change: Callable[[str], str] = str.upper if sign == "^" else str.lower
            return change(value) if rest[:2] == sign * 2 else change(value[:1]) + value[1:]
        return value

    def replaced(self, value: str, glob: Glob, by: str, is_everywhere: bool) -> str:
        """The text with what the pattern stands for replaced, the longest piece from each place on."""
        if not glob.text:
            return value
        pieces: list[str] = []
        place = letters = 0
        while place <= len(value) and letters < MOST_LETTERS and not self.variables.is_full:
            start = value.find(glob.text, place) if glob.is_plain else place
            if start < 0:
                break
            before = glob.steps
            end = max(glob.ends(value, start), default=start)
            self.variables.spend(1 + glob.steps - before)
            if end == start:  # nothing begins here
                pieces.append(value[place : start + 1])
                place = start + 1
                letters += 1
                continue
            pieces += [value[place:start], by]
            letters += start - place + len(by)
            place = end
            if not is_everywhere:
                break
        return "".join(pieces)[:MOST_LETTERS] + value[place:]

    def inner(self, text: str) -> str:
        return " ".join(_Expander(self.variables, splits=False, depth=self.depth + 1).fields(text))

    # ---- what has been found

    def put(self, text: str) -> None:
        if self.current is None:
            self.current, self.letters = [], 0
        if self.letters < MOST_LETTERS:
            self.current.append(text[: MOST_LETTERS - self.letters])
            self.letters += len(text)

    def insert(self, text: str, is_quoted: bool) -> None:
        """The value of a variable: cut at blanks where it is not quoted."""
        if self.variables.is_full:
            return
        self.variables.spend(len(text))
        if text.startswith((UNSET, OUTPUT)):
            text = re.sub(r"\s+", _HELD_BLANK, text)
        if is_quoted or not self.splits:
            if text or is_quoted:
                self.put(text)
            return
        if text[:1] in _BLANKS and text:
            self.finish()
        parts = text.split()
        for number, part in enumerate(parts):
            if number:
                self.finish()
            self.put(part)
        if parts and text[-1:] in _BLANKS:
            self.finish()

    def array(self, elements: list[str], is_quoted: bool, is_one: bool) -> None:
        if self.variables.is_full:
            return
        self.variables.spend(sum(map(len, elements)) + len(elements))
        if not is_quoted and self.splits:
            self.insert(" ".join(elements), is_quoted=False)
        elif is_one or not self.splits:
            self.insert(" ".join(elements), is_quoted)
        else:
            for number, element in enumerate(elements):
                if number:
                    self.finish()
                self.put(element)
            if not elements and not self.letters:
                self.current = None

    def finish(self) -> None:
        if self.current is not None:
            self.done.append("".join(self.current))
            self.current = None


def _cut(value: str, pattern: str, at_start: bool, longest: bool) -> str:
    """A text without the shortest or longest piece at one of its ends that the pattern stands for."""
    glob = Glob(pattern)
    ends = glob.ends(value) if at_start else glob.reversed().ends(value[::-1])
    end = next(ends, None)
    if longest and end is not None:
        end = max(ends, default=end)
    if end is None:
        return value
    return value[end:] if at_start else value[: len(value) - end]


def _unescaped(text: str) -> str:
    known = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
    return re.sub(r"\\(.)", lambda match: known.get(match[1], match[0]), text, flags=re.DOTALL)
