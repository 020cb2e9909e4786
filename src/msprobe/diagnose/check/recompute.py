"""Recomputation (activation checkpointing) that gives other values than the forward pass it repeats."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.differences.records import Comparer, Difference, described
from msprobe.diagnose.differences.words import measure, relation_of
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.pairing.recomputation import repeated
from msprobe.diagnose.steps.links import is_unset
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.diagnose.tolerance.check_limits import repeat_limit, repeated_module_limit
from msprobe.messages import Wording, said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The first call of each recomputed region that does not repeat its forward call."""
    for timeline in moment.timelines.values():
        comparer = Comparer(timeline.part, timeline.part)
        for pairs in repeated(timeline):
            for again, first in sorted(pairs.items(), key=lambda pair: pair[0].index):
                finding = _differs(moment, timeline, comparer, again, first)
                if finding is not None:
                    yield finding
                    break


def _differs(moment: CheckedStep, timeline: Timeline, comparer: Comparer, again: Event, first: Event) -> Finding | None:
    if is_unset(again):
        return None
    if again.is_module:
        return None if again.children else _module(moment, timeline, comparer, again, first)
    allowed = repeat_limit(again)
    given = _counting(comparer.between(again.inputs(), first.inputs()), allowed)
    result = _counting(comparer.between(again.outputs(), first.outputs()), allowed)
    settings = [difference for difference in given if difference.what in ("argument", "missing")]
    if settings:
        setting = settings[0]
        return _finding(
            moment, timeline, comparer, again, first, setting,
            said("recompute-argument-differs", described(setting.left), setting.slot, described(setting.right)),
        )  # fmt: skip
    if given:
        return _finding(
            moment, timeline, comparer, again, first, given[0],
            said("recompute-input-differs", given[0].slot),
        )  # fmt: skip
    if result:
        return _finding(
            moment, timeline, comparer, again, first, result[0],
            said("recompute-result-differs"),
        )  # fmt: skip
    return None


def _module(moment: CheckedStep, timeline: Timeline, comparer: Comparer, again: Event, first: Event) -> Finding | None:
    """A module in which no call was recorded."""
    result = _counting(comparer.between(again.outputs(), first.outputs()), repeated_module_limit())
    if not result:
        return None
    message = said("module-recomputed-differently")
    return _finding(moment, timeline, comparer, again, first, result[0], message)


def _finding(
    moment: CheckedStep,
    timeline: Timeline,
    comparer: Comparer,
    again: Event,
    first: Event,
    difference: Difference,
    message: str,
) -> Finding:
    relation = relation_of(difference, comparer, other="forward pass")
    evidence = {"forward": first.name, "slot": difference.slot, **measure(difference)}
    evidence = {
        {"candidate": "recomputed", "reference": "forward_pass"}.get(key, key): value for key, value in evidence.items()
    }
    how = Wording(" ({})", relation) if relation else ""
    return moment.finding(timeline, again, "recompute", message + how, evidence=evidence, relation=relation.brief())


def _counting(differences: list[Difference], allowed: float) -> list[Difference]:
    """Differences beyond rounding. What autograd needs, and the memory layout, may differ."""
    return [
        difference
        for difference in differences
        if difference.what in ("argument", "dtype", "shape", "not_finite")
        or (difference.what == "missing" and difference.left is not None and difference.right is not None)
        or (difference.what == "value" and difference.delta > allowed)
    ]
