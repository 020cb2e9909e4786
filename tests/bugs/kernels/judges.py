"""What a judge answers on a pair, and whether that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msprobe.diagnose.measured.classes import Classes, measured
from msprobe.diagnose.measured.judge import beyond_limits, judge_nodes, limits_of
from msprobe.diagnose.measured.node import Node
from msprobe.diagnose.measured.nodes import nodes
from msprobe.diagnose.measured.product_units import product_units
from msprobe.diagnose.measured.together import CallsTogether, limits_together, middle_of
from msprobe.diagnose.pairing.step import pair_timelines
from msprobe.diagnose.runs import compare_runs
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.timeline import Timeline

from .networks import ALL, NETWORKS
from .record import JITTER, Recording, recorded
from .recordings import KernelPair, healthy_pairs
from .variants import VARIANTS
from .whole import part_of


@dataclass(frozen=True)
class Answer:
    """``diverged``: the pair is called so. ``first``: the record that is named first. ``not_judged``: calls that the
    judge says it could not judge, of ``calls``.
    """

    diverged: bool
    first: str | None
    not_judged: int = 0
    calls: int = 0


Judge = Callable[[KernelPair], Answer]


def today(pair: KernelPair) -> Answer:
    """The verdict of ``msprobe compare``."""
    return _verdict(pair, None)


@dataclass(frozen=True)
class BesideHealthy:
    """The verdict of ``msprobe compare --noise``: the healthy run is of the device that comes so many places after the
    candidate's, or (0) of the reference's device with jitter.
    """

    cache: Path
    after: int = 1

    def __call__(self, pair: KernelPair) -> Answer:
        names = list(VARIANTS)
        other = names[(names.index(pair.variant) + self.after) % len(names)] if self.after else JITTER
        return _verdict(pair, recorded(Recording(pair.network, pair.precision, other), self.cache) / "dump")


def _verdict(pair: KernelPair, noise: Path | None) -> Answer:
    verdict = compare_runs(pair.candidate / "dump", pair.reference / "dump", noise=noise)
    first = verdict.findings[0].entry if verdict.findings else None
    return Answer(verdict.status == "diverged", first)


def nodes_of(pair: KernelPair) -> list[Node]:
    """The calls of a pair with their deviations."""
    with no_collection():
        candidate, reference = (Timeline(part_of(one)) for one in (pair.candidate, pair.reference))
        paired = pair_timelines(candidate, reference, None, False)
        found = list(nodes(paired.pairing, is_alone=True))
        for timeline in (candidate, reference):
            timeline.close()
            timeline.part.close()
        return found


class Measured:
    """The measuring judge. What it knows of healthy devices is always of other networks than the one it judges."""

    def __init__(self, precision: str, cache: Path) -> None:
        self._healthy = {
            name: [(pair.id, nodes_of(pair)) for pair in healthy_pairs(name, precision, cache)] for name in NETWORKS
        }
        self._classes = {name: self.table([other for other in NETWORKS if other != name]) for name in ALL}

    def table(self, networks: list[str]) -> Classes:
        """What the healthy devices of these networks show."""
        return measured((found, product_units(found)) for name in networks for _, found in self._healthy[name])

    def __call__(self, pair: KernelPair) -> Answer:
        judgement = judge_nodes(nodes_of(pair), self._classes[pair.network])
        first = judgement.first.node.event.name if judgement.first else None
        return Answer(first is not None, first, judgement.not_judged, judgement.calls)

    def margins(self) -> list[str]:
        """For each number of a call, the healthy calls that come nearest to its limit."""
        rows = []
        for name, pairs in self._healthy.items():
            for pair, found in pairs:
                units = product_units(found)
                together = CallsTogether()
                for place, node in enumerate(found):
                    if not node.excused:
                        together.add(place, node)
                for group in together.groups():
                    middle = middle_of(group, units, self._classes[name])
                    for size, limit, what in zip(middle, limits_together(group[0]), ("D", "K"), strict=True):
                        call = f"{len(group)} calls of {group[0].operation} {group[0].direction}"
                        rows.append((size - limit, f"{what} {size:.2f} of {limit}: {pair} {call}"))
                for one in (beyond_limits(node, units, self._classes[name]) for node in found if not node.excused):
                    sizes, limits = (one.distance, one.coherent), limits_of(one.node)
                    for size, limit, what in zip(sizes, limits, ("D", "K"), strict=True):
                        rows.append((size - limit, f"{what} {size:.2f} of {limit}: {pair} {one.node.event.name}"))
        return [text for _, text in sorted(rows, reverse=True)[:8]]


@dataclass
class Score:
    """Counts over pairs of one precision."""

    faults: int = 0
    detected: int = 0
    first: int = 0
    healthy: int = 0
    alarms: int = 0
    not_judged: int = 0
    calls: int = 0

    def add(self, pair: KernelPair, answer: Answer) -> str:
        """Count an answer; the word for it."""
        self.not_judged += answer.not_judged
        self.calls += answer.calls
        if pair.truth is None:
            self.healthy += 1
            self.alarms += answer.diverged
            return "alarm" if answer.diverged else "quiet"
        self.faults += 1
        self.detected += answer.diverged
        is_first = answer.diverged and pair.truth.accepts(answer.first)
        self.first += is_first
        return "first" if is_first else "detected" if answer.diverged else "missed"

    def row(self) -> str:
        """The counts as a row of a table."""
        share = f"{100 * self.first / self.faults:.0f} %" if self.faults else "-"
        blind = f"{self.not_judged} of {self.calls}" if self.calls else "-"
        return f"{self.detected} of {self.faults} | {self.first} ({share}) | {self.alarms} of {self.healthy} | {blind}"
