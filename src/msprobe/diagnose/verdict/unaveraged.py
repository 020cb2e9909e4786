"""Gradients that one side never puts together over its ranks: the wrapper around the model is passed by, its hooks are
lost, or it is asked not to (``no_sync``).

The mean of a mean is the mean of the means. So where the ranks of one side get the same gradient each, and those of the
other side get their own, the means of these say whether they are the terms of the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msprobe.diagnose.effect.leftover import Left
from msprobe.diagnose.evidence import Because, Fact, Listed, SeenFact, as_json
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.tolerance import means
from msprobe.diagnose.verdict.conclusion import ComparedRank
from msprobe.messages import said

_SIDES = ("candidate", "reference")
#: So many gradients show it, where there are as many.
_FEWEST = 2


@dataclass(frozen=True)
class Unaveraged:
    """The parameters whose gradients ``side`` leaves as each rank has them, and what the other side makes of them."""

    side: str
    parameters: tuple[str, ...]
    word: str


def name_unaveraged(results: Sequence[ComparedRank], suspects: Sequence[Suspect]) -> list[Suspect]:
    """The suspects of a step. Those that say of a gradient that it is not what the backward pass brought become one,
    where the ranks show that nothing put their gradients together. ``suspects``: in order.
    """
    vague = [suspect for suspect in suspects if suspect.finding.cause == "on_its_way"]
    unaveraged = _unaveraged(results) if vague else None
    if unaveraged is None:
        return list(suspects)
    first, ranks = vague[0], [result.rank for result in results]
    names, of = unaveraged.parameters, _SIDES[unaveraged.side == "candidate"]
    shown = f'"{names[0]}"' + (said("and-more-parameters-behind", len(names) - 1) if len(names) > 1 else "")
    listed = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    facts = (Because("not_averaged"), Listed("parameters", names), *_seen_facts(first.finding.facts))
    finding = replace(
        first.finding,
        kind="replica",
        message=said("gradients-not-averaged", shown, listed, unaveraged.side, unaveraged.word, of),
        where=names[0],
        facts=facts,
        evidence={**_place_evidence(first.finding), **as_json(facts)},
    )
    gone = {id(suspect) for suspect in vague[1:]}
    stated = replace(first, finding=finding, clear=True, matters=True)
    return [stated if suspect is first else suspect for suspect in suspects if id(suspect) not in gone]


def _seen_facts(facts: Iterable[Fact]) -> list[Fact]:
    return [fact for fact in facts if isinstance(fact, SeenFact)]


def _place_evidence(finding: Finding) -> dict[str, Any]:
    """What the evidence of a finding has besides its facts: where in the program it is."""
    facts = as_json(finding.facts)
    return {key: value for key, value in finding.evidence.items() if key not in facts}


def _unaveraged(results: Sequence[ComparedRank]) -> Unaveraged | None:
    if len(results) < 2:
        return None
    for number, side in enumerate(_SIDES):
        own = [result.left[number] for result in results]
        whole = [result.left[1 - number] for result in results]
        shared = [name for name in own[0] if all(name in rank for rank in (*own, *whole))]
        names = [name for name in shared if _is_reported(name, own, whole)]
        if len(names) < min(_FEWEST, len(shared)):
            continue  # the stages of a pipeline have parameters of the same names: one of them may fit by chance
        for word, factor in (("mean", 1 / len(results)), ("sum", 1.0)):
            if names and means.are_terms(*_misfits(names, own, whole[0], factor)):
                return Unaveraged(side, tuple(names), word)
    return None


def _is_reported(name: str, own: Sequence[Mapping[str, Left]], whole: Sequence[Mapping[str, Left]]) -> bool:
    """True if the means of a gradient show that each rank of one side has its own, and those of the other the same."""
    return _differ([rank[name] for rank in own]) and not _differ([rank[name] for rank in whole])


def _differ(gradients: Sequence[Left]) -> bool:
    first = gradients[0]
    return any(
        abs(gradient.mean - first.mean) > means.error_of_means(gradient.error + first.error, 0.0, 0.0)
        for gradient in gradients[1:]
    )


def _misfits(
    names: Sequence[str], own: Sequence[Mapping[str, Left]], whole: Mapping[str, Left], factor: float
) -> tuple[float, float]:
    """How far the gradients of the ranks, put together, are from those of the other side, and that of one rank alone;
    both beside the size of the means.
    """
    together = alone = 0.0
    for name in names:
        size = max(max(abs(rank[name].mean) for rank in own), abs(whole[name].mean))
        together += ((factor * math.fsum(rank[name].mean for rank in own) - whole[name].mean) / size) ** 2
        alone += max(((rank[name].mean - whole[name].mean) / size) ** 2 for rank in own)
    return math.sqrt(together / len(names)), math.sqrt(alone / len(names))
