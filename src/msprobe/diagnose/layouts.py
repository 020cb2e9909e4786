"""Two runs in different parallel layouts: what is the same whatever the layout is.

Calls of one layout do not answer to those of another, but parameters do: by their names, before and after the step
of the optimizer, and so do the gradients that the optimizer gets. A parameter that every rank has whole is compared
as it is; one that ranks have parts of is put together from the statistics of the parts (the largest maximum, the
least minimum, the mean weighted by size, the root of the sum of the squared norms).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msprobe.diagnose import noise, optimizer
from msprobe.diagnose.differences import numbers, numel, of_statistics, rms
from msprobe.diagnose.findings import Finding, Kind
from msprobe.diagnose.timeline import Timeline, is_tensor
from msprobe.diagnose.words import ratio_in_words
from msprobe.store.part import DumpPart

Leaf = dict[str, Any]
#: Gradients that are summed in another order, over other parts, are apart by so many units.
_UNITS = 256.0
_SMALL = 1e-3
_FIELDS: tuple[tuple[str, str], ...] = (("before", "weight"), ("before", "grad"), ("after", "weight"))


def compare_layouts(
    candidate: Sequence[DumpPart], reference: Sequence[DumpPart], first_step: bool
) -> tuple[list[Finding], list[str]]:
    """Findings and notes for one step; all ranks of it on both sides. No note: nothing could be compared."""
    one, other = _collect(candidate), _collect(reference)
    found: list[Finding] = []
    words = {"whole": 0, "in parts": 0, "left out": 0}
    for when, field in _FIELDS:
        largest = max((rms(leaf) for leaves in other[when].values() for leaf in leaves.get(field, ())), default=0.0)
        for name in one[when]:
            if name not in other[when]:
                continue
            mine, theirs = one[when][name].get(field, []), other[when][name].get(field, [])
            if not mine or not theirs:
                continue
            size = max(map(numel, [*mine, *theirs]))
            left, right = _whole(mine, size), _whole(theirs, size)
            if left is None or right is None:
                words["left out"] += 1
                continue
            words["in parts" if numel(mine[0]) < size or numel(theirs[0]) < size else "whole"] += 1
            apart = _replicas_apart(mine, size)
            delta = of_statistics(left, right)
            weight = min(1.0, rms(right) / (_SMALL * largest)) if largest and field == "grad" else 1.0
            limit = _UNITS * max(noise.eps_of(leaf) for leaf in (*mine, *theirs))
            step = candidate[0].step
            if apart > limit:
                found.append(_finding("replica", name, when, field, step, apart, mine[0], mine[-1]))
            if not delta * weight <= limit:
                kind: Kind = "parameter_gradient"
                if field == "weight":
                    kind = "optimizer" if when == "after" else "initial_weights" if first_step else "weights"
                found.append(_finding(kind, name, when, field, step, delta, left, right))
    if not any(words.values()):
        return [], []
    told = ", ".join(f"{count} {word}" for word, count in words.items() if count)
    note = (
        f"the layouts differ ({len(candidate)} ranks, {len(reference)} in the reference): compared are the parameters "
        f"before and after the optimizer and the gradients it gets ({told}); calls are not"
    )
    # What differs before the step explains what comes after it.
    begun = {finding.evidence["parameter"] for finding in found if finding.evidence["when"] == "before"}
    kept = [f for f in found if not (f.evidence["when"] == "after" and f.evidence["parameter"] in begun)]
    return kept, [note]


def _collect(parts: Iterable[DumpPart]) -> dict[str, dict[str, dict[str, list[Leaf]]]]:
    """When -> parameter -> field -> what each rank has of it."""
    found: dict[str, dict[str, dict[str, list[Leaf]]]] = {"before": {}, "after": {}}
    for part in parts:
        for event in Timeline(part):
            if event.parts.kind != "optimizer":
                continue
            for when, fields in (
                ("before", optimizer.parameters_of(event)),
                ("after", optimizer.results_of(event)),
            ):
                for name, leaf, field in _leaves(fields):
                    found[when].setdefault(name, {}).setdefault(field, []).append(leaf)
    return found


def _leaves(fields: dict[str, dict[str, Any]]) -> Iterator[tuple[str, Leaf, str]]:
    for name, values in fields.items():
        for field in ("weight", "grad"):
            leaf = values.get(field) if isinstance(values, dict) else None
            if is_tensor(leaf):
                assert isinstance(leaf, dict)
                yield name, leaf, field


def _whole(leaves: Sequence[Leaf], size: int) -> Leaf | None:
    """The statistics of the whole tensor; None if these leaves are not it."""
    if numel(leaves[0]) == size:
        return leaves[0]
    found = [numbers(leaf) for leaf in leaves]
    if sum(map(numel, leaves)) != size or any(one is None for one in found):
        return None
    parts = [one for one in found if one is not None]
    return {
        **leaves[0],
        "shape": [size],
        "Max": max(one[0] for one in parts),
        "Min": min(one[1] for one in parts),
        "Mean": sum(one[2] * numel(leaf) for one, leaf in zip(parts, leaves, strict=True)) / size,
        "Norm": math.sqrt(sum(one[3] ** 2 for one in parts)),
    }


def _replicas_apart(leaves: Sequence[Leaf], size: int) -> float:
    if any(numel(leaf) != size for leaf in leaves):
        return 0.0
    return max((of_statistics(leaf, leaves[0]) for leaf in leaves[1:]), default=0.0)


def _finding(
    kind: Kind, name: str, when: str, field: str, step: int | None, delta: float, left: Leaf, right: Leaf
) -> Finding:
    what = "gradient" if field == "grad" else "weight"
    words = ratio_in_words(left, right) or f"relative difference {delta:.2g}"
    text = f'the {what} of "{name}" {when} the optimizer step differs ({words})'
    if kind == "replica":
        text = (
            f'the {what} of "{name}" {when} the optimizer step is not the same on all ranks of the candidate ({words})'
        )
    keys = ("dtype", "shape", "Max", "Min", "Mean", "Norm")
    evidence = {
        "parameter": name,
        "when": when,
        "relative_difference": delta,
        "candidate": {key: left.get(key) for key in keys},
        "reference": {key: right.get(key) for key in keys},
    }
    path = name.rpartition(".")[0]
    return Finding(kind, text, where=name, module=path, step=step, direction="optimizer", evidence=evidence)
