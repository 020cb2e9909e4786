"""Optimizers whose parameters no module has: flat ones, in which the program puts those of modules together, and of
which each rank may have a part.

What each rank gets of a gradient is then another tensor than in a training that updates the parameters of modules. The
squares of all elements add up to one sum, however they are shared out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.differences.records import numbers, numel
from msprobe.diagnose.effect.weights import recorded_parameters
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance.judge import Judged


class GradientsInParts(NamedTuple):
    """The gradients of one rank that the optimizer of one side gets for what the other has in other parts. ``entry``:
    the record of the step. ``elements``, ``squares``: their number, and the sum of their squares.
    """

    entry: str
    elements: int
    squares: float


def are_in_parts(pairing: Pairing, ours: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if one side's optimizer updates parameters that no module has, where the other's updates those of modules
    that both sides have.
    """
    modules = recorded_parameters(pairing.candidate), recorded_parameters(pairing.reference)
    for side, others, own in ((ours, other, modules[0]), (other, ours, modules[1])):
        more, gone = ({plain_path(name) for name in a if name not in b} for a, b in ((side, others), (others, side)))
        if more and gone and own.isdisjoint(more) and gone <= modules[0] & modules[1]:
            return True
    return False


def gradients_in_parts(pairing: Pairing, judged: Iterable[Judged]) -> tuple[GradientsInParts, GradientsInParts] | None:
    """Those of candidate and reference in the first step of an optimizer that has them; None if none does."""
    for call in judged:
        if call.event.parts.kind != "optimizer":
            continue
        ours, other = optimizer.parameters_of(call.event), optimizer.parameters_of(call.partner)
        if are_in_parts(pairing, ours, other):
            return _summed(call.event, ours, other), _summed(call.partner, other, ours)
    return None


def _summed(event: Event, parameters: Mapping[str, Any], others: Mapping[str, Any]) -> GradientsInParts:
    gradients = [fields.get("grad") for name, fields in parameters.items() if name not in others]
    known = [(leaf, statistics) for leaf in gradients if is_tensor(leaf) and (statistics := numbers(leaf)) is not None]
    return GradientsInParts(
        event.name, sum(numel(leaf) for leaf, _ in known), sum(statistics[3] ** 2 for _, statistics in known)
    )
