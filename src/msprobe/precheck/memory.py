"""What a call would take of this machine's memory: one that asks for more is not begun."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msprobe.messages import said
from msprobe.precheck.arguments import Argument, UnreadableArgumentError, tensors_of
from msprobe.precheck.requests import ApiCall

#: Bytes for each element: values are made in double precision, and the reference, which runs three times, has inputs,
#: results and gradients of that type beside those of the candidate.
_BYTES_OF_AN_ELEMENT = 64


def check_memory(call: ApiCall) -> None:
    """Raises UnreadableArgumentError for a call whose tensors do not fit."""
    needed = _BYTES_OF_AN_ELEMENT * max(
        sum(info.numel for part in group for _, info in tensors_of(part, "")) for group in _groups(call)
    )
    free = available_bytes()
    if free is not None and needed > free:
        raise UnreadableArgumentError(said("memory-too-small", needed / 2**30, free / 2**30))


def _groups(call: ApiCall) -> Iterable[Iterable[Argument]]:
    yield (*call.args, *call.kwargs.values())
    yield call.outputs


def available_bytes() -> int | None:
    """Memory that processes may still take; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    available = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(available[0]) * 1024 if available else None
