"""``verdict.json`` and ``check.json``: what programs read. Described in ``docs/verdict.md`` and ``docs/check.md``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.paths import StrPath, write_atomically

if TYPE_CHECKING:
    from msprobe.diagnose.check import CheckResult
    from msprobe.diagnose.findings import Verdict


def verdict_bytes(verdict: Verdict | CheckResult) -> bytes:
    """The content of the file: JSON with an indent, UTF-8."""
    text = json.dumps(verdict.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def write_verdict(path: StrPath, verdict: Verdict) -> Path:
    """Write a verdict with mode 0640, whole or not at all. Raises PathError."""
    write_atomically(path, verdict_bytes(verdict), fsync=False)
    return Path(path)
