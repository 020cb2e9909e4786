"""The tool that is measured: two dumps in, its verdict out, in the form of verdict.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def answer(candidate: Path, reference: Path) -> dict[str, Any]:
    """The verdict on a pair of dumps."""
    from msprobe.diagnose import compare_runs  # type: ignore[import-not-found, unused-ignore]

    verdict = compare_runs(candidate, reference)
    return verdict if isinstance(verdict, dict) else dict(verdict.to_json())
