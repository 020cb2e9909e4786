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
        #: By step, all calls of APIs of which a call has a partner of another name, and their partners.
        self.pairs: dict[str, dict[str, str]] = {}
        # Of the step that runs, by API.
        self._pairs: dict[str, dict[str, str]] = {}

    def end_step(self, step: int, regions: Regions) -> None:
        """Keep what the regions of a step came to, and its pairs that names alone do not tell."""
        shifted = (pairs for pairs in self._pairs.values() if any(own != other for own, other in pairs.items()))
        found = {own: other for pairs in shifted for own, other in pairs.items()}
        if found:
            self.pairs[str(step)] = found
        self._pairs.clear()
        every = [region for region in regions if region.ends]
        self.regions[str(step)] = [region.to_json() for region in regions]
        self.counts["regions"] += len(every)
        self.counts["regions_healthy"] += sum(all(region.ends.values()) for region in every)

    def pair(self, key: str, name: str, recorded: str) -> None:
        """A call of an API has found its partner."""
        self.counts["paired"] += 1
        self._pairs.setdefault(key, {})[name] = recorded

    def note(self, what: str, step: int, name: str) -> None:
        """Count a call by what became of it, and keep its name."""
        self.counts[what] += 1
        names = self.named.setdefault(what, [])
        if len(names) < _MOST_NAMED:
            names.append(f"{name} in step {step}")

    def to_json(self) -> dict[str, Any]:
        """As it is written for whoever judges."""
        return {"counts": dict(self.counts), "named": self.named, "regions": self.regions, "pairs": self.pairs}
