"""Which calls of other ranks a communication call of a step exchanged data with."""

from __future__ import annotations

import threading

from msprobe.diagnose.verdict.common import Step
from msprobe.errors import MsprobeError
from msprobe.graph.communication import BOTH, RECEIVE, SEND, CommunicationCall, Transfer, exchanges_of, transfers
from msprobe.store.reader import Dump
from msprobe.view.protocol import Direction

_DIRECTIONS: dict[str, Direction] = {SEND: "send", RECEIVE: "receive", BOTH: "both"}
#: Steps whose exchanges stay known.
_MOST_STEPS = 8
_Transfers = dict[tuple[int, str], list[Transfer]]


class Exchanges:
    """Reads the communication calls of all ranks of a step, once; nothing else of them is read."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._known: dict[Step, _Transfers] = {}
        self._lock = threading.Lock()

    def of(self, step: Step, rank: int | str, name: str) -> list[tuple[int, str, Direction]]:
        """Rank, name and direction of the partners of a call; none for a call that does not communicate."""
        if not isinstance(rank, int) or not name.startswith("Distributed."):
            return []
        with self._lock:
            if step not in self._known:
                if len(self._known) >= _MOST_STEPS:
                    self._known.pop(next(iter(self._known)))
                self._known[step] = self._read(step)
            meetings = self._known[step].get((rank, name), [])
        return [
            (other, there.name, _DIRECTIONS[kind])
            for kind, meeting in meetings
            for other, there in meeting.calls.items()
            if other != rank
        ]

    def _read(self, step: Step) -> _Transfers:
        calls: dict[int, list[CommunicationCall]] = {}
        for rank in self._dump.ranks(step):
            if not isinstance(rank, int):
                continue
            try:
                calls[rank] = _calls(self._dump, step, rank)
            except MsprobeError:
                continue  # what cannot be read is reported where that rank is shown
        transferred, _ = transfers(calls, lambda rank, node: "")
        return {
            (rank, call.name): transferred[rank][call.node]
            for rank, calls_of_rank in calls.items()
            for call in calls_of_rank
            if call.node in transferred.get(rank, {})
        }


def _calls(dump: Dump, step: Step, rank: int) -> list[CommunicationCall]:
    part = dump.part(step, rank)
    try:
        return [
            CommunicationCall(number, name, exchanges)
            for number, name in enumerate(part.names())
            if name.startswith("Distributed.") and (exchanges := exchanges_of(name, part.record(name)))
        ]
    finally:
        part.close()
