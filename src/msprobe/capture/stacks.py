"""Where in the user's program a call was made: call stacks, taken cheaply and kept once.

A stack is identified by the code objects and instruction offsets of its frames. The first time one is seen it
gets a number and its text; every further call from the same place costs a walk over the frames and one look-
up. Source lines are read when the text is made, not while the program runs.
"""

from __future__ import annotations

import linecache
import os
import types
from collections.abc import Callable
from typing import Any

_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

FrameKey = tuple[Any, ...]


class CallStack:
    """One distinct call stack.

    ``number`` is its group in stack.json; ``source`` is ``file:line`` of the innermost frame that belongs to
    neither the framework nor msprobe; ``recompute`` tells that the framework is repeating a forward pass.
    """

    __slots__ = ("_frames", "number", "recompute", "source")

    def __init__(
        self, number: int, frames: list[tuple[types.CodeType, int]], source: str, recompute: bool
    ) -> None:
        self.number = number
        self._frames = frames
        self.source = source
        self.recompute = recompute

    def lines(self) -> list[str]:
        """The frames as stack.json writes them, innermost first."""
        return [
            f"File {code.co_filename}, line {line}, in {code.co_name}, \n {_source_line(code, line)}"
            for code, line in self._frames
        ]


class CallStacks:
    """All call stacks of a session, each kept once.

    ``is_framework(file)`` tells the framework's own files, ``is_recompute(code)`` the functions below which
    the framework repeats a forward pass, ``hidden(code)`` those that are only the way into the recorder.
    """

    def __init__(
        self,
        frame_key: Callable[[int], FrameKey],
        is_framework: Callable[[str], bool],
        is_recompute: Callable[[types.CodeType], bool],
        hidden: Callable[[types.CodeType], bool],
    ) -> None:
        self._frame_key = frame_key
        self._is_framework = is_framework
        self._is_recompute = is_recompute
        self._hidden = hidden
        self._known: dict[FrameKey, CallStack] = {}
        self._by_text: dict[tuple[tuple[types.CodeType, int], ...], int] = {}

    def here(self, skip: int) -> CallStack:
        """The stack of the caller, without its ``skip`` innermost frames."""
        key = self._frame_key(skip + 1)
        known = self._known.get(key)
        return known if known is not None else self._learn(key)

    def _learn(self, key: FrameKey) -> CallStack:
        frames: list[tuple[types.CodeType, int]] = []
        source = ""
        recompute = False
        for code, lasti in zip(key[::2], key[1::2], strict=True):
            recompute = recompute or self._is_recompute(code)
            if code.co_filename.startswith(_OWN_FOLDER) or self._hidden(code):
                continue
            line = _line_of(code, lasti)
            frames.append((code, line))
            if not source and not self._is_framework(code.co_filename):
                source = f"{code.co_filename}:{line}"
        # Two places in one line share their text, and so their group.
        number = self._by_text.setdefault(tuple(frames), len(self._by_text))
        stack = CallStack(number, frames, source, recompute)
        self._known[key] = stack
        return stack


def _line_of(code: types.CodeType, lasti: int) -> int:
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= lasti < end:
            return number if number is not None else line
        if number is not None:
            line = number
    return line


def _source_line(code: types.CodeType, line: int) -> str:
    text = linecache.getline(code.co_filename, line)
    return text.strip() if text else "unknown"
