"""How far two healthy runs are apart, call by call: measured instead of modelled.

The second healthy run does the same on other hardware, with another order of summation, or from inputs that were
perturbed by one unit in the last place. What it differs by from the reference is what a candidate may differ by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.effect.reach import reach_of
from msprobe.diagnose.measured.healthy import NOT_MEASURED, HealthyCalls
from msprobe.diagnose.measured.judge import healthy_calls
from msprobe.diagnose.pairing.step import pair_timelines
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.tolerance import units
from msprobe.diagnose.tolerance.judge import judge_all
from msprobe.store.part import DumpPart


@dataclass(frozen=True)
class Calibration:
    """What was measured for one step of one rank of the reference.

    ``by_entry``: entry of the reference -> relative difference of its results. ``reach``: that of gradients,
    weights and loss. ``arrived``: entry -> that of what went in. ``compared``: the entries that were measured, also
    those of which nothing differs. ``calls``: what calls show by their rows.
    """

    by_entry: Mapping[str, float] = field(default_factory=dict)
    reach: float = 0.0
    arrived: Mapping[str, float] = field(default_factory=dict)
    compared: frozenset[str] = frozenset()
    calls: HealthyCalls = NOT_MEASURED

    def allowed(self, entry: str) -> float:
        """What a candidate may differ by in the results of a call: one sample is no bound."""
        return units.BY_ROUNDING * self.by_entry.get(entry, 0.0)

    def allowed_inputs(self, entry: str) -> float:
        """What a candidate may differ by in what goes into a call."""
        return units.BY_ROUNDING * self.arrived.get(entry, 0.0)

    def limit(self, entry: str, modelled: float, arrived: float, unit: float) -> float:
        """What a candidate may differ by in the results of a call: what the model allows, more where the healthy run
        was further off, and less where it was much nearer. ``arrived``: how far apart the inputs are; where
        that is more than was measured, too, its measure is no bound. ``unit``: the unit of rounding of the call.
        """
        allowed = self.allowed(entry)
        if entry not in self.compared or arrived > self.allowed_inputs(entry):
            return max(modelled, allowed)
        return max(allowed, min(modelled, self._close(self.by_entry.get(entry, 0.0), unit)))

    def limit_of_reach(self, modelled: float, unit: float) -> float:
        """The same for loss, gradients and weights. ``unit``: that the run computes in."""
        allowed = units.BY_ROUNDING * self.reach
        if not self.compared or not math.isfinite(self.reach):
            return max(modelled, allowed)
        return max(allowed, min(modelled, self._close(self.reach, unit)))

    def set_limits(self, comparer: Comparer) -> None:
        """Let a comparison go by what was measured."""
        comparer.measured_noise, comparer.measured_inputs = self.allowed, self.allowed_inputs
        comparer.measured_limit = self.limit
        comparer.healthy_calls = self.calls

    def _close(self, measured: float, unit: float) -> float:
        """What is allowed where the healthy run was much nearer than the model allows: of two samples of one noise the
        larger is 16 times the smaller in one of 25 pairs of single numbers, and in none of tensors (normal: 2 / pi
        times the arctangent of 1 / 16). Statistics are rounded to the type of the tensor, on both sides.
        """
        return max(units.BY_CALL * measured, units.BY_ROUNDING * unit)


#: Nothing was measured: the model of rounding alone counts.
NO_CALIBRATION = Calibration()


def calibrate(healthy: DumpPart, reference: DumpPart) -> Calibration:
    """Measure how far a second healthy run is from the reference."""
    timelines = Timeline(healthy), Timeline(reference)
    try:
        paired = pair_timelines(*timelines)
        pairing, comparer = paired.pairing, paired.comparer
        judged = judge_all(pairing, comparer, Producers(pairing.candidate))
        measured = {call.partner.name: call.output_difference for call in judged.values() if call.output_difference}
        arrived = {call.partner.name: call.input_difference for call in judged.values() if call.input_difference}
        reach = reach_of(pairing, judged, comparer).size
        # A run of which nothing differs says nothing of what may.
        compared = frozenset(call.partner.name for call in judged.values()) if measured or reach else frozenset()
        calls = healthy_calls(pairing, is_alone=not isinstance(reference.rank, int))
        return Calibration(measured, reach, arrived, compared, calls)
    finally:
        for timeline in timelines:
            timeline.close()
