"""What this package is called where packages are installed from, and who else has files of its names.

The package is imported as ``msprobe`` and its command is ``msprobe``; the distribution is called ``msprobe-debugger``.
The index has a foreign package ``msprobe`` (a tool for password attacks), and mindstudio-probe installs a package and a
command of the same name as well.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator

from msprobe.errors import MsprobeError
from msprobe.foreign.opening import open_regular

NAME = "msprobe-debugger"

# The first words of our own summary in the metadata: an installation from before the distribution was renamed.
_OWN_SUMMARY = "Summary: Tells where two neural-network trainings part ways"
_METADATA_FOLDER = re.compile(r"(?P<name>[A-Za-z0-9._]+?)(?:-[^-]+)?(?:-py[0-9.]+)?\.(?:dist|egg)-info")
_SCRIPT = re.compile(r"^msprobe\s*=", re.MULTILINE)
_FILE = re.compile(r"^msprobe/", re.MULTILINE)
_KNOWN_SHARERS = frozenset({"msprobe", "mindstudio-probe"})
# Large lists of files are not read, which would take as long as all else: 5 ms for 140 packages without them.
_MOST_BYTES = 1 << 16


def install(*extras: str) -> str:
    """The command that installs this package with these extras, as error messages show it.

    >>> install("torch")
    "pip install 'msprobe-debugger[torch]'"
    """
    return f"pip install '{NAME}[{','.join(extras)}]'" if extras else f"pip install {NAME}"


def sharers(folders: Iterable[str] | None = None) -> list[str]:
    """Names of other distributions that own a package or a command ``msprobe`` in the folders of packages.

    ``folders``: where packages are installed; by default those of ``sys.path``.
    """
    places = dict.fromkeys(os.path.realpath(folder) for folder in (sys.path if folders is None else folders) if folder)
    found = {name for folder in places for name in _sharers_in(folder)}
    return sorted(found)


def warning(names: list[str]) -> str:
    """One sentence on the packages that share our files; empty if there are none."""
    if not names:
        return ""
    subject = f"package {names[0]} shares" if len(names) == 1 else f"packages {' and '.join(names)} share"
    return (
        f"the installed {subject} the name and files of this tool, which may break both: "
        f"pip uninstall {' '.join(names)}, then install {NAME} again."
    )


def warn_once() -> None:
    """Say on stderr which other packages share our files, where any do. Only in the first process of many ranks."""
    if os.environ.get("RANK", "0") != "0" or os.environ.get("LOCAL_RANK", "0") != "0":
        return
    text = warning(sharers())
    if text:
        from msprobe.foreign.console import say

        say(f"msprobe: warning: {text}", file=sys.stderr)


def _sharers_in(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for entry in names:
        found = _METADATA_FOLDER.fullmatch(entry)
        if found is None:
            continue
        name = re.sub(r"[-_.]+", "-", found["name"]).lower()
        place = os.path.join(folder, entry)
        is_sharer = name != NAME and (name in _KNOWN_SHARERS or _owns_our_names(place))
        if is_sharer and os.path.isdir(place) and not _is_ourselves(place):
            yield name


def _owns_our_names(place: str) -> bool:
    if _SCRIPT.search(_text(place, "entry_points.txt")):
        return True
    top = _text(place, "top_level.txt")
    if top:
        return "msprobe" in top.split()
    return bool(_FILE.search(_text(place, "RECORD")))


def _is_ourselves(place: str) -> bool:
    return any(_OWN_SUMMARY in _text(place, name) for name in ("METADATA", "PKG-INFO"))


def _text(place: str, name: str) -> str:
    path = os.path.join(place, name)
    try:
        with open_regular(path) as file:
            is_small = os.fstat(file.fileno()).st_size <= _MOST_BYTES
            return file.read(_MOST_BYTES).decode("utf-8", "replace") if is_small else ""
    except (OSError, ValueError, MsprobeError):
        return ""
