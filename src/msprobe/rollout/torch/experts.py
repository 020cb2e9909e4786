"""A mixture of experts on what the engine recorded: the trainer's choice from the engine's own router logits.

As both choose from the same logits, a router that flips between two forward passes changes nothing here. Where two
experts at the edge of the choice are equal within rounding of these logits, either choice is right: such rows are
counted, and not judged.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from msprobe.messages import said
from msprobe.rollout.torch.measuring import UNITS, JudgedRows, NotKnown
from msprobe.rollout.torch.trainer import Trainer
from msprobe.rollout.torch.widened import InFloat64

#: A piece of the catalogue: why a row is not judged.
FLIPPED = "experts-equal"
_EDGE = 2.0
_SHARED = ("shared_expert", "shared_experts", "shared_mlp")


def router_of(trainer: Trainer, path: str) -> Any:
    """The module beside the experts at ``path`` that chooses them. Raises NotKnown."""
    around = trainer.parent_of(path)
    for module in () if around is None else around.children():
        if is_router(module):
            return module
    raise NotKnown(said("router-unknown"))


def is_router(module: Any) -> bool:
    """Does a module choose experts: a matrix, and how many of its rows are chosen?"""
    weight = getattr(module, "weight", None)
    return isinstance(getattr(module, "top_k", None), int) and weight is not None and weight.dim() == 2


def judged_rows(router: Any, logits: Any) -> JudgedRows:
    """Which rows have a choice that rounding does not turn."""
    best = logits.double().topk(min(router.top_k + 1, logits.shape[-1]), -1).values
    if best.shape[-1] <= router.top_k:
        return JudgedRows()
    gap = best[:, -2] - best[:, -1]
    size = best[:, -2:].abs().amax(1)
    keep = (gap > _EDGE * UNITS.get(logits.dtype, 0.0) * size).numpy()
    return JudgedRows(keep, {} if keep.all() else {FLIPPED: int((~keep).sum())})


def chosen(router: Any, logits: Any) -> Any:
    """The numbers of the experts that are chosen, sorted: [rows, k]."""
    return logits.double().topk(router.top_k, -1).indices.sort(-1).values


def of(trainer: Trainer, path: str, tensors: Sequence[Any], wide: Any) -> list[Any]:
    """The trainer's experts for (hidden states, router logits), alone and with those that each token has (shared).

    ``wide`` makes a module one of float64.
    """
    hidden, logits = tensors
    router, experts = router_of(trainer, path), trainer.module(path)
    if experts is None or hidden.dim() != 2 or logits.shape != (len(hidden), router.weight.shape[0]):
        raise NotKnown(said("experts-take-other-inputs"))
    # With the identity for its weight, the trainer's router makes its choice from the logits that it is given.
    router = copy.deepcopy(router)
    kind = torch.float64 if wide is not None else hidden.dtype
    router.weight = torch.nn.Parameter(torch.eye(logits.shape[-1], dtype=kind), requires_grad=False)
    if hasattr(router, "hidden_dim"):
        router.hidden_dim = logits.shape[-1]
    try:
        with InFloat64() if wide is not None else nullcontext():
            _, weights, places = router(logits.to(kind))
            module = experts if wide is None else wide(experts)
            routed = module(hidden.to(kind), places, weights.to(kind))
            return [routed, routed + _shared(trainer, path, hidden.to(kind), wide)]
    except (TypeError, ValueError, RuntimeError) as problem:
        raise NotKnown(said("experts-not-alone", str(problem)[:80])) from problem


def adds_shared(output: Any, routed: Any, whole: Any) -> bool:
    """Does an engine's call of its experts give the sum with the shared ones? It is the nearer of the two."""
    near, far = ((output.double() - computed.double()).square().mean() for computed in (whole, routed))
    return bool(near < far)


def _shared(trainer: Trainer, path: str, hidden: Any, wide: Any) -> Any:
    """What the experts beside the routed ones give, behind their gate where they have one; 0 where there are none."""
    around = trainer.parent_of(path)
    shared = next((getattr(around, name) for name in _SHARED if getattr(around, name, None) is not None), None)
    if shared is None:
        return 0.0
    gate = getattr(around, "shared_expert_gate", None)
    given = (shared if wide is None else wide(shared))(hidden)
    return given if gate is None else torch.sigmoid((gate if wide is None else wide(gate))(hidden)) * given
