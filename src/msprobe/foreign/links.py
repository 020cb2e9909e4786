"""Symbolic links in a folder that a stranger may have made: followed within the folder, and out of it only if asked.

``--follow-links`` on the command line, or the environment variable ``MSPROBE_FOLLOW_LINKS``, asks for it. What a user
gives as a path may be a link itself. A folder that this machine's user has put together of links (``msprobe collect``)
has a mark that names the folder's number on its disk, which nobody knows who sends a folder.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.foreign.opening import open_regular
from msprobe.messages import said
from msprobe.paths import StrPath, write_atomically

FOLLOW_VARIABLE = "MSPROBE_FOLLOW_LINKS"
_MARK = ".msprobe-links"
_MOST_MARK_BYTES = 64


def are_followed() -> bool:
    """Whether links that lead out of a folder are followed: the user has asked for it."""
    return os.environ.get(FOLLOW_VARIABLE, "").strip().lower() not in ("", "0", "false", "no")


@contextlib.contextmanager
def followed(asked: bool) -> Iterator[None]:
    """Follow links here and in processes that are started here, if ``asked``; else as before."""
    if not asked or are_followed():
        yield
        return
    before = os.environ.get(FOLLOW_VARIABLE)
    os.environ[FOLLOW_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(FOLLOW_VARIABLE, None)
        else:
            os.environ[FOLLOW_VARIABLE] = before


def check_link(path: StrPath, folder: StrPath) -> None:
    """Raise InvalidInputError if the path is a link that leads out of ``folder``, and such links are not followed."""
    if not os.path.islink(path) or are_followed():
        return
    real, base = os.path.realpath(path), os.path.realpath(folder)
    if real != base and not real.startswith(base.rstrip(os.sep) + os.sep):
        raise InvalidInputError(said("link-leads-out-of-dump", os.fspath(path)))


def mark(folder: StrPath) -> None:
    """Say that the links in this folder are the user's own. Raises PathError."""
    write_atomically(os.path.join(folder, _MARK), f"{os.stat(folder).st_ino}\n".encode(), fsync=False)


def is_marked(folder: StrPath) -> bool:
    """Whether this folder, and no copy of it, was marked."""
    try:
        with open_regular(os.path.join(folder, _MARK), follow_links=False) as file:
            return file.read(_MOST_MARK_BYTES).strip() == str(os.stat(folder).st_ino).encode()
    except (OSError, ValueError, MsprobeError):
        return False
