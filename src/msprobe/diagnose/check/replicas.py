"""What should be the same on all ranks and is not.

Which parameters are copies of each other is not recorded. Those that have the same values on all ranks before the step
are (constants aside: shares of a bias may all begin with zeros); they must get the same gradient at the optimizer, with
the same settings, and be the same after the step. Those that get the same gradient on all ranks are copies too, and
must have had the same values. A call that takes the same tensors on all ranks must make the same of them, a dropout
included. Ranks with copies of a whole model should not all get the same batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose import operators
from msprobe.diagnose.check import communication, replica_inputs, replica_settings
from msprobe.diagnose.check.moment import Leaf, Moment, Rank
from msprobe.diagnose.check.values import distinct, floats, has_values, listed, measured, tensors
from msprobe.diagnose.differences.records import fingerprint, is_integer, numel, of_statistics
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.diagnose.tolerance.of_check import is_one_factor, may_have_two_values, of_a_repeat, of_copies
from msprobe.diagnose.wording import Wording


def check(moment: Moment) -> Iterable[Finding]:
    """Weights that differ before the step, calls on equal inputs, gradients at the optimizer, its settings, weights
    that parted; and batches that are the same.
    """
    for ranks in _groups(moment):
        timelines = {rank: moment.timelines[rank] for rank in ranks}
        part = replace(moment, timelines=timelines)
        for find in (_weights, _calls, _gradients, _settings, _parted, _inputs):
            found = list(find(part))
            yield from found
            if found:
                break


def _settings(moment: Moment) -> Iterable[Finding]:
    """Settings of optimizers that differ for copies."""
    return replica_settings.check(moment, _copies(moment, _tables(moment)))


def _inputs(moment: Moment) -> Iterable[Finding]:
    """One batch for all ranks that hold copies of the whole model."""
    weights = _tables(moment)
    copies = [name for name in _copies(moment, weights) if all(name in table for table in weights.values())]
    # Constants (the weights of norms) are copies where all else is.
    same = {name for name in weights[next(iter(weights))] if copies and not _unlike(moment, weights, name)}
    return replica_inputs.check(moment, same)


def _groups(moment: Moment) -> list[tuple[Rank, ...]]:
    """The groups of ranks that exchange data, and all ranks together; larger ones first."""
    everyone = tuple(moment.timelines)
    found: dict[tuple[Rank, ...], None] = {everyone: None}
    for timeline in moment.timelines.values():
        for event in timeline:
            if event.is_collective:
                ranks = tuple(rank for rank in communication.group(event) if rank in moment.timelines)
                found.setdefault(tuple(rank for rank in everyone if rank in ranks))
    return sorted((ranks for ranks in found if len(ranks) > 1), key=lambda ranks: -len(ranks))


def _copies(moment: Moment, tables: dict[Rank, dict[str, Leaf]]) -> list[str]:
    """Parameters with the same values on all ranks that have them (two at least)."""
    found = []
    names = dict.fromkeys(name for table in tables.values() for name in table)
    unsure = []
    for name in names:
        leaves = [tables[rank][name] for rank in moment.timelines if name in tables.get(rank, {})]
        if len(leaves) > 1 and _equal(leaves) and not any(map(_is_divided, leaves)):
            if _single(leaves[0]) or (distinct(leaves[0]) and _tells(leaves[0])):
                found.append(name)
            elif _of_norm(moment, name):
                unsure.append(name)
    if found and _is_pipeline(moment) and not any(_unlike(moment, tables, name) for name in names):
        return []  # Stages that begin from one seed are no copies of each other.
    # Norms begin as ones and zeros, copies or not; ranks with the same model and tokens hold copies.
    same_model = len({frozenset(moment.weights(timeline)) for timeline in moment.timelines.values()}) == 1
    if unsure and same_model and (found or _same_tokens(moment)):
        found = [name for name in names if name in found or name in unsure]
    return found


def _same_tokens(moment: Moment) -> bool:
    """True if all ranks look up the same whole numbers first."""
    marks = set()
    for timeline in moment.timelines.values():
        first = next((event for event in timeline if operation(event.stem) == "embedding"), None)
        tokens = [leaf for leaf in tensors(first.inputs()) if is_integer(leaf)] if first is not None else []
        marks.add(fingerprint(tokens[0]) if tokens else None)
    return len(marks) == 1 and None not in marks


def _unlike(moment: Moment, tables: dict[Rank, dict[str, Leaf]], name: str) -> bool:
    leaves = [tables[rank][name] for rank in moment.timelines if name in tables.get(rank, {})]
    return len(leaves) > 1 and not _equal(leaves)


def _is_divided(leaf: Leaf) -> bool:
    """True for a rank's share of a tensor that is divided among ranks (a DTensor)."""
    placements = leaf.get("placements")
    return isinstance(placements, list) and not all("Replicate" in str(one) or str(one) == "R" for one in placements)


def _is_pipeline(moment: Moment) -> bool:
    """True if ranks send each other messages."""
    return any(
        event.is_collective and communication.api(event) in operators.MESSAGES
        for timeline in moment.timelines.values()
        for event in timeline
    )


def _equal(leaves: list[Leaf]) -> bool:
    marks = [(fingerprint(leaf), str(leaf.get("shape")), leaf.get("Max"), leaf.get("Min")) for leaf in leaves]
    return all(mark == marks[0] for mark in marks)


def _single(leaf: Leaf) -> bool:
    """A single number that is no usual beginning."""
    return leaf.get("shape") in ([], [1]) and leaf.get("Max") not in (0, 1, 0.0, 1.0)


def _tells(leaf: Leaf) -> bool:
    """True if what was recorded tells a tensor from others of its sort. The first step of Adam moves all elements of a
    norm by one size, up or down, so that two of them have the same statistics as soon as as many go up.
    """
    return "digest" in leaf or "md5" in leaf or not may_have_two_values(leaf)


def _of_norm(moment: Moment, name: str) -> bool:
    """True for parameters of a norm, which no common layout divides among ranks."""
    for timeline in moment.timelines.values():
        weight = moment.weights(timeline).get(name)
        if weight is not None:
            return weight.event.parts.owner.lower().endswith(("norm", "rmsnorm", "layernorm"))
    return False


def _tables(moment: Moment) -> dict[Rank, dict[str, Leaf]]:
    """All parameters by rank: those that modules have, and those that only an optimizer has. Not those that were whole
    in a module's pass and of which the optimizer has a share: their gradients are shares, too.
    """
    found: dict[Rank, dict[str, Leaf]] = {}
    for rank, timeline in moment.timelines.items():
        table = found[rank] = {name: weight.leaf for name, weight in moment.weights(timeline).items()}
        for event in moment.optimizer_steps(timeline)[:1]:
            for name, fields in parameters_of(event).items():
                weight = fields.get("weight") if isinstance(fields, dict) else None
                if weight is None or not is_tensor(weight):
                    continue
                if numel(table.setdefault(plain_path(name), weight)) != numel(weight):
                    del table[plain_path(name)]
    return found


def _optimizers(moment: Moment) -> dict[Rank, dict[str, Leaf]]:
    return {rank: moment.at_optimizer(timeline) for rank, timeline in moment.timelines.items()}


def _event_of(moment: Moment, timeline: Timeline, name: str) -> Event:
    """The record that shows a parameter: its module's first pass, or the optimizer's step."""
    weight = moment.weights(timeline).get(name)
    return weight.event if weight is not None else moment.optimizer_steps(timeline)[0]


def _apart(tables: dict[Rank, dict[str, Leaf]], name: str) -> dict[Rank, Leaf] | None:
    """A tensor by rank, if it is finite on all ranks and not the same."""
    leaves = {rank: table[name] for rank, table in tables.items() if name in table}
    if any(map(_is_divided, leaves.values())) or len({str(leaf.get("shape")) for leaf in leaves.values()}) > 1:
        return None
    if len(leaves) < 2 or not all(map(has_values, leaves.values())) or _equal(list(leaves.values())):
        return None
    return leaves


def _weights(moment: Moment) -> Iterable[Finding]:
    """Copies, by their gradients, whose values differ before the step."""
    weights, arrived = _tables(moment), _optimizers(moment)
    wrong = {}
    for name in _copies(moment, arrived):
        if not any((table.get(name) or {}).get("Norm") for table in arrived.values()):
            continue
        leaves = _apart(weights, name)
        if leaves is not None:
            wrong[name] = leaves
    if wrong:
        name, leaves = next(iter(wrong.items()))
        rank = _minority(leaves)
        event = _event_of(moment, moment.timelines[rank], name)
        yield moment.finding(
            moment.timelines[rank],
            event,
            "replica",
            Wording(
                '"{}" differs between the ranks before the step, although all ranks get the same gradient for it', name
            )
            + (
                Wording("; so do {} other parameters: {}", len(wrong) - 1, listed(list(wrong)[1:]))
                if len(wrong) > 1
                else ""
            ),
            where=name,
            evidence=_by_rank(leaves) | {"parameters": list(wrong)[:50]},
        )


def _gradients(moment: Moment) -> Iterable[Finding]:
    """Copies, by their values, whose gradients differ when the optimizer takes them."""
    weights, arrived = _tables(moment), _optimizers(moment)
    wrong = {}
    for name in _copies(moment, weights):
        leaves = _apart(arrived, name)
        if leaves is not None and not _is_noise(leaves):
            wrong[name] = leaves
    if not wrong:
        return
    copies = [one for one in _copies(moment, weights) if all(one in table for table in arrived.values())]
    left_out = _left_out(moment, copies)
    name = next((one for one in left_out if one in wrong), next(iter(wrong)))
    leaves = wrong[name]
    rank = _minority(leaves)
    timeline = moment.timelines[rank]
    step = moment.optimizer_steps(timeline)[0]
    ratio = _common_ratio(list(wrong.values()))
    how = Wording(", each by the factor {:.6g}: they were clipped or scaled by another number", ratio) if ratio else ""
    which = "all" if len(wrong) == len(copies) else Wording("{} of {}", len(wrong), len(copies))
    if left_out:
        message = Wording(
            "no collective sums the gradient of {} over the ranks, as is done for the other "
            "parameters that are the same on all of them; the gradients of {} of these differ at the optimizer",
            listed(left_out),
            which,
        )
    else:
        message = Wording(
            "the gradients of {} parameters that are the same on all ranks differ between them at the optimizer"
            "{}: {}; the weights will part",
            which,
            how,
            listed(list(wrong)),
        )
    yield moment.finding(
        timeline,
        step,
        "replica",
        message,
        where=Wording("{} at {}", name, step.name),
        evidence=_by_rank(leaves)
        | {"parameters": left_out[:50] or list(wrong)[:50], "copies": len(copies), "factor": ratio},
    )


def _left_out(moment: Moment, copies: list[str]) -> list[str]:
    """Copies whose gradient no collective takes, where one takes those of others; empty where that is not seen."""
    for timeline in moment.timelines.values():
        carried = {
            fingerprint(leaf)
            for event in timeline
            if event.is_collective
            for leaf in communication.read(event, timeline.rank)
        }
        gradients = moment.gradients(timeline)
        last = {name: passes[-1] for name, passes in gradients.items() if len(passes) == 1}
        known = [name for name in copies if last.get(name) is not None]
        without = [name for name in known if fingerprint(last[name]) not in carried]
        if without and len(without) < len(known):
            return without
    return []


def _parted(moment: Moment) -> Iterable[Finding]:
    """Copies of the step before that are none any more."""
    if moment.before is None:
        return
    weights = _tables(moment)
    wrong = {}
    for name in _copies(moment, moment.before.weights):
        leaves = _apart(weights, name)
        if leaves is not None:
            wrong[name] = leaves
    if not wrong:
        return
    name, leaves = next(iter(wrong.items()))
    rank = _minority(leaves)
    event = _event_of(moment, moment.timelines[rank], name)
    yield moment.finding(
        moment.timelines[rank],
        event,
        "replica",
        Wording(
            "{} parameters were the same on all ranks before the last step and are not any more: {}",
            len(wrong),
            listed(list(wrong)),
        ),
        where=name,
        evidence=_by_rank(leaves) | {"parameters": list(wrong)[:50]},
    )


def _calls(moment: Moment) -> Iterable[Finding]:
    """The first call that takes the same tensors on two ranks and gives another result."""
    ranks = list(moment.timelines)
    one = moment.timelines[ranks[0]]
    for rank in ranks[1:]:
        other = moment.timelines[rank]
        for event in one:
            twin = other.by_name.get(event.name)
            if twin is None or event.direction not in ("forward", "recompute") or event.parts.kind != "api":
                continue
            found = _same_in_other_out(event, twin)
            if found is not None:
                random = operation(event.stem) in operators.RANDOM_PER_RANK
                why = (
                    "its random numbers are not the same on the ranks"
                    if random
                    else "the machine of one of them, or what the call reads besides its arguments, is at fault"
                )
                yield moment.finding(
                    other,
                    twin,
                    "replica",
                    Wording(
                        "{} takes the same tensors on ranks {} and {}, its results differ: {}",
                        event.name,
                        one.rank,
                        rank,
                        why,
                    ),
                    evidence={str(one.rank): measured(found[0]), str(rank): measured(found[1])},
                )
                return


def _same_in_other_out(event: Event, twin: Event) -> tuple[Leaf, Leaf] | None:
    if event.is_collective or event.parts.owner == "Function" or event.children:
        return None
    given, others = event.inputs(), twin.inputs()
    tensors_in = [leaf for leaf in floats(given) if distinct(leaf)]
    if not tensors_in or [slot for slot, _ in given] != [slot for slot, _ in others]:
        return None
    for (_, left), (_, right) in zip(given, others, strict=True):
        if isinstance(left, dict) and "dtype" in left:
            if not (isinstance(right, dict) and "dtype" in right and "digest" in left and _equal([left, right])):
                return None
        elif left != right:
            return None
    random = operation(event.stem) in operators.RANDOM_PER_RANK
    allowed = 0.0 if random else of_a_repeat(event)
    for left, right in zip(floats(event.outputs()), floats(twin.outputs()), strict=False):
        if _equal([left, right]) or left.get("shape") != right.get("shape"):
            continue
        if has_values(left) and has_values(right) and of_statistics(left, right) > allowed:
            return left, right
    return None


def _minority(leaves: dict[Rank, Leaf]) -> Rank:
    """The rank that is unlike the others; the last one where there is no majority."""
    marks = {rank: fingerprint(leaf) for rank, leaf in leaves.items()}
    counts = {mark: list(marks.values()).count(mark) for mark in marks.values()}
    least = min(counts.values())
    return [rank for rank in marks if counts[marks[rank]] == least][-1]


def _is_noise(leaves: dict[Rank, Leaf]) -> bool:
    first, *rest = leaves.values()
    allowed = of_copies(first)
    return all(0.0 < of_statistics(first, leaf) <= allowed for leaf in rest)


def _common_ratio(found: list[dict[Rank, Leaf]]) -> float | None:
    """The factor between the first two ranks, if it is the same for all parameters."""
    ratios = []
    for leaves in found:
        first, second, *_ = leaves.values()
        one, other = first.get("Norm"), second.get("Norm")
        if not isinstance(one, (int, float)) or not isinstance(other, (int, float)) or not other:
            return None
        ratios.append(one / other)
    return ratios[0] if is_one_factor(ratios) else None


def _by_rank(leaves: dict[Rank, Leaf]) -> dict[str, object]:
    return {"by_rank": {str(rank): measured(leaf) for rank, leaf in leaves.items()}}
