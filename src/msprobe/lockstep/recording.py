"""The reference as a whole: what can be run against it, and its steps as they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from msprobe.capture.listeners import Cadence
from msprobe.config.settings import Level, Lockstep, Settings, SummaryMode
from msprobe.errors import InvalidInputError
from msprobe.lockstep.reference import RecordedStep
from msprobe.messages import joined, said
from msprobe.store.part import DumpPart
from msprobe.store.reader import Dump, open_dump

_LEVELS = ("L1", "mix")
_MOST_NAMED = 20


class Recording:
    """A dump of task tensor. Raises PathError if there is none, InvalidInputError with all that is wrong with it."""

    def __init__(self, settings: Lockstep) -> None:
        self.dump: Dump = open_dump(settings.reference)
        self.path = settings.reference
        step = self.dump.steps[0]
        part = self.dump.part(step, self.dump.ranks(step)[0])
        try:
            self.level, self.has_optimizer, self.summary = self._checked(part)
        finally:
            part.close()

    def _checked(self, part: DumpPart) -> tuple[Level, bool, SummaryMode]:
        header = part.header
        task, level, framework = (header.get(word) for word in ("task", "level", "framework"))
        leaves = [leaf for _, record in part.records() for leaf in _tensors(record)]
        wrong: list[str] = []
        if framework not in (None, "pytorch"):
            wrong.append(said("reference-of-framework", framework))
        if level not in _LEVELS:
            wrong.append(said("reference-of-level", level))
        if not any("data_name" in leaf for leaf in leaves):
            wrong.append(said("reference-without-tensors", task))
        if wrong:
            raise InvalidInputError(said("lockstep-reference-unfit", self.path, joined("; ", wrong)))
        optimizer = any(
            "data_name" in leaf
            for name, record in part.records()
            if name.startswith("Optimizer.")
            for leaf in _tensors(record)
        )
        return cast(Level, level), optimizer, _summary_of(leaves)

    @property
    def steps(self) -> list[int]:
        """The numbers of its steps."""
        return [step or 0 for step in self.dump.steps]

    @property
    def ranks(self) -> list[int]:
        """The numbers of its ranks; none where it is of a single process without a number."""
        every = {rank for step in self.dump.steps for rank in self.dump.ranks(step)}
        return sorted(rank for rank in every if isinstance(rank, int))

    def recording_like(self, settings: Settings) -> Settings:
        """The settings that record the candidate as the reference was recorded. Raises InvalidInputError for steps and
        ranks that it does not have.
        """
        wrong: list[str] = []
        for word, asked, own in (("step", settings.steps, self.steps), ("rank", settings.ranks, self.ranks or [0])):
            missing = [number for number in asked[:1000] if number not in own]
            if missing:
                wrong.append(said("not-in-reference", word, _listed(missing), _listed(own)))
        if wrong:
            raise InvalidInputError(said("lockstep-reference-wrong", self.path, joined("; ", wrong)))
        return replace(
            settings,
            level=self.level,
            steps=settings.steps or tuple(sorted(self.steps)),
            ranks=settings.ranks or tuple(self.ranks),
            optimizer=True if self.has_optimizer else settings.optimizer,
            summary_mode=self.summary,
        )

    def cadence(self) -> Cadence:
        """The steps in which there is something to run against."""
        return Cadence(steps=frozenset(self.steps))

    def step(self, step: int, rank: int | None) -> RecordedStep | None:
        """A step of a rank; None if it was not recorded."""
        own = step if step in self.dump.steps else (None if self.dump.steps == [None] and step == 0 else step)
        if own not in self.dump.steps:
            return None
        ranks = self.dump.ranks(own)
        # A single process may be rank 0 of one.
        alone = ranks[0] if len(ranks) == 1 and ranks[0] in (0, "rank") else None
        own_rank = rank if rank in ranks else alone if not rank else None
        return None if own_rank is None else RecordedStep(self.dump.part(own, own_rank))


def _summary_of(leaves: list[Mapping[str, Any]]) -> SummaryMode:
    """What stands beside the statistics of its tensors."""
    for leaf in leaves:
        if "md5" in leaf:
            return "md5"
        digest = leaf.get("digest")
        kind = digest.partition(":")[0] if isinstance(digest, str) else ""
        if kind in ("xxh3", "xor"):
            return cast(SummaryMode, kind)
    return "statistics"


def _tensors(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("dtype"), str) and "shape" in value:
            return [value]
        return [leaf for item in value.values() for leaf in _tensors(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _tensors(item)]
    return []


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST_NAMED]))
    return f"{shown}, ..." if len(numbers) > _MOST_NAMED else shown
