"""What happened while one rank ran against the reference: counts, names, and what its regions came to."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msprobe.lockstep.regions import Regions

_MOST_NAMED = 200


class Account:
    """What happened in the steps of one rank, for the verdict's summary and notes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: Names of calls, with their steps, of which something could not be done.
        self.named: dict[str, list[str]] = {}
        self.regions: dict[str, list[dict[str, Any]]] = {}
        #: By step, the calls whose partner has another name than they have.
        self.pairs: dict[str, dict[str, str]] = {}

    def add_regions(self, step: int, regions: Regions) -> None:
        """Keep what the regions of a step came to."""
        every = [region for region in regions if region.ends]
        self.regions[str(step)] = [region.to_json() for region in regions]
        self.counts["regions"] += len(every)
        self.counts["regions_healthy"] += sum(all(region.ends.values()) for region in every)

    def pair(self, step: int, name: str, recorded: str) -> None:
        """A call has found its partner."""
        self.counts["paired"] += 1
        if name != recorded:
            self.pairs.setdefault(str(step), {})[name] = recorded

    def note(self, what: str, step: int, name: str) -> None:
        """Count a call by what became of it, and keep its name."""
        self.counts[what] += 1
        names = self.named.setdefault(what, [])
        if len(names) < _MOST_NAMED:
            names.append(f"{name} in step {step}")

    def to_json(self) -> dict[str, Any]:
        """As it is written for whoever judges."""
        return {"counts": dict(self.counts), "named": self.named, "regions": self.regions, "pairs": self.pairs}
