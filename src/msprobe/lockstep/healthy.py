"""Which findings are of a region that is healthy: done otherwise, and all that leaves it agrees with the reference."""

from __future__ import annotations

import math

from msprobe.compare.entry_names import operation, read_name
from msprobe.diagnose import operators
from msprobe.diagnose.differences.words import ratio_of
from msprobe.diagnose.evidence import Listed, OneSide
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.steps.timeline import is_tensor
from msprobe.diagnose.tolerance import units
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.diagnose.tolerance.units import FINE
from msprobe.lockstep.account import StepAccount

#: What is said of how something is done.
_HOW_IT_IS_DONE = frozenset(("structure", "argument", "mutation", "loss_scale", "dtype"))
#: A sum in a loop is that many calls for one.
_MANY_CALLS, _MANY_TIMES = 32, 8
#: The norm of what one rounding does is 0.29 units.
_MORE_THAN_ONE = 0.5
#: So far apart may the factors of two gradients be by rounding.
_SAME_FACTOR = 2.0**-6


class Healthy:
    """The healthy regions of one step of one rank: their calls, and the calls and gradients that they end at."""

    def __init__(self, known: StepAccount) -> None:
        self._known = known
        # Calls between the backward pass and an optimizer that takes the gradients of the reference.
        agreeing = [module for module, taken in known.gradients.items() if taken and all(taken.values())]
        self._before_step, self._recorded_before_step = (
            {name for agreeing_module in agreeing for name in side.get(agreeing_module, ())}
            for side in (known.before_step, known.recorded_before_step)
        )
        self._finer: set[str] = set()
        self._calls: set[str] = set()
        self._ends: set[str] = set()
        self._coarse: set[str] = set()
        # Calls whose own result is already what the reference has, up to rounding.
        self._at_once: set[str] = set()
        self._followed: set[str] = set()
        self._arrived: set[str] = set()
        sick: set[str] = set()
        for region in known.regions:
            self._followed.update(region["followed"])
            if region["ends"] and all(region["ends"].values()):
                unreported = set(region["unreported"])
                self._calls.update(name for name in region["calls"] if name not in unreported)
                self._finer.update(region["calls"] if not region["is_coarser"] else ())
                self._ends.update((*region["ends"], *region["passed"]))
                self._arrived.update(region["arrived"])
                self._at_once.update(
                    name for name in region["calls"] if name in region["ends"] and name not in region["made_up"]
                )
                self._coarse.update(region["calls"] if region["unit"] > FINE and not region["compensates"] else ())
            else:
                sick.update(name for name, agrees in region["ends"].items() if not agrees)
        self._ends -= sick

    def explains(self, suspect: Suspect) -> bool:
        """True if what is suspected is done, or seen, in such a region."""
        finding, judged = suspect.finding, suspect.judged
        if self._does_nothing(suspect) or self._is_before_step(suspect) or self._is_of_rewritten_optimizer(finding):
            return True
        if self._is_factor_of_loss(suspect):
            return True
        if suspect.shows_later or (finding.kind in ("weights", "initial_weights") and suspect.clear):
            return False  # what outlives the step is no result that a region could end at
        is_of_gradients = finding.kind in ("parameter_gradient", "loss_scale") or is_seen_after_backward(finding)
        if is_of_gradients and suspect.clear and suspect.matters:
            return False  # clipping hides a factor at the end of the region, as long as it clips
        alone = finding.fact(OneSide) or OneSide()
        if finding.kind == "dtype" and alone.candidate and not alone.reference:
            return self._finer.issuperset(alone.candidate)  # more digits on the way
        if finding.kind in ("dtype", "mutation", "recompute"):
            return False  # a fact, whatever it comes to here
        if finding.kind == "missing_gradient" and (names := _parameters_of(finding)):
            return self._known.delivered.issuperset(names)  # else these got none by any way
        if finding.kind == "missing_gradient" and _forward(finding.entry or "") in self._followed:
            return True  # it came back through the call that was made on own values
        is_paired = self._known.partners is None or self._known.partners.get(finding.entry or "") != ""
        if is_paired and finding.entry in self._coarse and _is_hidden(finding.kind, judged):
            return False  # in types of few digits rounding hides at the end what is done here
        if rounds_far_more_often(suspect):
            return False  # its own number of roundings is no excuse
        if finding.kind == "argument" and finding.entry in self._at_once and _stands_out(judged):
            return False  # it computes something else, and what comes of it was put right
        if finding.kind == "mutation" and judged is not None and judged.event.direction == "backward":
            return False  # the gradients were put right, and differ
        if finding.kind == "argument" and judged is not None and not judged.changed_outputs and _takes_tensors(judged):
            return False  # its result is the same: it counts for another reason, as the gradient of a weight
        own = [] if alone.reference and not alone.candidate else [_forward(finding.entry or "")]
        if any(name in self._calls for name in (*alone.candidate, *own)):
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

    def _does_nothing(self, suspect: Suspect) -> bool:
        """True for what is seen at a call that gives back its argument: it belongs to the call that made that."""
        names = [suspect.finding.entry or "", *([suspect.judged.event.name] if suspect.judged is not None else [])]
        return suspect.finding.direction == "backward" and any(_forward(name) in self._known.idle for name in names)

    def _is_before_step(self, suspect: Suspect) -> bool:
        """True for what is done to gradients before an optimizer takes them, if these are the reference's then."""
        finding = suspect.finding
        if finding.kind not in _HOW_IT_IS_DONE or finding.direction == "optimizer":
            return False
        judged = suspect.judged
        if finding.kind == "argument" and _stands_out(judged) and judged is not None and not judged.changed_inputs:
            return False  # its own result was put right, so what the optimizer takes says nothing of it
        alone = finding.fact(OneSide) or OneSide()
        own = alone.candidate or (() if alone.reference else (finding.entry or "",))
        return self._before_step.issuperset(own) and self._recorded_before_step.issuperset(alone.reference)

    def _is_factor_of_loss(self, suspect: Suspect) -> bool:
        """True for a factor of the loss that the gradients have no more where optimizers take them, and for parameters
        whose gradients have it on their way: that is the factor once more.
        """
        kind, known = suspect.finding.kind, self._known
        if kind == "parameter_gradient":
            ratios, factors = _ratios(suspect.judged), known.factors.values()
            close = (any(math.isclose(ratio, factor, rel_tol=_SAME_FACTOR) for factor in factors) for ratio in ratios)
            return bool(ratios) and all(close)
        agrees = all(all(taken.values()) for taken in known.gradients.values())
        return kind == "loss_scale" and bool(known.factors and known.gradients) and known.are_kept and agrees

    def _is_of_rewritten_optimizer(self, finding: Finding) -> bool:
        """True for what an optimizer of another class does, if it comes to the same weights and moments."""
        rewritten = self._known.rewritten
        if not rewritten or not all(rewritten.values()):
            return False
        return finding.entry in rewritten if finding.kind == "optimizer" else finding.direction == "optimizer"


def is_seen_after_backward(finding: Finding) -> bool:
    """True for a gradient that a call after the backward pass takes as it has arrived: what made it came before."""
    return finding.kind == "gradient" and finding.direction == "forward"


def only_makes_a_start(suspect: Suspect) -> bool:
    """True for other arguments of a call that makes a constant: it is judged by what is made of it."""
    return suspect.finding.kind == "argument" and suspect.judged is not None and not _takes_tensors(suspect.judged)


def rounds_far_more_often(suspect: Suspect) -> bool:
    """True if the candidate rounds at dozens of calls in a type of few digits where the reference makes one or a few: a
    sum that is taken step by step stops growing there, sooner or later.
    """
    alone, difference = suspect.finding.fact(OneSide), suspect.difference
    if suspect.finding.kind != "structure" or alone is None or difference is None or not suspect.begins:
        return False
    count = sum(operation(read_name(name).stem) not in operators.MOVES for name in alone.candidate)
    unit = units.pair_unit(difference)
    is_many = count >= max(_MANY_CALLS, _MANY_TIMES * len(alone.reference))
    return is_many and unit > FINE and difference.delta > _MORE_THAN_ONE * unit


def _ratios(judged: Judged | None) -> list[float]:
    """How many times as large the tensors of a record are that differ; 0 for one that is no multiple."""
    if judged is None:
        return []
    return [ratio_of(difference.left, difference.right) or 0.0 for difference in (*judged.inputs, *judged.outputs)]


def _parameters_of(finding: Finding) -> list[str]:
    """The parameters that a finding lists."""
    listed = (fact for fact in finding.facts if isinstance(fact, Listed) and fact.what == "parameters")
    return [name for list_of_names in listed for name in list_of_names.names]


def _takes_tensors(judged: Judged) -> bool:
    """False for a call that makes a constant, which is judged by what is made of it."""
    return any(is_tensor(leaf) for _, leaf in judged.event.inputs())


def _is_hidden(kind: str, judged: Judged | None) -> bool:
    return (
        kind == "argument"
        and judged is not None
        and bool(judged.changed_outputs)
        and math.isfinite(judged.output_difference)
    )


def _stands_out(judged: Judged | None) -> bool:
    return judged is not None and bool(judged.changed_outputs) and math.isfinite(judged.output_difference)


def _forward(name: str) -> str:
    return name.replace(".backward", ".forward")
