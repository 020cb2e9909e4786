"""Alerts for people: one sentence for a step, the loss first, then the tensor that was wrong first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from msprobe.messages import joined, said
from msprobe.monitor.alerts.alert import Alert

_LOSS = "loss"


def sentence(alerts: Sequence[Alert], next_command: str, unfinished: str = "") -> str:
    """All alerts of one step of a rank, which are in the order of its execution. ``unfinished``: what the step became,
    where it was not finished.
    """
    first = alerts[0]
    losses = [alert for alert in alerts if alert.what == _LOSS]
    tensors = [alert for alert in alerts if alert.what != _LOSS]
    parts: list[str] = [said("alert-of-loss", shown(losses[0].value), _limit(losses[0]))] if losses else []
    if tensors:
        tensor = tensors[0]
        name = "alert-of-first-tensor" if len(tensors) > 1 or losses else "alert-of-tensor"
        parts.append(said(name, tensor.op, tensor.what, shown(tensor.value), _limit(tensor)))
    more = len(alerts) - len(parts)
    if more:
        parts.append(said("alert-numbers-more", more) if more > 1 else said("alert-one-number-more"))
    rules = ", ".join(dict.fromkeys(alert.rule for alert in alerts if alert.rule))
    rule = said("alert-rule", rules) if rules else ""
    return said("alert-of-step", first.rank, first.step, unfinished, joined("; ", parts), rule, next_command)


def analyse_command(base: str) -> str:
    """What names the alerts of all ranks. ``base``: the output folder of the monitor."""
    return f"msprobe monitor analyse {shlex.quote(base)}"


def shown(value: float | None) -> str:
    """A number that a rule has seen."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def second_run(step: int) -> str:
    """How the step of an alert, and the one before it, are recorded by a second run."""
    steps = [*([step - 1] if step else []), step]
    config = f'{{"task": "statistics", "level": "mix", "dump_path": "./dump_of_alert", "step": {steps}}}'
    return said("alert-step-not-recorded", step, config)


def _limit(alert: Alert) -> str:
    return said("alert-limit", alert.limit) if alert.limit else ""
