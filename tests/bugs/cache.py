"""Recorded pairs that are kept, so that a change of the diagnosis is measured without recording anew.

A pair is known by its two programs, its settings, how it is recorded, the recorder's own source and torch's version:
what is found under that name is what recording would give.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

from bugs.planting import Draw, Pattern, programs
from bugs.record import Pair, record

_SOURCE = Path(__file__).resolve().parents[2] / "src" / "msprobe"
_RECORDER = ("capture", "store", "config", "pytorch")
_BENCH = ("record.py", "precision.py")


def recorded(
    pattern: Pattern, drawn: Draw, mode: str, precision: str, cache: Path, references: Path | None = None
) -> Pair:
    """The pair from the cache; recorded, and put there, if it is not in it. ``references``: see :func:`record`."""
    place = cache / f"{pattern.id}-{mode}-{precision}-{_name(pattern, drawn, mode, precision)}"
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            record(pattern, drawn, mode, Path(temporary) / "pair", precision, references)
            try:
                os.rename(Path(temporary) / "pair", place)
            except OSError:  # another process was faster
                if not place.is_dir():
                    raise
    return Pair(pattern, drawn, mode, place, precision)


def remove_others(cache: Path, used: set[Path]) -> None:
    """Remove pairs of the cache that nobody used: of an older recorder, or of patterns that were changed."""
    for place in cache.iterdir() if cache.is_dir() else ():
        if place not in used:
            shutil.rmtree(place, ignore_errors=True)


def _name(pattern: Pattern, drawn: Draw, mode: str, precision: str) -> str:
    content = [programs(pattern, drawn), dict(drawn.settings), mode, precision, pattern.steps]
    content += [pattern.world, pattern.reference_world, _recorder(), *([pattern.headers] if pattern.headers else [])]
    content += [pattern.device] if pattern.device else []
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(1)
def _recorder() -> str:
    import torch

    found = hashlib.sha256(torch.__version__.encode())
    files = [path for folder in _RECORDER for path in sorted((_SOURCE / folder).rglob("*.*")) if path.suffix in _KINDS]
    for path in [*files, *(Path(__file__).with_name(name) for name in _BENCH)]:
        found.update(path.read_bytes())
    return found.hexdigest()


_KINDS = (".py", ".c", ".h")
