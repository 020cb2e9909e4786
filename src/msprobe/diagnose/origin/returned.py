"""A module that gives back another of the tensors that it was given or that the calls inside it made."""

from __future__ import annotations

from typing import Any

from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.evidence import NamedFact
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said


def blame_return(scene: Scene, judged: Judged) -> bool:
    """True if the result of a module comes from another call inside it, or another argument, than in the reference."""
    event, partner = judged.event, judged.partner
    if not event.is_module or event.layer or event.direction not in ("forward", "recompute"):
        return False
    for difference in judged.changed_outputs:
        mine = _origin(event, difference.left, scene.candidate.makers)
        theirs = _origin(partner, difference.right, scene.reference.makers)
        if mine is None or theirs is None or _answer(scene, mine, theirs):
            continue
        scene.say(
            ("returned", event, difference.slot),
            judged,
            "structure",
            said("input-comes-from-elsewhere", difference.slot, event.name, _in_words(mine), _in_words(theirs)),
            facts=(
                NamedFact("candidate_takes", _name(mine)),
                NamedFact("reference_takes", _name(theirs)),
            ),
            difference=difference,
        )
        return True
    return False


def is_returned_otherwise(scene: Scene, maker: Event, other: Event) -> bool:
    """True if it was said of a module that it gives back what ``maker`` made where the reference gives ``other``."""
    taken = NamedFact("candidate_takes", maker.name), NamedFact("reference_takes", other.name)
    findings = (suspect.finding for suspect in scene.ledger.suspects if suspect.finding.kind == "structure")
    # Names may be lists: of parameters that have the same values.
    return any(all(name in finding.facts for name in taken) for finding in findings)


def _origin(module: Event, leaf: Any, makers: Producers) -> Event | str | None:
    """The call inside a module that made its result, or the slot in which it was given; None if neither is known."""
    maker = makers.of(leaf, module)
    if maker is not None and module in maker.around():
        return maker
    mark = fingerprint(leaf)
    return next(
        (slot for slot, leaf_given in module.inputs() if mark is not None and fingerprint(leaf_given) == mark), None
    )


def _answer(scene: Scene, mine: Event | str, theirs: Event | str) -> bool:
    """True if both come from the same place, or one from a call that the other side does not make."""
    if isinstance(mine, str) or isinstance(theirs, str):
        known = (isinstance(mine, str) or mine in scene.pairing.partner) and (
            isinstance(theirs, str) or theirs in scene.pairing.back
        )
        return mine == theirs or not known
    twin = scene.pairing.back.get(theirs)
    return twin is None or mine not in scene.pairing.partner or twin is mine


def _in_words(origin: Event | str) -> str:
    return said("result-is-input", origin) if isinstance(origin, str) else said("result-of", origin.name)


def _name(origin: Event | str) -> str:
    return origin if isinstance(origin, str) else origin.name
