"""File systems that are mounted for a test."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(place: Path, *words: str) -> Iterator[Path]:
    """A folder on which ``mount WORDS...`` is; skips the test of a user who may not."""
    place.mkdir(exist_ok=True)
    if subprocess.run(["mount", *words, str(place)], capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def small_disk_of(size: str, place: Path) -> contextlib.AbstractContextManager[Path]:
    """A disk of so many bytes, as ``64k``."""
    return mounted(place, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")
