"""The list of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msprobe.diagnose.check.across import Across
from msprobe.diagnose.check.attention import check as attention
from msprobe.diagnose.check.averaging import check as averaging
from msprobe.diagnose.check.clearing import check as clearing
from msprobe.diagnose.check.collectives import check as collectives
from msprobe.diagnose.check.dropout import check as dropout
from msprobe.diagnose.check.dtypes import check as dtypes
from msprobe.diagnose.check.evaluating import check as evaluating
from msprobe.diagnose.check.frozen import check as frozen
from msprobe.diagnose.check.ignored import check as ignored
from msprobe.diagnose.check.labels import check as labels
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.mutation import check as mutation
from msprobe.diagnose.check.overflow import check as overflow
from msprobe.diagnose.check.padding import check as padding
from msprobe.diagnose.check.raised import check as raised
from msprobe.diagnose.check.recompute import check as recompute
from msprobe.diagnose.check.repeated import check as repeated
from msprobe.diagnose.check.replicas import check as replicas
from msprobe.diagnose.check.routing import check as routing
from msprobe.diagnose.check.scale import check as scale
from msprobe.diagnose.check.sequence import check as sequence
from msprobe.diagnose.check.siblings import check as siblings
from msprobe.diagnose.check.sight import Need
from msprobe.diagnose.check.softmax import check as softmax
from msprobe.diagnose.check.ties import check as ties
from msprobe.diagnose.check.unreached import check as unreached
from msprobe.diagnose.check.updates import check as updates
from msprobe.diagnose.check.whole_numbers import check as whole_numbers
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
    Check("raised", raised),
    Check(
        "overflow",
        once=True,
        needs=("statistics",),
        across=overflow,
    ),
    Check("softmax", softmax, needs=("calls", "statistics")),
    Check("dtypes", dtypes),
    Check(
        "whole_numbers",
        whole_numbers,
        needs=("calls", "statistics"),
    ),
    Check(
        "siblings",
        siblings,
        needs=("calls", "modules"),
    ),
    Check("dropout", dropout, needs=("calls", "modules")),
    Check(
        "evaluating",
        evaluating,
        needs=("calls", "modules", "optimizer"),
    ),
    Check("attention", attention, needs=("calls", "statistics")),
    Check("routing", routing, True, needs=("calls", "modules", "statistics")),
    Check("labels", labels, needs=("calls",)),
    Check("ignored", ignored, needs=("calls",)),
    Check("repeated", repeated, True, needs=("modules", "optimizer")),
    Check(
        "averaging",
        averaging,
        needs=("calls",),
    ),
    Check("recompute", recompute, needs=("backward",)),
    Check(
        "mutation",
        mutation,
        needs=("calls", "backward"),
    ),
    Check("unreached", unreached, needs=("modules", "backward")),
    Check("frozen", frozen, True, needs=("optimizer",)),
    Check("scale", scale, needs=("calls", "optimizer")),
    Check(
        "padding",
        padding,
        needs=("calls", "values", "backward"),
    ),
    Check("ties", ties, needs=("modules", "backward")),
    Check(
        "sequence",
        once=True,
        needs=("ranks",),
        across=sequence,
    ),
    Check(
        "collectives",
        once=True,
        needs=("ranks",),
        across=collectives,
    ),
    Check(
        "replicas",
        once=True,
        needs=("ranks",),
        across=replicas,
    ),
    Check(
        "clearing",
        clearing,
        needs=("optimizer", "modules", "backward"),
    ),
    Check("updates", updates, needs=("modules", "statistics")),
)
