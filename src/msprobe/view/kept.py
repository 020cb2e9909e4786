"""What a comparison knew of the steps that it looked at last: the page shows those without judging them again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.step_facts import StepFacts
from msprobe.diagnose.pairing.order import in_order
from msprobe.diagnose.verdict.common import Rank, Step
from msprobe.view.columns import outline_of
from msprobe.view.grid import layers_of, rows_of_names, with_named
from msprobe.view.judged import JudgedStep, judged_step
from msprobe.view.rows import REFERENCE_ONLY, rows_of, take_apart

#: The step in which runs part is looked at last, but for the next, which says if it has an effect.
_LAST_STEPS = 2
#: So many records are kept of a run on several ranks (170 MB or so): judging the one that is shown first again takes a
#: small part of the time that all of them took.
MOST_OF_RANKS = 30_000
_MOST_SUSPECTS = 1000
_At = tuple[Step, Rank]


class KeptSteps:
    """The facts of the last steps of a comparison, by step and rank of the candidate, and the layers of all ranks.

    ``most``: so many records at most; of a step and rank that has more by itself, the layers alone are kept. It is
    called by the comparison, one step after the other.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[_At, tuple[StepFacts, tuple[str, ...]]] = OrderedDict()
        self._records = 0
        # Of each layer the worst; layer and status of what a finding may name.
        self._layers: dict[Step, dict[Rank, tuple[dict[str, int], dict[str, tuple[str, int]]]]] = {}
        self._lock = threading.Lock()

    def __call__(self, facts: StepFacts, notes: tuple[str, ...]) -> bool:
        """Keep a step, and let go of what is too long ago or too much. False if it is not kept."""
        pairing = facts.pairing
        at = pairing.candidate.step, pairing.candidate.rank
        rows = rows_of(in_order(pairing), (pairing.candidate, pairing.reference))
        outline = outline_of(rows, facts.judged)
        layers = layers_of(outline)
        # A finding that is said in the end is one of these.
        suspects = facts.ledger.in_order() if isinstance(facts, Scene) else []
        alone = {row.name for row in rows if row.side == REFERENCE_ONLY}
        entries = {suspect.finding.entry for suspect in suspects[:_MOST_SUSPECTS] if suspect.finding.entry is not None}
        named = rows_of_names(outline, entries - alone)
        take_apart(rows)
        with self._lock:
            self._let_go(at)
            self._layers.setdefault(at[0], {})[at[1]] = layers, named
            while len(self._layers) > _LAST_STEPS:
                oldest = next(iter(self._layers))
                for rank in self._layers.pop(oldest):
                    self._let_go((oldest, rank))
            if _records(facts) > self._most:
                return False
            self._kept[at] = facts, notes
            self._records += _records(facts)
            while self._records > self._most:
                self._let_go(next(iter(self._kept)))
        return True

    def take(self, at: _At) -> JudgedStep | None:
        """A step that was kept; it is the caller's from now on. None if it was not."""
        with self._lock:
            kept = self._kept.pop(at, None)
            if kept is not None:
                self._records -= _records(kept[0])
        return judged_step(*kept) if kept is not None else None

    def layers(self, at: _At, named: Sequence[str | None] = ()) -> dict[str, int] | None:
        """The worst status of each layer (see :func:`msprobe.view.grid.layers_of`), where findings name these records
        of the candidate. None if it is not known.
        """
        with self._lock:
            layers = self._layers.get(at[0], {}).get(at[1])
        if layers is None or any(name not in layers[1] for name in named):
            return None
        return with_named(layers[0], [layers[1][name] for name in named if name is not None])

    def close(self) -> None:
        """Let go of all that nobody took."""
        with self._lock:
            for at in list(self._kept):
                self._let_go(at)

    def _let_go(self, at: _At) -> None:
        kept = self._kept.pop(at, None)
        if kept is not None:
            self._records -= _records(kept[0])
            _close(kept[0])


def _records(facts: StepFacts) -> int:
    return len(facts.pairing.candidate) + len(facts.pairing.reference)


def _close(facts: StepFacts) -> None:
    for timeline in (facts.pairing.candidate, facts.pairing.reference):
        timeline.close()
        timeline.part.close()
