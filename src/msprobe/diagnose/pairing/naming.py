"""What modules and parameters of one run are called in the other.

They answer to each other by name; then by what is left of the names without a prefix that one side has throughout (the
model stands in a wrapper); then, of what the other side does not know by name, by the modules that pair; and what is
left by its values and its order, where as many are left on both sides and their shapes agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msprobe.compare.entry_names import plain_path
from msprobe.compare.name_table import PARAMETER_NAMES
from msprobe.diagnose.differences.records import fingerprint, statistics_difference
from msprobe.diagnose.steps.optimizer import parameters_of, renamed
from msprobe.diagnose.steps.parameter_names import joined, parameter_name
from msprobe.diagnose.steps.timeline import Event, Slot, Timeline, is_tensor
from msprobe.messages import joined as joined_texts
from msprobe.messages import said

#: Statistics of one weight in two runs that began alike; those of two weights of one kind are further apart.
_ALIKE = 0.05
_SPELT = {word: [own for own, meant in PARAMETER_NAMES.items() if meant == word] for word in PARAMETER_NAMES.values()}
#: So many of the weights that are left must be alike to answer to each other in their order.
_ENOUGH_ALIKE = 0.75


@dataclass
class Naming:
    """The names of two timelines.

    ``prefixes``: what one side alone has in front of names (without what is known to be a wrapper), of the candidate
    and of the reference. ``modules`` and ``parameters`` lead from names of the reference to those of the candidate,
    where they are others.
    """

    prefixes: tuple[str, str] = ("", "")
    modules: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)


def drop_prefixes(candidate: Timeline, reference: Timeline) -> Naming:
    """Take what one side alone has in front of all names off the keys by which modules pair."""
    ours, other = _known_names(candidate), _known_names(reference)
    naming = Naming((_prefix(ours, other), _prefix(other, ours)))
    for timeline, prefix in zip((candidate, reference), naming.prefixes, strict=True):
        if prefix:
            for event in (*timeline, *timeline.unfinished):
                if event.parts.path:
                    event.key = f"{event.parts.kind}:{_plain(event.parts.path, prefix)}"
    return naming


def rename(naming: Naming, candidate: Timeline, reference: Timeline, partner: Mapping[Event, Event]) -> None:
    """Call modules and parameters of the reference what they are called in the candidate. ``partner``: the pairs of
    their forward calls.
    """
    sides = [_Side(candidate, naming.prefixes[0]), _Side(reference, naming.prefixes[1])]
    our_side, other = sides
    modules = _modules(our_side, other, partner)
    parameters = _parameters(our_side, other, modules)
    naming.modules = {
        theirs: own
        for name, theirs in other.modules.items()
        if (own := our_side.modules.get(modules.get(name, name), theirs)) != theirs
    }
    naming.parameters = {
        theirs: own
        for theirs, name in other.names.items()
        if (own := our_side.own_name(parameters.get(name, name)) or theirs) != theirs and other.own_name(name) == theirs
    }
    if naming.modules or naming.parameters:
        for event in reference:
            _rename(event, naming)


def notes_of(naming: Naming) -> list[str]:
    """What is to be said of names that differ."""
    notes: list[str] = []
    renamed = {**naming.modules, **naming.parameters}
    for side, pairs in (
        ("candidate", list(renamed.items())),
        ("reference", [(own, name) for name, own in renamed.items()]),
    ):
        longer = Counter(long.removesuffix(short) for short, long in pairs if short and long.endswith(f".{short}"))
        if longer:
            prefix = longer.most_common(1)[0][0]
            notes.append(said("names-have-prefix", prefix, side))
    for what, names in ((said("module"), naming.modules), (said("parameter"), naming.parameters)):
        others = [(own, name) for name, own in names.items() if not _same_but_for_wrappers(own, name)]
        others = [pair for pair in others if not _same_but_for_framework(*pair, naming.prefixes)]
        if what == "parameter":
            others = [(own, name) for own, name in others if own != _in_module(name, naming.modules)]
        if others:
            listed = joined_texts(", ", [said("name-in-reference", own, name) for own, name in others[:3]])
            more = said("and-more", len(others) - 3) if len(others) > 3 else ""
            notes.append(
                said("names-differ", len(others), what, listed, more)
                if len(others) > 1
                else said("name-differs", what, listed, more)
            )
    return notes


def _same_but_for_framework(name: str, other: str, prefixes: tuple[str, str]) -> bool:
    name, other = _plain(name, prefixes[0]), _plain(other, prefixes[1])
    (path, _, own), (other_path, _, other_own) = name.rpartition("."), other.rpartition(".")
    return path == other_path and PARAMETER_NAMES.get(own, own) == PARAMETER_NAMES.get(other_own, other_own)


def _same_but_for_wrappers(name: str, other: str) -> bool:
    name, other = plain_path(name), plain_path(other)
    return name.endswith(f".{other}") or other.endswith(f".{name}") or name == other


class _Side:
    """The modules and parameters of one timeline by their plain names."""

    def __init__(self, timeline: Timeline, prefix: str) -> None:
        self.prefix = prefix
        #: Plain path of a module -> its path.
        self.modules: dict[str, str] = {}
        #: Name of a parameter -> its plain name.
        self.names: dict[str, str] = {}
        #: Plain name of a parameter -> what it is before the step.
        self.leaves: dict[str, Any] = {}
        self._own: dict[str, list[str]] = {}
        paths = dict.fromkeys(event.parts.path for event in (*timeline, *timeline.unfinished))
        for path in filter(None, paths):
            self.modules.setdefault(self.plain(path), path)
        for event in (*timeline, *timeline.unfinished):
            if event.is_module and event.direction == "forward":
                for slot, leaf in event.parameters():
                    if slot.startswith("parameters."):
                        self._add(parameter_name(event, slot), leaf)
            elif event.direction == "gradient":
                for slot, leaf in event.outputs():
                    self._add(parameter_name(event, slot), leaf)
        for event in timeline:
            if event.parts.kind == "optimizer":
                for name, fields in parameters_of(event).items():
                    self._add(name, fields.get("weight"))

    def _add(self, name: str, leaf: Any) -> None:
        if name not in self.names:
            plain = self.names[name] = self.plain(name)
            self._own.setdefault(plain, []).append(name)
            self.leaves.setdefault(plain, leaf)

    def plain(self, name: str) -> str:
        return _plain(name, self.prefix)

    @cached_property
    def by_module(self) -> dict[str, dict[str, Any]]:
        """The parameters of each module by their names in it; the module by its plain path."""
        by_module: dict[str, dict[str, Any]] = {}
        for plain, leaf in self.leaves.items():
            module, _, own = plain.rpartition(".")
            by_module.setdefault(module, {})[own] = leaf
        return by_module

    def own_name(self, plain: str) -> str | None:
        """The one name that has this plain name."""
        owners = self._own.get(plain, ())
        return owners[0] if len(owners) == 1 else None


def _plain(name: str, prefix: str) -> str:
    plain = plain_path(name)
    if not prefix:
        return plain
    return "" if plain == prefix else plain.removeprefix(f"{prefix}.")


def _known_names(timeline: Timeline) -> set[str]:
    names = {plain_path(event.parts.path) for event in timeline if event.parts.path}
    for event in timeline:
        if event.parts.kind == "optimizer":
            names.update(map(plain_path, parameters_of(event)))
    names.discard("")
    return names


def _prefix(names: set[str], others: set[str]) -> str:
    """What must be taken off names so that most of them are names of the other side; empty if nothing must."""
    if names <= others or others <= names:
        return ""
    votes: Counter[str] = Counter()
    for name in names:
        parts = name.split(".")
        for place in range(1, len(parts)):
            if ".".join(parts[place:]) in others:
                votes[".".join(parts[:place])] += 1
    if not votes:
        return ""
    prefix, count = max(votes.items(), key=lambda item: (item[1], item[0]))
    return prefix if count > len(names & others) and 2 * count > min(len(names), len(others)) else ""


def _modules(side: _Side, other: _Side, partner: Mapping[Event, Event]) -> dict[str, str]:
    """Plain paths of the reference's modules that the candidate has under another name: by their pairs, and where
    modules themselves have none, by the calls in them.
    """
    sure: dict[tuple[str, str], int] = {}
    votes: Counter[tuple[str, str]] = Counter()
    for event, twin in partner.items():
        if event.is_module and twin.is_module:
            sure.setdefault((side.plain(event.parts.path), other.plain(twin.parts.path)), 1)
        elif event.parent is not None and twin.parent is not None:
            votes[side.plain(event.parent.parts.path), other.plain(twin.parent.parts.path)] += 1
    modules: dict[str, str] = {}
    taken: set[str] = set()
    for mine, theirs in [*sure, *(pair for pair, _ in votes.most_common())]:
        if mine in other.modules or theirs in side.modules or mine in taken or theirs in modules:
            continue
        if not _may_be_one(side.by_module.get(mine, {}), other.by_module.get(theirs, {})):
            continue
        modules[theirs] = mine
        taken.add(mine)
    return modules


def _may_be_one(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """False for modules that have a parameter of one name in different shapes: one layer for three of the other."""
    return all(_one_shape(leaf, theirs[name]) for name, leaf in mine.items() if name in theirs)


def _parameters(ours: _Side, other: _Side, modules: Mapping[str, str]) -> dict[str, str]:
    """Plain names of the reference's parameters that the candidate has under another name."""
    mine = [name for name in ours.leaves if name not in other.leaves]
    theirs = [name for name in other.leaves if name not in ours.leaves]
    parameters: dict[str, str] = {}
    if not mine or not theirs:
        return parameters

    def add(pairs: Iterable[tuple[str, str]]) -> None:
        parameters.update((name, own) for own, name in pairs)
        done = set(parameters.values())
        mine[:] = [name for name in mine if name not in done]
        theirs[:] = [name for name in theirs if name not in parameters]

    left = set(mine)
    by_module = [(own, name) for name in theirs for own in _spellings(_in_module(name, modules))]
    add((own, name) for own, name in by_module if own in left and _one_shape(ours.leaves[own], other.leaves[name]))
    inside = _by_path(mine), _by_path(theirs)
    for path, names in inside[1].items():
        owns = inside[0].get(modules.get(path, path), [])
        if path in other.modules and _in_order(ours, other, owns, names):
            add(zip(owns, names, strict=True))
    if _in_order(ours, other, mine, theirs) and _mostly_alike(ours, other, mine, theirs):
        add(zip(mine, theirs, strict=True))
    by_value = list(_by_value(ours, other, mine, theirs))
    add(by_value)
    sides = (ours, mine), (other, theirs)
    constant = all(fingerprint(side.leaves[name]) is None for side, names in sides for name in names)
    if len(by_value) > len(mine) and constant and _in_order(ours, other, mine, theirs):
        add(zip(mine, theirs, strict=True))
    return parameters


def _by_path(names: Iterable[str]) -> dict[str, list[str]]:
    """Names of parameters by their module."""
    by_path: dict[str, list[str]] = {}
    for name in names:
        by_path.setdefault(name.rpartition(".")[0], []).append(name)
    return by_path


def _in_module(name: str, modules: Mapping[str, str]) -> str:
    """The name that a parameter has if its module is called as in the candidate."""
    path, _, own = name.rpartition(".")
    return joined(modules.get(path, path), own)


def _spellings(name: str) -> list[str]:
    """The names that a parameter may have in MindSpore and in PyTorch."""
    path, dot, own = name.rpartition(".")
    meant = PARAMETER_NAMES.get(own, own)
    return [name, *(f"{path}{dot}{word}" for word in (meant, *_SPELT.get(meant, ())) if word != own)]


def _one_shape(left: Any, right: Any) -> bool:
    return is_tensor(left) and is_tensor(right) and left.get("shape") == right.get("shape")


def _in_order(side: _Side, other: _Side, mine: Sequence[str], theirs: Sequence[str]) -> bool:
    return len(mine) == len(theirs) and all(
        _one_shape(side.leaves[own], other.leaves[name]) for own, name in zip(mine, theirs, strict=True)
    )


def _mostly_alike(side: _Side, other: _Side, mine: Sequence[str], theirs: Sequence[str]) -> bool:
    """True if most of the weights are the same, of those that can be distinguished from others."""
    votes = []
    for own, name in zip(mine, theirs, strict=True):
        left, right = side.leaves[own], other.leaves[name]
        marks = fingerprint(left), fingerprint(right)
        if None not in marks:
            votes.append(
                marks[0] == marks[1] or (left.get("Max") is not None and statistics_difference(left, right) < _ALIKE)
            )
    return bool(votes) and sum(votes) >= _ENOUGH_ALIKE * len(votes)


def _by_value(ours: _Side, other: _Side, mine: Sequence[str], theirs: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Weights that are one and the same on both sides, and no other is."""
    places: list[dict[Hashable, list[str]]] = [{}, {}]
    for side, names, by_look in zip((ours, other), (mine, theirs), places, strict=True):
        for name in names:
            mark = fingerprint(side.leaves[name])
            if mark is not None:
                by_look.setdefault((mark, str(side.leaves[name].get("shape"))), []).append(name)
    for mark, names in places[0].items():
        others = places[1].get(mark, ())
        if len(names) == len(others) == 1:
            yield names[0], others[0]


def _rename(event: Event, naming: Naming) -> None:
    """Give an event of the reference the candidate's names. Its own name, by which it is found in its dump, stays."""
    if event.parts.kind == "optimizer":
        event.record = renamed(event.record, naming.parameters)
        return
    path = event.parts.path
    if not path:
        return
    new = naming.modules.get(path, path)
    if event.direction == "gradient":
        event.call(new, outputs=[(_slot(slot, path, naming), leaf) for slot, leaf in event.outputs()])
    elif event.is_module:
        named = [(kind, _slot(own, path, naming), leaf) for (kind, _, own), leaf in _split(event.parameters())]
        event.call(new, parameters=[(f"{kind}.{own}", leaf) for kind, own, leaf in named])


def _split(slots: Sequence[Slot]) -> list[tuple[tuple[str, str, str], Any]]:
    return [(slot.partition("."), leaf) for slot, leaf in slots]


def _slot(slot: str, path: str, naming: Naming) -> str:
    """The slot of a parameter of the module ``path`` as the candidate's module calls it."""
    own, dot, rest = slot.partition(".")
    name = naming.parameters.get(joined(path, own))
    return slot if name is None else f"{name.rpartition('.')[2]}{dot}{rest}"
