"""Where in the user's program a call was made: call stacks, taken cheaply and kept once.

A stack is identified by the code objects and instruction offsets of its frames. The first time one is seen it
gets a number and its text; every further call from the same place costs a walk over the frames and one look-
up. Source lines are read when the text is made, not while the program runs.
"""

from __future__ import annotations

import functools
import linecache
import os
import struct
import sys
import types
from collections.abc import Callable

# Where the code of msprobe lies.
OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

# What code the program makes while it runs has stacks of its own; they are not kept for ever.
_MOST_STACKS = 50_000

# The identities of the code objects of its frames and the offsets in them, as bytes: a tenth of what the numbers would
# take. It means something only as long as the code objects live.
FrameKey = bytes


def program_frame() -> types.FrameType:
    """The innermost frame that is not the recorder's: the caller's, where all are."""
    caller = sys._getframe(1)
    frame: types.FrameType | None = caller
    while frame is not None and frame.f_code.co_filename.startswith(OWN_FOLDER):
        frame = frame.f_back
    return frame or caller


class SourceLine:
    """One place in the program, shared by all stacks that it is part of."""

    __slots__ = ("_text", "code", "line")

    def __init__(self, code: types.CodeType, lasti: int) -> None:
        self.code = code
        self.line = _line_of(code, lasti)
        self._text = ""

    def text(self) -> str:
        """The frame as stack.json writes it."""
        if not self._text:
            code, line = self.code, self.line
            source = _source_line(code, line)
            self._text = f"File {code.co_filename}, line {line}, in {code.co_name}, \n {source}"
        return self._text


class CallStack:
    """One distinct call stack.

    ``source`` is ``file:line`` of the innermost frame that belongs to neither the framework nor msprobe;
    ``recompute`` says that the framework is repeating a forward pass; ``depth`` is the number of frames, those that
    are not written included.
    """

    __slots__ = ("_all", "_frames", "_lines", "depth", "recompute", "source")

    def __init__(
        self, every: tuple[SourceLine, ...], frames: tuple[SourceLine, ...], source: str, recompute: bool
    ) -> None:
        # The code objects of all frames are kept, so that the key under which a stack is known stays theirs.
        self._all = every
        self._frames = frames
        self._lines: tuple[str, ...] = ()
        self.depth = len(every)
        self.source = source
        self.recompute = recompute

    def lines(self) -> tuple[str, ...]:
        """The frames as stack.json writes them, innermost first."""
        if self._frames:
            self._lines = tuple(frame.text() for frame in self._frames)
            self._frames = ()
        return self._lines


class CallStacks:
    """All call stacks of a session, each kept once.

    ``is_framework(file)`` is true for the framework's own files, ``is_recompute(code)`` the functions below which
    the framework repeats a forward pass, ``hidden(code)`` those that are only the way into the recorder.
    """

    def __init__(
        self,
        is_framework: Callable[[str], bool],
        is_recompute: Callable[[types.CodeType], bool],
        hidden: Callable[[types.CodeType], bool],
    ) -> None:
        self._is_framework = is_framework
        self._is_recompute = is_recompute
        self._hidden = hidden
        # By the identity of the code, too.
        self._launchers: dict[int, types.CodeType] = {}
        self.known: dict[FrameKey, CallStack] = {}
        # By the identity of the code: equal code objects may be of different files.
        self._frames: dict[tuple[int, int], SourceLine] = {}

    def leave_out_callers(self) -> None:
        """Leave the frames that are running now out of all stacks: they are not the user's program, but start it."""
        at: types.FrameType | None = sys._getframe(1)
        while at is not None:
            self._launchers[id(at.f_code)] = at.f_code
            at = at.f_back

    def here(self) -> CallStack:
        """The stack of the program where the caller stands, on whichever road of ours it came here."""
        return self.of(program_frame())

    def of(self, frame: types.FrameType) -> CallStack:
        """The stack of ``frame``, which is still running; frames of the recorder are left out."""
        places: list[int] = []
        at: types.FrameType | None = frame
        while at is not None:
            places += (id(at.f_code), at.f_lasti)
            at = at.f_back
        key = _packing(len(places))(*places)
        known = self.known.get(key)
        return known if known is not None else self._learn(key, frame)

    def _learn(self, key: FrameKey, at: types.FrameType | None) -> CallStack:
        if len(self.known) >= _MOST_STACKS:
            self.known.clear()
            self._frames.clear()
        every: list[SourceLine] = []
        written: list[SourceLine] = []
        source = ""
        recompute = False
        while at is not None:
            code, lasti = at.f_code, at.f_lasti
            at = at.f_back
            frame = self._frames.get((id(code), lasti))
            if frame is None:
                frame = self._frames[id(code), lasti] = SourceLine(code, lasti)
            every.append(frame)
            recompute = recompute or self._is_recompute(code)
            if code.co_filename.startswith(OWN_FOLDER) or id(code) in self._launchers or self._hidden(code):
                continue
            written.append(frame)
            if not source and not self._is_framework(code.co_filename):
                source = f"{code.co_filename}:{frame.line}"
        stack = CallStack(tuple(every), tuple(written), source, recompute)
        self.known[key] = stack
        return stack


@functools.cache
def _packing(count: int) -> Callable[..., bytes]:
    """What makes bytes of so many numbers."""
    return struct.Struct(f"{count}q").pack


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
