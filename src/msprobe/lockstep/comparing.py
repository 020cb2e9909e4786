"""Comparing two dumps of which the candidate may have run in lockstep with the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msprobe.diagnose.findings import Verdict
from msprobe.errors import MsprobeError
from msprobe.foreign.json_text import read_json
from msprobe.paths import StrPath
from msprobe.store.reader import open_dump

_FILE = "verdict.json"
_MOST_BYTES = 1 << 28


def has_verdict(folder: StrPath) -> bool:
    """True for the folder that ``msprobe lockstep`` wrote: its verdict is beside the steps. What ``msprobe confirm``
    wrote is an ordinary dump, as all but one call is the program's own there.
    """
    path = Path(folder) / _FILE
    try:
        if next(Path(folder).glob("lockstep_rank*.json"), None) is None:
            return False
        verdict = read_json(path, most_bytes=_MOST_BYTES)
    except (OSError, ValueError, MsprobeError):
        return False
    summary = verdict.get("summary") if isinstance(verdict, dict) else None
    return isinstance(summary, dict) and "lockstep" in summary


def compared(
    candidate: StrPath,
    reference: StrPath,
    progress: Callable[[str], None] | None,
    otherwise: Callable[[StrPath, StrPath], Verdict],
) -> Verdict:
    """What ``msprobe lockstep`` says of two dumps if the candidate is its, as there no difference reaches another call
    or the loss; else what ``otherwise`` says of them. Raises PathError or InvalidInputError.
    """
    opened = open_dump(candidate)
    if not has_verdict(opened.path):
        return otherwise(candidate, reference)
    from msprobe.lockstep.verdict import judge_lockstep

    return judge_lockstep(opened, open_dump(reference), progress)
