"""Two checkpoints, parameter by parameter: pairs, measures, what is stale, and the order of what matters."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from msprobe import engine
from msprobe.coverage import Coverage, NotRead
from msprobe.engine import ALONE, Workers
from msprobe.environment.checkpoint.contents import SECTIONS, Checkpoint, Section
from msprobe.environment.checkpoint.copies import without_copies
from msprobe.environment.checkpoint.keys import with_common_keys, with_keys_of, without_words_of_one_optimizer
from msprobe.environment.checkpoint.measuring import MeasureKind, ParameterMeasures, measure
from msprobe.environment.checkpoint.naming import (
    ParameterPair,
    apply_map,
    in_same_words,
    pair_up,
    pair_up_below_keys,
    read_map,
)
from msprobe.environment.checkpoint.opening import open_checkpoint
from msprobe.environment.checkpoint.optimizer_states import on_common_terms
from msprobe.environment.checkpoint.tensors import CheckpointTensor, Replicas
from msprobe.errors import MsprobeError
from msprobe.messages import joined, said
from msprobe.store.dtypes import ELEMENT_TYPES

_BYTES_A_JOB = 256 << 20
_PAIRS_A_JOB = 2000
_MOST_EXCHANGED = 4
_MOST_FACTS = 5
_OPTIMIZER = "optimizer state"
_NUMBERS = re.compile(r"(?:.*\.)?param_groups\.\d+\.(?:params|param_names)(?:\.\d+)?$")
# What Megatron calls a piece, behind which its number of all pieces comes: rng_state/shard_0.1_1.2
_SHARD = re.compile(r"([^./]*/shard_([\d.]+)_)")
#: What matters first comes first.
ORDER: tuple[MeasureKind, ...] = (
    "unreadable", "missing", "extra", "other shape", "not finite", "permuted", "transposed", "exchanged", "scaled",
    "stale",
    "reshaped",
    "changed", "padded", "rounded", "equal",
)  # fmt: skip
#: What two checkpoints of the same weights may differ in.
HARMLESS: frozenset[MeasureKind] = frozenset({"equal", "rounded", "padded"})
_MAY_BE_EXCHANGED: frozenset[MeasureKind] = frozenset({"changed", "permuted", "scaled"})


@dataclass(frozen=True)
class CheckpointRequest:
    """What to compare.

    ``names``: ``auto``, ``none`` or a YAML file of names. ``sections``: weights alone, or what else. ``earlier``: a
    checkpoint
    that came before the first; what the second has unchanged of it is stale.
    """

    first: str
    second: str
    names: str = "auto"
    sections: tuple[Section, ...] = SECTIONS
    allow_missing: bool = False
    earlier: str | None = None


@dataclass(frozen=True)
class CheckpointComparison:
    """The answer: rows with what matters first."""

    first: Checkpoint
    second: Checkpoint
    rows: list[ParameterMeasures]
    notes: list[str] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)

    def of(self, *kinds: MeasureKind, section: str | None = None) -> list[ParameterMeasures]:
        """Rows of these kinds."""
        return [row for row in self.rows if row.kind in kinds and section in (None, row.section)]

    @property
    def counts(self) -> dict[str, int]:
        """How many rows of each kind; kinds that do not occur are left out."""
        counted = Counter(row.kind for row in self.rows)
        return {kind: counted[kind] for kind in ORDER if counted[kind]}

    @property
    def replicas(self) -> list[ParameterMeasures]:
        """Parameters whose copies on several ranks are not the same."""
        return [row for row in self.rows if any(row.replicas_differ)]

    @property
    def differs(self) -> bool:
        """True if something is not what two checkpoints of the same state may differ in."""
        return bool(self.replicas) or any(row.kind not in HARMLESS for row in self.rows)


@dataclass(frozen=True)
class _Job:
    pairs: tuple[tuple[Section, ParameterPair, CheckpointTensor | None], ...]


def compare_checkpoints(
    request: CheckpointRequest, workers: Workers = ALONE, progress: Callable[[str], None] = lambda text: None
) -> CheckpointComparison:
    """Compare two checkpoints; raises MsprobeError with what is wrong with each of the inputs."""
    first, second, earlier = _open(request)
    if request.names == "auto":
        first, second = in_same_words(first, second)
    elif request.names != "none":
        first = apply_map(first, read_map(request.names))
    notes = [f'"{checkpoint.path}": {note}' for checkpoint in (first, second) for note in checkpoint.notes]
    before = {pair.name: pair.second for pair in pair_up(first.weights, earlier.weights)} if earlier else {}
    (first, tied), (second, tied_too) = without_copies(first, second), without_copies(second, first)
    notes += tied + tied_too
    states = on_common_terms(first, second)
    first, second = replace(first, optimizer=states[0]), replace(second, optimizer=states[1])
    notes += states[2]
    not_read = [
        NotRead(said("what-of-checkpoint", name, checkpoint.path), why)
        for checkpoint in (first, second)
        for name, why in checkpoint.unread.items()
    ]
    work: list[tuple[Section, ParameterPair, CheckpointTensor | None]] = []
    rows: list[ParameterMeasures] = []
    numbers: list[str] = []
    for section in request.sections:
        ours, two = first.section(section), second.section(section)
        if section in ("optimizer", "random") and bool(ours) != bool(two):
            has, lacks = (first, second) if ours else (second, first)
            what = said("section-state", section)
            notes.append(said("holds-no-state", lacks.path, what))
            not_read.append(NotRead(said("what-of-checkpoint", what, has.path), said("holds-none", lacks.path)))
            continue
        if section == "optimizer":
            ours, two = without_words_of_one_optimizer(ours, two)
        if section in ("optimizer", "other"):
            two = with_keys_of(ours, two)
        if section == "other":
            ours, two, alone, numbers = with_common_keys(ours, two)
            not_read += [
                NotRead(
                    said("what-of-checkpoint", key, (first, second)[side].path),
                    said("holds-none", (second, first)[side].path),
                )
                for side, key in alone
            ]
        pairs = (pair_up_below_keys if section == "other" else pair_up)(ours, two)
        if section == "random":
            pairs, further = _only_common_ranks(pairs)
            notes += further
        for pair in pairs:
            if pair.first is None or pair.second is None:
                rows.append(_alone(section, pair))
            else:
                work.append((section, pair, before.get(pair.name) if section == "weights" else None))
    jobs = list(_jobs(work))

    def show_count(number: int) -> None:
        what = said("parameters-measured", sum(len(job.pairs) for job in jobs[:number]))
        progress(said("job-of-jobs", what, number + 1, len(jobs)))

    for measures in engine.run(_measure, jobs, workers, show_count):
        rows += measures
    rows, remarks = _by_number(rows, first, second)
    notes += remarks
    rows = _exchanged(rows, work)
    rows, more = _stale(rows, first, second)
    rows.sort(key=_weight)
    not_read += [NotRead(_OPTIMIZER, reason) for reason in states[3]]
    if request.sections == SECTIONS:
        more += _facts(first, second, numbers)
    read = Counter(row.section for row in rows if row.kind != "unreadable")
    return CheckpointComparison(first, second, rows, notes + more, Coverage(dict(read), tuple(not_read)))


def _by_number(
    rows: list[ParameterMeasures], first: Checkpoint, second: Checkpoint
) -> tuple[list[ParameterMeasures], list[str]]:
    """States of the optimizer paired by the numbers of their parameters, where more of them agree so than by names.

    The names follow from the order of the weights, which a program may have saved in a different one.
    """
    own = [row for row in rows if row.section == "optimizer"]
    bad = sum(row.kind not in HARMLESS for row in own)
    if not bad or not (first.numbers or second.numbers):
        return rows, []
    sides = [
        {
            checkpoint.numbers.get(name, name): (name, tensor)
            for name, tensor in checkpoint.optimizer.items()
            if not _NUMBERS.match(name)
        }
        for checkpoint in (first, second)
    ]
    if sides[0].keys() != sides[1].keys():
        return rows, []
    measures = []
    for key, (name, tensor) in sides[0].items():
        other, partner = sides[1][key]
        measures.append(
            _measure_pair("optimizer", ParameterPair(other if name == key else name, tensor, partner), None)
        )
    if sum(row.kind not in HARMLESS for row in measures) >= bad:
        return rows, []
    return [row for row in rows if row.section != "optimizer"] + measures, [said("states-paired-by-number")]


def _facts(first: Checkpoint, second: Checkpoint, numbers: list[str]) -> list[str]:
    """Notes on the single values that differ, and on the keys of those that one side alone has, with ``numbers``;
    arguments of a launch have a tool of their own.
    """
    apart = [
        f"{name} {first.facts[name]} | {second.facts[name]}"
        for name in first.facts
        if name in second.facts and not name.startswith("args.") and first.facts[name] != second.facts[name]
    ]
    if first.iteration != second.iteration and None not in (first.iteration, second.iteration):
        apart.insert(0, f"iteration {first.iteration} | {second.iteration}")
    keys = [{name.partition(".")[0] for name in checkpoint.facts} - {"args"} for checkpoint in (first, second)]
    alone = [*dict.fromkeys(numbers), *sorted(keys[0] ^ keys[1])]
    lists = (("facts-differ", apart), ("facts-of-one-side", alone))
    return [said(name, _some(names_found)) for name, names_found in lists if names_found]


def _some(texts: list[str]) -> str:
    rest = texts[_MOST_FACTS:]
    return joined("; ", texts[:_MOST_FACTS]) + (said("so-many-more-behind", len(rest)) if rest else "")


def _only_common_ranks(pairs: list[ParameterPair]) -> tuple[list[ParameterPair], list[str]]:
    """Random states of ranks that both sides have; a layout of more ranks has more of them."""
    sides: tuple[set[str], set[str]] = set(), set()
    for pair in pairs:
        for side, tensor in zip(sides, (pair.first, pair.second), strict=True):
            if tensor is not None:
                side.add(_rank_of(pair.name))
    alone = sides[0] ^ sides[1]
    if not alone:
        return pairs, []
    some = ", ".join(sorted(alone)[:3]) + (" and others" if len(alone) > 3 else "")
    return [pair for pair in pairs if _rank_of(pair.name) not in alone], [said("random-states-of-one-side", some)]


def _rank_of(name: str) -> str:
    """What comes before the state of a generator: the rank, or the file of one."""
    match = _SHARD.match(name)
    if match is None:
        return name.partition(".")[0]
    return match[1] + ".".join(name[match.end() :].split(".")[: match[2].count(".") + 1])


def _open(request: CheckpointRequest) -> tuple[Checkpoint, Checkpoint, Checkpoint | None]:
    checkpoints: list[Checkpoint | None] = []
    problems: list[MsprobeError] = []
    for path in (request.first, request.second, request.earlier):
        try:
            checkpoints.append(None if path is None else open_checkpoint(path, request.allow_missing))
        except MsprobeError as problem:
            problems.append(problem)
    if problems:
        texts = dict.fromkeys(problem.message for problem in problems)
        raise type(problems[0])(joined(" ", texts)) from problems[0]
    first, second, earlier = checkpoints
    assert first is not None
    assert second is not None
    return first, second, earlier


def _jobs(work: list[tuple[Section, ParameterPair, CheckpointTensor | None]]) -> Iterator[_Job]:
    some: list[tuple[Section, ParameterPair, CheckpointTensor | None]] = []
    size = 0
    for pair_of_work in work:
        nbytes = sum(tensor.nbytes for tensor in (pair_of_work[1].first, pair_of_work[1].second) if tensor is not None)
        if some and (size + nbytes > _BYTES_A_JOB or len(some) >= _PAIRS_A_JOB):
            yield _Job(tuple(some))
            some, size = [], 0
        some.append(pair_of_work)
        size += nbytes
    if some:
        yield _Job(tuple(some))


def _measure(job: _Job) -> list[ParameterMeasures]:
    return [_measure_pair(*pair) for pair in job.pairs]


def _measure_pair(section: Section, pair: ParameterPair, earlier: CheckpointTensor | None) -> ParameterMeasures:
    first, second = pair.first, pair.second
    assert first is not None
    assert second is not None
    try:
        measures = measure(pair.name, first, second)
        files = (_differing(first), _differing(second))
        differ, files_of_both = (bool(files[0]), bool(files[1])), files[0] + files[1]
        if measures.kind == "changed" and earlier is not None and measure(pair.name, earlier, second).kind == "equal":
            measures = replace(measures, kind="stale", detail=said("second-is-earlier"))
    except (MsprobeError, ValueError, TypeError, OverflowError) as problem:
        measures = ParameterMeasures(pair.name, "unreadable", (first.shape, second.shape), (first.dtype, second.dtype))
        text = problem.message if isinstance(problem, MsprobeError) else said("tensor-broken", f"{problem!r:.200}")
        measures, differ, files_of_both = replace(measures, detail=text), (False, False), ()
    except MemoryError:
        measures = ParameterMeasures(pair.name, "unreadable", (first.shape, second.shape), (first.dtype, second.dtype))
        measures, differ, files_of_both = replace(measures, detail=said("tensor-out-of-memory")), (False, False), ()
    return replace(
        measures,
        section=section,
        other_name=pair.other_name,
        replicas_differ=differ,
        differing_files=files_of_both,
    )


def _differing(tensor: CheckpointTensor) -> tuple[str, ...]:
    return tensor.differing() if isinstance(tensor, Replicas) else ()


def _alone(section: Section, pair: ParameterPair) -> ParameterMeasures:
    """What one side alone has: the second lacks it (missing), or the first does (extra)."""
    first, two = pair.first, pair.second
    return ParameterMeasures(
        pair.name,
        "extra" if first is None else "missing",
        (first.shape if first else None, two.shape if two else None),
        (first.dtype if first else None, two.dtype if two else None),
        section=section,
    )


# A section and a name in it.
_Place = tuple[str, str]


def _exchanged(
    rows: list[ParameterMeasures], work: list[tuple[Section, ParameterPair, CheckpointTensor | None]]
) -> list[ParameterMeasures]:
    """Of what changed, that which has what stands elsewhere on the other side: two norms, or layers in another order.

    ``exchanged`` are those whose places make a circle; one that was written over has its source in the detail.
    """
    pairs: dict[_Place, ParameterPair] = {(section, pair.name): pair for section, pair, _ in work}
    by_norm: dict[tuple[Any, ...], list[ParameterMeasures]] = {}
    for row in rows:
        # A single number is that of others by chance.
        if row.norms and row.norms[0] and row.shape[0] and math.prod(row.shape[0]) > 1:
            by_norm.setdefault((row.shape[0], row.norms[0]), []).append(row)
    source: dict[_Place, _Place] = {}
    for row in rows:
        if row.kind not in _MAY_BE_EXCHANGED or not row.norms:
            continue
        own = pairs.get((row.section, row.name))
        candidates = by_norm.get((row.shape[1], row.norms[1]), ())
        # In its own section first: weights have what is in weights, and then what is in an average of them.
        for other in sorted(candidates, key=lambda other_row: other_row.section != row.section)[:_MOST_EXCHANGED]:
            theirs = pairs.get((other.section, other.name))
            if other is row or own is None or own.second is None or theirs is None or theirs.first is None:
                continue
            if _is_equal(row.name, theirs.first, own.second):
                source[row.section, row.name] = other.section, other.name
                break
    exchanged = []
    for row in rows:
        place = source.get((row.section, row.name))
        if place is not None:
            kind: MeasureKind = "exchanged" if _is_circle(row, source) else row.kind
            row = replace(row, kind=kind, factor=None, detail=said("second-has-value-of", place[1]))
        exchanged.append(row)
    return exchanged


def _is_circle(row: ParameterMeasures, source: dict[_Place, _Place]) -> bool:
    own: _Place = row.section, row.name
    place = source.get(own)
    seen: set[_Place] = set()
    while place is not None and place != own and place not in seen:
        seen.add(place)
        place = source.get(place)
    return place == own


def _is_equal(name: str, first: CheckpointTensor, second: CheckpointTensor) -> bool:
    try:
        return measure(name, first, second).kind == "equal"
    except (MsprobeError, MemoryError):
        return False


def _stale(
    rows: list[ParameterMeasures], first: Checkpoint, second: Checkpoint
) -> tuple[list[ParameterMeasures], list[str]]:
    """Between two iterations of a training, weights that alone stayed as they were were not updated."""
    if first.iteration is None or second.iteration is None or first.iteration == second.iteration:
        return rows, []
    trained = [row for row in rows if row.section == "weights" and _is_trainable(row)]
    still = {id(row) for row in trained if row.kind == "equal"}
    if not still:
        return rows, []
    span = said("iterations-from-to", first.iteration, second.iteration)
    if len(still) * 2 > len(trained):
        return rows, [said("weights-same-between", len(still), len(trained), span)]
    return [
        replace(row, kind="stale", detail=said("not-updated-between", span)) if id(row) in still else row
        for row in rows
    ], []


def _is_trainable(row: ParameterMeasures) -> bool:
    kind = ELEMENT_TYPES.get(row.dtype[0] or "")
    return (
        kind is not None
        and kind.name.startswith(("float", "bfloat"))
        and row.numel[0] > 1
        and "running_" not in row.name
    )


def _weight(row: ParameterMeasures) -> tuple[int, float, str]:
    sections = {"weights": 0, "optimizer": 1, "other": 2, "random": 3}
    relative = row.relative if row.relative is not None and not math.isnan(row.relative) else math.inf
    if row.kind == "scaled" and row.factor:
        relative = abs(row.factor - 1)
    return ORDER.index(row.kind) * len(sections) + sections[row.section], -relative, row.name
