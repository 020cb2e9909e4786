"""Rules that can never fire, because what they look at is not measured; and what to switch on for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import reduce
from typing import Any

from msprobe.messages import said
from msprobe.monitor.alerts.rules import (
    DeadGradient,
    ExplodingUpdateRatio,
    FrozenWeights,
    GradNormSpike,
    LossSpike,
    NotANumber,
    Turbulence,
    UnevenGradients,
)
from msprobe.monitor.config import MonitorConfig

_SWITCHES = {
    "actv": "xy_distribution",
    "actv_grad": "xy_distribution",
    "grad_unreduced": "wg_distribution",
    "grad_reduced": "wg_distribution",
    "exp_avg": "mv_distribution",
    "exp_avg_sq": "mv_distribution",
    "param_origin": "param_distribution",
    "param_updated": "param_distribution",
    "update": "ur_distribution",
    "state": "state_distribution",
    "other": "mg_direction",
}
# Columns of quantities that have their own.
_OWN_OPS = {
    "update": ("norm", "ratio"),
    "attention_hook": ("entropy", "softmax_max"),
    "linear_hook": ("sr", "kernel_norm"),
    "moe_router_weight_hook": ("router_weight_similarity",),
    "moe_router_logit_hook": ("per_token_expert_entropy",),
}


def unmeasured(config: MonitorConfig) -> Iterator[str]:
    """For each rule of the configuration that looks at nothing that is measured: a sentence that says what it needs.

    What a program notes by itself (``monitor.note(loss=...)``) is not known here: :func:`unnoted`.
    """
    if config.alert is None:
        return
    quantities = _quantities(config)
    for rule in config.alert.settings.rules:
        lacking = _lacking(rule, config, quantities)
        if lacking:
            yield said("rule-never-fires", rule.name, lacking)


def unnoted(config: MonitorConfig, noted: Collection[str]) -> Iterator[str]:
    """The same of rules that look at numbers of the step as a whole. ``noted``: those that the program has noted."""
    for rule in config.alert.settings.rules if config.alert is not None else ():
        if isinstance(rule, LossSpike) and "loss" not in noted:
            yield said("rule-saw-no-loss")
        if isinstance(rule, GradNormSpike) and "grad_norm" not in noted and not _has_norms(config):
            yield said("rule-saw-no-norm")


def _quantities(config: MonitorConfig) -> set[str]:
    fields = {
        "actv": config.forward,
        "actv_grad": config.backward,
        "other": config.mg_direction or config.cc_distribution.enable,
    }
    names = {name for name, field in _SWITCHES.items() if fields.get(name, bool(getattr(config, field)))}
    return names | (set(config.l2_targets) if config.recording_l2_features else set())


def _has_norms(config: MonitorConfig) -> bool:
    return config.wg_distribution and "norm" in config.ops


def _lacking(rule: Any, config: MonitorConfig, quantities: Collection[str]) -> str | None:
    """What the rule needs and does not get; None if it can fire."""
    ops = set(config.ops)
    if isinstance(rule, UnevenGradients):
        if not config.wg_distribution:
            return said("rule-needs-gradients")
        return None if "norm" in ops else said("rule-needs-norm")
    if isinstance(rule, DeadGradient):
        if not config.wg_distribution:
            return said("rule-needs-gradients")
        return None if "norm" in ops or {"min", "max"} <= ops else said("rule-needs-norm")
    if isinstance(rule, ExplodingUpdateRatio):
        if config.ur_distribution or (config.param_distribution and "norm" in ops):
            return None
        return said("rule-needs-updates")
    if isinstance(rule, FrozenWeights):
        return None if config.param_distribution else said("rule-needs-weights")
    if isinstance(rule, (Turbulence, NotANumber)):
        return _lacking_in(rule, ops, quantities)
    return None


def _lacking_in(rule: Turbulence | NotANumber, ops: Collection[str], quantities: Collection[str]) -> str | None:
    looked_at = [name for name in rule.quantities or quantities if name in quantities]
    if rule.quantities and not looked_at:
        switches = dict.fromkeys(_SWITCHES.get(name, "recording_l2_features") for name in rule.quantities)
        wanted = reduce(lambda first, second: said("fields-and", first, second), (f'"{name}"' for name in switches))
        return said("rule-quantities-not-measured", ", ".join(rule.quantities), wanted)
    there = {op for name in looked_at for op in _OWN_OPS.get(name, ops)}
    if rule.ops and there and not there.intersection(rule.ops):
        return said("rule-operators-not-measured", ", ".join(rule.ops), ", ".join(sorted(there)))
    return None
