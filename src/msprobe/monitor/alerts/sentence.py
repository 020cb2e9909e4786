"""Alerts for people: one sentence for a step, the loss first, then the tensor that was wrong first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from msprobe.monitor.alerts.alert import Alert

_LOSS = "loss"


def sentence(alerts: Sequence[Alert], next_command: str, unfinished: str = "") -> str:
    """All alerts of one step of a rank, which are in the order of its execution. ``unfinished``: what the step became,
    where it was not finished.
    """
    first = alerts[0]
    losses = [one for one in alerts if one.what == _LOSS]
    tensors = [one for one in alerts if one.what != _LOSS]
    parts = [f"loss is {shown(losses[0].value)}{_limit(losses[0])}"] if losses else []
    if tensors:
        one = tensors[0]
        lead = "the first bad tensor is" if len(tensors) > 1 or losses else ""
        parts.append(f"{lead} {one.op} of {one.what}: {shown(one.value)}{_limit(one)}".strip())
    more = len(alerts) - len(parts)
    if more:
        parts.append(f"{more} more number{'s' if more > 1 else ''}")
    rules = ", ".join(dict.fromkeys(one.rule for one in alerts if one.rule))
    state = f" ({unfinished})" if unfinished else ""
    rule = f"; rule {rules}" if rules else ""
    return f"Alert on rank {first.rank} at step {first.step}{state}: {'; '.join(parts)}{rule}; next: {next_command}"


def analyse_command(base: str) -> str:
    """What names the alerts of all ranks. ``base``: the output folder of the monitor."""
    return f"msprobe monitor analyse {shlex.quote(base)}"


def shown(value: float | None) -> str:
    """A number that a rule has seen."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def second_run(step: int) -> str:
    """How the step of an alert, and the one before it, are recorded by a second run."""
    steps = [*([step - 1] if step else []), step]
    return (
        f"Step {step} itself is not recorded. Where the training can be repeated (seed and data, or a"
        f" checkpoint before it), run it again with"
        f' {{"task": "statistics", "level": "mix", "dump_path": "./dump_of_alert", "step": {steps}}} as record.json and'
        " `msprobe run --config record.json SCRIPT` (--first-step N behind a checkpoint of step N), or with"
        " PrecisionDebugger in the program; `msprobe check ./dump_of_alert` names where a NaN begins."
    )


def _limit(alert: Alert) -> str:
    return f" (limit: {alert.limit})" if alert.limit else ""
