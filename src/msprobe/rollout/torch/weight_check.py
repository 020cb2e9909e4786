"""Did a synchronisation of weights arrive? Asked after each, in the running program: bit by bit, by digests of rows.

What is kept of earlier synchronisations is one number for each weight, so that a weight that never arrives is
distinguished from one that arrives wrong. Weights stay where they are: the engine's workers digest theirs, the
trainer's ranks theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from msprobe.coverage import Coverage, NotRead
from msprobe.messages import Wording, said, translated
from msprobe.rollout.contract import RolloutFinding
from msprobe.rollout.engine_file import read_modules
from msprobe.rollout.texts import finding_json, finding_lines, sentence
from msprobe.rollout.torch.engine_weights import held
from msprobe.rollout.torch.trainer_weights import TrainerWeights
from msprobe.rollout.torch.weights import EarlierWeights, fold, hold_weights

#: So many synchronisations back a weight is known.
_KEPT = 16


@dataclass(frozen=True)
class SynchronisedWeights:
    """What came of one check. ``number``: of the synchronisation, from 0; ``equal``: weights that are the trainer's."""

    number: int
    equal: int
    findings: tuple[RolloutFinding, ...]
    coverage: Coverage
    seconds: float

    @property
    def holds(self) -> bool:
        """Are all weights that could be read the trainer's?"""
        return not self.findings and self.equal > 0

    def as_json(self) -> dict[str, Any]:
        """For ``engine.json``."""
        return {
            "number": self.number,
            "equal": self.equal,
            "findings": [finding_json(finding) for finding in self.findings],
            "coverage": self.coverage.as_json(),
        }

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        if self.findings:
            first = said("synchronisation-finding", self.number, sentence(self.findings[0]))
        else:
            first = said("synchronisation-holds", self.number, self.equal)
        unread = self.coverage.sentence("read")
        whole = Wording("{} {}", first, unread) if unread else first
        return "\n".join([translated(whole), *finding_lines(self.findings)])


class WeightCheck:
    """Compares an engine with the trainer after each synchronisation.

    ``engine``: its model, or a function that gives, for each rank of it, what ``engine_weights.held`` gives there.
    """

    def __init__(self, engine: torch.nn.Module | Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._ask = (lambda: [held(engine)]) if isinstance(engine, torch.nn.Module) else engine
        self._before: list[list[EarlierWeights]] = []
        self._number = 0

    def __call__(self, trainer: torch.nn.Module | Mapping[str, Any] | TrainerWeights) -> SynchronisedWeights:
        """Compare now. ``trainer``: its model, a state dict (also of FSDP2), or ``TrainerWeights.of_megatron(...)``.

        Of a sharded trainer all ranks must call, each with what the engine holds.
        """
        begun = time.perf_counter()
        if isinstance(trainer, torch.nn.Module):
            weights = TrainerWeights.of_model(trainer)
        else:
            weights = trainer if isinstance(trainer, TrainerWeights) else TrainerWeights.of_state_dict(trainer)
        ranks = self._ask()
        findings: list[RolloutFinding] = []
        not_read: list[NotRead] = []
        equal = 0
        for rank, tree in enumerate(ranks):
            modules = read_modules(tree)
            while len(self._before) <= rank:
                self._before.append([])
            findings_of_rank, count, more = hold_weights(modules, weights, self._before[rank])
            where = {"rank": rank} if len(ranks) > 1 else {}
            findings += [
                RolloutFinding(finding.name, finding.responses, {**finding.arguments, **where})
                for finding in findings_of_rank
            ]
            equal += count
            not_read += [unread for unread in more if unread not in not_read]
            now = {
                (path, name): fold(rows) for path, module in modules.items() for name, rows in module.weights.items()
            }
            self._before[rank] = [*self._before[rank], EarlierWeights(self._number, now)][-_KEPT:]
        done = SynchronisedWeights(
            self._number,
            equal,
            tuple(findings),
            Coverage({"weights": equal + len(findings)}, tuple(not_read)),
            time.perf_counter() - begun,
        )
        self._number += 1
        return done
