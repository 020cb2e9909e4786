"""``$((...))``: whole numbers as the shell computes them."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(\d+#\w+|0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>!~&|^?:()])"
)
_BINARY: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, lambda a, b: int(bool(a) or bool(b))),
    "&&": (2, lambda a, b: int(bool(a) and bool(b))),
    "|": (3, lambda a, b: a | b),
    "^": (4, lambda a, b: a ^ b),
    "&": (5, lambda a, b: a & b),
    "==": (6, lambda a, b: int(a == b)),
    "!=": (6, lambda a, b: int(a != b)),
    "<": (7, lambda a, b: int(a < b)),
    ">": (7, lambda a, b: int(a > b)),
    "<=": (7, lambda a, b: int(a <= b)),
    ">=": (7, lambda a, b: int(a >= b)),
    "<<": (8, lambda a, b: a << (b & 63)),
    ">>": (8, lambda a, b: a >> (b & 63)),
    "+": (9, lambda a, b: a + b),
    "-": (9, lambda a, b: a - b),
    "*": (10, lambda a, b: a * b),
    "/": (10, lambda a, b: _divided(a, b)[0]),
    "%": (10, lambda a, b: _divided(a, b)[1]),
    "**": (12, lambda a, b: _power(a, b)),
}
_MOST_DEPTH = 50


class NoNumberError(ValueError):
    """The text is no arithmetic of whole numbers."""


def computed(text: str, value: Callable[[str], str]) -> int:
    """The value of an expression. ``value`` gives the text of a variable; an empty one counts as 0.

    Raises NoNumberError for what is no expression, or needs a variable that is no number.
    """
    tokens: list[str] = []
    place = 0
    text = text.strip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or len(tokens) > 2000:
            raise NoNumberError(text)
        tokens.append(match[1])
        place = match.end()
    reader = _Reader(tokens, value)
    number = reader.choice(0)
    if reader.place != len(tokens):
        raise NoNumberError(text)
    return number


def _divided(a: int, b: int) -> tuple[int, int]:
    if b == 0:
        raise NoNumberError("division by zero")
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - quotient * b


def _power(a: int, b: int) -> int:
    if b < 0:
        raise NoNumberError("negative exponent")
    return pow(a, min(b, 64), 1 << 64) if abs(a) > 1 else a ** (b & 1 if a < 0 else min(b, 1))


def _wrapped(number: int) -> int:
    """As the shell's 64 bits hold it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


class _Reader:
    def __init__(self, tokens: list[str], value: Callable[[str], str]) -> None:
        self.tokens, self.value, self.place = tokens, value, 0

    def next(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, wanted: str) -> None:
        if self.next() != wanted:
            raise NoNumberError(f"{wanted} is missing")
        self.place += 1

    def choice(self, depth: int) -> int:
        condition = self.binary(1, depth)
        if self.next() != "?":
            return condition
        self.place += 1
        first = self.choice(depth + 1)
        self.take(":")
        second = self.choice(depth + 1)
        return first if condition else second

    def binary(self, least: int, depth: int) -> int:
        if depth > _MOST_DEPTH:
            raise NoNumberError("nested too deep")
        left = self.single(depth + 1)
        while (known := _BINARY.get(self.next())) and known[0] >= least:
            power = self.next() == "**"
            self.place += 1
            right = self.binary(known[0] if power else known[0] + 1, depth + 1)
            left = _wrapped(known[1](left, right))
        return left

    def single(self, depth: int) -> int:
        token = self.next()
        self.place += 1
        if token in ("-", "+", "!", "~") and depth < _MOST_DEPTH:
            number = self.single(depth + 1)
            return {"-": -number, "+": number, "!": int(not number), "~": ~number}[token]
        if token == "(":
            number = self.choice(depth + 1)
            self.take(")")
            return number
        if not token or not (token[0].isalnum() or token[0] == "_"):
            raise NoNumberError(token)
        return _wrapped(_number(token if token[0].isdigit() else self.value(token).strip() or "0"))


def _number(text: str) -> int:
    try:
        if "#" in text:
            base, _, digits = text.partition("#")
            if len(text) > 80:
                raise NoNumberError(text[:40])
            return int(digits, int(base))
        if len(text) > 40:
            raise NoNumberError(text)
        if re.fullmatch(r"-?0\d+", text):
            return int(text, 8)
        return int(text, 0)
    except ValueError as problem:
        raise NoNumberError(text) from problem
