"""What should be the same on all ranks and is not.

Which parameters are copies of each other is not recorded. Those that have the same values on all ranks before the step
are (constants aside: shares of a bias may all begin with zeros); they must get the same gradient at the optimizer, with
the same settings, and be the same after the step. Those that get the same gradient on all ranks are copies too, and
must have had the same values. A call that takes the same tensors on all ranks must make the same of them, a dropout
included. Ranks with copies of a whole model should not all get the same batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msprobe.compare.entry_names import operation, read_name
from msprobe.diagnose import operators
from msprobe.diagnose.check.across import Across
from msprobe.diagnose.check.moment import Leaf
from msprobe.diagnose.check.replica import Signatures, is_repeatable, mark
from msprobe.diagnose.check.values import distinct, floats, has_values, measured
from msprobe.diagnose.differences.records import fingerprint, statistics_difference
from msprobe.diagnose.differences.words import listed
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.communication import Rank
from msprobe.diagnose.steps.optimizer import IDLE_SETTINGS, value_of
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance.check_limits import copies_limit, is_one_factor, may_have_two_values, repeat_limit
from msprobe.messages import said

#: Tensors by rank and name of the parameter.
Tables = Mapping[Rank, Mapping[str, Leaf]]


def check(across: Across) -> Iterable[Finding]:
    """Weights that differ before the step, calls on equal inputs, gradients at the optimizer, its settings, weights
    that parted; and batches that are the same.
    """
    for ranks in _groups(across):
        part = across.of(ranks)
        for find in (_weights, _calls, _gradients, _settings, _parted, _inputs):
            findings = list(find(part))
            yield from findings
            if findings:
                break


def _settings(across: Across) -> Iterable[Finding]:
    """Settings of optimizers that differ for copies."""
    return _settings_apart(across, _copies(across, _tables(across)))


def _inputs(across: Across) -> Iterable[Finding]:
    """One batch for all ranks that hold copies of the whole model."""
    weights = _tables(across)
    copies = [name for name in _copies(across, weights) if all(name in table for table in weights.values())]
    # Constants (the weights of norms) are copies where all else is.
    same = {name for name in weights[next(iter(weights))] if copies and not _unlike(across, weights, name)}
    return _same_batch(across, same)


def _groups(across: Across) -> list[tuple[Rank, ...]]:
    """The groups of ranks that exchange data, and all ranks together; larger ones first."""
    everyone = tuple(across.replicas)
    groups: dict[tuple[Rank, ...], None] = {everyone: None}
    for group in across.exchange.groups:
        members = set(group)
        groups.setdefault(tuple(rank for rank in everyone if rank in members))
    return sorted((ranks for ranks in groups if len(ranks) > 1), key=lambda ranks: -len(ranks))


def _copies(across: Across, tables: Tables) -> list[str]:
    """Parameters with the same values on all ranks that have them (two at least)."""
    names_alike = []
    names = dict.fromkeys(name for table in tables.values() for name in table)
    unsure = []
    for name in names:
        leaves = [tables[rank][name] for rank in across.replicas if name in tables.get(rank, {})]
        if len(leaves) > 1 and _equal(leaves) and not any(map(_is_divided, _objects(leaves))):
            if _single(leaves[0]) or (distinct(leaves[0]) and _is_specific(leaves[0])):
                names_alike.append(name)
            elif _is_in_norm(across, name):
                unsure.append(name)
    if names_alike and _is_pipeline(across) and not any(_unlike(across, tables, name) for name in names):
        return []  # Stages that begin from one seed are no copies of each other.
    # Norms begin as ones and zeros, copies or not; ranks with the same model and tokens hold copies.
    first = next(iter(across.replicas.values())).weights
    same_model = all(
        replica.weights is first or set(replica.weights) == set(first) for replica in across.replicas.values()
    )
    if unsure and same_model and (names_alike or _same_tokens(across)):
        names_alike = [name for name in names if name in names_alike or name in unsure]
    return names_alike


def _same_tokens(across: Across) -> bool:
    """True if all ranks look up the same whole numbers first."""
    marks = {replica.tokens for replica in across.replicas.values()}
    return len(marks) == 1 and None not in marks


def _unlike(across: Across, tables: Tables, name: str) -> bool:
    leaves = [tables[rank][name] for rank in across.replicas if name in tables.get(rank, {})]
    return len(leaves) > 1 and not _equal(leaves)


def _is_divided(leaf: Leaf) -> bool:
    """True for a rank's share of a tensor that is divided among ranks (a DTensor)."""
    placements = leaf.get("placements")
    return isinstance(placements, list) and not all("Replicate" in str(word) or str(word) == "R" for word in placements)


def _is_pipeline(across: Across) -> bool:
    """True if ranks send each other messages."""
    messages = across.exchange.has_messages
    return any(messages[rank] for rank in across.replicas)


def _equal(leaves: list[Leaf]) -> bool:
    first = leaves[0]
    # What is the same on many ranks is one object, as a rule.
    return all(leaf is first or mark(leaf) == mark(first) for leaf in _objects(leaves))


def _objects(leaves: list[Leaf]) -> list[Leaf]:
    """Those that are objects of their own."""
    return list({id(leaf): leaf for leaf in leaves}.values())


def _single(leaf: Leaf) -> bool:
    """A single number that is no usual beginning."""
    return leaf.get("shape") in ([], [1]) and leaf.get("Max") not in (0, 1, 0.0, 1.0)


def _is_specific(leaf: Leaf) -> bool:
    """True if what was recorded distinguishes a tensor from others of its sort. The first step of Adam moves all
    elements of a norm by one size, up or down, so that two of them have the same statistics as soon as as many go up.
    """
    return "digest" in leaf or "md5" in leaf or not may_have_two_values(leaf)


def _is_in_norm(across: Across, name: str) -> bool:
    """True for parameters of a norm, which no common layout divides among ranks."""
    for replica in across.replicas.values():
        if name in replica.weights:
            return read_name(replica.weights[name]).owner.lower().endswith(("norm", "rmsnorm", "layernorm"))
    return False


def _tables(across: Across) -> Tables:
    """The parameters of all ranks."""
    return {rank: replica.parameters for rank, replica in across.replicas.items()}


def _optimizers(across: Across) -> Tables:
    return {rank: replica.gradients for rank, replica in across.replicas.items()}


def _apart(tables: Tables, name: str) -> dict[Rank, Leaf] | None:
    """A tensor by rank, if it is finite on all ranks and not the same."""
    leaves = {rank: table[name] for rank, table in tables.items() if name in table}
    first = next(iter(leaves.values()), None)
    if all(leaf is first for leaf in leaves.values()):
        return None  # as on most ranks, however many
    if any(map(_is_divided, leaves.values())) or len({str(leaf.get("shape")) for leaf in leaves.values()}) > 1:
        return None
    if len(leaves) < 2 or not all(map(has_values, leaves.values())) or _equal(list(leaves.values())):
        return None
    return leaves


def _all_apart(tables: Tables, names: Iterable[str]) -> dict[str, dict[Rank, Leaf]]:
    """Those of these parameters that are not the same on all ranks, by rank."""
    apart = ((name, _apart(tables, name)) for name in names)
    return {name: leaves for name, leaves in apart if leaves is not None}


def _weights(across: Across) -> Iterable[Finding]:
    """Copies, by their gradients, whose values differ before the step."""
    arrived = _optimizers(across)
    moved = (
        name
        for name in _copies(across, arrived)
        if any((table.get(name) or {}).get("Norm") for table in arrived.values())
    )
    wrong = _all_apart(_tables(across), moved)
    if wrong:
        others = list(wrong)[1:]
        more = said("so-do-other-parameters", len(others), listed(others)) if others else ""
        yield _weight_finding(across, wrong, said("weight-differs-on-ranks", next(iter(wrong))) + more)


def _weight_finding(across: Across, wrong: dict[str, dict[Rank, Leaf]], message: str) -> Finding:
    """On the first of these parameters, at the rank that is unlike the others."""
    name, leaves = next(iter(wrong.items()))
    rank = _minority(leaves)
    record = across.replicas[rank].shown_by(name)
    evidence = _by_rank(leaves) | {"parameters": list(wrong)[:50]}
    return across.finding(rank, record, "replica", message, where=name, evidence=evidence)


def _gradients(across: Across) -> Iterable[Finding]:
    """Copies, by their values, whose gradients differ when the optimizer takes them."""
    weights, arrived = _tables(across), _optimizers(across)
    apart = _all_apart(arrived, _copies(across, weights))
    wrong = {name: leaves for name, leaves in apart.items() if not _is_noise(leaves)}
    if not wrong:
        return
    copies = [name for name in _copies(across, weights) if all(name in table for table in arrived.values())]
    left_out = _left_out(across, copies)
    name = next((name for name in left_out if name in wrong), next(iter(wrong)))
    leaves = wrong[name]
    rank = _minority(leaves)
    step = across.replicas[rank].optimizers[0][0]
    ratio = _common_ratio(list(wrong.values()))
    how = said("each-by-one-factor", ratio) if ratio else ""
    which = "all" if len(wrong) == len(copies) else said("of-call", len(wrong), len(copies))
    if left_out:
        message = said("gradient-not-reduced", listed(left_out), which)
    else:
        message = said("gradients-differ-on-ranks", which, how, listed(list(wrong)))
    yield across.finding(
        rank,
        step,
        "replica",
        message,
        where=said("named-at", name, step),
        evidence=_by_rank(leaves)
        | {"parameters": left_out[:50] or list(wrong)[:50], "copies": len(copies), "factor": ratio},
    )


def _left_out(across: Across, copies: list[str]) -> list[str]:
    """Copies whose gradient no collective takes, where one takes those of others; empty where that is not seen."""
    for replica in across.replicas.values():
        known = [name for name in copies if name in replica.summed or name in replica.alone]
        without = [name for name in known if name in replica.alone]
        if without and len(without) < len(known):
            return without
    return []


def _parted(across: Across) -> Iterable[Finding]:
    """Copies of the step before that are none any more."""
    if across.before is None:
        return
    before = {rank: earlier.weights for rank, earlier in across.before.items()}
    wrong = _all_apart(_tables(across), _copies(across, before))
    if wrong:
        yield _weight_finding(across, wrong, said("weights-differ-after-step", len(wrong), listed(list(wrong))))


def _calls(across: Across) -> Iterable[Finding]:
    """The first call that takes the same tensors on two ranks and gives another result."""
    first, *others = across.replicas.values()
    for other in others:
        suspects = _may_differ(first.calls, other.calls)
        finding = _first_of(across, first.rank, other.rank, suspects) if suspects else None
        if finding is not None:
            yield finding
            return


def _may_differ(signatures: Signatures, other: Signatures) -> list[str]:
    """The calls of equal inputs and other results, by their signatures."""
    if signatures.names == other.names and signatures.made == other.made:
        return []
    theirs = {name: (given, made) for name, given, made in zip(other.names, other.given, other.made, strict=True)}
    return [
        name
        for name, given, made in zip(signatures.names, signatures.given, signatures.made, strict=True)
        if name in theirs and theirs[name][0] == given and theirs[name][1] != made
    ]


def _first_of(across: Across, rank: Rank, other: Rank, names: list[str]) -> Finding | None:
    """The first of these calls whose results differ beyond rounding."""
    with across.opened(rank) as here, across.opened(other) as there:
        for name in names:
            event, twin = here.by_name[name], there.by_name[name]
            same = _same_in_other_out(event, twin)
            if same is None:
                continue
            random = operation(event.stem) in operators.RANDOM_PER_RANK
            why = (
                "its random numbers are not the same on the ranks"
                if random
                else "the machine of one of them is faulty, or the call reads something besides its arguments"
            )
            return across.finding(
                other,
                name,
                "replica",
                said("ranks-compute-differently", name, rank, other, why),
                evidence={str(rank): measured(same[0]), str(other): measured(same[1])},
            )
    return None


def _same_in_other_out(event: Event, twin: Event) -> tuple[Leaf, Leaf] | None:
    if not is_repeatable(event):
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
    allowed = 0.0 if random else repeat_limit(event)
    for left, right in zip(floats(event.outputs()), floats(twin.outputs()), strict=False):
        if _equal([left, right]) or left.get("shape") != right.get("shape"):
            continue
        if has_values(left) and has_values(right) and statistics_difference(left, right) > allowed:
            return left, right
    return None


def _minority(leaves: dict[Rank, Leaf]) -> Rank:
    """The rank that is unlike the others; the last one where there is no majority."""
    marks = {rank: fingerprint(leaf) for rank, leaf in leaves.items()}
    counts = Counter(marks.values())
    least = min(counts.values())
    return [rank for rank in marks if counts[marks[rank]] == least][-1]


def _is_noise(leaves: dict[Rank, Leaf]) -> bool:
    first, *rest = leaves.values()
    allowed = copies_limit(first)
    return all(0.0 < statistics_difference(first, leaf) <= allowed for leaf in rest)


def _common_ratio(leaves_by_rank: list[dict[Rank, Leaf]]) -> float | None:
    """The factor between the first two ranks, if it is the same for all parameters."""
    ratios = []
    for leaves in leaves_by_rank:
        first, second, *_ = leaves.values()
        norm, other = first.get("Norm"), second.get("Norm")
        if not isinstance(norm, (int, float)) or not isinstance(other, (int, float)) or not other:
            return None
        ratios.append(norm / other)
    return ratios[0] if is_one_factor(ratios) else None


def _by_rank(leaves: dict[Rank, Leaf]) -> dict[str, object]:
    return {"by_rank": {str(rank): measured(leaf) for rank, leaf in leaves.items()}}


def _settings_apart(across: Across, copies: Sequence[str]) -> Iterable[Finding]:
    """The first setting that differs between ranks for parameters that are copies of each other."""
    wanted = set(copies)
    for steps in zip(*(replica.optimizers for replica in across.replicas.values()), strict=False):
        if all(settings is steps[0][1] for _, settings in steps):
            continue  # Equal ones are one object.
        tables = [{name: own for name, own in settings.items() if name in wanted} for _, settings in steps]
        differing = _differing(tables)
        if differing:
            yield _setting_finding(across, list(across.replicas), [name for name, _ in steps], differing)
            return


def _differing(tables: list[dict[str, dict[str, object]]]) -> dict[str, dict[str, list[object]]]:
    """Setting -> parameter -> its value on each rank, where these differ."""
    settings: dict[str, dict[str, list[object]]] = {}
    for name in tables[0]:
        if not all(name in table for table in tables):
            continue
        for key in tables[0][name]:
            values = [value_of(table[name].get(key)) for table in tables]
            if key not in IDLE_SETTINGS and any(value != values[0] for value in values):
                settings.setdefault(key, {})[name] = values
    return settings


def _setting_finding(
    across: Across, ranks: list[Rank], steps: Sequence[str], settings: dict[str, dict[str, list[object]]]
) -> Finding:
    key, parameters = next(iter(settings.items()))
    values = next(iter(parameters.values()))
    counts = Counter(map(str, values))
    least = min(counts.values())
    odd = [place for place, value in enumerate(values) if counts[str(value)] == least][-1]
    usual = next((value for value in values if value != values[odd]), None)
    more = said("so-do", listed(list(settings)[1:])) if len(settings) > 1 else ""
    return across.finding(
        ranks[odd],
        steps[odd],
        "replica",
        said(
            "optimizer-settings-differ-on-ranks",
            ranks[odd],
            key,
            _shown(values[odd]),
            _shown(usual),
            len(parameters),
            listed(list(parameters)),
            more,
        ),
        where=f"{steps[odd]}: {key}",
        evidence={
            "setting": key,
            "by_rank": {str(rank): value for rank, value in zip(ranks, values, strict=True)},
            "parameters": list(parameters)[:50],
        },
    )


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _same_batch(across: Across, copies: set[str]) -> Iterable[Finding]:
    """The model's first pass, if all ranks hold copies of the whole model, train it, and give it the same tensors.

    Ranks that divide the work of one batch take the same tensors rightly: they hold shares of parameters, or exchange
    data in the forward pass (shares of a sequence).
    """
    replicas = list(across.replicas.values())
    if not all(replica.optimizers and replica.trains and not replica.divides for replica in replicas):
        return
    if any(set(replica.weights) - copies or not replica.weights for replica in replicas):
        return
    firsts = [replica.first_pass for replica in replicas]
    first, last = firsts[0], firsts[-1]
    if (
        first is None
        or last is None
        or any(first_pass is None or first_pass.marks != first.marks for first_pass in firsts)
    ):
        return
    ranks: list[Rank] = list(across.replicas)
    yield across.finding(
        ranks[-1],
        last.name,
        "replica",
        said("batch-same-on-ranks", ", ".join(map(str, ranks[:8])), " and more" if len(ranks) > 8 else "", first.name),
        evidence={"cause": "same_batch", "ranks": [str(rank) for rank in ranks], "input": list(first.given)},
    )
