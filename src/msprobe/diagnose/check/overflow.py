"""Where a NaN or an infinity is born: the first call with sound inputs and a result that is not, over all ranks.

Infinities have good uses (a mask of minus infinity, the logarithm of a mask), so an infinity counts only if it is not
masked away again; a NaN counts always, and a call that makes a NaN of somebody else's mask is its birthplace. Between
ranks bad values travel through collectives and messages; what arrives is nobody's fault on this rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.check import communication
from msprobe.diagnose.check.communication import Exchange, Node, Rank
from msprobe.diagnose.check.moment import Moment
from msprobe.diagnose.check.overflow_words import reason
from msprobe.diagnose.check.values import measured, tensors
from msprobe.diagnose.differences.records import is_integer, numbers
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.tensor_info import TensorInfo
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.diagnose.steps.unwritten import reads_unwritten
from msprobe.diagnose.wording import Wording


@dataclass
class Birth:
    """A call that makes what its inputs do not have: ``nan``, ``inf`` or ``-inf``."""

    event: Event
    value: str
    from_infinity: frozenset[str] = frozenset()
    dismissed: bool = False


@dataclass
class Origin:
    """The first bad value of a rank, and whom it reached: rank -> the call there that got it."""

    rank: Rank
    event: Event
    value: str
    how: str
    reached: dict[Rank, Event] = field(default_factory=dict)


def bad(leaf: dict[str, Any]) -> frozenset[str]:
    """Which values that are not finite a tensor is known to have."""
    found = numbers(leaf)
    kinds: set[str] = set()
    if leaf.get("nan"):
        kinds.add("nan")
    if found is not None:
        largest, least = found[0], found[1]
        if largest != largest or least != least:
            kinds.add("nan")
        if largest == float("inf"):
            kinds.add("inf")
        if least == float("-inf"):
            kinds.add("-inf")
    if not kinds and leaf.get("inf"):
        kinds.add("inf")
    return frozenset(kinds)


def check(moment: Moment) -> Iterable[Finding]:
    """Every birth that no other birth explains, in the order of execution over ranks."""
    watchers = {rank: _Watcher(timeline) for rank, timeline in moment.timelines.items()}
    if not any(watcher.any for watcher in watchers.values()):
        return
    origins = _origins(Exchange(moment.timelines), watchers)
    matters = any(watcher.counts for watcher in watchers.values())
    for origin in origins:
        if origin.how == "bad_input" and not matters:
            continue
        timeline = moment.timelines[origin.rank]
        event = origin.event
        skipped = any(step.record.get("skipped") for step in moment.optimizer_steps(timeline))
        name = {"nan": "NaN", "inf": Wording("infinity"), "-inf": "minus infinity"}[origin.value]
        if origin.how == "bad_input":
            message = Wording("{} is in the input of {} already, and no recorded call made it", name, event.name)
            if reads_unwritten(event):
                message = Wording("{} comes out of {}, which reads memory that nobody has written", name, event.name)
        elif origin.how == "communication":
            message = Wording("{} is born in {}: what the ranks gave was finite, the result is not", name, event.name)
        else:
            message = Wording("{} is born in {}: {}", name, event.name, reason(timeline, event, origin.value))
        if skipped:
            message += "; the gradient scaler left this step out"
        yield moment.finding(
            timeline,
            event,
            "overflow",
            message,
            evidence={
                "birth": origin.how,
                "value": origin.value,
                "inputs": [measured(leaf) for leaf in tensors(event.inputs())[:4]],
                "outputs": [measured(leaf) for leaf in tensors(event.outputs())[:4]],
                "reached": {str(rank): one.name for rank, one in origin.reached.items()},
            },
            harmless=skipped or not matters,
        )


def births(timeline: Timeline) -> dict[Event, str]:
    """The calls of one rank in which a NaN or an infinity is born that counts, and which of them: ``nan``, ``inf``,
    ``-inf``. What other ranks sent is not looked at.
    """
    return {event: birth.value for event, birth in _Watcher(timeline).births.items() if not birth.dismissed}


class _Watcher:
    """The bad values of one rank."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.rank = timeline.rank
        self.given: dict[Event, frozenset[str]] = {}
        self.made: dict[Event, frozenset[str]] = {}
        for event in timeline:
            if _is_finite(event):
                continue
            given, made = self._reads(event), self._writes(event)
            if made and reads_unwritten(event):
                given |= made  # It was there before, or what stood there made it.
            if given:
                self.given[event] = given
            if made:
                self.made[event] = made
        self.any = bool(self.given or self.made)
        self.births = self._births() if self.any else {}
        self.counts = self.any and self._counts()

    def _reads(self, event: Event) -> frozenset[str]:
        if event.is_collective:
            return _union(communication.read(event, self.rank))
        word = operation(event.stem)
        if event.parts.kind == "api" and (word in operators.FILLS or word in operators.OVERWRITES):
            slots = event.inputs()[1:]
            return frozenset() if word in operators.FILLS else _union(tensors(slots))
        return _union([*tensors(event.inputs()), *tensors(event.parameters())])

    def _writes(self, event: Event) -> frozenset[str]:
        if event.is_collective:
            return _union(communication.written(event, self.rank))
        if event.parts.kind == "api" and operation(event.stem) in operators.FILLS:
            return frozenset()
        made = _union(tensors(event.outputs()))
        if made and event.parts.kind == "api" and operation(event.stem) in operators.READS_MEMORY_OTHERWISE:
            # What moves values makes none; memory that is not filled yet may look like anything.
            made &= self._reads(event) | ({"inf", "-inf"} if _puts_infinity(event) else set())
        return made

    def _births(self) -> dict[Event, Birth]:
        found: dict[Event, Birth] = {}
        for event, made in self.made.items():
            given = self.given.get(event, frozenset())
            new = made - given
            if not new or "nan" in given or event.is_collective:
                continue
            if event.is_module and any(child in self.made for child in event.children):
                continue  # What runs inside says it better.
            if "nan" in new:
                found[event] = Birth(event, "nan", given)
            elif not given and not _puts_infinity(event):
                found[event] = Birth(event, "inf" if "inf" in new else "-inf")
            elif given and not _puts_infinity(event) and _is_loss(event):
                found[event] = Birth(event, "inf" if "inf" in new else "-inf", given)
        for birth in found.values():
            if birth.value != "nan":
                birth.dismissed = self._dismissed(birth)
        return found

    def _dismissed(self, birth: Birth) -> bool:
        """True if an infinity is masked away again, and nothing bad came of it."""
        gone = False
        for event, given in self.given.items():
            if event.index <= birth.event.index or birth.value not in given or event.parts.kind != "api":
                continue
            made = self.made.get(event, frozenset())
            if "nan" in made:
                return False
            word = operation(event.stem)
            if _is_loss(event) and made:
                return False
            whole = all(is_integer(leaf) for leaf in tensors(event.outputs()))
            if not made and (
                whole or word in operators.SELECTS or (word in operators.FORGETS_INFINITY and birth.value == "-inf")
            ):
                gone = True
        return gone

    def _counts(self) -> bool:
        """True if a bad value reaches what counts: a loss, a gradient, a weight, or the end of the recording."""
        last = next((event for event in reversed(self.timeline.events) if event.direction == "forward"), None)
        for event in self.made:
            if event.direction in ("backward", "gradient", "optimizer") or event is last:
                return True
            if event.is_collective or _is_loss(event):
                return True
        return any(event.is_collective for event in self.given)


def _is_finite(event: Event) -> bool:
    """True if no tensor of a record is known to have a bad value, as in most."""
    for slots in (event.inputs(), event.outputs(), event.parameters()):
        for _, leaf in slots:
            if not (type(leaf) is TensorInfo and leaf.plain) and is_tensor(leaf) and bad(leaf):
                return False
    return True


def _union(leaves: Iterable[dict[str, Any]]) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for leaf in leaves:
        found |= bad(leaf)
    return found


def _puts_infinity(event: Event) -> bool:
    """True if a call is told to put an infinity somewhere."""
    if event.parts.kind != "api":
        return False
    if operation(event.stem) in operators.MASKS and event.direction == "forward":
        return True
    return any(
        isinstance(leaf, dict) and leaf.get("value") in (float("inf"), float("-inf"), "Infinity", "-Infinity")
        for _, leaf in event.inputs()
    )


def _is_loss(event: Event) -> bool:
    """True if a call makes a number that gradients go back from."""
    return event.direction == "forward" and any(
        leaf.get("shape") == [] and leaf.get("requires_grad") for leaf in tensors(event.outputs())
    )


def _origins(exchange: Exchange, watchers: dict[Rank, _Watcher]) -> list[Origin]:
    found: list[Origin] = []
    tainted: dict[Rank, Origin] = {}
    seen: dict[Rank, set[str]] = {rank: set() for rank in watchers}
    pending: dict[Rank, Birth] = {}
    for node in exchange.in_order():
        if node.communicates:
            _exchange(node, watchers, tainted, seen, pending, found)
            continue
        ((rank, event),) = node.members.items()
        watcher = watchers[rank]
        given = watcher.given.get(event, frozenset())
        made = watcher.made.get(event, frozenset())
        if rank not in tainted and (given or made):
            birth = watcher.births.get(event)
            moves = event.parts.kind == "api" and operation(event.stem) in operators.READS_MEMORY_OTHERWISE
            if "nan" in given and "nan" not in seen[rank]:
                if moves:
                    continue  # It may be memory that is not filled yet; who computes with it will tell.
                tainted[rank] = Origin(rank, event, "nan", "bad_input")
                found.append(tainted[rank])
            elif birth is not None and not birth.dismissed:
                tainted[rank] = Origin(rank, event, birth.value, "compute")
                found.append(tainted[rank])
        seen[rank] |= made
    return found


def _exchange(
    node: Node,
    watchers: dict[Rank, _Watcher],
    tainted: dict[Rank, Origin],
    seen: dict[Rank, set[str]],
    pending: dict[Rank, Birth],
    found: list[Origin],
) -> None:
    """What a collective carries from rank to rank, or makes itself."""
    givers = [rank for rank, event in node.members.items() if watchers[rank].given.get(event)]
    getters = [rank for rank, event in node.members.items() if watchers[rank].made.get(event)]
    for rank in givers:
        if rank not in tainted and "nan" in watchers[rank].given[node.members[rank]] and "nan" not in seen[rank]:
            tainted[rank] = Origin(rank, node.members[rank], "nan", "bad_input")
            found.append(tainted[rank])
    source = next((tainted[rank] for rank in givers if rank in tainted), None)
    fresh = [rank for rank in getters if rank not in tainted]
    if source is None and not givers and fresh and node.whole:
        rank = fresh[0]
        event = node.members[rank]
        kinds = watchers[rank].made[event]
        source = Origin(rank, event, "nan" if "nan" in kinds else "inf" if "inf" in kinds else "-inf", "communication")
        found.append(source)
    for rank in fresh:
        if source is not None:
            tainted[rank] = source
            if rank != source.rank:
                source.reached[rank] = node.members[rank]
    for rank in getters:
        seen[rank] |= watchers[rank].made[node.members[rank]]
