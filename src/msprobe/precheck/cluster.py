"""Calls that are checked on a Ray cluster: shares of them go to its nodes, where a process of its own runs each call.

The dump, and the folder of ``-save_error_data``, must have the same paths on all nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msprobe import engine, log
from msprobe.messages import said
from msprobe.precheck.job import Answer, Task
from msprobe.precheck.pool import Worker, answer_to, skip_lost

_MOST_CALLS_OF_A_SHARE = 32
_SHARES_OF_A_WORKER = 4

# Of the process of a node that runs shares: importing a framework takes longer than checking a share.
_workers: dict[Task, Worker] = {}


@dataclass(frozen=True)
class ShareOfCalls:
    """Some calls of one check: each a key and whether it has a backward record."""

    task: Task
    calls: tuple[tuple[str, bool], ...]
    timeout: float

    def check(self) -> list[Answer]:
        """Check them here, one after the other."""
        worker = _workers.setdefault(self.task, Worker(self.task))
        return [answer_to(worker, self.task, call, self.timeout) for call in self.calls]


def answers(
    tasks: Sequence[Task], calls: Sequence[tuple[str, bool]], timeout: float, workers: engine.Workers
) -> Iterator[Answer]:
    """Check calls on the cluster; the answers come in the order of the calls.

    The calls of a share whose process is lost three times in a row are skipped, and the others go on. Raises
    NotAvailableError where Ray is not installed or no cluster answers.
    """
    size = min(_MOST_CALLS_OF_A_SHARE, math.ceil(len(calls) / (len(tasks) * _SHARES_OF_A_WORKER)))
    parts = [tuple(calls[start : start + size]) for start in range(0, len(calls), max(1, size))]
    shares = [ShareOfCalls(tasks[number % len(tasks)], part, timeout) for number, part in enumerate(parts)]
    try:
        while shares:
            try:
                for share in engine.run(ShareOfCalls.check, shares, workers):
                    shares = shares[1:]
                    yield from share
            except engine.WorkerLostError as problem:
                lost, shares = shares[0], shares[1:]
                log.warning(said("node-process-lost", lost.calls[0][0], len(lost.calls) - 1))
                yield from (skip_lost(lost.task, key, problem.message, backward) for key, backward in lost.calls)
    finally:
        for worker in _workers.values():
            worker.stop()
        _workers.clear()
