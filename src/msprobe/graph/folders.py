"""Which folders of a path are meant: a single dump, ranks, or steps; and what of two sides answers to each other.

Shapes and names: mindstudio-probe 8.1.1 and 26.2.0. Ours: unknown files are passed over with a notice, and of differing
ranks and steps the common ones are taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msprobe import log
from msprobe.coverage import Coverage, NotRead
from msprobe.diagnose.covered import not_read
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import joined, said
from msprobe.store import layout
from msprobe.store.damage import missing_ranks
from msprobe.store.part import DumpPart
from msprobe.store.reader import open_dump
from msprobe.store.whereabouts import where_instead

FolderKind = Literal["single", "ranks", "steps"]

_RANK = re.compile(r"rank(\d*)")
_STEP = re.compile(r"step(\d+)")
_PROCESS = re.compile(r"proc\d+")
_MOST_NAMED = 5


@dataclass(frozen=True)
class RankFolder:
    """The folder of one rank. ``label`` names it in file names: ``rank0``, ``rank`` where it has no number."""

    path: Path
    step: int | None
    rank: int
    label: str

    def open(self) -> DumpPart:
        """Read the outline of the dump. Raises PathError or InvalidInputError."""
        return DumpPart(self.path, "dump", self.step, self.rank)


@dataclass(frozen=True)
class DumpFolders:
    """The folders of one side, by step and rank, in the order of their numbers."""

    path: Path
    kind: FolderKind
    ranks: tuple[RankFolder, ...]


def find_folders(path: str, field: str) -> DumpFolders:
    """Find the dumps in a folder; ``field`` names the path in messages.

    Raises PathError if the folder is not there or holds none, InvalidInputError if its shape is none of the three.
    """
    if not os.fspath(path):
        raise PathError(said("graph-path-empty", field))
    folder = Path(path)
    if not folder.exists():
        raise PathError(said("graph-folder-missing", field, path, f" {where_instead(folder)}".rstrip()))
    if not folder.is_dir():
        raise PathError(said("graph-path-is-no-folder", field, path))
    try:
        entries = sorted(entry.name for entry in folder.iterdir())
    except OSError as problem:
        raise PathError(said("folder-of-field-unreadable", field, path, (problem.strerror or "").lower())) from problem
    if not entries:
        raise PathError(said("graph-folder-empty", field, str(path)))
    folders = [name for name in entries if (folder / name).is_dir()]
    if layout.TENSOR_FOLDER in entries or layout.main_file(folder, "dump").name in entries or layout.journals(folder):
        return DumpFolders(folder, "single", (_single(folder, field),))
    steps = [name for name in folders if _STEP.fullmatch(name)]
    ranks = [name for name in folders if _RANK.fullmatch(name) or _PROCESS.fullmatch(name)]
    if steps and ranks:
        raise InvalidInputError(said("ranks-beside-steps", field, path, _listed([*ranks, *steps])))
    if not folders or not (steps or ranks):
        others = [name for name in entries if name not in ranks and name not in steps]
        raise InvalidInputError(said("not-ranks-nor-steps", field, path, layout.DUMP_FILE, _listed(others or folders)))
    kind: FolderKind = "steps" if steps else "ranks"
    unknown = [name for name in folders if name not in (steps or ranks)]
    if unknown:
        log.warning(said("also-in-graph-folder", field, path, _listed(unknown)))
    if steps:
        rank_folders = [rank for name in _by_number(steps) for rank in _ranks(folder / name, int(name[4:]), field)]
    else:
        rank_folders = _ranks(folder, _step_of(folder), field)
    return DumpFolders(folder, kind, tuple(rank_folders))


def _single(folder: Path, field: str) -> RankFolder:
    match = _RANK.fullmatch(folder.absolute().name)
    rank = int(match[1]) if match and match[1] else 0
    _need_files(folder, field)
    return RankFolder(folder, _step_of(folder.absolute().parent), rank, "")


def _step_of(folder: Path) -> int | None:
    match = _STEP.fullmatch(folder.absolute().name)
    return int(match[1]) if match else None


def _ranks(folder: Path, step: int | None, field: str) -> list[RankFolder]:
    names = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    known = [name for name in names if _RANK.fullmatch(name)]
    # A process that came when its rank was taken stands for rank 0 where there is no other.
    known = known or [name for name in names if _PROCESS.fullmatch(name)][:1]
    if not known:
        raise InvalidInputError(said("no-rank-folder", field, folder, _listed(sorted(names))))
    rank_folders = []
    for name in _by_number(known):
        _need_files(folder / name, field)
        match = _RANK.fullmatch(name)
        rank_folders.append(RankFolder(folder / name, step, int(match[1]) if match and match[1] else 0, name))
    return rank_folders


def _need_files(folder: Path, field: str) -> None:
    """Say which file of a dump is missing. Stacks may be; an interrupted dump has a journal instead."""
    if layout.journals(folder):
        return
    for name in (layout.main_file(folder, "dump").name, layout.CONSTRUCT_FILE):
        if not os.path.lexists(folder / name):
            raise PathError(said("graph-needs-file", field, folder, name))
    if not os.path.lexists(folder / layout.STACK_FILE):
        log.warning(said("graph-without-stacks", field, folder, layout.STACK_FILE))


def _by_number(names: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: (int("".join(filter(str.isdigit, name)) or "-1"), name))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")


def pair_folders(
    candidate: DumpFolders, reference: DumpFolders, fields: tuple[str, str]
) -> list[tuple[RankFolder, RankFolder]]:
    """The folders of both sides that answer to each other: of the same step and rank.

    Raises InvalidInputError if the sides are of different kinds or have nothing in common.
    """
    if candidate.kind != reference.kind:
        words = {"single": said("a-single-dump"), "ranks": "ranks", "steps": "steps"}
        raise InvalidInputError(
            said("graph-folders-of-two-kinds", fields[0], words[candidate.kind], fields[1], words[reference.kind])
        )
    if candidate.kind == "single":
        return [(candidate.ranks[0], reference.ranks[0])]
    theirs = {_place(rank, candidate.kind): rank for rank in reference.ranks}
    mine = {_place(rank, candidate.kind): rank for rank in candidate.ranks}
    common = [place for place in mine if place in theirs]
    if len(common) < max(len(mine), len(theirs)):
        if not common:
            sides = joined(
                "; ",
                (
                    said("side-has", field, _places(list(side)))
                    for field, side in zip(fields, (mine, theirs), strict=True)
                ),
            )
            raise InvalidInputError(said("no-common-step-and-rank", sides))
        log.warning(said("common-steps-only", len(common)))
    return [(mine[place], theirs[place]) for place in common]


def coverage_of(candidate: DumpFolders, reference: DumpFolders | None, fields: tuple[str, str]) -> Coverage:
    """Which steps and ranks are on both sides, and which on one alone; of one dump, which ranks it lacks."""
    if reference is None:
        lacking = missing_ranks(open_dump(candidate.path)) if candidate.kind == "steps" else []
        return Coverage({"dumps": len(candidate.ranks)}, not_read(lacking))
    if candidate.kind == "single" or candidate.kind != reference.kind:
        return Coverage({"dumps": 1})
    sides = [{_place(rank, side.kind): rank for rank in side.ranks} for side in (candidate, reference)]
    common = sides[0].keys() & sides[1].keys()
    parts = [
        NotRead(_places([place]), said("only-in", field))
        for field, side in zip(fields, sides, strict=True)
        for place in side
        if place not in common
    ]
    return Coverage({"dumps": len(common)}, tuple(parts))


def _place(rank: RankFolder, kind: FolderKind) -> tuple[int | None, int]:
    # Ranks of two runs may lie in folders of different steps.
    return (rank.step if kind == "steps" else None, rank.rank)


def _places(places: Sequence[tuple[int | None, int]]) -> str:
    words = [said("rank", rank) if step is None else said("step-and-rank", step, rank) for step, rank in places]
    return _listed(words)
