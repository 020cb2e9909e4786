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
from msprobe.diagnose.check.moment import Moment
from msprobe.diagnose.check.mutation import check as mutation
from msprobe.diagnose.check.overflow import check as overflow
from msprobe.diagnose.check.padding import check as padding
from msprobe.diagnose.check.raised import check as raised
from msprobe.diagnose.check.recompute import check as recompute
from msprobe.diagnose.check.repeated import check as repeated
from msprobe.diagnose.check.replicas import check as replicas
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


@dataclass(frozen=True)
class Check:
    """One check: ``find`` is called for each step of each rank, in order; ``across`` for each step, when all its ranks
    have been seen. A check has one of them.

    ``once``: what it finds spreads to all that comes after, so that only the first step in which it finds something
    is told. ``needs``: what must have been recorded for it to find anything.
    """

    name: str
    text: str
    find: Callable[[Moment], Iterable[Finding]] | None = None
    once: bool = False
    needs: tuple[Need, ...] = ()
    across: Callable[[Across], Iterable[Finding]] | None = None


CHECKS: tuple[Check, ...] = (
    Check("raised", "a call raised an error", raised),
    Check(
        "overflow",
        "a NaN or an infinity is born, forward or backward, on whichever rank",
        once=True,
        needs=("statistics",),
        across=overflow,
    ),
    Check("softmax", "rows of a softmax do not sum to one", softmax, needs=("calls", "statistics")),
    Check("dtypes", "one call computes in another precision than those around it, or than its siblings", dtypes),
    Check(
        "whole_numbers",
        "whole numbers, as positions, are cast to a type that cannot hold them",
        whole_numbers,
        needs=("calls", "statistics"),
    ),
    Check(
        "siblings",
        "a layer calls the same operation with another setting than the other layers",
        siblings,
        needs=("calls", "modules"),
    ),
    Check("dropout", "dropout is active in eval mode, or inactive in training", dropout, needs=("calls", "modules")),
    Check(
        "evaluating",
        "a model is trained in eval mode: dropouts drop nothing, batch norms keep their averages",
        evaluating,
        needs=("calls", "modules", "optimizer"),
    ),
    Check("attention", "a causal language model attends to later positions", attention, needs=("calls", "statistics")),
    Check("labels", "the labels of a language model are not shifted, or shifted twice", labels, needs=("calls",)),
    Check("ignored", "all labels, or nearly all, are ignored", ignored, needs=("calls",)),
    Check("repeated", "a step trains on the batch of an earlier one", repeated, True, needs=("modules", "optimizer")),
    Check(
        "averaging",
        "means over micro-batches with different numbers of labels are averaged",
        averaging,
        needs=("calls",),
    ),
    Check(
        "recompute", "recomputation gives other values than the forward pass it repeats", recompute, needs=("backward",)
    ),
    Check(
        "mutation",
        "a tensor that the backward pass needs is written to behind autograd's back",
        mutation,
        needs=("calls", "backward"),
    ),
    Check("unreached", "parameters get no gradient", unreached, needs=("modules", "backward")),
    Check("frozen", "an optimizer holds parameters that ask for no gradient", frozen, True, needs=("optimizer",)),
    Check("scale", "a scaled loss, and gradients that are not scaled back", scale, needs=("calls", "optimizer")),
    Check(
        "padding",
        "the padding row of an embedding gets a gradient (needs recorded tensors)",
        padding,
        needs=("calls", "values", "backward"),
    ),
    Check("ties", "embedding and head begin as one matrix and are trained as two", ties, needs=("modules", "backward")),
    Check(
        "sequence",
        "a rank makes other collectives than its group, or gives them other types or shapes",
        once=True,
        needs=("ranks",),
        across=sequence,
    ),
    Check(
        "collectives",
        "ranks of a group get different results from one collective",
        once=True,
        needs=("ranks",),
        across=collectives,
    ),
    Check(
        "replicas",
        "what should be the same on all ranks is not, or batches are that should not be",
        once=True,
        needs=("ranks",),
        across=replicas,
    ),
    Check(
        "clearing",
        "gradients are not cleared between steps, or are cleared between micro-batches",
        clearing,
        needs=("optimizer", "modules", "backward"),
    ),
    Check("updates", "parameters with a gradient are not updated", updates, needs=("modules", "statistics")),
)
