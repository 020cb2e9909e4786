"""Dumps in object storage (``s3://bucket/run``), copied to a folder of this machine through fsspec.

What a bucket holds is a stranger's: only files that a dump has by their names and places are taken, so no name leads
out of the folder; of each as many bytes as the listing said, and of all no more than the disk has room for.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from msprobe.errors import InvalidInputError, MsprobeError, NotAvailableError, PathError
from msprobe.foreign.budget import Budget
from msprobe.messages import said
from msprobe.paths import MAX_NAME_LENGTH, create_folder, write_atomically
from msprobe.store import layout

_URL = re.compile(r"[a-z][a-z0-9+.-]*://.+", re.DOTALL)
_STEP = re.compile(r"step\d{1,18}")
_RANK = re.compile(r"rank\d{0,18}|proc\d{1,18}")
# What a scheme needs; of others fsspec says it.
_PACKAGES = {"": ("fsspec",), "s3": ("fsspec", "s3fs"), "s3a": ("fsspec", "s3fs")}
_MOST_FILES = 10_000_000
_PIECE_BYTES = 1 << 20
# Waiting for an answer takes longer than what comes with it.
_AT_ONCE = 8
#: Room that stays on the disk.
_LEFT_FREE = 1 << 28


@dataclass(frozen=True)
class _File:
    """A file of a dump: what storage calls it, where it belongs in the folder, and its bytes."""

    name: str
    place: Path
    size: int


@dataclass(frozen=True)
class Copied:
    """What was copied; ``left_out``: how many files there were that no dump has."""

    files: int
    bytes: int
    left_out: int


def is_url(path: object) -> bool:
    """True for ``scheme://...``."""
    return isinstance(path, str) and _URL.fullmatch(path) is not None


def copy(url: str, folder: Path) -> Copied:
    """Copy the dump at ``url`` (of all steps, of one, or of one rank) to ``folder``, which it creates.

    Raises NotAvailableError where a package is missing, PathError for what cannot be read or does not fit on the disk,
    InvalidInputError where there is no dump.
    """
    storage, root = _storage_of(url)
    try:
        listed = storage.find(root, detail=True)
    except Exception as problem:
        raise _unreadable(url, problem) from problem
    files, left_out = _files_of(url, root, listed)
    if not files:
        raise InvalidInputError(said("url-without-dump", url, layout.DUMP_FILE))
    needed = sum(file.size for file in files)
    create_folder(folder)
    free = shutil.disk_usage(folder).free - _LEFT_FREE
    if needed > free:
        raise PathError(said("url-larger-than-disk", url, needed / 1000000000.0, folder, max(free, 0) / 1000000000.0))
    for place in dict.fromkeys(file.place.parent for file in files):
        create_folder(folder / place)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in threads.map(partial(_copy_file, storage, url, folder), files):
            pass
    return Copied(len(files), needed, left_out)


def _storage_of(url: str) -> tuple[Any, str]:
    """The file system of fsspec, and the path in it."""
    if "::" in url:
        raise InvalidInputError(said("url-of-several-storages", url))
    for package in _PACKAGES.get(url.partition(":")[0], _PACKAGES[""]):
        if importlib.util.find_spec(package) is None:
            raise NotAvailableError(said("url-needs-package", url, package))
    fsspec: Any = importlib.import_module("fsspec")
    try:
        storage, root = fsspec.core.url_to_fs(url)
    except ImportError as problem:  # which says what to install
        raise NotAvailableError(said("url-needs-further-package", url, problem)) from problem
    except Exception as problem:
        raise _unreadable(url, problem) from problem
    return storage, str(root).rstrip("/")


def _files_of(url: str, root: str, listed: Mapping[Any, Any]) -> tuple[list[_File], int]:
    """The files of a dump in a listing, and how many others there are."""
    budget = Budget(url)
    files: list[_File] = []
    left_out = 0
    if len(listed) > _MOST_FILES:
        raise InvalidInputError(said("url-of-too-many-files", url, len(listed)))
    for name, about in listed.items():
        budget.spend_items()
        size = about.get("size") if isinstance(about, Mapping) else None
        place = _place_of(str(name).removeprefix(root).lstrip("/")) if str(name).startswith(root) else None
        if place is None or type(size) is not int or size < 0:
            left_out += 1
            continue
        files.append(_File(str(name), place, size))
    return files, left_out


def _place_of(name: str) -> Path | None:
    """Where a file belongs in the folder of a dump, by its name there; None for what a dump has not."""
    parts = name.split("/")
    folders, file = parts[:-1], parts[-1]
    if folders and folders[-1] == layout.TENSOR_FOLDER:
        folders = folders[:-1]
        if not file or file in (".", "..") or not file.isprintable() or len(file.encode()) > MAX_NAME_LENGTH:
            return None
        if "\\" in file:
            return None
    elif not layout.is_of_dump(file):
        return None
    expected = [_STEP, _RANK][-len(folders) :] if folders else []
    if len(folders) > 2 or (len(folders) == 1 and _STEP.fullmatch(folders[0])):
        return None
    if not all(pattern.fullmatch(folder) for pattern, folder in zip(expected, folders, strict=True)):
        return None
    return Path(*parts)


def _copy_file(storage: Any, url: str, folder: Path, file: _File) -> None:
    try:
        with storage.open(file.name, "rb") as source:
            write_atomically(folder / file.place, _pieces(source, file), fsync=False)
    except MsprobeError:
        raise
    except Exception as problem:
        raise _unreadable(url, problem) from problem


def _pieces(source: BinaryIO, file: _File) -> Iterator[bytes]:
    """The bytes of a file. Raises PathError where they are not as many as the listing says."""
    left = file.size
    while piece := source.read(min(_PIECE_BYTES, left + 1)):
        left -= len(piece)
        if left < 0:
            break
        yield piece
    if left:
        raise PathError(said("file-changed-while-copied", file.name))


def _unreadable(url: str, problem: BaseException) -> PathError:
    """Whatever the package of a storage raises, in one sentence."""
    reason = " ".join((str(problem) or type(problem).__name__).split())[:300].rstrip(".")
    return PathError(said("url-unreadable", url, reason))
