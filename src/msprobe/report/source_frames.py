"""Which lines of the user's code a finding is about: call stacks as dumps have them, read and cleaned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from msprobe.diagnose.findings import Finding
from msprobe.report.phrases import clean

_FRAME = re.compile(r"File (?P<file>.*?), line (?P<line>\d+), in (?P<function>.*?),? *\n *(?P<code>.*)", re.DOTALL)
_LIBRARY = re.compile(
    r"[\\/](site-packages|dist-packages|lib[\\/]python\d+\.\d+)[\\/]|^<frozen |"
    # Of a folder that a user calls by our name, everything is the user's.
    r"[\\/]msprobe[\\/](capture|cli|config|core|mindspore|pytorch|store)[\\/]"
)


@dataclass(frozen=True)
class Frame:
    """One line of a call stack."""

    file: str
    line: str
    function: str
    code: str

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}" if self.line else self.file


def source_of(finding: Finding) -> Frame | None:
    """The line of the user's code that made the call, where the recorder noted it, or the stack says."""
    source = finding.evidence.get("source")
    if not isinstance(source, str):
        return own_frame(finding.stack)
    for frame in frames(finding.stack):
        if frame.place == clean(source):
            return frame
    file, _, line = clean(source).rpartition(":")
    return Frame(file, line, "", "")


def callers_of(finding: Finding, most: int) -> list[Frame]:
    """The innermost frames of the user's code outside of :func:`source_of`."""
    source = source_of(finding)
    own = [frame for frame in frames(finding.stack) if not _LIBRARY.search(frame.file)]
    return [frame for frame in own if source is None or frame.place != source.place][:most]


def frames(stack: Sequence[str]) -> list[Frame]:
    """A call stack as it stands in a dump, innermost frame first, read and cleaned."""
    parsed = []
    for text in stack:
        match = _FRAME.fullmatch(text)
        if match is None:
            parsed.append(Frame(clean(text), "", "", ""))
            continue
        code = clean(match["code"]).strip()
        parsed.append(
            Frame(clean(match["file"]), match["line"], clean(match["function"]), "" if code == "unknown" else code)
        )
    return parsed


def own_frame(stack: Sequence[str]) -> Frame | None:
    """The innermost frame of the user's own code; of all frames where everything is a library's."""
    every = frames(stack)
    return next((frame for frame in every if not _LIBRARY.search(frame.file)), every[0] if every else None)
