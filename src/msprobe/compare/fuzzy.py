"""Pair calls whose numbers differ, because one side made a call more or less.

Calls are aligned within their module, by their names without numbers: a longest common subsequence, so that an extra
call is left over and shifts nothing. Backward calls go the way of their forward call. Rows then pair by their place
in the call. The fuzzy matching of mindstudio-probe goes through two queues instead, and works in tensor mode only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from msprobe.compare.alignment import align
from msprobe.compare.entry_names import read_name
from msprobe.compare.matching import Pairing
from msprobe.compare.rows import Rows


def fuzzy_match(
    candidate: Rows,
    reference: Rows,
    candidate_parents: Mapping[str, Any] | None = None,
    reference_parents: Mapping[str, Any] | None = None,
) -> Pairing:
    """Pair rows through the alignment of their calls; without parents all calls count as of one module."""
    entry_pairs = _pair_entries(
        _Side(candidate.entries, candidate_parents or {}), _Side(reference.entries, reference_parents or {})
    )
    entries = reference.entry[reference.starts].tolist()
    first_of = dict(zip(entries, reference.starts.tolist(), strict=True))
    ends = np.append(reference.starts, len(reference))[1:]
    end_of = dict(zip(entries, ends.tolist(), strict=True))
    partner = np.full(len(candidate), -1, np.int64)
    fuzzy = np.zeros(len(candidate), np.bool_)
    slots: dict[str, int] = {}
    current = -1
    for row, entry in enumerate(candidate.entry.tolist()):
        if entry != current:
            current = entry
            other = entry_pairs.get(entry)
            slots = {}
            if other is not None and other in first_of:
                first = first_of[other]
                slots = {reference.slot[place]: place for place in range(first, end_of[other])}
        place = slots.get(candidate.slot[row], -1)
        partner[row] = place
        fuzzy[row] = place >= 0 and candidate.name[row] != reference.name[place]
    return Pairing(partner, fuzzy, len(reference))


class _Side:
    """The entries of one side by scope, and where each is."""

    def __init__(self, entries: list[str], parents: Mapping[str, Any]) -> None:
        self.calls = [read_name(name) for name in entries]
        self.place = {(call.stem, call.number, call.direction): i for i, call in enumerate(self.calls)}
        self.scopes: dict[tuple[str, str], list[int]] = defaultdict(list)
        kinds: dict[Any, str] = {}
        for i, (name, call) in enumerate(zip(entries, self.calls, strict=True)):
            parent = parents.get(name)
            parent = parent[0] if isinstance(parent, list) and parent else parent
            scope = ""
            # A module's own place in the tree is its name; its calls are told apart by their order.
            if isinstance(parent, str) and call.kind not in ("module", "parameters"):
                scope = kinds.get(parent, "")
                if not scope:
                    scope = kinds[parent] = read_name(parent).stem
            self.scopes[scope, call.direction].append(i)


def _pair_entries(candidate: _Side, reference: _Side) -> dict[int, int]:
    found: dict[int, int] = {}
    for key, left in candidate.scopes.items():
        if key[1] == "backward":
            continue
        right = reference.scopes.get(key, [])
        pairs = align([candidate.calls[i].stem for i in left], [reference.calls[j].stem for j in right])
        found.update((left[a], right[b]) for a, b in pairs)
    taken = set(found.values())
    open_left: dict[tuple[str, str], list[int]] = defaultdict(list)
    for key, left in candidate.scopes.items():
        if key[1] != "backward":
            continue
        for i in left:
            call = candidate.calls[i]
            forward = candidate.place.get((call.stem, call.number, "forward"))
            if forward is None:
                open_left[key].append(i)
            elif forward in found:
                there = reference.calls[found[forward]]
                j = reference.place.get((there.stem, there.number, "backward"))
                if j is not None:
                    found[i] = j
                    taken.add(j)
    for key, left in open_left.items():
        right = [j for j in reference.scopes.get(key, []) if j not in taken]
        pairs = align([candidate.calls[i].stem for i in left], [reference.calls[j].stem for j in right])
        found.update((left[a], right[b]) for a, b in pairs)
    return found
