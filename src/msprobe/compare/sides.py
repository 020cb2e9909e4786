"""The two sides of a comparison: which files, or which ranks of which folders, answer to each other."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from msprobe import log
from msprobe.compare.problems import DamagedDataError, FileAndFolderError, InvalidPathError
from msprobe.coverage import NotRead
from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.store.layout import DEBUG_FILE, DUMP_FILE, FileKind, journals, kind_of, main_file
from msprobe.store.part import DumpPart
from msprobe.store.reader import open_dump
from msprobe.store.whereabouts import where_instead

_RANK = re.compile(r"rank(0|[1-9][0-9]*)?")
_STEP = re.compile(r"step\d+")
_PROCESS = re.compile(r"proc\d+")
_MOST_NAMED = 5


class MissingDumpError(PathError):
    """A dump that was named is not there."""

    code: ClassVar[int] = 0


@dataclass(frozen=True)
class RankPair:
    """The folders of one rank on both sides, and how the results name it."""

    name: str
    candidate: Path
    reference: Path


def is_folder_pair(candidate: StrPath, reference: StrPath, fields: tuple[str, str]) -> bool:
    """True for two folders, False for two files.

    ``fields`` name the paths in messages. Raises InvalidPathError, PathError, FileAndFolderError.
    """
    folders = []
    for path, field in zip((candidate, reference), fields, strict=True):
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise InvalidPathError(said("field-is-no-path", field, path))
        if not os.path.exists(path):
            raise MissingDumpError(said("path-of-field-missing", field, path, _near(Path(path))))
        folders.append(os.path.isdir(path))
    if folders[0] != folders[1]:
        kinds = [said("a-folder") if folder else said("a-file") for folder in folders]
        raise FileAndFolderError(said("file-against-folder", candidate, kinds[0], reference, kinds[1]))
    return folders[0]


def open_pair(candidate: StrPath, reference: StrPath) -> tuple[DumpPart, DumpPart]:
    """Open two files of the same kind. Raises InvalidPathError, DamagedDataError, PathError."""
    names = [Path(path).name for path in (candidate, reference)]
    for path, name in zip((candidate, reference), names, strict=True):
        if kind_of(name) is None:
            raise InvalidPathError(said("file-of-dump-named", path, DUMP_FILE, DEBUG_FILE))
    if kind_of(names[0]) != kind_of(names[1]):
        raise InvalidPathError(said("files-of-two-kinds", candidate, reference, DUMP_FILE, DEBUG_FILE))
    first = _open(candidate)
    try:
        return first, _open(reference)
    except BaseException:
        first.close()
        raise


def _open(path: StrPath) -> DumpPart:
    try:
        if not os.path.isfile(path):
            # A program that was killed leaves a journal instead of the file.
            kind = kind_of(Path(path).name) or "dump"
            return open_dump(Path(path).parent).part(kind=kind)
        return open_dump(path).part()
    except InvalidInputError as problem:
        raise DamagedDataError(problem.message) from problem


def pair_ranks(candidate: Path, reference: Path, strict: bool) -> tuple[list[RankPair], list[tuple[str, str]]]:
    """The ranks of two folders, by number; and those of one side alone, each with the folder that has it.

    ``strict`` is the form of 8.1.1: every entry must be a rank, and both sides must have equally many. Otherwise
    what both have is paired, and what is missing is said; without ranks, the one folder of each side is. Raises
    InvalidPathError.
    """
    ours, theirs = _ranks(candidate, strict), _ranks(reference, strict)
    if strict and len(ours) != len(theirs):
        raise InvalidPathError(said("rank-counts-differ", candidate, len(ours), reference, len(theirs)))
    if not ours or not theirs:
        empty = candidate if not ours else reference
        raise InvalidPathError(said("no-rank-folders", empty, _hint(empty)))
    if ours.keys() == theirs.keys():
        return [RankPair(ours[rank].name, ours[rank], theirs[rank]) for rank in ours], []
    if len(ours) == len(theirs) == 1:
        (our_folder,), (other,) = ours.values(), theirs.values()
        return [RankPair(our_folder.name, our_folder, other)], []
    lone = _say_missing(ours, theirs, candidate, reference)
    common = [rank for rank in ours if rank in theirs]
    if not common:
        raise InvalidPathError(said("no-common-rank", candidate, reference))
    return [RankPair(ours[rank].name, ours[rank], theirs[rank]) for rank in common], lone


def cut_short(*parts: DumpPart) -> tuple[NotRead, ...]:
    """What of parts that were not finished cannot be compared."""
    return tuple(
        NotRead(said("behind-end", part.path), said("was-not-recorded")) for part in parts if not part.complete
    )


def _ranks(folder: Path, strict: bool) -> dict[int, Path]:
    """Folder of each rank, in numeric order; -1 is the rank without a number."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as problem:
        raise PathError(said("folder-unreadable", folder, reason_of(problem))) from problem
    folders = {}
    foreign = []
    for entry in entries:
        match = _RANK.fullmatch(entry.name)
        if match and entry.is_dir():
            folders[int(match.group(1) or -1)] = entry
        else:
            foreign.append(entry.name)
    if strict and foreign:
        raise InvalidPathError(said("not-rank-folders-only", folder, _listed(foreign), _hint(folder)))
    if not folders and not strict:
        processes = [entry for entry in entries if _PROCESS.fullmatch(entry.name) and entry.is_dir()]
        if len(processes) == 1:
            folders = {-1: processes[0]}
        elif files_of(folder):
            folders = {-1: folder}  # the folder of a rank itself
    return dict(sorted(folders.items()))


def _say_missing(
    ours: dict[int, Path], theirs: dict[int, Path], candidate: Path, reference: Path
) -> list[tuple[str, str]]:
    lone: list[tuple[str, str]] = []
    for side, other, missing in (
        (candidate, reference, [folder.name for rank, folder in theirs.items() if rank not in ours]),
        (reference, candidate, [folder.name for rank, folder in ours.items() if rank not in theirs]),
    ):
        lone += [(name, f'"{other}"') for name in missing]
        if missing:
            log.warning(said("ranks-of-one-side", side, _listed(missing)))
    return lone


def files_of(folder: Path) -> dict[FileKind, Path]:
    """What there is to compare in the folder of a rank, finished or in a journal."""
    kinds: tuple[FileKind, ...] = ("dump", "debug")
    left = [path.name for path in journals(folder)]
    return {
        kind: file
        for kind in kinds
        if (file := main_file(folder, kind)).is_file() or any(journal.startswith(f"{kind}-") for journal in left)
    }


def _hint(folder: Path) -> str:
    steps = sorted(entry.name for entry in folder.iterdir() if _STEP.fullmatch(entry.name))
    if steps:
        return said("give-step-folder", folder / steps[0])
    return _near(folder)


def _near(path: Path) -> str:
    """Where the dump is instead, as the end of a message; empty if none is near."""
    return f" {where_instead(path)}".rstrip()


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown}, ..." if len(names) > _MOST_NAMED else shown
