"""``lockstep_rank{R}.json`` beside the steps of a dump: what happened while a rank ran against the reference."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from msprobe.errors import InvalidInputError
from msprobe.foreign.json_text import read_json
from msprobe.lockstep.account import Account, StepAccount
from msprobe.lockstep.reference import RecordedStep, Steps
from msprobe.messages import said
from msprobe.paths import StrPath, create_folder, write_atomically
from msprobe.store.reader import Dump

_MOST_NAMED = 20


def check_apart(folder: StrPath, reference: Dump) -> None:
    """Raise InvalidInputError if the candidate's dump would be written over the reference."""
    own, other = Path(folder).resolve(), Path(reference.path).resolve()
    if own == other or other.is_relative_to(own) or own.is_relative_to(other):
        raise InvalidInputError(said("lockstep-into-reference", folder))


class Begun:
    """The recorded steps; with the first that is asked for goes what an earlier run has left of this rank."""

    def __init__(self, folder: StrPath, recording: Steps) -> None:
        self._folder = folder
        self._recording = recording
        self._begun = False

    def step(self, step: int, rank: int | None) -> RecordedStep | None:
        if not self._begun:
            self._begun = True
            _path(self._folder, rank).unlink(missing_ok=True)
        return self._recording.step(step, rank)


def forget(folder: StrPath) -> None:
    """A run begins: what earlier ones have left is not its own."""
    for path in Path(folder).glob("lockstep_rank*.json"):
        path.unlink(missing_ok=True)


def end(folder: StrPath, rank: int | None, world: int, account: Account) -> bool:
    """A process ends. True if it is the last of ``world`` ranks to do so."""
    create_folder(folder)
    path = _path(folder, rank)
    write_atomically(path, json.dumps(account.to_json(), indent=1).encode() + b"\n")
    return world < 2 or all(_path(folder, number).exists() for number in range(world))


def read(folder: StrPath) -> dict[str, Any]:
    """What the ranks of a dump say, together: how many they are, counts, names of calls by what became of them, and by
    step and rank (a number as text, empty in a single process) what is known of it (``steps``). Raises
    InvalidInputError if there are none, or one cannot be read.
    """
    counts: Counter[str] = Counter()
    named: dict[str, list[str]] = {}
    steps: dict[tuple[int, str], StepAccount] = {}
    files = sorted(Path(folder).glob("lockstep_rank*.json"))
    for path in files:
        try:
            content = read_json(path)
            counts.update({str(word): int(count) for word, count in content["counts"].items()})
            for word, names in content["named"].items():
                named.setdefault(str(word), []).extend(map(str, names))
            rank = path.stem.removeprefix("lockstep_rank")
            for step, account in content.get("steps", {}).items():
                steps[int(step), rank] = StepAccount.from_json(account)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as problem:
            raise InvalidInputError(said("lockstep-file-broken", path, problem)) from problem
    if not counts:
        raise InvalidInputError(said("no-lockstep-dump", folder))
    return {
        "counts": dict(counts),
        "named": {word: names[:_MOST_NAMED] for word, names in named.items()},
        "steps": steps,
        "ranks": len(files),
    }


def _path(folder: StrPath, rank: int | None) -> Path:
    return Path(folder) / f"lockstep_rank{'' if rank is None else rank}.json"
