"""How the ranks of a step depend on each other: which calls belong together, and an order that respects them.

Collectives: the n-th call of an API over the same group is the same on all its ranks. Messages: the n-th ``send`` from
one rank to another answers to the n-th ``recv`` there of it.

Of a rank no record is kept, only columns of a few calls (:class:`RankCalls`); ranks that run one program share them. So
a thousand ranks take little more memory than one (bench/scale measures it).
"""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from msprobe.diagnose import operators
from msprobe.diagnose.places import ranks_in_words
from msprobe.diagnose.steps.communication import Key, Rank
from msprobe.messages import said

#: The tensors that a call makes.
Results = tuple[dict[str, Any], ...] | None
How = Literal["compute", "communication", "bad_input"]


@dataclass(frozen=True)
class Trouble:
    """The bad values at a call: what it reads (``given``) and writes (``made``).

    ``unexplained``: it reads a NaN that nothing on this rank has made. ``birth``: how and which value comes from here
    first, unless another rank has brought it before. ``in_gradient``: what it reads came in by the gradient of a
    parameter, after the backward pass, and nothing on this rank has made it.
    """

    given: frozenset[str]
    made: frozenset[str]
    unexplained: bool = False
    birth: tuple[How, str] | None = None
    in_gradient: bool = False


@dataclass(frozen=True)
class RankCalls:
    """The calls of a rank that matter to others, in order, as columns: those that exchange data, and of those with bad
    values the first between two exchanges, and where a bad value may come from.

    ``places``: where they stand in the dump. ``keys``: what they exchange; none for calls that exchange nothing.
    ``groups``: the ranks that a record names. ``forms``: types and shapes that all ranks should give alike.
    ``results``: what collectives give that should be the same on all ranks, where it is asked for; None if that is not
    known. ``troubles``: by number in the columns. ``has_bad_gradient``: a bad value is in what is computed with
    gradients of parameters, after the backward pass. ``matters``: a bad value reaches what counts. ``dismissed``: calls
    that make infinities which are masked away again. ``may_go_on``: the recording may have ended before the rank did.
    """

    rank: Rank
    names: tuple[str, ...]
    words: tuple[str, ...]
    places: tuple[int, ...]
    keys: tuple[tuple[Key, ...], ...]
    groups: tuple[tuple[int, ...], ...]
    forms: tuple[str, ...]
    results: tuple[Results, ...] = ()
    troubles: tuple[tuple[int, Trouble], ...] = ()
    has_trouble: bool = False
    has_bad_gradient: bool = False
    matters: bool = False
    dismissed: tuple[str, ...] = ()
    may_go_on: bool = False


def _rank_order(rank: Rank) -> tuple[bool, int, str]:
    return (False, rank, "") if isinstance(rank, int) else (True, 0, rank)


class MatchedCalls:
    """Calls that belong together, at most one of each rank: the places of the ranks in ``Exchange.ranks``, and of the
    calls in their columns. ``whole``: none is missing.
    """

    __slots__ = ("arrived", "communicates", "done", "keys", "numbers", "receiving", "sides", "whole")

    def __init__(self, communicates: bool = True) -> None:
        self.sides = array("l")
        self.numbers = array("l")
        self.communicates = communicates
        self.whole = True
        self.keys: list[tuple[int, int]] = []
        # While all calls are put in order:
        self.arrived = 0
        self.receiving = 0
        self.done = False

    def add(self, side: int, number: int) -> None:
        """Take in a call."""
        self.sides.append(side)
        self.numbers.append(number)

    def members(self) -> Iterator[tuple[int, int]]:
        """Place of the rank, and number of the call in its columns."""
        return zip(self.sides, self.numbers, strict=True)

    def __len__(self) -> int:
        return len(self.sides)


class Shared:
    """Equal columns and tables of many ranks as one object."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def __call__(self, value: Any) -> Any:
        """The first that was equal."""
        return self._known.setdefault(value, value)

    def alike(self, value: Any) -> Any:
        """The first that reads the same: for tables, and what describes tensors."""
        return self._known.setdefault(repr(value), value)


class Exchange:
    """The collectives and messages of a step, matched."""

    def __init__(self, ranks: Iterable[RankCalls]) -> None:
        self.calls: list[RankCalls] = []
        #: The group of each call of each rank, as a number in ``groups``; 0: no record has it.
        self._group_of: list[tuple[int, ...]] = []
        self._groups: dict[tuple[int, ...], int] = {(): 0}
        shared = Shared()
        for rank in ranks:
            self._group_of.append(shared(self._numbered(rank.groups)))
            columns = {name: shared(getattr(rank, name)) for name in ("words", "places", "keys", "forms", "troubles")}
            columns["results"] = shared.alike(tuple(map(shared.alike, rank.results)))
            self.calls.append(replace(rank, names=shared(tuple(map(shared, rank.names))), groups=(), **columns))
        self.ranks: list[Rank] = [calls.rank for calls in self.calls]
        self.nodes: list[MatchedCalls] = []
        # Where no record names the group, it is all ranks of the dump.
        everyone = tuple(sorted(rank for rank in self.ranks if isinstance(rank, int)))
        self._everyone = self._groups.setdefault(everyone, len(self._groups))
        self._of: list[list[MatchedCalls | None]] = [[None] * len(calls.names) for calls in self.calls]
        self._match()
        self._from_anybody()
        self.nodes = [node for node in self.nodes if len(node)]

    def __len__(self) -> int:
        return len(self.calls)

    def names(self, node: MatchedCalls) -> dict[Rank, str]:
        """The calls of a node by rank."""
        return {self.ranks[side]: self.calls[side].names[number] for side, number in node.members()}

    def results(self, node: MatchedCalls) -> dict[Rank, Results]:
        """What the calls of a node make, by rank."""
        return {self.ranks[side]: self.calls[side].results[number] for side, number in node.members()}

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """The groups that records name, and all ranks together."""
        return [group for group in self._groups if group]

    @property
    def has_messages(self) -> dict[Rank, bool]:
        """Whether a rank sends or gets messages."""
        return {calls.rank: not operators.MESSAGES.isdisjoint(calls.words) for calls in self.calls}

    def by_group(self) -> Iterator[tuple[tuple[int, ...], dict[Rank, list[tuple[str, str, str]]]]]:
        """Each group that records name, and the collectives of its ranks over it, in order: name, API and form. Ranks
        of which no exchange was recorded at all are left out.
        """
        places: dict[int, dict[int, list[int]]] = defaultdict(dict)
        for side, calls in enumerate(self.calls):
            for number, (keys, group) in enumerate(zip(calls.keys, self._group_of[side], strict=True)):
                if group and keys and len(keys[0]) == 1:
                    places[group].setdefault(side, []).append(number)
        groups = list(self._groups)
        active = [side for side, calls in enumerate(self.calls) if any(calls.keys)]
        for group, by_side in places.items():
            members = set(groups[group])
            yield (
                groups[group],
                {
                    self.ranks[side]: [
                        (item.names[number], item.words[number], item.forms[number]) for number in by_side.get(side, ())
                    ]
                    for side in active
                    if self.ranks[side] in members
                    for item in (self.calls[side],)
                },
            )

    @property
    def may_go_on(self) -> dict[Rank, bool]:
        """Whether the recording of a rank may have ended before the rank did."""
        return {calls.rank: calls.may_go_on for calls in self.calls}

    def word(self, node: MatchedCalls) -> str:
        """The API of the first call of a node."""
        return self.calls[node.sides[0]].words[node.numbers[0]]

    def _numbered(self, groups: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        """The number of each group. They are reported with each call, by thousands of ranks: equal ones are one
        object.
        """
        numbers: dict[int, int] = {}
        for group in groups:
            if id(group) not in numbers:
                numbers[id(group)] = self._groups.setdefault(group, len(self._groups))
        return tuple(numbers[id(group)] for group in groups)

    def _match(self) -> None:
        ids: dict[tuple[Key, int], int] = {}
        sets: dict[tuple[int, int], MatchedCalls] = {}
        for side, calls in enumerate(self.calls):
            counts: dict[int, int] = defaultdict(int)
            for number, (keys, group) in enumerate(zip(calls.keys, self._group_of[side], strict=True)):
                if not keys:
                    continue
                numbered = []
                for key in keys:
                    # A message is reported by its two ranks, whatever group they have in common.
                    whole = ids.setdefault((key, (group or self._everyone) if len(key) == 1 else 0), len(ids))
                    counts[whole] += 1
                    numbered.append((whole, counts[whole]))
                node = self._joined(sets, numbered, side)
                node.add(side, number)
                self._of[side][number] = node
        self._mark_whole(list(ids), sets)

    def _mark_whole(self, keys: list[tuple[Key, int]], sets: dict[tuple[int, int], MatchedCalls]) -> None:
        """Find the calls that some rank of the dump does not answer."""
        known = set(self.ranks)
        groups = [set(group) & known for group in self._groups]
        for (number, _), node in sets.items():
            key, group = keys[number]
            wanted = groups[group] if len(key) == 1 else set(key[1]) & known
            if len(wanted) > len(node) or not wanted <= {self.ranks[side] for side in node.sides}:
                node.whole = False

    def _joined(
        self, sets: dict[tuple[int, int], MatchedCalls], keys: list[tuple[int, int]], side: int
    ) -> MatchedCalls:
        """The node of a call that exchanges what the keys say; several become one, unless a rank has two calls then."""
        node: MatchedCalls | None = None
        for key in keys:
            other = sets.get(key)
            if other is None or (other.sides and other.sides[-1] == side):
                continue  # The side that is read now comes last in each.
            if node is None:
                node = other
            elif other is not node and set(node.sides).isdisjoint(other.sides):
                self._merge(node, other, sets)
        if node is None:
            node = MatchedCalls()
            self.nodes.append(node)
        for key in keys:
            if sets.setdefault(key, node) is node:
                node.keys.append(key)
        return node

    def _merge(self, node: MatchedCalls, other: MatchedCalls, sets: dict[tuple[int, int], MatchedCalls]) -> None:
        for side, number in other.members():
            node.add(side, number)
            self._of[side][number] = node
        for key in other.keys:
            sets[key] = node
        node.keys += other.keys
        other.sides, other.numbers = array("l"), array("l")

    def _from_anybody(self) -> None:
        """A receive that names no sender takes the first message to its rank that nobody has taken."""
        waiting: dict[Any, deque[MatchedCalls]] = defaultdict(deque)
        lone: list[tuple[MatchedCalls, RankCalls, int]] = []
        for node in self.nodes:
            if len(node) != 1:
                continue
            calls, number = self.calls[node.sides[0]], node.numbers[0]
            if calls.words[number] not in operators.SENDS | operators.RECEIVES:
                continue
            pair = calls.keys[number][0][1]
            if calls.words[number] in operators.SENDS:
                waiting[pair[1]].append(node)
            elif calls.words[number] in operators.RECEIVES and pair[0] is None:
                lone.append((node, calls, number))
        for node, calls, number in lone:
            if waiting[calls.rank]:
                sender = waiting[calls.rank].popleft()
                side = node.sides[0]
                sender.add(side, number)
                sender.whole = True
                self._of[side][number] = sender
                node.sides, node.numbers = array("l"), array("l")

    def unmatched(self) -> list[tuple[Rank, str]]:
        """Rank and name of the calls that some rank of their group does not answer."""
        return [named for node in self.nodes if not node.whole for named in self.names(node).items()]

    def mismatch(self) -> str | None:
        """The first collective whose ranks give tensors of different types or shapes, where they must be alike."""
        for node in self.nodes:
            forms: dict[str, list[Rank]] = {}
            for side, number in node.members():
                in_words = self.calls[side].forms[number]
                if in_words:
                    forms.setdefault(in_words, []).append(self.ranks[side])
            if len(forms) > 1:
                in_words = ", ".join(f"{form} (rank {ranks_in_words(ranks)})" for form, ranks in forms.items())
                first = self.calls[node.sides[0]].names[node.numbers[0]]
                return said("collective-tensors-differ", first, in_words)
        return None

    def missing(self, node: MatchedCalls) -> list[Rank]:
        """The ranks of the dump that the record of a node's first call names, and that have no call in it."""
        group = list(self._groups)[self._group_of[node.sides[0]][node.numbers[0]]]
        return sorted(set(group) & set(self.ranks) - {self.ranks[side] for side in node.sides}, key=_rank_order)

    def remarks(self) -> list[str]:
        """Ranks that groups name and the dump does not have, and the first call that some rank of a group lacks."""
        remarks: list[str] = []
        numbered = {rank for rank in self.ranks if isinstance(rank, int)}
        absent = sorted(set[int]().union(*self._groups) - numbered)
        if absent and numbered:
            in_words = ranks_in_words(absent)
            remarks.append(said("ranks-not-in-dump", in_words))
        for node in self.nodes:
            missing = [] if node.whole else self.missing(node)
            if missing:
                remarks.append(
                    said(
                        "collective-without-counterpart",
                        self.calls[node.sides[0]].names[node.numbers[0]],
                        ranks_in_words(missing),
                        self.word(node),
                    )
                )
                break
        return remarks

    def in_order(self) -> Iterator[MatchedCalls]:
        """All calls of all ranks so that nothing comes before what it waits for."""
        sends = [[word in operators.SENDS for word in calls.words] for calls in self.calls]
        for node in self.nodes:
            node.arrived, node.done = 0, False
            node.receiving = sum(not sends[side][number] for side, number in node.members())
        next_of = [0] * len(self.calls)
        walking = deque(range(len(self.calls)))
        stuck_from = 0
        while True:
            while walking:
                yield from self._walk(walking.popleft(), next_of, sends, walking)
            while stuck_from < len(next_of) and next_of[stuck_from] == len(self._of[stuck_from]):
                stuck_from += 1
            if stuck_from == len(next_of):
                return
            # Calls that wait for each other in a circle, or for a call that was not recorded.
            waited_for = self._of[stuck_from][next_of[stuck_from]]
            assert waited_for is not None
            if not waited_for.done:
                waited_for.done = True
                yield waited_for
            self._free(waited_for, next_of, walking)

    def _walk(
        self, side: int, next_of: list[int], sends: list[list[bool]], walking: deque[int]
    ) -> Iterator[MatchedCalls]:
        """Go on with one rank up to where it waits."""
        nodes = self._of[side]
        while next_of[side] < len(nodes):
            number = next_of[side]
            node = nodes[number]
            if node is None:
                alone = MatchedCalls(communicates=False)
                alone.add(side, number)
                yield alone
            elif not node.done:
                node.arrived += 1
                node.receiving -= not sends[side][number]
                waits = node.arrived < len(node)
                # Who sends does not wait for who receives.
                if waits and not (sends[side][number] and node.receiving):
                    return
                if not waits:
                    node.done = True
                    yield node
                    self._free(node, next_of, walking, but=side)
            next_of[side] = number + 1

    def _free(self, node: MatchedCalls, next_of: list[int], walking: deque[int], but: int | None = None) -> None:
        """The ranks that wait at a node go on, ``but`` one that goes on already."""
        for side, number in node.members():
            if side != but and next_of[side] == number:
                next_of[side] += 1
                walking.append(side)
