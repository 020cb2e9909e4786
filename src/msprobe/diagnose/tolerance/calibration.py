"""How far two healthy runs are apart, call by call: measured instead of modelled.

The second healthy run does the same on other hardware, with another order of summation, or from inputs that were
perturbed by one unit in the last place. What it differs by from the reference is what a candidate may differ by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.effect.reach import reach_of
from msprobe.diagnose.pairing.match import pair
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.tolerance.judge import judge_all
from msprobe.store.part import DumpPart

#: A candidate may be this many times further off than the healthy run: one sample is no bound.
MARGIN = 4.0


@dataclass(frozen=True)
class Calibration:
    """What was measured for one step of one rank of the reference.

    ``by_entry``: entry of the reference -> relative difference of its results. ``reach``: that of gradients,
    weights and loss. ``arrived``: entry -> that of what went in.
    """

    by_entry: Mapping[str, float] = field(default_factory=dict)
    reach: float = 0.0
    arrived: Mapping[str, float] = field(default_factory=dict)

    def allowed(self, entry: str) -> float:
        """What a candidate may differ by in the results of a call."""
        return MARGIN * self.by_entry.get(entry, 0.0)

    def allowed_inputs(self, entry: str) -> float:
        """What a candidate may differ by in what goes into a call."""
        return MARGIN * self.arrived.get(entry, 0.0)


#: Nothing was measured: the model of rounding alone counts.
NO_CALIBRATION = Calibration()


def calibrate(healthy: DumpPart, reference: DumpPart) -> Calibration:
    """Measure how far a second healthy run is from the reference."""
    timelines = Timeline(healthy), Timeline(reference)
    try:
        pairing = pair(*timelines)
        comparer = Comparer(healthy, reference)
        judged = judge_all(pairing, comparer, Producers(pairing.candidate))
        measured = {one.partner.name: one.left for one in judged.values() if one.left}
        arrived = {one.partner.name: one.arrived for one in judged.values() if one.arrived}
        return Calibration(measured, reach_of(pairing, judged, comparer).size, arrived)
    finally:
        for timeline in timelines:
            timeline.close()
