"""Which calls of other ranks a communication call of a step exchanged data with."""

from __future__ import annotations

import threading
from typing import Any

from msprobe.diagnose.verdict.common import Step
from msprobe.errors import MsprobeError
from msprobe.graph.communication import BOTH, RECEIVE, SEND, Call, exchanges_of, partners
from msprobe.store.reader import Dump

_DIRECTIONS = {SEND: "send", RECEIVE: "receive", BOTH: "both"}
#: Steps whose exchanges stay known.
_MOST_STEPS = 8
_Partners = dict[tuple[int, str], list[dict[str, Any]]]


class Exchanges:
    """Reads the communication calls of all ranks of a step, once; nothing else of them is read."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._known: dict[Step, _Partners] = {}
        self._lock = threading.Lock()

    def of(self, step: Step, rank: int | str, name: str) -> list[dict[str, Any]]:
        """Rank, name and direction of the partners of a call; none for a call that does not communicate."""
        if not isinstance(rank, int) or not name.startswith("Distributed."):
            return []
        with self._lock:
            if step not in self._known:
                if len(self._known) >= _MOST_STEPS:
                    self._known.pop(next(iter(self._known)))
                self._known[step] = self._read(step)
            return self._known[step].get((rank, name), [])

    def _read(self, step: Step) -> _Partners:
        calls: dict[int, list[Call]] = {}
        for rank in self._dump.ranks(step):
            if not isinstance(rank, int):
                continue
            try:
                calls[rank] = _calls(self._dump, step, rank)
            except MsprobeError:
                continue  # what cannot be read is told where that rank is shown
        found: _Partners = {}
        told, _ = partners(calls, lambda rank, node: "")
        for rank, by_node in told.items():
            names = {call.node: call.name for call in calls[rank]}
            for node, items in by_node.items():
                for item in items if isinstance(items, list) else [items]:
                    direction = _DIRECTIONS.get(item["communications_type"], "both")
                    found.setdefault((rank, names[node]), []).extend(
                        {"rank": int(other), "name": info[1], "direction": direction}
                        for other, info in item["nodes_info"].items()
                    )
        return found


def _calls(dump: Dump, step: Step, rank: int) -> list[Call]:
    part = dump.part(step, rank)
    try:
        return [
            Call(number, name, exchanges)
            for number, name in enumerate(part.names())
            if name.startswith("Distributed.") and (exchanges := exchanges_of(name, part.record(name)))
        ]
    finally:
        part.close()
