"""Where in the user's program a call was made: call stacks, taken cheaply and kept once.

A stack is identified by the code objects and instruction offsets of its frames. The first time one is seen it
gets a number and its text; every further call from the same place costs a walk over the frames and one look-
up. Source lines are read when the text is made, not while the program runs.
"""

from __future__ import annotations

import linecache
import os
import sys
import types
from collections.abc import Callable

_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

# What code the program makes while it runs has stacks of its own; they are not kept for ever.
_MOST_STACKS = 50_000

FrameKey = bytes


class CallStack:
    """One distinct call stack.

    ``source`` is ``file:line`` of the innermost frame that belongs to neither the framework nor msprobe;
    ``recompute`` tells that the framework is repeating a forward pass. The code objects of all frames are
    kept, so that the key under which a stack is known stays theirs.
    """

    __slots__ = ("_codes", "_frames", "_lines", "recompute", "source")

    def __init__(
        self,
        frames: list[tuple[types.CodeType, int]],
        codes: list[types.CodeType],
        source: str,
        recompute: bool,
    ) -> None:
        self._codes = codes
        self._frames = frames
        self._lines: tuple[str, ...] | None = None
        self.source = source
        self.recompute = recompute

    @property
    def depth(self) -> int:
        """How many frames there are, those that are not written included."""
        return len(self._codes)

    def lines(self) -> tuple[str, ...]:
        """The frames as stack.json writes them, innermost first."""
        if self._lines is None:
            self._lines = tuple(
                f"File {code.co_filename}, line {line}, in {code.co_name}, \n {_source_line(code, line)}"
                for code, line in self._frames
            )
        return self._lines


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

    def here(self, skip: int) -> CallStack:
        """The stack of the caller, without its ``skip`` innermost frames."""
        key = self._frame_key(skip + 1)
        known = self._known.get(key)
        return known if known is not None else self._learn(key, skip + 2)

    def _learn(self, key: FrameKey, skip: int) -> CallStack:
        frames: list[tuple[types.CodeType, int]] = []
        codes: list[types.CodeType] = []
        source = ""
        recompute = False
        frame: types.FrameType | None = sys._getframe(skip)
        while frame is not None:
            code, lasti = frame.f_code, frame.f_lasti
            frame = frame.f_back
            codes.append(code)
            recompute = recompute or self._is_recompute(code)
            if code.co_filename.startswith(_OWN_FOLDER) or self._hidden(code):
                continue
            line = _line_of(code, lasti)
            frames.append((code, line))
            if not source and not self._is_framework(code.co_filename):
                source = f"{code.co_filename}:{line}"
        stack = CallStack(frames, codes, source, recompute)
        if len(self._known) >= _MOST_STACKS:
            self._known.clear()
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
