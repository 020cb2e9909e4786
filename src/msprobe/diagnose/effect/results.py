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
    every = [call for call in judged if call.event.direction == "forward" and call.event.parent is None]
    outermost = [call for call in every if not call.behind]
    chosen = {id(call): call for call in outermost if call.event.is_module}
    for last in (outermost[-1:], [call for call in outermost if _is_measurable(call)][-1:]):
        chosen.update((id(call), call) for call in last)
    differences = [difference for call in chosen.values() for difference in call.changed_outputs]
    if _chooses_by_rounding(outermost):
        differences = [difference for difference in differences if not is_integer(difference.left or {})]
    return differences


def _is_measurable(judged: Judged) -> bool:
    return any(is_floating(leaf) for _, leaf in judged.event.outputs())


def _chooses_by_rounding(outermost: Sequence[Judged]) -> bool:
    """True if a call chose another of several that are about as large, from inputs that are apart by rounding: what it
    chose says nothing that its inputs do not.
    """
    return any(
        call.changed_inputs
        and call.status != "unexplained"
        and any(is_integer(d.left or {}) for d in call.changed_outputs)
        for call in outermost
        if operation(call.event.stem) in operators.CHOOSES
    )
