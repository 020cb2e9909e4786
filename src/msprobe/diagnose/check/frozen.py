"""Parameters that an optimizer holds and that ask for no gradient: from the beginning, or from a step on."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.differences.words import listed
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """What was frozen between two steps matters; what was frozen before all of them is meant, as a rule."""
    for event in moment.optimizer_steps:
        frozen = _frozen(event)
        lost = [name for name in frozen if name in moment.history.trained]
        if lost:
            yield _finding(moment, event, lost, True)
        elif frozen and len(frozen) < len(parameters_of(event)):
            yield _finding(moment, event, frozen, False)


def _frozen(event: Event) -> list[str]:
    names = []
    for name, fields in parameters_of(event).items():
        weight = fields.get("weight") if isinstance(fields, dict) else None
        if weight is None or not is_tensor(weight) or weight.get("requires_grad") is not False:
            continue
        if "grad" in fields and fields["grad"] is None:
            names.append(plain_path(name))
    return names


def _finding(moment: CheckedStep, event: Event, names: list[str], lost: bool) -> Finding:
    held = said("optimizer-holds-frozen", event.name, len(names))
    how = "got gradients before and are frozen now" if lost else "are frozen"
    return moment.finding(
        event,
        "missing_gradient",
        said("frozen-so-not-trained", held, how, listed(names)),
        where=f"{event.name}: {names[0]}",
        evidence={"parameters": names[:50], "count": len(names), "trained_before": lost},
        harmless=not lost,
    )
