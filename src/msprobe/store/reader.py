"""Open a dump: ours or one of mindstudio-probe (8.1.1, 26.x; both frameworks), finished or interrupted."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msprobe import log
from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign import links
from msprobe.messages import joined, said
from msprobe.paths import StrPath, check_path_form
from msprobe.store import layout
from msprobe.store.part import DumpPart

_STEP = re.compile(r"step(\d+)")
_RANK = re.compile(r"rank(\d*)")
_RANK_OR_PROCESS = re.compile(r"rank\d*|proc\d+")
_MARKING_FILES = frozenset((*layout.MAIN_FILES, layout.STACK_FILE, layout.CONSTRUCT_FILE))


@dataclass(frozen=True)
class _Folder:
    """The folder of a rank. ``links``: what of it, or of the folder of its step, is a symbolic link."""

    path: Path
    step: int | None
    rank: int | str
    links: tuple[Path, ...] = ()


class Dump:
    """The folders of one run, by step and rank. Nothing is read before a part is asked for.

    A rank is its number, or the name of its folder where that has none (``rank``, ``proc4711``). The step of
    a rank's folder that was opened by itself is None unless the folder above is ``step{N}``. It can be given
    wherever the path of a dump is asked for.
    """

    def __init__(
        self,
        path: Path,
        folders: list[_Folder],
        kind: layout.FileKind | None,
        hollow: Sequence[_Folder] = (),
        given: str | None = None,
    ) -> None:
        self.path = path
        self._given = str(path) if given is None else given
        #: Step and rank of folders that have files of a dump, and no ``dump.json``.
        self.hollow = tuple((folder.step, folder.rank) for folder in hollow)
        self._kind = kind
        # As texts: of 1,000 steps on 64 ranks there are 64,000.
        self._folders = {(folder.step, folder.rank): str(folder.path) for folder in folders}
        # Asked for at every step of what may be thousands, on as many ranks.
        self._ranks: dict[int | None, list[int | str]] = {}
        for step, rank in sorted(self._folders, key=_place_order):
            self._ranks.setdefault(step, []).append(rank)

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        """The path as it was given."""
        return self._given

    @property
    def steps(self) -> list[int | None]:
        """The steps, in order."""
        return list(self._ranks)

    def ranks(self, step: int | None = None) -> list[int | str]:
        """The ranks of a step (of the only one, if none is named), numbers first."""
        return list(self._ranks[self._step(step)])

    def part(
        self,
        step: int | None = None,
        rank: int | str | None = None,
        kind: layout.FileKind | None = None,
        partial: bool = False,
    ) -> DumpPart:
        """Read one part; step and rank may be left out where there is only one.

        ``kind`` chooses between ``dump.json`` and ``debug.json`` in a folder that has both; the first goes
        first. ``partial``: read what is whole of a file that is cut off.
        """
        chosen = self._step(step)
        ranks = self._ranks[chosen]
        if rank is None:
            if len(ranks) != 1:
                raise InvalidInputError(said("rank-not-chosen", self.path, _listed(ranks)))
            rank = ranks[0]
        folder = self._folders.get((chosen, rank))
        if folder is None:
            raise InvalidInputError(said("rank-missing", self.path, rank, chosen, _listed(ranks)))
        path = Path(folder)
        kind = kind or self._kind or next(iter(_kinds(path)), None)
        if kind is None:
            raise PathError(said("dump-gone", path))
        return DumpPart(path, kind, chosen, rank, partial)

    def folder(self, step: int | None, rank: int | str) -> Path:
        """The folder of one part. KeyError if it is not there."""
        return Path(self._folders[step, rank])

    def only(self, step: int | None, rank: int | str) -> Dump:
        """This dump without its other parts: what a process needs to know that reads the one. KeyError if it is not
        there.
        """
        return Dump(self.path, [_Folder(Path(self._folders[step, rank]), step, rank)], self._kind)

    def without(self, places: Collection[tuple[int | None, int | str]]) -> Dump:
        """This dump without the parts of some steps and ranks."""
        kept = [_Folder(Path(path), *place) for place, path in self._folders.items() if place not in places]
        return Dump(self.path, kept, self._kind)

    def parts(self) -> Iterator[DumpPart]:
        """All parts, by step and rank."""
        for step in self.steps:
            for rank in self.ranks(step):
                yield self.part(step, rank)

    def _step(self, step: int | None) -> int | None:
        if step in self._ranks:
            return step
        steps = list(self._ranks)
        if step is None and len(steps) == 1:
            return steps[0]
        if step is None:
            raise InvalidInputError(said("step-not-chosen", self.path, _listed(steps)))
        raise InvalidInputError(said("step-missing", self.path, step, _listed(steps)))


def open_dump(path: StrPath) -> Dump:
    """Open a dump by its root, by the folder of a step or of a rank, or by a ``dump.json`` or ``debug.json``.

    One that is open is given back: who opens a dump hands it on, as each folder of it is looked at. Raises PathError
    if there is no dump.
    """
    if isinstance(path, Dump):
        return path
    given = check_path_form(path, "dump")
    if given.is_file():
        kind = layout.kind_of(given.name)
        if kind is None:
            raise _no_dump(given, said("dump-file-name-wrong", given, layout.DUMP_FILE, layout.DEBUG_FILE))
        return Dump(given, [_rank_folder(given.parent)], kind, given=os.fspath(path))
    if given.exists() and not given.is_dir():
        raise PathError(said("dump-path-is-special", given))
    if not given.is_dir():
        raise _no_dump(given, said("dump-missing", given), said("give-folder-of-dump", layout.DUMP_FILE))
    try:
        folders, hollow = _folders(given)
        _check_links(given, folders)
    except OSError as problem:
        raise PathError(said("dump-folder-unreadable", given, reason_of(problem))) from problem
    if not folders:
        message = said("folder-holds-no-dump", given, layout.DUMP_FILE)
        inner = [given / name for name in (layout.STEP_BY_STEP, layout.COMPILED) if (given / name).is_dir()]
        if len(inner) > 1:
            raise PathError(said("two-dumps-in-folder", message, inner[0], inner[1]))
        raise _no_dump(given, message, said("inner-folder-may-be-dump", inner[0]) if inner else "")
    return Dump(given, folders, None, hollow, os.fspath(path))


def open_dumps(paths: Sequence[StrPath]) -> list[Dump]:
    """Open several dumps. Raises one PathError that names all paths that lead to none."""
    dumps: list[Dump] = []
    problems: list[str] = []
    for path in paths:
        try:
            dumps.append(open_dump(path))
        except PathError as problem:
            text = problem.message
            problems.append(f"{text[0].upper()}{text[1:]}" if problems and text[0].islower() else text)
    if problems:
        raise PathError(joined(" ", dict.fromkeys(problems)))
    return dumps


def _no_dump(given: Path, message: str, otherwise: str = "") -> PathError:
    """The error for a path that leads to no dump: where one is, or what to do ``otherwise``."""
    from msprobe.store.whereabouts import where_instead

    return PathError(joined(" ", [text for text in (message, where_instead(given) or otherwise) if text]))


def _folders(given: Path) -> tuple[list[_Folder], list[_Folder]]:
    """The folders of ranks that hold a dump, and those that have lost it. Each is looked at once."""
    if _kinds(given):
        return [_rank_folder(given)], []
    in_steps = [
        folder
        for step, is_link in _sub_folders(given, _STEP)
        for folder in _ranks_in(step, int(step.name.removeprefix("step")), (step,) if is_link else ())
    ]
    with_dump, hollow = _sorted_out(in_steps)
    if not with_dump:
        match = _STEP.fullmatch(_own_name(given))
        with_dump, hollow = _sorted_out(_ranks_in(given, int(match.group(1)) if match else None))
    return with_dump, hollow


def _sorted_out(folders: list[_Folder]) -> tuple[list[_Folder], list[_Folder]]:
    """Those that hold a dump, and those that hold other files that only a dump has."""
    with_dump: list[_Folder] = []
    hollow: list[_Folder] = []
    for folder in folders:
        names = _names_in(folder.path)
        if _kinds_of(names):
            with_dump.append(folder)
        elif not names.isdisjoint((layout.STACK_FILE, layout.CONSTRUCT_FILE)):
            hollow.append(folder)
    return with_dump, hollow


def _check_links(given: Path, folders: list[_Folder]) -> None:
    """Raises InvalidInputError where a folder of a step or of a rank is a link out of the dump."""
    linked = dict.fromkeys(place for folder in folders for place in folder.links)
    suspects = sorted(linked, key=lambda place: len(place.parts))
    if suspects and not any(map(links.is_marked, (given, given.absolute().parent))):
        for place in suspects:
            links.check_link(place, given)


def _ranks_in(step: Path, number: int | None, links_above: tuple[Path, ...] = ()) -> list[_Folder]:
    folders = sorted(
        _sub_folders(step, _RANK_OR_PROCESS),
        key=lambda folder_and_link: _RANK.fullmatch(folder_and_link[0].name) is None,
    )
    return [
        _Folder(folder, number, _rank_of(folder.name), (*links_above, folder) if is_link else links_above)
        for folder, is_link in folders
    ]


def _rank_folder(folder: Path) -> _Folder:
    match = _STEP.fullmatch(_own_name(folder.absolute().parent))
    return _Folder(folder, int(match.group(1)) if match else None, _rank_of(_own_name(folder)))


def _rank_of(name: str) -> int | str:
    match = _RANK.fullmatch(name)
    return int(match.group(1)) if match and match.group(1) else name


def _own_name(folder: Path) -> str:
    return folder.name or folder.absolute().name


def _kinds(folder: Path) -> list[layout.FileKind]:
    """What a folder holds: a dump, debug variables, or both."""
    return _kinds_of(_names_in(folder))


def _names_in(folder: Path) -> set[str]:
    """The names in a folder that say what it holds. Raises OSError."""
    with os.scandir(folder) as entries:
        return {
            entry.name
            for entry in entries
            if entry.name in _MARKING_FILES or (layout.is_journal(entry.name) and entry.is_file(follow_symlinks=False))
        }


def _kinds_of(names: set[str]) -> list[layout.FileKind]:
    present: list[layout.FileKind] = []
    kinds: tuple[layout.FileKind, ...] = ("dump", "debug")
    for kind in kinds:
        if any(layout.kind_of(name) == kind or name.startswith(f"{kind}-") for name in names):
            present.append(kind)
    return present


def _sub_folders(folder: Path, name: re.Pattern[str]) -> list[tuple[Path, bool]]:
    """The folders of such names, by name, and whether each is a symbolic link."""
    with os.scandir(folder) as entries:
        folders = [
            (entry.name, entry.is_symlink()) for entry in entries if name.fullmatch(entry.name) and _leads_on(entry)
        ]
    return [(folder / name, is_link) for name, is_link in sorted(folders)]


def _leads_on(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder, or a link to one. A link that leads nowhere, or in a circle, is none; a line says so."""
    if not entry.is_symlink():
        return entry.is_dir()
    if not os.path.exists(entry.path):
        log.once(
            ("broken link", entry.path),
            "warning",
            said("dangling-link", entry.path),
        )
    return Path(entry.path).is_dir()


def _place_order(place: tuple[int | None, int | str]) -> tuple[int, int, int, str]:
    """By step, ranks with a number first."""
    step, rank = place
    return -1 if step is None else step, *((0, rank, "") if isinstance(rank, int) else (1, 0, rank))


def _listed(items: list[int | None] | list[int | str]) -> str:
    shown = ", ".join(str(item) for item in items[:20])
    return f"{shown}, ..." if len(items) > 20 else shown or "none"
