"""Whole numbers that one side alone makes numbers of a type that cannot hold them."""

from __future__ import annotations

from msprobe.diagnose.evidence import Because, NamedFact
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.whole_numbers import RoundedNumbers, rounded_numbers
from msprobe.messages import said

#: What is known to be done otherwise says it already; what was measured does not.
_FACTS = frozenset(("argument", "dtype", "structure"))


def look_for_rounded_numbers(scene: Scene) -> None:
    """Report the first call that does it, of the side that does; nothing if both do, or if it was reported before."""
    mine, theirs = (
        {numbers.event: numbers for numbers in rounded_numbers(side.timeline, side.makers)} for side in scene.sides
    )
    if bool(mine) == bool(theirs):
        return
    rounded = mine or theirs
    named = {suspect.finding.entry for suspect in scene.ledger.suspects if suspect.finding.kind in _FACTS}
    if named.isdisjoint(event.name for event in rounded):
        _add_finding(scene, next(iter(rounded.values())), "candidate" if mine else "reference")


def _add_finding(scene: Scene, rounded: RoundedNumbers, side: str) -> None:
    text = said("only-on-one-side", rounded.text, side)
    facts = (Because("rounded_numbers"), NamedFact("exact_up_to", rounded.limit))
    # In types of few digits rounding hides what it does; but texts are no longer distinguished by where words stand.
    judged = scene.judged.get(rounded.event)
    scene.add(rounded.event, "dtype", text, facts=facts, matters=True, judged=judged)
