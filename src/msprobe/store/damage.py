"""What of a dump cannot be read, so that the rest can be used: broken files, files and ranks that are missing."""

from __future__ import annotations

from msprobe.errors import MsprobeError
from msprobe.paths import StrPath
from msprobe.store import layout, processes
from msprobe.store.reader import Dump, open_dump

Place = tuple[int | None, int | str]


def broken_parts(dump: Dump) -> dict[Place, str]:
    """The parts that cannot be read to their last record, and why. Reads the whole dump."""
    found: dict[Place, str] = {}
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
                found[step, rank] = in_words(step, rank, problem.message)
    return found


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
    return f"{place_in_words(step, rank)} cannot be read: {message}"


def place_in_words(step: int | None, rank: int | str) -> str:
    """``step 1, rank 0``; a rank without number by its folder, and not at all if it is the only one (``rank``)."""
    words = [f"step {step}"] if step is not None else []
    if rank != "rank" or not words:
        words.append(f"rank {rank}" if isinstance(rank, int) else str(rank))
    return ", ".join(words)


def lost_parts(dump: Dump) -> list[str]:
    """What to say of the folders of ranks whose ``dump.json`` is gone."""
    why = f"it has no {layout.DUMP_FILE}, though other files of a dump are there."
    return [in_words(step, rank, why) for step, rank in dump.hollow]


def missing_ranks(dump: Dump) -> list[str]:
    """What to say of steps that lack ranks which other steps have."""
    ranks = {step: set(dump.ranks(step)) for step in dump.steps}
    everyone = list(dict.fromkeys(rank for step in dump.steps for rank in dump.ranks(step)))
    hollow = set(dump.hollow)
    found = []
    for step, there in ranks.items():
        lacking = [rank for rank in everyone if rank not in there and (step, rank) not in hollow]
        if lacking:
            named = ", ".join(map(str, lacking[:8])) + (f" and {len(lacking) - 8} more" if len(lacking) > 8 else "")
            word, verb = ("rank", "is") if len(lacking) == 1 else ("ranks", "are")
            found.append(
                f"step {step}: {word} {named} {verb} missing, which other steps have; killed before this step, or not "
                "recorded"
            )
    return found
