"""What a model returns: where nothing was trained, that is all there is to have an effect on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, is_floating, is_integer
from msprobe.diagnose.tolerance.judge import Judged


def changed_results(judged: Iterable[Judged]) -> list[Difference]:
    """What differs of the results of a step without gradients: those of the outermost modules, of the last call outside
    of all modules, and of the last of these that gives numbers with a fraction (behind it, tokens are chosen). Where
    rounding chose another token, what follows from that says nothing.
    """
    every = [one for one in judged if one.event.direction == "forward" and one.event.parent is None]
    outermost = [one for one in every if not one.behind]
    chosen = {id(one): one for one in outermost if one.event.is_module}
    for last in (outermost[-1:], [one for one in outermost if _is_measurable(one)][-1:]):
        chosen.update((id(one), one) for one in last)
    found = [difference for one in chosen.values() for difference in one.changed_outputs]
    if _chooses_by_rounding(outermost):
        found = [one for one in found if not is_integer(one.left or {})]
    return found


def _is_measurable(judged: Judged) -> bool:
    return any(is_floating(leaf) for _, leaf in judged.event.outputs())


def _chooses_by_rounding(outermost: Sequence[Judged]) -> bool:
    """True if a call chose another of several that are about as large, from inputs that are apart by rounding: what it
    chose says nothing that its inputs do not.
    """
    return any(
        one.changed_inputs
        and one.status != "unexplained"
        and any(is_integer(d.left or {}) for d in one.changed_outputs)
        for one in outermost
        if operation(one.event.stem) in operators.CHOOSES
    )
