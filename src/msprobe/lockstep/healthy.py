"""Which findings are of a region that is healthy: done otherwise, and all that leaves it agrees with the reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from msprobe.compare.entry_names import operation, read_name
from msprobe.diagnose import operators
from msprobe.diagnose.evidence import Listed, OneSide
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.tolerance import units
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.diagnose.tolerance.units import FINE

#: Their arguments say what shape a result has.
_OF_SHAPES = operators.MAY_VIEW | operators.FILLS | frozenset(("view", "repeat", "tile"))
#: A sum in a loop is that many calls for one.
_MANY_CALLS, _MANY_TIMES = 32, 8
#: The norm of what one rounding does is 0.29 units.
_MORE_THAN_ONE = 0.5


class Healthy:
    """The healthy regions of one step of one rank: their calls, and the calls and gradients that they end at."""

    def __init__(self, regions: Iterable[Mapping[str, Any]] = ()) -> None:
        self._calls: set[str] = set()
        self._ends: set[str] = set()
        self._coarse: set[str] = set()
        # Calls whose own result is already what the reference has, up to rounding.
        self._at_once: set[str] = set()
        self._followed: set[str] = set()
        self._arrived: set[str] = set()
        sick: set[str] = set()
        for one in regions:
            self._followed.update(one["followed"])
            if one["ends"] and all(one["ends"].values()):
                untold = set(one["untold"])
                self._calls.update(name for name in one["calls"] if name not in untold)
                self._ends.update((*one["ends"], *one["passed"]))
                self._arrived.update(one["arrived"])
                self._at_once.update(name for name in one["calls"] if name in one["ends"])
                self._coarse.update(one["calls"] if one["unit"] > FINE else ())
            else:
                sick.update(name for name, agrees in one["ends"].items() if not agrees)
        self._ends -= sick

    def explains(self, suspect: Suspect) -> bool:
        """True if what is suspected is done, or seen, in such a region."""
        finding, judged = suspect.finding, suspect.judged
        if suspect.shows_later or (finding.kind in ("weights", "initial_weights") and suspect.clear):
            return False  # what outlives the step is no result that a region could end at
        of_gradients = finding.kind in ("parameter_gradient", "loss_scale") or is_seen_after_backward(finding)
        if of_gradients and suspect.clear and suspect.matters:
            return False  # clipping hides a factor at the end of the region, as long as it clips
        if finding.kind in ("dtype", "mutation", "recompute"):
            return False  # a fact, whatever it comes to here
        if finding.kind == "missing_gradient" and _has_parameters(finding):
            return False  # these got none by any way
        if finding.kind == "missing_gradient" and _forward(finding.entry or "") in self._followed:
            return True  # it came back through the call that was made on own values
        if finding.entry in self._coarse and _is_hidden(finding.kind, judged):
            return False  # in types of few digits rounding hides at the end what is done here
        if rounds_far_more_often(suspect):
            return False  # its own number of roundings is no excuse
        if finding.kind == "argument" and finding.entry in self._at_once and _stands_out(judged):
            return False  # it computes something else, and what comes of it was put right
        if finding.kind == "mutation" and judged is not None and judged.event.direction == "backward":
            return False  # the gradients were put right, and differ
        if finding.kind == "argument" and judged is not None and not judged.changed_outputs:
            return False  # its result is the same: it counts for another reason, as the gradient of a weight
        alone = finding.fact(OneSide) or OneSide()
        if any(name in self._calls for name in (*alone.candidate, _forward(finding.entry or ""))):
            return True
        if judged is None:
            return False
        event = judged.event.name
        if suspect.difference is not None and f"{event} {suspect.difference.slot}" in self._arrived:
            return True  # calls of one side alone have made it, and it is the same
        if _forward(event) in self._calls:
            return True
        # A gradient that leaves such a region is another one by rounding.
        return event in self._ends and finding.direction == "backward" and bool(judged.changed_inputs)


def is_seen_after_backward(finding: Finding) -> bool:
    """True for a gradient that a call after the backward pass takes as it has arrived: what made it came before."""
    return finding.kind == "gradient" and finding.direction == "forward"


def rounds_far_more_often(suspect: Suspect) -> bool:
    """True if the candidate rounds at dozens of calls in a type of few digits where the reference makes one or a few: a
    sum that is taken step by step stops growing there, sooner or later.
    """
    alone, difference = suspect.finding.fact(OneSide), suspect.difference
    if suspect.finding.kind != "structure" or alone is None or difference is None or not suspect.begins:
        return False
    count = sum(operation(read_name(name).stem) not in operators.MOVES for name in alone.candidate)
    unit = units.of_pair(difference)
    is_many = count >= max(_MANY_CALLS, _MANY_TIMES * len(alone.reference))
    return is_many and unit > FINE and difference.delta > _MORE_THAN_ONE * unit


def _has_parameters(finding: Finding) -> bool:
    return any(isinstance(one, Listed) and one.what == "parameters" and one.names for one in finding.facts)


def _is_hidden(kind: str, judged: Judged | None) -> bool:
    if kind != "argument" or judged is None or not judged.changed_outputs:
        return False
    return math.isfinite(judged.left) or operation(judged.event.stem) not in _OF_SHAPES


def _stands_out(judged: Judged | None) -> bool:
    return judged is not None and bool(judged.changed_outputs) and math.isfinite(judged.left)


def _forward(name: str) -> str:
    return name.replace(".backward", ".forward")
