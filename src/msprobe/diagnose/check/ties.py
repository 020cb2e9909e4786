"""Embedding and head that begin as one matrix and are trained as two."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose.check.moment import CheckedStep, Weight
from msprobe.diagnose.check.values import distinct, measured
from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.findings import Finding
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """Two parameters of equal values, one used by an embedding and one by a product, with different gradients.

    Layers that were copied have equal values too, so other pairs of equal parameters are no sign of anything.
    """
    if moment.before is not None:
        return
    tables, others = _by_use(moment)
    for mark, (name, table) in tables.items():
        for other, weight in others.get(mark, ()):
            gradients = moment.gradients
            first, two = gradients.get(name, []), gradients.get(other, [])
            pairs = [(a, b) for a, b in zip(first, two, strict=False) if a is not None and b is not None]
            if not pairs or all(fingerprint(a) == fingerprint(b) for a, b in pairs):
                continue
            a, b = next(pair for pair in pairs if fingerprint(pair[0]) != fingerprint(pair[1]))
            yield moment.finding(
                weight.event,
                "parameter_gradient",
                said("tie-lost", name, other),
                where=f"{other} ({plain_path(weight.event.parts.path)})",
                evidence={
                    "parameters": [name, other],
                    "weight": measured(table.leaf),
                    "gradients": [measured(a), measured(b)],
                },
            )


def _by_use(moment: CheckedStep) -> tuple[dict[Hashable, tuple[str, Weight]], dict[Hashable, list[tuple[str, Weight]]]]:
    """Matrices that embeddings take, and those that products take, by their values."""
    used: set[Hashable] = set()
    for event in moment.calls:
        if operation(event.stem) == "embedding":
            used.update(fingerprint(leaf) for _, leaf in event.inputs() if distinct(leaf))
    tables: dict[Hashable, tuple[str, Weight]] = {}
    others: dict[Hashable, list[tuple[str, Weight]]] = {}
    for name, weight in moment.weights.items():
        mark = fingerprint(weight.leaf)
        shape = weight.leaf.get("shape")
        if not distinct(weight.leaf) or not isinstance(shape, list) or len(shape) != 2:
            continue
        is_table = "embed" in weight.event.parts.owner.lower()
        if is_table and (mark in used or not used):
            tables.setdefault(mark, (name, weight))
        elif not is_table:
            others.setdefault(mark, []).append((name, weight))
    return tables, others
