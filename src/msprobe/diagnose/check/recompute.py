"""Recomputation (activation checkpointing) that gives other values than the forward pass it repeats."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.differences.records import Comparer, Difference, described
from msprobe.diagnose.differences.words import measure, relation_of
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.pairing.recomputation import repeated
from msprobe.diagnose.steps.links import is_unset
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance.check_limits import repeat_limit, repeated_module_limit
from msprobe.messages import Wording, said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The first call of each recomputed region that does not repeat its forward call."""
    comparer = Comparer(moment.timeline.part, moment.timeline.part)
    for pairs in repeated(moment.timeline):
        for again, first in sorted(pairs.items(), key=lambda pair: pair[0].index):
            shown = _differs(comparer, again, first)
            if shown is not None:
                yield _finding(moment, comparer, again, first, *shown)
                break


def _differs(comparer: Comparer, again: Event, first: Event) -> tuple[Difference, str] | None:
    """What shows first that a call does not repeat its forward call, and the message."""
    if is_unset(again) or (again.is_module and again.children):
        return None
    allowed = repeated_module_limit() if again.is_module else repeat_limit(again)
    result = _counting(comparer.between(again.outputs(), first.outputs()), allowed)
    if again.is_module:  # in which no call was recorded
        return (result[0], said("module-recomputed-differently")) if result else None
    given = _counting(comparer.between(again.inputs(), first.inputs()), allowed)
    setting = next((difference for difference in given if difference.what in ("argument", "missing")), None)
    if setting is not None:
        values = described(setting.left), setting.slot, described(setting.right)
        return setting, said("recompute-argument-differs", *values)
    if given:
        return given[0], said("recompute-input-differs", given[0].slot)
    return (result[0], said("recompute-result-differs")) if result else None


def _finding(
    moment: CheckedStep, comparer: Comparer, again: Event, first: Event, difference: Difference, message: str
) -> Finding:
    relation = relation_of(difference, comparer, other="forward pass")
    words = {"candidate": "recomputed", "reference": "forward_pass"}
    measured = {words.get(key, key): value for key, value in measure(difference).items()}
    evidence = {"forward": first.name, "slot": difference.slot, **measured}
    how = Wording(" ({})", relation) if relation else ""
    return moment.finding(again, "recompute", message + how, evidence=evidence, relation=relation.brief())


def _counting(differences: list[Difference], allowed: float) -> list[Difference]:
    """Differences beyond rounding. What autograd needs, and the memory layout, may differ."""
    return [
        difference
        for difference in differences
        if difference.what in ("argument", "dtype", "shape", "not_finite")
        or (difference.what == "missing" and difference.left is not None and difference.right is not None)
        or (difference.what == "value" and difference.delta > allowed)
    ]
