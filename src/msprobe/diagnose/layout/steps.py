"""The step of the optimizer in two layouts: settings, weights, gradients and states of each parameter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from msprobe.diagnose.differences.words import NO_RELATION, quoted
from msprobe.diagnose.layout import statements
from msprobe.diagnose.layout.blocks import Leaf, Rank
from msprobe.diagnose.layout.findings_so_far import AboutParameter
from msprobe.diagnose.layout.measured import MeasuredTensor, RecordPair
from msprobe.diagnose.layout.search import Search
from msprobe.diagnose.layout.sides import LayoutSide, ModulePlace, ParameterStep
from msprobe.diagnose.steps.optimizer import IDLE_SETTINGS, learning_rate_of, settings_by_parameter, value_of
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance import effect, layouts
from msprobe.messages import said

_MOST_LISTED = 200


def look_at_steps(search: Search) -> dict[str, float]:
    """Compare all steps of the optimizer; returns how far each weight is apart after the last one, where it is."""
    drifted: dict[str, float] = {}
    _look_at_settings(search)
    names = [name for name in search.reference.parameters if name in search.candidate.parameters]
    gradients = {name: _measure(search, name, 0, "grad") for name in names}
    largest = max((gradient.rms for gradient in gradients.values() if gradient is not None), default=0.0)
    for name in names:
        mine, theirs = search.candidate.parameters[name], search.reference.parameters[name]
        for number in range(min(_count(mine), _count(theirs))):
            events = {rank: steps[number].event for rank, steps in mine.items() if len(steps) > number}
            gradient = gradients[name] if number == 0 else _measure(search, name, number, "grad")
            vanishing = gradient is not None and effect.is_vanishing(gradient.rms, largest)
            clean = _look_before(search, name, number, events, gradient, largest, vanishing)
            counts = _counts(gradient, largest)
            drifted[name] = _look_after(search, name, number, events, clean and not vanishing, counts)
            if vanishing:
                drifted[name] = math.inf
    _look_at_factor(search, gradients, largest)
    return {name: apart for name, apart in drifted.items() if apart}


def _look_at_factor(search: Search, gradients: Mapping[str, MeasuredTensor | None], largest: float) -> None:
    """One factor of all gradients says, where each alone is within rounding."""
    counting = {
        name: gradient
        for name, gradient in gradients.items()
        if gradient is not None and layouts.counts(gradient.rms, largest) == 1.0
    }
    ratios = {name: ratio for name, tensor in counting.items() if (ratio := tensor.ratio) is not None}
    factor = layouts.common_factor(list(ratios.values()), search.rounded.unit)
    if factor is None or search.findings or search.tainted:
        return
    name, *others = ratios
    events = {rank: steps[0].event for rank, steps in search.candidate.parameters[name].items() if steps}
    apart = statements.TensorApart(counting[name], layouts.factor_limit(search.rounded.unit))
    apart.ranks = []
    search.say(
        "factor", "parameter_gradient", said("gradients-differ-by-one-factor", name, len(others), factor), name,
        events, apart, relation=NO_RELATION, parameter=name, parameters=list(ratios)[:_MOST_LISTED],
    )  # fmt: skip


def _look_before(
    search: Search,
    name: str,
    number: int,
    events: dict[Rank, Event],
    gradient: MeasuredTensor | None,
    largest: float,
    vanishing: bool,
) -> bool:
    """True if weight, gradient and states agree before the step."""
    clean = True
    weight = _measure(search, name, number, "weight")
    # Weights that modules have shown are not reported again.
    if weight is not None and number == 0 and ("weight", name) not in search.said:
        pair = RecordPair(
            ModulePlace("optimizer", name), number, events, next(iter(events.values())), parameters=[weight]
        )
        search.look_at_weight(pair, weight)
    clean &= weight is None or weight.apart <= search.limit(weight) + layouts.drift_limit(search.drifted.get(name, 0.0))
    missing = _missing_gradient(search, name, number)
    if missing is not None:
        search.report(
            ("missing", missing), "missing_gradient",
            said("gradient-missing-at-optimizer", name) if missing == "no"
            else said("gradient-extra-at-optimizer", name),
            name, events, [], parameter=name,
        )  # fmt: skip
        return False
    if gradient is not None:
        clean &= _look_at_gradient(search, name, events, gradient, largest)
    for field in _fields(search.candidate, name, number):
        before = _measure(search, name, number, field)
        if before is None or vanishing or search.findings or math.isinf(search.drifted.get(name, 0.0)):
            continue
        if before.copies:
            search.say_copies(events, before, said("state-before-step", field, name), name, parameter=name)
        elif before.apart * _counts(gradient, largest) > _state_limit(search, before, name):
            _say_state(search, before, said("state-differs-before-step", field, name), name, field, events)
    return clean and not search.findings


def _look_at_gradient(
    search: Search, name: str, events: dict[Rank, Event], tensor: MeasuredTensor, largest: float
) -> bool:
    """True if the gradient that the optimizer gets agrees."""
    allowed = _state_limit(search, tensor, name)
    weight = _counts(tensor, largest)
    if tensor.copies and not layouts.are_copies(tensor.torn * weight, tensor.unit):
        terms = statements.are_terms(
            tensor, RecordPair(ModulePlace("optimizer", name), 0, events, next(iter(events.values()))), allowed
        )
        why: str = ""
        if terms:
            why = said("own-gradient-mean-agrees", terms)
        what = AboutParameter("the gradient of ", name, " at the optimizer")
        since = search.first_terms
        search.say_copies(events, tensor, what, name, why=why, group="gradient", parameter=name, terms_since=since)
        return False
    if tensor.apart * weight <= allowed or tensor.fit is None:
        return True
    if search.tainted and search.findings:
        return False
    apart, why = statements.TensorApart(tensor, allowed), ""
    if ModulePlace("gradient", name.rpartition(".")[0]) in search.candidate.records:
        why = said("while-backward-agrees")
    text = said("gradient-at-optimizer-differs-in-layout", apart.places, apart.words, why)
    about = AboutParameter("the gradient of ", name, text)
    mark = ("optimizer gradient", name)
    search.say(mark, "parameter_gradient", about, name, events, apart, "gradient", parameter=name)
    return False


def _look_after(search: Search, name: str, number: int, events: dict[Rank, Event], clean: bool, counts: float) -> float:
    """How far the weight is apart after the step; says so if nothing before explains it."""
    weight = _measure(search, name, number, "weight", after=True)
    if weight is None:
        return 0.0
    layout_deviation = layouts.layout_deviation(_moved(search, name, number))
    allowed = search.limit(weight) + layouts.drift_limit(search.drifted.get(name, 0.0)) + layout_deviation
    for field in ("weight", *_fields(search.candidate, name, number, after=True)):
        state = weight if field == "weight" else _measure(search, name, number, field, after=True)
        if state is None or not clean or search.findings:
            continue
        if state.copies:
            search.say_copies(events, state, said("state-after-step", field, name), name, parameter=name)
        elif state.apart * counts > (allowed if field == "weight" else _state_limit(search, state, name)):
            _say_state(search, state, said("state-differs-after-step", field, name), name, field, events)
    if weight.fit is None or weight.fit.how != "values":
        # Statistics are a lower bound of what the next step may find in the values.
        return max(weight.apart, layout_deviation)
    return weight.apart


def _say_state(
    search: Search, tensor: MeasuredTensor, text: str, name: str, field: str, events: dict[Rank, Event]
) -> None:
    if tensor.fit is None:
        return
    apart = statements.TensorApart(tensor, search.limit(tensor))
    text = said("state-differs-in-layout", text, apart.places, apart.words)
    where = name if field == "weight" else f"{name}, {field}"
    search.say(("state", field), "optimizer", text, where, events, apart, parameter=name, field=field)


def _look_at_settings(search: Search) -> None:
    """Hyper-parameters that differ, by field, and on which ranks."""
    theirs: dict[str, dict[str, Any]] = {}
    for _, _, name, own in _settings(search.reference):
        theirs.setdefault(name, own)
    names: dict[str, None] = {}
    asked: dict[Rank, Event] = {}
    differences: dict[str, list[tuple[Rank, str, Any, Any]]] = {}
    for rank, event, name, own in _settings(search.candidate):
        names.setdefault(name)
        asked.setdefault(rank, event)
        for key, value in own.items():
            left, right = value_of(value), value_of(theirs.get(name, {}).get(key, value))
            if key not in IDLE_SETTINGS and left != right:
                differences.setdefault(key, []).append((rank, name, left, right))
    for key, places in differences.items():
        wrong = list(dict.fromkeys(rank for rank, *_ in places))
        differing = list(dict.fromkeys(name for _, name, *_ in places))
        rank, _, left, right = places[0]
        ranks = wrong if len(wrong) < len(asked) else []
        everyone = "all parameters" if len(differing) == len(names) else quoted(differing)
        text = said(
            "optimizer-setting-differs-in-layout",
            asked[rank].name,
            key,
            left,
            statements.on_ranks(ranks),
            right,
            everyone,
        )
        search.report(
            ("setting", key), "optimizer", text, f"{asked[rank].name}, {key}", asked, ranks,
            field=key, candidate=left, reference=right, parameters=differing[:_MOST_LISTED],
        )  # fmt: skip


def _settings(side: LayoutSide) -> Iterator[tuple[Rank, Event, str, dict[str, Any]]]:
    for rank, timeline in side.timelines.items():
        for event in timeline:
            if event.parts.kind == "optimizer":
                for name, own in settings_by_parameter(event).items():
                    yield rank, event, side.name(name, rank), own


def _measure(search: Search, name: str, number: int, field: str, after: bool = False) -> MeasuredTensor | None:
    leaves = [_leaves(side.parameters[name], number, field, after) for side in (search.candidate, search.reference)]
    if not all(leaves):
        return None
    ours, other = leaves
    return search.pairs.measure(field, "parameter", name, (search.candidate, [ours]), (search.reference, [other]))


def _leaves(steps: Mapping[Rank, list[ParameterStep]], number: int, field: str, after: bool) -> dict[Rank, Leaf]:
    leaves: dict[Rank, Leaf] = {}
    for rank, own in steps.items():
        if len(own) > number:
            leaf = (own[number].after if after else own[number].before).get(field)
            if isinstance(leaf, dict) and is_tensor(leaf):
                leaves[rank] = leaf
    return leaves


def _missing_gradient(search: Search, name: str, number: int) -> str | None:
    """``no`` if the candidate has none where the reference has one, ``a`` the other way, else None."""
    has = [
        any("grad" in own[number].before and is_tensor(own[number].before["grad"])
            for own in side.parameters[name].values() if len(own) > number)
        for side in (search.candidate, search.reference)
    ]  # fmt: skip
    return None if has[0] == has[1] else "no" if has[1] else "a"


def _fields(side: LayoutSide, name: str, number: int, after: bool = False) -> Iterator[str]:
    steps = next(iter(side.parameters[name].values()))
    if len(steps) > number:
        for field in steps[number].after if after else steps[number].before:
            if field not in ("weight", "grad"):
                yield field


def _moved(search: Search, name: str, number: int) -> float:
    """How much of the reference's weight the step changed."""
    steps = search.reference.parameters[name]
    sides = [
        search.reference.held([leaves]) if (leaves := _leaves(steps, number, "weight", after)) else None
        for after in (False, True)
    ]
    if sides[0] is None or sides[1] is None:
        return 0.0
    from msprobe.diagnose.layout.blocks import distance

    own, how = distance(sides[0].passes[0][0], sides[1].passes[0][0])
    if how == "values":
        return own
    # The statistics say no more than a lower bound; an optimizer that divides by the size moves by its rate.
    event = next(iter(search.reference.parameters[name].values()))[number].event
    rate = learning_rate_of(next(iter(settings_by_parameter(event).values()), {}))
    norm = sides[1].passes[0][0].numbers[3]
    size = sides[1].passes[0][0].size
    if isinstance(rate, (int, float)) and norm:
        return max(own, 2 * abs(rate) * math.sqrt(size) / norm)
    return own


def _state_limit(search: Search, tensor: MeasuredTensor, name: str) -> float:
    """What a gradient or a state of a parameter may be apart by."""
    return search.gradient_limit(tensor, search.reached(name))


def _counts(gradient: MeasuredTensor | None, largest: float) -> float:
    """How much a gradient counts beside the largest."""
    if gradient is None:
        return 1.0
    return layouts.counts(gradient.rms, largest)


def _count(steps: Mapping[Rank, list[ParameterStep]]) -> int:
    return min(map(len, steps.values()), default=0)
