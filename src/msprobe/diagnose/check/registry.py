"""The list of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msprobe.diagnose.check import (
    attention,
    clearing,
    collectives,
    dropout,
    dtypes,
    labels,
    mutation,
    overflow,
    padding,
    recompute,
    replicas,
    scale,
    siblings,
    softmax,
    ties,
    unreached,
    updates,
)
from msprobe.diagnose.check.moment import Moment
from msprobe.diagnose.findings import Finding


@dataclass(frozen=True)
class Check:
    """One check: ``find`` is called for each step, in order.

    ``once``: what it finds spreads to all that comes after, so that only the first step in which it finds something
    is told.
    """

    name: str
    text: str
    find: Callable[[Moment], Iterable[Finding]]
    once: bool = False


CHECKS: tuple[Check, ...] = (
    Check("overflow", "a NaN or an infinity is born, forward or backward, on whichever rank", overflow.check, True),
    Check("softmax", "rows of a softmax do not sum to one", softmax.check),
    Check("dtypes", "one call computes in another precision than those around it, or than its siblings", dtypes.check),
    Check("siblings", "a layer calls the same operation with another setting than the other layers", siblings.check),
    Check("dropout", "dropout is active in eval mode, or inactive in training", dropout.check),
    Check("attention", "a causal language model attends to later positions", attention.check),
    Check("labels", "the labels of a language model are its inputs, not shifted", labels.check),
    Check("recompute", "recomputation gives other values than the forward pass it repeats", recompute.check),
    Check("mutation", "a tensor that the backward pass needs is written to behind autograd's back", mutation.check),
    Check("unreached", "parameters get no gradient", unreached.check),
    Check("scale", "a scaled loss, and gradients that are not scaled back", scale.check),
    Check("padding", "the padding row of an embedding gets a gradient (needs recorded tensors)", padding.check),
    Check("ties", "embedding and head begin as one matrix and are trained as two", ties.check),
    Check("collectives", "ranks of a group get different results from one collective", collectives.check, True),
    Check("replicas", "what should be the same on all ranks is not", replicas.check, True),
    Check("clearing", "gradients of the step before are still in those of this step", clearing.check),
    Check("updates", "parameters with a gradient are not updated", updates.check),
)
