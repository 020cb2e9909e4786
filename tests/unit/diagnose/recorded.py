"""Two dumps of one step each, written by a few lines of calls, and the verdict on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from unit.diagnose.dumps import Recording, Value, drawn, rounded

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict

Program = Callable[[Recording], None]


def of_programs(folder: Path, candidate: Program, reference: Program, digests: bool = False) -> Verdict:
    """The verdict on what two programs record."""
    folders = []
    for name, program in (("candidate", candidate), ("reference", reference)):
        recording = Recording(digests=digests)
        program(recording)
        recording.write(folder / name / "step0" / "rank")
        folders.append(folder / name)
    return compare_runs(*folders)


def tensor(name: str, *shape: int, dtype: str = "float32", grad: bool = True) -> Value:
    """Random numbers in a type."""
    return Value(rounded(drawn(name, *shape), dtype), grad=grad, dtype=dtype)


def last_bits(value: Value) -> Value:
    """The same with other last bits, as another kernel leaves them."""
    unit = np.float32(2.0**-7 if value.dtype == "bfloat16" else 2.0**-23)
    other = value.array.copy()
    other.flat[::3] *= 1 + unit
    return value.of(rounded(other, value.dtype))
