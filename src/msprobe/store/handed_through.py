"""Calls that give an argument back as a result, untouched: ``contiguous``, ``float``, ``to``, dropout in evaluation.

Such a result is the tensor that the call was given, so what a hook on it sees is the gradient of the call before. The
records are those of any call; that the gradient is not the call's own is said beside them: in a forward record below
``msprobe``, in a backward record beside its gradients, as ``{"input.0": "output.0"}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the recorder knows the key alone
    from msprobe.store.part import DumpPart

#: The key under which a record says it.
HANDED_THROUGH = "handed_through"


def handed_through(record: Any) -> dict[str, str]:
    """The arguments of a call or pass that are results of it, untouched, each with the result: ``input.0`` ->
    ``output.0``. Empty where there is none, and for dumps of recorders that do not say it.
    """
    arguments_by_path: dict[str, str] = {}
    ours = record.get("msprobe") if isinstance(record, dict) else None
    for place in (ours, record):
        noted = place.get(HANDED_THROUGH) if isinstance(place, dict) else None
        if isinstance(noted, dict):
            arguments_by_path |= {path: result for path, result in noted.items() if isinstance(result, str)}
    return arguments_by_path


def has_own_backward(backward: Any, results: int = 1) -> bool:
    """False for a backward record whose gradients are all those of the call before. ``results``: how many gradients
    came in, of which each one handed through is none of the call's own.
    """
    passed_on = handed_through(backward)
    return not passed_on or len(set(passed_on.values())) < max(1, results)


def is_of_the_call_before(part: DumpPart, name: str) -> bool:
    """True for a backward record of a dump whose gradients are all those of the call before; False for one that is not
    there.
    """
    if name not in part:
        return False
    record = part.record(name)
    arrived = record.get("input") if isinstance(record, Mapping) else None
    return not has_own_backward(record, len(arrived) if isinstance(arrived, list) else 1)
