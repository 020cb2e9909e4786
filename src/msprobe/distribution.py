"""What this package is called where packages are installed from, and who else has files of its names.

The package is imported as ``msprobe`` and its command is ``msprobe``; the distribution is called ``msprobe-debugger``.
The index has a foreign package ``msprobe`` (a tool for password attacks), and mindstudio-probe installs a package and a
command of the same name as well.
"""

from __future__ import annotations

import csv
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

from msprobe import log
from msprobe.errors import MsprobeError
from msprobe.foreign.opening import open_regular
from msprobe.messages import joined, said

NAME = "msprobe-debugger"

# The first words of our earlier summary in the metadata: an installation from before the distribution was renamed.
_OWN_SUMMARY = "Summary: Tells where two neural-network trainings part ways"
_METADATA_FOLDER = re.compile(r"(?P<name>[A-Za-z0-9._]+?)(?:-[^-]+)?(?:-py[0-9.]+)?\.(?:dist|egg)-info")
_SCRIPT = re.compile(r"^msprobe\s*=", re.MULTILINE)
_FILE = re.compile(r"^msprobe/", re.MULTILINE)
_KNOWN_SHARERS = frozenset({"msprobe", "mindstudio-probe"})
# Large lists of files are not read, which would take as long as all else: 5 ms for 140 packages without them.
_MOST_BYTES = 1 << 16
_MOST_RECORD_BYTES = 1 << 24


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
    return sorted({name for folder in _places(folders) for name in _sharers_in(folder)})


def warning(names: list[str]) -> str:
    """One sentence on the packages that share our files; empty if there are none."""
    if not names:
        return ""
    subject = (
        said("one-package-shares", names[0]) if len(names) == 1 else said("packages-share", joined(" and ", names))
    )
    return said("packages-share-name", subject, " && ".join(repair(names)))


def repair(names: Sequence[str]) -> tuple[str, ...]:
    """The commands that leave this package alone and whole: without these packages, whose uninstallation takes files
    of ours with it.
    """
    uninstall = (f"pip uninstall {' '.join(names)}",) if names else ()
    return (*uninstall, f"pip install --force-reinstall --no-deps {NAME}")


def warn_once() -> None:
    """Say on stderr which other packages share our files, where any do: once, and only in the first process of many
    ranks.
    """
    if os.environ.get("RANK", "0") != "0" or os.environ.get("LOCAL_RANK", "0") != "0":
        return
    text = warning(sharers())
    if text and log.is_first(__name__):
        from msprobe.foreign.console import say

        say(f"msprobe: warning: {text}", file=sys.stderr)


def warn_on_import() -> None:
    """The same where a program imports msprobe, and silent in processes that msprobe or multiprocessing started."""
    processes = sys.modules.get("multiprocessing.process")
    is_child = processes is not None and processes.parent_process() is not None
    is_own = os.path.basename(sys.argv[0] if sys.argv else "") == "first.py"
    if not is_child and not is_own:
        warn_once()


def shared_files(name: str, folders: Iterable[str] | None = None) -> list[str]:
    """Files that both this package and the distribution ``name`` have installed in the same place, without compiled
    ones, by their names in the records of the installer.
    """
    own, other = _recorded(NAME, folders), _recorded(name, folders)
    return sorted(file for file in own.keys() & other.keys() if not file.endswith(".pyc"))


def damaged_files(folders: Iterable[str] | None = None) -> list[str]:
    """Files of this package that are missing, or of a different size than was installed."""
    damaged = []
    for file, (folder, size) in _recorded(NAME, folders).items():
        try:
            now = os.stat(os.path.join(folder, file)).st_size
        except OSError:
            damaged.append(file)
            continue
        is_own = file.startswith("msprobe/") and not file.endswith(".pyc")
        if is_own and size.isdecimal() and now != int(size):
            damaged.append(file)
    return sorted(file for file in damaged if not file.endswith(".pyc"))


def _recorded(name: str, folders: Iterable[str] | None) -> dict[str, tuple[str, str]]:
    """The files that were installed with a distribution: for each its folder of packages, and its size as text."""
    recorded: dict[str, tuple[str, str]] = {}
    for folder in _places(folders):
        for entry, there in _distributions_in(folder):
            if there == name:
                for row in csv.reader(_text(os.path.join(folder, entry), "RECORD", _MOST_RECORD_BYTES).splitlines()):
                    if len(row) == 3:
                        recorded.setdefault(row[0], (folder, row[2]))
    return recorded


def _places(folders: Iterable[str] | None) -> list[str]:
    given = sys.path if folders is None else folders
    return list(dict.fromkeys(os.path.realpath(folder) for folder in given if folder))


def _distributions_in(folder: str) -> Iterator[tuple[str, str]]:
    """The folders of metadata in a folder of packages, each with the name of its distribution."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for entry in names:
        match = _METADATA_FOLDER.fullmatch(entry)
        if match is not None:
            yield entry, re.sub(r"[-_.]+", "-", match["name"]).lower()


def _sharers_in(folder: str) -> Iterator[str]:
    for entry, name in _distributions_in(folder):
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


def _text(place: str, name: str, most_bytes: int = _MOST_BYTES) -> str:
    path = os.path.join(place, name)
    try:
        with open_regular(path) as file:
            is_small = os.fstat(file.fileno()).st_size <= most_bytes
            return file.read(most_bytes).decode("utf-8", "replace") if is_small else ""
    except (OSError, ValueError, MsprobeError):
        return ""
