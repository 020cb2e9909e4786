"""Where the probe's files lie, and what they are called.

::

    {dump_path}/rank{rank}/run.json
                           grad_summary_{step}.csv
                           step{step}/{parameter}.npy
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

RUN_FILE = "run.json"
_ENDING = ".npy"
_MOST_BYTES = 255
# As quote() leaves them, and what earlier tools write unescaped.
_PLAIN = "_.-~"
_RANK = re.compile(r"rank(\d+)", re.ASCII)
_SUMMARY = re.compile(r"grad_summary_(\d+)\.csv", re.ASCII)
_STEP = re.compile(r"step(\d+)", re.ASCII)


def summary_name(step: int) -> str:
    """The name of a step's csv."""
    return f"grad_summary_{step}.csv"


@lru_cache(maxsize=100_000)
def direction_name(parameter: str) -> str:
    """The name of a parameter's direction file. Characters that a file name may not hold everywhere are escaped as in
    addresses (a blank is ``%20``); a name that is too long ends in a digest of the whole.
    """
    name = quote(parameter, safe=_PLAIN, errors="backslashreplace")
    if len(name) + len(_ENDING) > _MOST_BYTES:
        digest = blake2b(parameter.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        name = f"{name[: _MOST_BYTES - len(_ENDING) - len(digest) - 1]}~{digest}"
    return name + _ENDING


def ranks_of(root: Path) -> dict[int, Path]:
    """The folders of ranks, ascending."""
    return dict(sorted(_numbered(root, _RANK)))


def summaries_of(rank_folder: Path) -> dict[int, Path]:
    """The csv files of steps, ascending."""
    return dict(sorted(_numbered(rank_folder, _SUMMARY)))


def directions_of(rank_folder: Path) -> dict[int, Path]:
    """The folders with the directions of steps, ascending."""
    return dict(sorted(_numbered(rank_folder, _STEP)))


def _numbered(folder: Path, form: re.Pattern[str]) -> Iterator[tuple[int, Path]]:
    for path in folder.iterdir():
        match = form.fullmatch(path.name)
        if match is not None and len(match[1]) < 19:
            yield int(match[1]), path
