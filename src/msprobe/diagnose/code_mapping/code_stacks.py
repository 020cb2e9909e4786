"""Stacks of source lines, of which a graph has one for each node, and nearly all of them begin alike."""

from __future__ import annotations

EMPTY = 0
# How a line of source begins; other lines are headings.
SOURCE = b"In file "


class CodeStacks:
    """All stacks of a graph as one tree: what two of them have in common at their beginnings is held once.

    A stack is a number; ``EMPTY`` is the one without lines. ``push`` takes the same time however long the stack is.
    """

    def __init__(self) -> None:
        self._parent = [EMPTY]
        self._line = [0]
        self._depth = [0]
        self._lines: list[bytes] = [b""]
        self._number: dict[bytes, int] = {b"": 0}
        # Stack and line in one number: half the memory of a tuple.
        self._children: dict[int, int] = {}

    def push(self, stack: int, line: bytes) -> int:
        """The stack with one line more at its end."""
        number = self._number.get(line)
        if number is None:
            number = self._number[line] = len(self._lines)
            self._lines.append(line)
        key = stack << 32 | number
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = len(self._parent)
            self._parent.append(stack)
            self._line.append(number)
            self._depth.append(self._depth[stack] + 1)
        return child

    def lines(self, stack: int) -> list[bytes]:
        """The lines, the outermost call first."""
        lines: list[bytes] = []
        while stack != EMPTY:
            lines.append(self._lines[self._line[stack]])
            stack = self._parent[stack]
        lines.reverse()
        return lines

    def text(self, stack: int) -> str:
        """The lines, a line break between each two."""
        return b"\n".join(self.lines(stack)).decode("utf-8", "replace")

    def to_source(self, stack: int) -> int:
        """The stack up to its last line of source: without a heading that has nothing below it."""
        while stack != EMPTY and not self._lines[self._line[stack]].startswith(SOURCE):
            stack = self._parent[stack]
        return stack

    def common(self, first: int, other: int) -> int:
        """The lines with which both begin."""
        while first != other:
            if self._depth[first] >= self._depth[other]:
                first = self._parent[first]
            else:
                other = self._parent[other]
        return first

    def __len__(self) -> int:
        """How many different stacks there are, beginnings of others included."""
        return len(self._parent)
