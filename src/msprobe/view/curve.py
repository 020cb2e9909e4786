"""Loss, gradients and weights over all steps: read of single records, before any step is judged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.differences.records import is_floating, numbers
from msprobe.diagnose.steps.timeline import flatten
from msprobe.errors import MsprobeError
from msprobe.store.part import DumpPart
from msprobe.store.reader import Dump
from msprobe.view.columns import rounded
from msprobe.view.protocol import CurveAnswer, Figure

NAMES = ("loss", "gradient norm", "weight norm")
#: Before the first backward call so many records are looked at for a loss.
_MOST_TRIED = 40
#: The call in which torch's clipping measures gradients.
_MEASURES = "Torch._foreach_norm."
Sizes = tuple[float | None, float | None, float | None]


def sizes_of(dump: Dump, step: int | None, rank: int | str) -> Sizes:
    """Loss, norm of the gradients that optimizers take, and of all weights, of a step of one rank; None if not known.

    The loss is the last number before the first backward call that gradients go back from.
    """
    try:
        part = dump.part(step, rank)
    except MsprobeError:
        return None, None, None
    try:
        return _loss(part), _norm(_gradients(part)), _norm(_weights(part))
    except MsprobeError:
        return None, None, None
    finally:
        part.close()


def as_curves(
    steps: list[int | None], candidate: list[Sizes], reference: list[Sizes], rounding: float | None = None
) -> list[CurveAnswer]:
    """The curves of the overview; a size that no step has makes none. ``reference`` is empty for a single run.

    ``rounding``: the relative difference that rounding may make of loss, gradients and weights, as the verdict says
    it; None where it is not known.
    """
    allowed = rounded(rounding) if rounding else None
    curves: list[CurveAnswer] = []
    for place, name in enumerate(NAMES):
        ours = [sizes[place] for sizes in candidate]
        theirs = [sizes[place] for sizes in reference]
        if all(value is None for value in (*ours, *theirs)):
            continue
        pairs = zip(ours, theirs, strict=True) if reference else ()
        curves.append(
            {
                "name": name,
                "steps": [0 if step is None else step for step in steps],
                "candidate": [_figure(value) for value in ours],
                "reference": [_figure(value) for value in theirs],
                "difference": [_apart(first, other) for first, other in pairs],
                "allowed": [allowed] * len(theirs),
            }
        )
    return curves


def _apart(first: float | None, other: float | None) -> float | None:
    if first is None or other is None:
        return None
    if first == other or (math.isnan(first) and math.isnan(other)):
        return 0.0
    size = max(abs(first), abs(other))
    apart = abs(first - other) / size if size else 0.0
    return rounded(apart)


def _figure(value: float | None) -> Figure:
    """A size for the page; JSON has no NaN and no infinity, and a loss that turned NaN is not one that is missing."""
    if value is None or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _loss(part: DumpPart) -> float | None:
    names = part.names()
    first = next((place for place, name in enumerate(names) if read_name(name).direction == "backward"), len(names))
    tried = 0
    for name in reversed(names[:first]):
        parts = read_name(name)
        if parts.kind not in ("api", "module") or parts.direction != "forward":
            continue
        for leaf in _tensors(part.record(name), "output"):
            if leaf.get("shape") == [] and is_floating(leaf) and leaf.get("requires_grad"):
                statistics = numbers(leaf)
                return statistics[2] if statistics is not None else None
        tried += 1
        if tried >= _MOST_TRIED:
            break
    return None


def _gradients(part: DumpPart) -> Iterator[dict[str, Any]]:
    """What the optimizers take, summed over micro-batches and ranks and with what was left from before; where
    clipping measured it, as it was before that. Without a record of them, the gradients of the backward passes.
    """
    names = part.names()
    optimizers = [name for name in names if name.startswith("Optimizer.") and name.endswith(".forward")]
    taken = [leaf for name in optimizers for leaf in _taken(part.record(name))]
    if taken:
        measured = [
            leaf for name in names if name.startswith(_MEASURES) for leaf in _tensors(part.record(name), "input_args")
        ]
        yield from measured if _shapes(measured) == _shapes(taken) else taken
        return
    for name in part.names():
        if "parameters_grad" in name and read_name(name).kind == "parameters":
            yield from _tensors({"output": part.record(name)}, "output")


def _shapes(leaves: list[dict[str, Any]]) -> list[str]:
    return sorted(str(leaf.get("shape")) for leaf in leaves)


def _taken(record: Any) -> Iterator[dict[str, Any]]:
    given = record.get("input_kwargs") if isinstance(record, dict) else None
    for parameter in given.values() if isinstance(given, dict) else ():
        yield from _tensors(parameter, "grad")


def _weights(part: DumpPart) -> Iterator[dict[str, Any]]:
    """The parameters of all modules, each once."""
    seen: set[str] = set()
    for name in part.names():
        parts = read_name(name)
        if parts.kind == "module" and parts.direction == "forward" and parts.path not in seen:
            seen.add(parts.path)
            yield from _tensors(part.record(name), "parameters")


def _tensors(record: Any, key: str) -> Iterator[dict[str, Any]]:
    slots: list[tuple[str, Any]] = []
    flatten(key, record.get(key) if isinstance(record, dict) else None, slots)
    return (leaf for _, leaf in slots if is_floating(leaf) and leaf.get("unset") is not True)


def _norm(leaves: Iterator[dict[str, Any]]) -> float | None:
    """The norm of all tensors together, NaN where one holds NaN; None without any that was measured."""
    norms = [statistics[3] for leaf in leaves if (statistics := numbers(leaf)) is not None]
    # hypot rounds once: where the records stand in another order, the norm is the same.
    return math.hypot(*norms) if norms else None
