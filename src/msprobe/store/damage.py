"""What of a dump cannot be read, so that the rest can be used: broken files, files and ranks that are missing."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.errors import MsprobeError
from msprobe.messages import Wording, joined, said
from msprobe.paths import StrPath
from msprobe.store import layout, processes
from msprobe.store.reader import Dump, open_dump

# A file may say any number.
_MOST_RANKS = 1 << 20

StepAndRank = tuple[int | None, int | str]


def broken_parts(dump: Dump) -> dict[StepAndRank, str]:
    """The parts that cannot be read to their last record, and why. Reads the whole dump."""
    texts: dict[StepAndRank, str] = {}
    for step in dump.steps:
        for rank in dump.ranks(step):
            try:
                part = dump.part(step, rank)
                try:
                    for _ in part.records():
                        pass
                    part.stack("")
                    part.parents()
                finally:
                    part.close()
            except MsprobeError as problem:
                texts[step, rank] = in_words(step, rank, problem.message)
    return texts


def readable_records(folder: StrPath) -> int:
    """How many records this process's own dump in the folder of a rank has, as its readers will find it; 0 for none."""
    me = processes.this_process().as_dict()
    try:
        part = open_dump(folder).part()
        try:
            owner = part.ours.get("process")
            is_ours = isinstance(owner, dict) and {**owner, **me} == owner
            return sum(1 for _ in part.records()) if is_ours else 0
        finally:
            part.close()
    except (MsprobeError, OSError):
        return 0


def in_words(step: int | None, rank: int | str, message: str) -> str:
    """``step 1, rank 0 cannot be read: ...``."""
    return said("place-unreadable", place_in_words(step, rank), message)


def place_in_words(step: int | None, rank: int | str) -> str:
    """``step 1, rank 0``; a rank without number by its folder, and not at all if it is the only one (``rank``)."""
    words: list[str] = [said("one-number-of", "step", step)] if step is not None else []
    if rank != "rank" or not words:
        words.append(said("one-number-of", "rank", rank) if isinstance(rank, int) else str(rank))
    return joined(", ", words)


def lost_parts(dump: Dump) -> list[str]:
    """What to say of the folders of ranks whose ``dump.json`` is gone."""
    why = said("dump-file-gone", layout.DUMP_FILE)
    return [in_words(step, rank, why) for step, rank in dump.hollow]


def missing_ranks(dump: Dump) -> list[str]:
    """What to say of ranks that steps lack: those that other steps have, and those that no step has, though the program
    had them and they were to be recorded. A dump that does not say how many ranks there were has a hole where most
    numbers up to the last are there.
    """
    ranks = {step: set(dump.ranks(step)) for step in dump.steps}
    everyone = list(dict.fromkeys(rank for step in dump.steps for rank in dump.ranks(step)))
    hollow = set(dump.hollow)
    texts: list[str] = []
    for step, there in ranks.items():
        lacking = [rank for rank in everyone if rank not in there and (step, rank) not in hollow]
        if lacking:
            named, is_one = _named(lacking), len(lacking) == 1
            texts.append(
                said("rank-missing-in-step", step, named) if is_one else said("ranks-missing-in-step", step, named)
            )
    nowhere = ranks_of_no_step(dump)
    return [*texts, missing_from_all(nowhere)] if nowhere else texts


def missing_from_all(ranks: list[int]) -> str:
    """What to say of ranks that no step has."""
    named = _named(ranks)
    return said("rank-missing-everywhere", named) if len(ranks) == 1 else said("ranks-missing-everywhere", named)


def ranks_of_no_step(dump: Dump) -> list[int]:
    """The ranks that should be in the dump and have no folder in any step, in order."""
    if dump.steps == [None]:
        return []  # whoever gives the folder of one rank means that rank
    there = {rank for step in dump.steps for rank in dump.ranks(step) if isinstance(rank, int)}
    there |= {rank for _, rank in dump.hollow if isinstance(rank, int)}
    if not there:
        return []
    world, asked = _ranks_of_program(dump)
    if world:
        return [rank for rank in range(world) if rank not in there and (not asked or rank in asked)]
    last = max(there)
    return [rank for rank in range(last) if rank not in there] if 2 * len(there) > last + 1 else []


def _ranks_of_program(dump: Dump) -> tuple[int, frozenset[int]]:
    """How many ranks the recorded program had (0: not known), and which were to be recorded (none: all)."""
    for step in dump.steps:
        for rank in dump.ranks(step):
            try:
                part = dump.part(step, rank)
                part.close()
            except MsprobeError:
                continue
            world, asked = part.ours.get("world"), part.ours.get("ranks")
            if not isinstance(world, int) or not 0 < world <= _MOST_RANKS:
                return 0, frozenset()
            return int(world), frozenset(rank for rank in asked if type(rank) is int) if isinstance(
                asked, list
            ) else frozenset()
    return 0, frozenset()


def _named(ranks: Sequence[object]) -> str:
    text = ", ".join(map(str, ranks[:8]))
    return Wording("{}{}", text, said("and-more-of", len(ranks) - 8)) if len(ranks) > 8 else text
