"""A process group of the simulated accelerator: collectives run on a stream of their own, as NCCL's and HCCL's do.

``Work.wait`` makes the program's stream wait, never the host. Gloo carries the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work as BaseWork

import simdev


class Work(BaseWork):
    """A collective that is under way."""

    def __init__(self, event: Any, results: list[torch.Tensor]) -> None:
        super().__init__()
        self._event = event
        self._results = results

    def wait(self, timeout: timedelta | None = None) -> bool:
        """What the program launches from now on runs behind the collective."""
        torch.sim.current_stream().wait_event(self._event)  # type: ignore[attr-defined]
        return True

    def is_completed(self) -> bool:
        """Whether it has run."""
        return bool(self._event.query())

    def get_future(self) -> Any:
        """Done at once: what follows is in order of the stream."""
        self.wait()
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(self._results)
        return future


class Group(dist.ProcessGroup):
    """Collectives of tensors on the device."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._stream = torch.sim.Stream()  # type: ignore[attr-defined]

    def getBackendName(self) -> str:
        """Its name."""
        return "simccl"

    def _run(
        self, what: str, work: Callable[[list[torch.Tensor]], Any], tensors: list[torch.Tensor], results: Any
    ) -> Work:
        sim: Any = torch.sim  # type: ignore[attr-defined]
        self._stream.wait_stream(sim.current_stream())
        event = sim.Event()
        with sim.stream(self._stream):
            simdev.device.enqueue(what, lambda seen: work(seen).wait(), tensors)
            event.record(self._stream)
        for tensor in tensors:
            tensor.record_stream(self._stream)
        return Work(event, results)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """The sum, or what ``opts`` asks for."""
        how = dist.AllreduceOptions()
        how.reduceOp = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        return self._run("allreduce", lambda seen: self._gloo.allreduce(seen, how), tensors, tensors)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """What one rank has."""
        how = dist.BroadcastOptions()
        how.rootRank = 0 if opts is None else opts.rootRank
        return self._run("broadcast", lambda seen: self._gloo.broadcast(seen, how), tensors, tensors)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Work:
        """What all ranks have."""
        everything = [*inputs, *outputs[0]]
        return self._run("allgather", lambda seen: self._gloo.allgather([seen[1:]], seen[:1]), everything, outputs[0])

    def _allgather_base(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Work:
        return self._run(
            "allgather", lambda seen: self._gloo._allgather_base(seen[0], seen[1]), [output, given], [output]
        )

    def barrier(self, opts: Any = None) -> Work:
        """Behind all ranks' work."""
        return self.allreduce([torch.zeros(1, device="sim")])


def register() -> None:
    """Let ``init_process_group("simccl")`` make such groups; after :func:`simdev.load`."""
    dist.Backend.register_backend("simccl", Group, devices=["sim"])
