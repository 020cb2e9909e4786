"""Where the dump is, when the path that was given leads to none: too high, too low, mistyped, or of another command."""

from __future__ import annotations

import os
import re
from collections import deque
from pathlib import Path

from msprobe.foreign.letters import printable_name
from msprobe.messages import Wording, said
from msprobe.store import layout

_STEP = re.compile(r"step\d+")
_RANK = re.compile(r"rank\d*|proc\d+")
# How far is looked: below, in folders; above, in parents. A path that is wrong may be the root of a disk.
_DEEPEST = 4
_MOST_FOLDERS = 2000
_MOST_NAMED = 4
_HIGHEST = 4
#: What other commands read, by the ending of a file and by what lies in a folder; the values name sentences.
_OTHER_FILES = {
    **dict.fromkeys((".pt", ".pth", ".bin", ".ckpt", ".safetensors"), "may-be-checkpoint"),
    ".zip": "may-be-pack",
}
_OTHER_FOLDERS = (("is-output-of-monitor", "*-rank*-*/run.json"), ("is-of-grad-probe", "rank*/grad_summary_*.csv"))


def where_instead(given: Path) -> str:
    """A sentence that says where the dump is, seen from a path that leads to none; empty if none is near."""
    try:
        is_there = os.path.lexists(given)
        text = (_below(given) or _above(given) or _other_input(given)) if is_there else _beside(given)
    except OSError:
        return ""
    # Names on a disk may hold anything; a message is one line of text.
    return text.with_values(printable_name) if isinstance(text, Wording) else printable_name(text)


def _other_input(given: Path) -> str:
    """For something that a different command reads: which one."""
    if not given.is_dir():
        return said(_OTHER_FILES[given.suffix.lower()]) if given.suffix.lower() in _OTHER_FILES else ""
    return next((said(name) for name, pattern in _OTHER_FOLDERS if next(given.glob(pattern), None)), "")


def _below(given: Path) -> str:
    """For a folder that is too high."""
    if not given.is_dir():
        return ""
    dumps, is_all = _dumps_below(given)
    if not dumps:
        return ""
    if len(dumps) == 1 and is_all:
        return said("dump-is-there", dumps[0])
    return said("dumps-are-in-give", _listed(dumps, is_all))


def _above(given: Path) -> str:
    """For something that lies in a dump."""
    for folder in list(given.absolute().parents)[:_HIGHEST]:
        if not _has_records(folder):
            continue
        shown = _as_given(given, folder)
        if _STEP.fullmatch(folder.parent.name) and _RANK.fullmatch(folder.name):
            return said("belongs-to-dump-of-steps", shown, _as_given(given, folder.parent.parent))
        return said("belongs-to-dump", shown)
    return ""


def _beside(given: Path) -> str:
    """For a path that does not exist: what is there that looks like it."""
    missing = given
    while not os.path.lexists(missing.parent) and missing.parent != missing:
        missing = missing.parent
    parent, rest = missing.parent, given.relative_to(missing)
    if not parent.is_dir():
        return _above(parent)
    steps = _names(parent, _STEP if _STEP.fullmatch(missing.name) else _RANK)
    if steps and (_STEP.fullmatch(missing.name) or _RANK.fullmatch(missing.name)):
        shown = ", ".join(steps[:20]) + (", ..." if len(steps) > 20 else "")
        return said("folder-has-steps", parent, shown)
    from msprobe.foreign.nearest import near_words

    there = {entry.name: entry for entry in parent.iterdir() if not entry.name.startswith(".")}
    lower = {name.lower(): name for name in sorted(there)}
    likely = near_words(missing.name.lower(), lower, n=5, cutoff=0.6)
    # Of names that look like it, one that leads to a dump.
    for name in likely:
        path = _join(parent, lower[name]) / rest
        if _is_dump(path):
            return said("mean-path", path)
    for name in likely:
        path = _join(parent, lower[name]) / rest
        dumps, _ = _dumps_below(path) if path.is_dir() else ([], True)
        if dumps:
            return said("mean-path-below", path, _below(path))
    dumps, is_all = _dumps_below(parent, deepest=1)
    return said("dumps-are-in", _listed(dumps, is_all)) if dumps else _above(missing)


def _dumps_below(top: Path, deepest: int = _DEEPEST) -> tuple[list[Path], bool]:
    """The highest folders below ``top`` that are dumps, and whether all were found."""
    dumps: list[Path] = []
    waiting = deque([(top, 0)])
    looked = 0
    while waiting:
        folder, depth = waiting.popleft()
        looked += 1
        if looked > _MOST_FOLDERS:
            return dumps, False
        if folder != top and _is_dump(folder):
            dumps.append(folder)
            continue
        if depth < deepest:
            try:
                with os.scandir(folder) as entries:
                    names = sorted(
                        entry.name
                        for entry in entries
                        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
                    )
            except OSError:
                continue
            waiting += [(_join(folder, name), depth + 1) for name in names]
    return dumps, True


def _is_dump(path: Path) -> bool:
    """True for the root of a dump, the folder of a step or a rank, and the file itself."""
    if path.name in layout.MAIN_FILES:
        return path.is_file()
    if _has_records(path):
        return True
    steps = [path, *(path / name for name in _names(path, _STEP))]
    return any(_has_records(step / name) for step in steps for name in _names(step, _RANK))


def _has_records(folder: Path) -> bool:
    try:
        return any(os.path.lexists(folder / name) for name in layout.MAIN_FILES) or bool(layout.journals(folder))
    except OSError:
        return False


def _names(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    """The folders of steps or ranks in a folder, by number."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if pattern.fullmatch(entry.name) and entry.is_dir()]
    except OSError:
        return []
    return sorted(names, key=lambda name: (len(name), name))


def _as_given(given: Path, folder: Path) -> Path:
    """A folder above ``given``, written as that was: relative where it was relative."""
    for parent in given.parents:
        if parent.absolute() == folder:
            return parent
    try:
        return Path(os.path.relpath(folder)) if not given.is_absolute() else folder
    except (OSError, ValueError):
        return folder


def _join(folder: Path, name: str) -> Path:
    return folder / name if str(folder) != "." else Path(name)


def _listed(paths: list[Path], is_all: bool) -> str:
    shown = [f'"{path}"' for path in paths[:_MOST_NAMED]]
    left = len(paths) - len(shown)
    if left or not is_all:
        return Wording("{}{}", ", ".join(shown), said("and-more-of", left) if left else said("and-more-dumps"))
    return said("two-paths", ", ".join(shown[:-1]), shown[-1]) if len(shown) > 1 else shown[0]
