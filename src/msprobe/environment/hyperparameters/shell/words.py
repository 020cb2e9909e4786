"""A shell script as tokens: words as they are written, quotes and all, and operators between them.

Comments are left out, here-documents are no words. Whatever the text is, nothing is raised: a quote that is not closed
reaches to the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_OPERATORS = ("&&", "||", ";;&", ";;", ";&", "|&", "&", ";", "|", "(", ")", "\n")
_REDIRECTION = re.compile(r"(?:\d+|\{\w+\})?(&>>|&>|<<<|<<-|<<|>>|<>|>&|<&|>\||>|<)")
_ENDS = frozenset(" \t\r\n;&|()<>")
_ARRAY = re.compile(r"[A-Za-z_]\w*(?:\[[^\]\n]*\])?\+?=$")


@dataclass(frozen=True)
class Token:
    """A word (with its quotes) or an operator, and the line it begins in (from 1)."""

    text: str
    line: int
    is_operator: bool = False
    #: For the sign of a here-document: its text, as the command that it is given to reads it.
    document: str | None = None


def tokens_of(text: str) -> list[Token]:
    """The tokens of a script, redirections left out. Lines end with the operator of a line's end."""
    return _Scanner(text.replace("\r\n", "\n")).tokens()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.place, self.line = text, 0, 1
        # Letters that may be looked at for the end of a ``((``: many that never end cost the square of their number.
        self.looked = len(text) + 100_000
        self.collected: list[Token] = []
        # Here-documents whose text begins at the next line: the word that ends it, and whether tabs before it count.
        self.documents: list[tuple[str, bool, int]] = []

    def tokens(self) -> list[Token]:
        text, size = self.text, len(self.text)
        while self.place < size:
            letter = text[self.place]
            if letter in " \t\r":
                self.place += 1
            elif text.startswith("\\\n", self.place):
                self.place, self.line = self.place + 2, self.line + 1
            elif letter == "#":
                end = text.find("\n", self.place)
                self.place = size if end < 0 else end
            elif not self._redirection() and not self._arithmetic() and not self._operator():
                self._word()
        return self.collected

    def _redirection(self) -> bool:
        match = _REDIRECTION.match(self.text, self.place)
        if match is None:
            return False
        sign = match[1]
        if sign in ("<", ">") and self.text.startswith("(", match.end()):
            return False  # a command's output as a file
        self.place = match.end()
        while self.text[self.place : self.place + 1] in (" ", "\t"):
            self.place += 1
        target = self._take_word()
        if sign in ("<<", "<<-"):
            self.documents.append((target, sign.endswith("-"), len(self.collected)))
            self.collected.append(Token("<<", self.line, document=""))
        return True

    def _arithmetic(self) -> bool:
        """``((...))`` where a command may begin is one word."""
        if self.looked < 0 or not self.text.startswith("((", self.place):
            return False
        end = _after_brackets(self.text, self.place, "(", ")")
        self.looked -= end - self.place
        if self.text[end - 2 : end] != "))":
            return False
        self._put(self.text[self.place : end])
        return True

    def _operator(self) -> bool:
        for sign in _OPERATORS:
            if self.text.startswith(sign, self.place):
                self.collected.append(Token(sign, self.line, True))
                self.place += len(sign)
                if sign == "\n":
                    self.line += 1
                    self._skip_documents()
                return True
        return False

    def _word(self) -> None:
        start = self.place
        end = _word_end(self.text, start)
        if end == start:  # "<(", ">("
            end = _after_brackets(self.text, start + 1, "(", ")")
        elif self.text.startswith("(", end) and _ARRAY.match(self.text[start:end]):
            end = _after_brackets(self.text, end, "(", ")")
        self._put(self.text[start : max(end, start + 1)])

    def _take_word(self) -> str:
        start, self.place = self.place, _word_end(self.text, self.place)
        return self.text[start : self.place]

    def _put(self, word: str) -> None:
        self.collected.append(Token(word, self.line))
        self.place += len(word)
        self.line += word.count("\n")

    def _skip_documents(self) -> None:
        for target, tabs, place in self.documents:
            ending, rows = re.sub(r"['\"\\]", "", target), []
            while self.place < len(self.text):
                end = self.text.find("\n", self.place)
                end = len(self.text) if end < 0 else end
                row = self.text[self.place : end]
                self.place, self.line = min(end + 1, len(self.text)), self.line + 1
                row = row.lstrip("\t") if tabs else row
                if row == ending:
                    break
                rows.append(row)
            text = "\n".join(rows)
            # Quotes are letters there; where the word that ends it is quoted, so is everything.
            text = text.replace("'", "'\\''") if ending != target else text.replace('"', '\\"')
            mark = "'" if ending != target else '"'
            self.collected[place] = Token("<<", self.collected[place].line, document=f"{mark}{text}{mark}")
        self.documents.clear()


def _word_end(text: str, start: int) -> int:
    place, size = start, len(text)
    while place < size and text[place] not in _ENDS:
        place = after_piece(text, place)
    return min(place, size)


def after_piece(text: str, place: int) -> int:
    """Where the piece of a word that begins at ``place`` ends: a letter, what a backslash protects, something quoted,
    or something expanded.
    """
    letter = text[place]
    if letter == "\\":
        return min(place + 2, len(text))
    if letter == "'":
        end = text.find("'", place + 1)
        return len(text) if end < 0 else end + 1
    if letter == '"':
        return _after_double(text, place + 1)
    if letter == "`":
        return _after_backquote(text, place + 1)
    if letter == "$":
        following = text[place + 1 : place + 2]
        if following == "(":
            return _after_brackets(text, place + 1, "(", ")")
        if following == "{":
            return _after_brackets(text, place + 1, "{", "}")
        if following == "'":
            return _after_escaped(text, place + 2)
    return place + 1


def _after_double(text: str, place: int) -> int:
    while place < len(text):
        if text[place] == '"':
            return place + 1
        place = place + 1 if text[place] == "'" else after_piece(text, place)
    return len(text)


def _after_backquote(text: str, place: int) -> int:
    while place < len(text):
        if text[place] == "`":
            return place + 1
        place += 2 if text[place] == "\\" else 1
    return len(text)


def _after_escaped(text: str, place: int) -> int:
    while place < len(text):
        if text[place] == "'":
            return place + 1
        place += 2 if text[place] == "\\" else 1
    return len(text)


def _after_brackets(text: str, place: int, opening: str, closing: str) -> int:
    """Behind the bracket that closes the one at ``place``; quoted brackets and those of comments do not count."""
    depth, size = 0, len(text)
    while place < size:
        letter = text[place]
        if letter == opening:
            depth += 1
        elif letter == closing:
            depth -= 1
            if depth == 0:
                return place + 1
        elif letter == "#" and opening == "(" and text[place - 1] in " \t\n(":
            end = text.find("\n", place)
            place = size if end < 0 else end
            continue
        elif letter in "\\'\"`$":
            place = after_piece(text, place)
            continue
        place += 1
    return size
