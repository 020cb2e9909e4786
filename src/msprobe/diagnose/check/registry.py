"""The list of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msprobe.diagnose.check import (
    attention,
    averaging,
    clearing,
    collectives,
    dropout,
    dtypes,
    evaluating,
    frozen,
    ignored,
    labels,
    mutation,
    overflow,
    padding,
    raised,
    recompute,
    repeated,
    replicas,
    routing,
    scale,
    sequence,
    siblings,
    softmax,
    ties,
    unreached,
    updates,
    whole_numbers,
)
from msprobe.diagnose.check.across import Across
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.sight import Need
from msprobe.diagnose.findings import Finding
from msprobe.messages import explained


@dataclass(frozen=True)
class Check:
    """One check: ``find`` is called for each step of each rank, in order; ``across`` for each step, when all its ranks
    have been seen. A check has one of them.

    ``once``: what it finds spreads to all that comes after, so that only the first step in which it finds something
    is reported. ``needs``: what must have been recorded for it to find anything.
    """

    name: str
    find: Callable[[CheckedStep], Iterable[Finding]] | None = None
    once: bool = False
    needs: tuple[Need, ...] = ()
    across: Callable[[Across], Iterable[Finding]] | None = None

    @property
    def text(self) -> str:
        """What it looks for."""
        return explained(f"check:{self.name}", "meaning")


CHECKS: tuple[Check, ...] = (
    Check("raised", raised.check),
    Check("overflow", across=overflow.check, once=True, needs=("statistics",)),
    Check("softmax", softmax.check, needs=("calls", "statistics")),
    Check("dtypes", dtypes.check),
    Check("whole_numbers", whole_numbers.check, needs=("calls", "statistics")),
    Check("siblings", siblings.check, needs=("calls", "modules")),
    Check("dropout", dropout.check, needs=("calls", "modules")),
    Check("evaluating", evaluating.check, needs=("calls", "modules", "optimizer")),
    Check("attention", attention.check, needs=("calls", "statistics")),
    Check("routing", routing.check, once=True, needs=("calls", "modules", "statistics")),
    Check("labels", labels.check, needs=("calls",)),
    Check("ignored", ignored.check, needs=("calls",)),
    Check("repeated", repeated.check, once=True, needs=("modules", "optimizer")),
    Check("averaging", averaging.check, needs=("calls",)),
    Check("recompute", recompute.check, needs=("backward",)),
    Check("mutation", mutation.check, needs=("calls", "backward")),
    Check("unreached", unreached.check, needs=("modules", "backward")),
    Check("frozen", frozen.check, once=True, needs=("optimizer",)),
    Check("scale", scale.check, needs=("calls", "optimizer")),
    Check("padding", padding.check, needs=("calls", "values", "backward")),
    Check("ties", ties.check, needs=("modules", "backward")),
    Check("sequence", across=sequence.check, once=True, needs=("ranks",)),
    Check("collectives", across=collectives.check, once=True, needs=("ranks",)),
    Check("replicas", across=replicas.check, once=True, needs=("ranks",)),
    Check("clearing", clearing.check, needs=("optimizer", "modules", "backward")),
    Check("updates", updates.check, needs=("modules", "statistics")),
)
