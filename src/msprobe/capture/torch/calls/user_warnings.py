"""Warnings of the user's program keep the file and line they would have without us.

``warnings.warn(text, stacklevel=n)`` counts frames, and while recording there are some between the program and torch
that would not be there: our own, and those by which torch hands a function to a mode. So the number is put right. Who
imported ``warn`` itself before, and who counts frames on their own, finds these frames.
"""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

import torch

from msprobe.capture.around import FRAMES, Around, Plan, is_stand_in
from msprobe.capture.stacks import OWN_FOLDER
from msprobe.capture.torch.patches import Patches
from msprobe.capture.torch.watched_functions import is_entrance
from msprobe.guard import pass_on

_WAY_INTO_MODES = torch.overrides.handle_torch_function.__code__


def counted(original: Any) -> Any:
    """``warnings.warn`` with its ``stacklevel`` counted as if nothing were recorded."""

    def before(*args: Any, **kwargs: Any) -> Plan:
        try:
            frame = sys._getframe(1 + FRAMES)
            given = args[2] if len(args) > 2 else kwargs.get("stacklevel", 1)
            skipped = tuple(kwargs.get("skip_file_prefixes", ()))
            least = 2 if skipped else 1
            if isinstance(given, int) and max(given, least) > 1:
                # Without the C extension there are two frames more: that of the call, and one in the user's place.
                level = 2 * FRAMES + level_with_us(frame, max(given, least), skipped)
                if len(args) > 2:
                    args = (*args[:2], level, *args[3:])
                else:
                    kwargs["stacklevel"] = level
        except Exception as error:
            pass_on(error)
            return original, args, kwargs, None
        return original, args, kwargs, None

    replacement = Around(before, None)
    replacement.__dict__.update(
        __name__="warn",
        __qualname__="warn",
        __module__="warnings",
        __doc__=original.__doc__,
        __wrapped__=original,
    )
    return replacement


def level_with_us(frame: types.FrameType, level: int, skipped: tuple[str, ...] = ()) -> int:
    """Which level of ``warn`` in ``frame`` is the one that without us would be ``level``.

    Counts as ``warn`` does: the frames of the import system, and those of files that begin with one of ``skipped``,
    do not count.
    """
    if _does_not_count(frame, ()):
        return level
    real = wanted = 1
    last = frame
    at = frame.f_back
    # The frame of a function that stands for the one it was called by: the one that torch handed to the mode.
    doubled: types.FrameType | None = None
    while at is not None and wanted < level:
        counts = not _does_not_count(at, skipped)
        real += counts
        if at is doubled:
            doubled = None
        elif _is_ours(at):
            pass
        elif _hands_on(at, last):
            doubled = at.f_back
        else:
            last = at
            wanted += counts
        at = at.f_back
    # Further out than there are frames, as it was asked for.
    return real if wanted == level else real + level - wanted


def _hands_on(frame: types.FrameType, inner: types.FrameType) -> bool:
    """True if torch hands a function to our mode in ``frame``, and ``inner`` is that function, called again."""
    return frame.f_code is _WAY_INTO_MODES and frame.f_back is not None and frame.f_back.f_code is inner.f_code


def _does_not_count(frame: types.FrameType, skipped: tuple[str, ...]) -> bool:
    name = frame.f_code.co_filename
    return ("importlib" in name and "_bootstrap" in name) or name.startswith(skipped or ("\0",))


def _is_ours(frame: types.FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.startswith(OWN_FOLDER) or is_entrance(code) or is_stand_in(code)


class UserWarnings:
    """Counts right between attach and detach: a part of the recorder."""

    def __init__(self) -> None:
        self._patches = Patches()
        self._patches.add(warnings, "warn", counted)

    def attach(self) -> None:
        """Count from now on."""
        self._patches.attach()

    def detach(self) -> None:
        """Give the function back."""
        self._patches.detach()
