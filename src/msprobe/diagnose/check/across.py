"""One step of all ranks, as those checks see it that look at more than one: what was kept of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from msprobe.diagnose.check.exchange import Exchange
from msprobe.diagnose.check.moment import Earlier
from msprobe.diagnose.check.replica import Replica
from msprobe.diagnose.findings import Finding, FindingKind
from msprobe.diagnose.statement import finding_at
from msprobe.diagnose.steps.communication import Rank
from msprobe.diagnose.steps.timeline import Timeline


@dataclass(frozen=True)
class Across:
    """One step of all ranks. ``before``: the step before it of each, if that was recorded. ``opened`` reads a rank
    again, for what was not kept of it.
    """

    step: int | None
    exchange: Exchange
    replicas: dict[Rank, Replica]
    before: Mapping[Rank, Earlier] | None
    opened: Callable[[Rank], AbstractContextManager[Timeline]]

    def of(self, ranks: tuple[Rank, ...]) -> Across:
        """The same of some ranks."""
        return replace(self, replicas={rank: self.replicas[rank] for rank in ranks})

    def finding(
        self,
        rank: Rank,
        name: str,
        kind: FindingKind,
        message: str,
        where: str | None = None,
        evidence: dict[str, Any] | None = None,
        **more: Any,
    ) -> Finding:
        """A statement on the record of that name. ``where``: the record's name, if nothing else is said."""
        with self.opened(rank) as timeline:
            event = timeline.by_name[name]
            return finding_at(timeline, event, kind, message, where or name, self.step, details=evidence, **more)
