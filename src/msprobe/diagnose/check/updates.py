"""Parameters that have a gradient and are not updated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import has_values, in_its_model, is_constant, measured
from msprobe.diagnose.differences.records import fingerprint, numbers, statistics
from msprobe.diagnose.differences.words import dtype_word, listed
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.optimizer import learning_rate_of, parameters_of, results_of, settings_by_parameter
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance.check_limits import is_lost_in_rounding
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """Parameters that the optimizer leaves as they are, that no optimizer has, or that stay as they were."""
    steps = moment.optimizer_steps
    for event in steps:
        yield from _left_alone(moment, event)
    # Of a rank that was recorded alone, other ranks may have the optimizer of a share.
    if steps and not (moment.world == 1 and any(event.is_collective for event in moment.timeline)):
        yield from _in_no_optimizer(moment, steps)
    if not steps:
        yield from _as_before(moment)


def _left_alone(moment: CheckedStep, event: Event) -> Iterable[Finding]:
    """Weights of one optimizer that are the same before and after its step."""
    if event.record.get("skipped"):
        return
    settings = settings_by_parameter(event)
    results = results_of(event)
    stuck: list[str] = []
    moved = 0
    for name, fields in parameters_of(event).items():
        weight = fields.get("weight") if isinstance(fields, dict) else None
        after = (results.get(name) or {}).get("weight")
        gradient = fields.get("grad") if isinstance(fields, dict) else None
        if weight is None or gradient is None or not all(map(is_tensor, (weight, after, gradient))):
            continue
        rate = _rate(settings.get(name, {}))
        if _is_zero(gradient) or not rate or _is_rounded_away(weight, gradient, rate):
            continue
        # NaN stays NaN whatever is added to it, and looks the same before and after.
        if not all(map(has_values, (weight, after, gradient))):
            continue
        if _is_unchanged(weight, after):
            stuck.append(name)
        else:
            moved += 1
    if not stuck:
        return
    name, count = stuck[0], len(stuck) + moved
    fields = parameters_of(event)[name]
    evidence = {"parameters": stuck[:50], "weight": measured(fields["weight"]), "lr": _rate(settings.get(name, {}))}
    are_coarse = bool(moved) and all(_is_half(parameters_of(event)[other]["weight"]) for other in stuck)
    if are_coarse:
        kind = dtype_word(fields["weight"])
        text = said("update-lost-to-dtype", len(stuck), count, kind, kind, listed(stuck))
        evidence["cause"] = "coarse_type"
    else:
        text = said("weights-unchanged", len(stuck), count, listed(stuck))
        evidence["grad"] = measured(fields["grad"])
    where = f"{event.name}: {name}"
    yield moment.finding(event, "weights", text, where=where, evidence=evidence, harmless=are_coarse)


def _is_unchanged(weight: dict[str, Any], after: Any) -> bool:
    """True if a weight is known to be the same after the step.

    Equal statistics say it in single precision. In half precision they are rounded as coarsely as the step that is
    looked for, and prove nothing, unless all elements are one number: the largest and the least are exact.
    """
    mark = fingerprint(weight)
    if not _is_half(weight):
        return mark is not None and mark == fingerprint(after)
    if is_constant(weight) or is_constant(after):
        return is_constant(weight) and is_constant(after) and statistics(weight) == statistics(after)
    has_digests = all(isinstance(leaf.get("digest") or leaf.get("md5"), str) for leaf in (weight, after))
    return has_digests and mark == fingerprint(after)


def _is_rounded_away(weight: dict[str, Any], gradient: dict[str, Any], rate: float) -> bool:
    """True if a gradient is so small that single precision cannot hold its step (a bias in front of a norm, say)."""
    return not _is_half(weight) and is_lost_in_rounding(weight, gradient, rate)


def _is_not_finite(leaf: dict[str, Any]) -> bool:
    return numbers(leaf) is not None and not has_values(leaf)


def _is_half(leaf: dict[str, Any]) -> bool:
    return dtype_word(leaf) in ("float16", "bfloat16")


def _rate(settings: dict[str, Any]) -> float:
    value = learning_rate_of(settings)
    return float(value) if isinstance(value, (int, float)) else 1.0


def _is_zero(leaf: dict[str, Any]) -> bool:
    return leaf.get("Norm") in (0, 0.0, None)


def _in_no_optimizer(moment: CheckedStep, steps: list[Event]) -> Iterable[Finding]:
    """Parameters with a gradient that no optimizer has, though one has their neighbours."""
    known: set[str] = set(moment.before.optimized) if moment.before is not None else set()
    known |= moment.held
    weights = moment.weights
    tied = {fingerprint(weight.leaf) for name, weight in weights.items() if name in known}
    for event in steps:
        # A copy that nothing uses any more has the values, but no gradient.
        held = [fields for fields in parameters_of(event).values() if isinstance(fields, dict)]
        tied.update(fingerprint(fields.get("weight")) for fields in held if is_tensor(fields.get("grad")))
    missing: list[str] = []
    apart: list[str] = []
    for name, passes in moment.gradients.items():
        weight = weights.get(name)
        if {name, in_its_model(name)} & known or weight is None or not weight.leaf.get("requires_grad"):
            continue
        if not any(leaf is not None and not _is_zero(leaf) for leaf in passes) or fingerprint(weight.leaf) in tied:
            continue
        (missing if _neighbours(name, known) else apart).append(name)
    if apart and moment.last:
        # Another optimizer may have them, in a step that comes later.
        yield _without_neighbours(moment, steps[-1], apart, known & set(weights))
    if missing:
        stale = [name for event in steps for name in parameters_of(event) if plain_path(name) not in weights]
        hint = said("holds-unused-instead", listed(stale)) if stale else ""
        yield moment.finding(
            steps[-1],
            "weights",
            said(
                "parameters-in-no-optimizer",
                _counted(missing),
                "is" if len(missing) == 1 else "are",
                listed(missing),
                hint,
            ),
            where=f"{steps[-1].name}: {missing[0]}",
            evidence={"parameters": missing[:50], "held_instead": stale[:50]},
        )


def _without_neighbours(moment: CheckedStep, event: Event, names: list[str], held: set[str]) -> Finding:
    """Whole modules with a gradient that no optimizer has: meant where a small part of a model is trained, or one of
    two models.
    """
    # A list of models has numbers for names.
    tops, others = ({name.partition(".")[0] for name in some} for some in (names, held))
    two = all(top.isdigit() for top in tops | others) and len(tops) == len(others) == 1 and tops != others
    meant = two or len(held) <= len(names)
    is_single = len(names) == 1
    text = said("module-in-no-optimizer", _counted(names), "it" if is_single else "them", len(held), listed(names))
    if meant:
        text += "; where only some are to be trained, requires_grad_(False) saves the cost of the others' gradients"
    return moment.finding(
        event,
        "weights",
        text,
        where=f"{event.name}: {names[0]}",
        evidence={"parameters": names[:50], "held": len(held)},
        harmless=meant,
    )


def _counted(names: list[str]) -> str:
    return "1 parameter gets" if len(names) == 1 else said("parameters-get", len(names))


def _neighbours(name: str, known: set[str]) -> bool:
    """True if an optimizer has other parameters of the same module, or of the module around it."""
    above = name.rpartition(".")[0]
    above = above.rpartition(".")[0] or above
    return any(other.startswith(f"{above}." if above else "") for other in known)


def _as_before(moment: CheckedStep) -> Iterable[Finding]:
    """Without an optimizer's record: weights that are as they were a step ago, while most others are not."""
    if moment.before is None:
        return
    before, had = moment.before.weights, moment.before.moved
    stuck, moved = [], 0
    # Weights in half precision may be too coarse for their update.
    coarse: list[str] = []
    weights = moment.weights
    for name in had:
        if name not in weights or name not in before:
            continue
        now, then = weights[name].leaf, before[name]
        if not then.get("requires_grad") or _is_not_finite(now):
            continue
        if fingerprint(now) is not None and fingerprint(now) == fingerprint(then):
            coarse.append(name) if _is_half(now) else stuck.append(name)
        elif fingerprint(now) != fingerprint(then):
            moved += 1
    if moment.last and not moved and not moment.has_changed and stuck:
        stuck = sorted(stuck + coarse)
        text = said("no-weight-changes", len(stuck), listed(stuck))
    elif stuck and moved > len(stuck):
        stuck.sort()
        text = said("weights-unchanged-since", len(stuck), moved, listed(stuck))
    else:
        return
    weight = weights[stuck[0]]
    evidence = {"parameters": stuck[:50], "weight": measured(weight.leaf)}
    yield moment.finding(weight.event, "weights", text, where=stuck[0], evidence=evidence)
