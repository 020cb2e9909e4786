"""The token that rounding chooses otherwise: where a generation parts, though both sides are right."""

from __future__ import annotations

from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, is_floating, is_integer, numel
from msprobe.diagnose.evidence import ResultFact, SeenFact
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.timeline import is_tensor
from msprobe.diagnose.tolerance import noise
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said


def look_for_tokens(scene: Scene) -> None:
    """Name the first choice between values of about one size that came out otherwise, and that tokens follow from."""
    behind = next((call for call in scene.judged.values() if call.behind), None)
    earlier = _choice_before(scene, behind) if behind is not None else None
    if earlier is None:
        return
    judged, token = earlier
    given = max(
        (changed_input.delta for changed_input in judged.changed_inputs if is_floating(changed_input.left)), default=0.0
    )
    name = judged.event.name
    scene.say(
        ("choice", judged.event),
        judged,
        "choice",
        said("near-tie", name, _in_words(token), given),
        where=f"{name}, {token.slot}",
        clear=False,
        facts=(SeenFact(token), ResultFact(given, noise.explained(scene.comparer.unit_of_run))),
    )


def _choice_before(scene: Scene, behind: Judged) -> tuple[Judged, Difference] | None:
    """The call that chose the token which a call looks up, and what it chose."""
    todo, seen = [behind], {behind.event}
    while todo:
        judged = todo.pop(0)
        if judged.chosen and operation(judged.event.stem) in operators.CHOOSES:
            token = next((output for output in judged.changed_outputs if is_integer(output.left)), None)
            return (judged, token) if token is not None else None
        for _, leaf in judged.event.inputs():
            maker = scene.candidate.makers.of(leaf, judged.event) if is_tensor(leaf) and is_integer(leaf) else None
            choosing = scene.judged.get(maker) if maker is not None else None
            if choosing is not None and choosing.chosen and choosing.event not in seen:
                seen.add(choosing.event)
                todo.append(choosing)
    return None


def _in_words(token: Difference) -> str:
    here, there = _values(token.left), _values(token.right)
    own, other = here - there, there - here
    if len(own) == len(other) == 1:
        return said("number-in-reference", own.pop(), other.pop())
    return "different from the reference"


def _values(leaf: Any) -> set[float]:
    """All values of a tensor, as far as its largest and its least are all of them."""
    values = (leaf.get("Max"), leaf.get("Min")) if numel(leaf) <= len(("Max", "Min")) else ()
    return {float(value) for value in values if isinstance(value, (int, float))}
