"""What earlier runs left of steps and ranks that the run which begins may never reach.

A folder that a run writes in is cleared when it is claimed (:mod:`msprobe.store.ownership`); here go the others, so
that no step and no rank of an earlier run is taken for one of this run. Each rank answers for its own folders, and the
first rank for those of ranks that this run does not have: ranks that begin at once never meet.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msprobe.errors import PathError
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.store import layout, ownership

_RANK = re.compile(r"rank(\d*)")
_PROCESS = re.compile(r"proc\d+")


@dataclass(frozen=True)
class Duty:
    """Which folders of ranks a process answers for: its own; the first process also for ranks that its run has not.

    ``world``: how many ranks there are, 0 if that is not known. ``wants`` says whether a rank is recorded at all.
    """

    rank: int | None
    world: int
    wants: Callable[[int], bool]

    def is_first(self) -> bool:
        """True for a single process, and for the first rank that is recorded."""
        return self.rank is None or (self.rank < self.world and not any(map(self.wants, range(self.rank))))

    def own(self) -> str:
        """The name of its folders."""
        return layout.rank_folder("", self.rank).name

    def includes(self, name: str) -> bool:
        """Whether the first process answers for folders of this name."""
        if name == self.own():
            return True
        match = _RANK.fullmatch(name)
        if match is None or not match[1]:
            return match is not None or _PROCESS.fullmatch(name) is not None
        return self.rank is None or int(match[1]) >= self.world or not self.wants(int(match[1]))


def remove_old_dumps(dump_paths: Iterable[StrPath], first_step: int, duty: Duty) -> tuple[list[int], str]:
    """Remove dumps of earlier runs, of steps from ``first_step`` on: earlier ones belong to a run that is resumed.

    Files of a dump go, as their names show them, and folders that are empty then; links are not followed. What a living
    process writes or wrote stays. Returns the steps of which something was removed, and why something could not be
    (empty if all could).
    """
    steps: set[int] = set()
    problem = ""
    for dump_path in dump_paths:
        for step, folder in _rank_folders(Path(dump_path), first_step, duty):
            try:
                if ownership.remove_old_dump(folder):
                    steps.add(step)
            except FileNotFoundError:
                continue  # somebody else was faster
            except PathError as error:
                problem = problem or error.message
            except OSError as error:
                problem = problem or said("earlier-run-not-removed", folder, error.strerror)
    return sorted(steps), problem


def _rank_folders(dump_path: Path, first_step: int, duty: Duty) -> Iterator[tuple[int, Path]]:
    """The folders of ranks, with their steps, that the process answers for, as far as their names say."""
    is_first, own = duty.is_first(), duty.own()
    with contextlib.suppress(OSError):
        for step, folder in layout.step_folders(dump_path):
            if step < first_step:
                continue
            if not is_first:
                # Not all ranks list the folders of all ranks.
                if (folder / own).is_dir() and not (folder / own).is_symlink():
                    yield step, folder / own
                continue
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                named = [entry for entry in entries if duty.includes(entry.name)]
                yield from sorted((step, Path(entry.path)) for entry in named if entry.is_dir(follow_symlinks=False))
