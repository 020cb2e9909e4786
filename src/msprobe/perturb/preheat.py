"""Thresholds that are learned in the first steps, by comparing some of the calls with the CPU as well."""

from __future__ import annotations

import math
from collections import defaultdict

from msprobe.perturb.thresholds import FIRST_LEARNED, equal_ratio


class Preheat:
    """Which calls to run on the CPU, and what thresholds come of it. Steps count from the first that was watched.

    Step 0 counts the calls of each API. In each later step before ``steps`` some of them are run on the CPU; those that
    agree with it are healthy, whatever their ratio.
    """

    def __init__(self, steps: int, most: int) -> None:
        self.steps = steps
        self.most = most
        self.step = -1
        self._totals: dict[str, int] = {}
        self._counted: dict[str, int] = defaultdict(int)
        self._thresholds: dict[tuple[str, str], float] = {}
        self._samples: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
        self._settled: set[tuple[str, str]] = set()

    @property
    def is_on(self) -> bool:
        """True while thresholds may still change."""
        return self.step < self.steps

    def begin_step(self) -> None:
        """The next step begins."""
        self.step += 1
        self._counted.clear()

    def sample(self, key: str) -> tuple[int, int] | None:
        """Another call of ``key``: its number and their total if it is to be run on the CPU."""
        number = self._counted[key]
        self._counted[key] += 1
        total = self._totals.get(key, 0)
        if not (0 < self.step < self.steps) or not total:
            return None
        rounds = min(math.ceil(total / self.steps), self.most)
        chosen = {(self.steps * round_number + self.step) % total for round_number in range(rounds)}
        return (number, total) if number in chosen else None

    def add(self, key: str, dtype: str, ratio: float, is_consistent: bool) -> None:
        """A sampled call had this ratio, and agrees with the CPU or does not."""
        self._samples[key, dtype].append((ratio, is_consistent))

    def end_step(self) -> None:
        """Learn from the step that is over."""
        if self.step == 0:
            self._totals = dict(self._counted)
        for place, samples in self._samples.items():
            if place not in self._settled:
                self._learn(place, samples)
        self._samples.clear()

    def threshold(self, key: str, dtype: str) -> float:
        """The ratio up to which results of this API and type are equal."""
        return self._thresholds.get((key, dtype), FIRST_LEARNED)

    def _learn(self, place: tuple[str, str], samples: list[tuple[float, bool]]) -> None:
        now = self.threshold(*place)
        good = [ratio for ratio, is_consistent in samples if is_consistent]
        bad = [ratio for ratio, is_consistent in samples if not is_consistent]
        if not bad:
            new = 1 + (now - 1) * 2 if max(good) > now else 1 + (now - 1) / 2
        elif not good or max(good) < min(bad):
            new = min(min(bad), now)
            self._settled.add(place)
        else:
            return
        self._thresholds[place] = max(new, equal_ratio(place[1], ""))
