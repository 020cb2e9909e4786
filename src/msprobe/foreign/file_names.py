"""Names out of files as names of files: one way to make a file name of any text, and one to follow a name to a file.

A name that a stranger wrote is never a path. What is written gets a name that :func:`file_name` made; what is read
lies in the folder that the reader was given, which :func:`inside` sees to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache

from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import MAX_NAME_LENGTH

_DIGEST_BYTES = 8
_LONGEST_ENDING = 8
# Names that stay as they are, without a look at each letter.
_SAFE = re.compile(r"[\w\-+=@%,:;()\[\]][\w\-+=@%,:;()\[\] .]{0,253}[\w\-+=@%,:;()\[\]]", re.ASCII)
# Devices of Windows, with any ending.
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)", re.IGNORECASE)
_FIRST_OF_DEVICES = frozenset("cpanlCPANL")


# The same name is asked for several times on its way, and again in the next step.
@lru_cache(maxsize=4096)
def file_name(text: str) -> str:
    """``text`` as a file name that every system takes: no separator, no control character, no leading dot, no name of
    a device, at most 255 bytes.

    A text that is such a name comes back as it is. In any other, what file names cannot hold becomes ``_``, and a
    digest of the whole keeps it apart from its neighbours; the ending (``.pt``) stays.

    >>> file_name("Functional.gelu.0.x.bin")
    'Functional.gelu.0.x.bin'
    >>> file_name("x/../../y.bin")
    'x_.._.._y~4fcc2b82890ce858.bin'
    """
    if _SAFE.fullmatch(text) and text[0] not in _FIRST_OF_DEVICES:
        return text
    is_device = _RESERVED.fullmatch(text.partition(".")[0].rstrip()) is not None
    clean = "".join("_" if character in "/\\" or not character.isprintable() else character for character in text)
    if not clean or clean[0] in ". " or is_device:
        clean = "_" + clean[1:] if clean and not is_device else f"_{clean}"
    clean = clean[:-1] + "_" if clean[-1] in ". " else clean
    if clean == text and len(clean.encode()) <= MAX_NAME_LENGTH:
        return clean
    return _with_digest(clean, text)


def _with_digest(clean: str, text: str) -> str:
    from hashlib import blake2b  # which loads a library that most names do not need

    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    stem, dot, ending = clean.rpartition(".")
    suffix = f"{dot}{ending}" if stem and len(ending) <= _LONGEST_ENDING else ""
    base = stem if suffix else clean
    room = MAX_NAME_LENGTH - len(f"~{digest}{suffix}".encode())
    return base.encode()[:room].decode(errors="ignore") + f"~{digest}{suffix}"


class FileNames:
    """File names of one folder that stay apart also where a file system takes small and capital letters for one."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def of(self, text: str) -> str:
        """The file name of a text; the same each time."""
        name = file_name(text)
        if self._taken.setdefault(name.casefold(), text) != text:
            name = _with_digest(name, text)
            self._taken[name.casefold()] = text
        return name


def inside(
    folder: str | os.PathLike[str],
    name: object,
    named_by: str | os.PathLike[str],
    also: Sequence[str | os.PathLike[str]] = (),
) -> str:
    """The path of a file below ``folder`` that a file of a stranger names, with ``/`` between folders.

    Links are followed as long as they stay in the folder, or lead into one of ``also``. ``named_by``: the file that has
    the name, for messages. The file need not be there. Raises InvalidInputError for a name that leads out.
    """
    text = name if isinstance(name, str) else ""
    parts = text.replace("\\", "/").split("/")
    is_plain = text and text.isprintable() and "\\" not in text and ":" not in parts[0]
    if not is_plain or os.path.isabs(text) or ".." in parts or any(len(os.fsencode(part)) > 255 for part in parts):
        raise _leads_out(text, named_by)
    path = os.path.join(os.fspath(folder), text)
    if not any(is_inside(parent, path) for parent in (folder, *also)):
        raise _leads_out(text, named_by)
    return path


def is_inside(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
    """Whether a path lies in a folder when all links are followed."""
    try:
        real, base = os.path.realpath(path), os.path.realpath(folder)
        return os.path.commonpath([real, base]) == base
    except (OSError, ValueError):
        return False


def _leads_out(text: str, named_by: str | os.PathLike[str]) -> InvalidInputError:
    return InvalidInputError(said("file-outside-folder", os.fspath(named_by), text[:80]))
