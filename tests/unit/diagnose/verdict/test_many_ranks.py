"""Of the suspects of many ranks those are kept that the answer can need."""

from __future__ import annotations

import random
from dataclasses import replace

from msprobe.diagnose.effect.reach import Reach
from msprobe.diagnose.findings import Finding, FindingKind
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.verdict.conclusion import MOST_FINDINGS, ComparedRank, across_ranks, conclude
from msprobe.diagnose.verdict.many_ranks import with_first_suspects

_KINDS: tuple[FindingKind, ...] = ("computation", "argument", "overflow", "weights", "choice")


def ranks(count: int, each: int) -> list[ComparedRank]:
    drawn = random.Random(5)
    return [
        ComparedRank(
            step=0,
            rank=rank,
            suspects=[
                Suspect(
                    Finding(drawn.choice(_KINDS), f"call {place}", f"call {place}", rank=rank),
                    place,
                    clear=drawn.random() < 0.7,
                    matters=drawn.random() < 0.2,
                )
                for place in sorted(drawn.sample(range(10 * each), each))
            ],
            reach=Reach(size=1.0),
            tolerance=1e-6,
            summary={},
            notes=[],
            collectives=[2 * each, 5 * each],
            left=({}, {}),
        )
        for rank in range(count)
    ]


def answer(results: list[ComparedRank]) -> tuple[object, list[Finding]]:
    return conclude(results, across_ranks(results), lambda: 0.0, False)


def test_the_findings_are_those_of_all_suspects() -> None:
    every = ranks(32, 60)
    whole = answer(with_first_suspects((replace(one, suspects=list(one.suspects)) for one in every), most=10**6))
    kept = with_first_suspects(every)
    assert sum(len(one.suspects) for one in kept) < 32 * 60
    assert answer(kept) == whole
    assert len(whole[1]) == MOST_FINDINGS


def test_their_number_does_not_grow_with_the_ranks() -> None:
    sorts = len(_KINDS) * 4  # clear or not, one that matters or not
    assert sum(len(one.suspects) for one in with_first_suspects(ranks(64, 60), most=20)) <= 20 * sorts


def _of_one_call(count: int, apart: int, step: int = 0) -> list[ComparedRank]:
    """A call that differs on all ranks, and one more on the rank ``apart``."""
    results = ranks(count, 0)
    for result in results:
        names = ["linear", "relu"] if result.rank == apart else ["linear"]
        findings = [Finding("computation", f"{name} {result.rank}", name, name, rank=result.rank) for name in names]
        result.suspects[:] = [Suspect(one, place, clear=True) for place, one in enumerate(findings)]
    return results


def test_what_is_one_on_many_ranks_is_one_finding_with_all_its_ranks() -> None:
    status, found = answer(with_first_suspects(_of_one_call(600, 77)))
    assert status == "diverged"
    assert [(one.entry, one.rank, one.to_json().get("ranks")) for one in found] == [
        ("linear", 0, list(range(600))),
        ("relu", 77, None),
    ]


def test_two_findings_of_one_place_on_one_rank_are_two() -> None:
    results = _of_one_call(1, 5)
    results[0].suspects.append(results[0].suspects[0])
    assert len(answer(with_first_suspects(results))[1]) == 2
