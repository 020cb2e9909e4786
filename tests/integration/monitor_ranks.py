"""Two gloo ranks whose training is watched by the monitor: `monitor_ranks.py FOLDER SCENARIO...`.

Each scenario trains twice, without the monitor and with it; what differs ends the rank. Into FOLDER/{scenario} go what
the monitor writes, and `told.{rank}.json`: what the test wants to know of this rank.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from support import forked

WORLD_SIZE = 2
SECONDS = 240.0
EVERYTHING = {
    "targets": {},
    "xy_distribution": True,
    "wg_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "mg_direction": True,
    "ops": ["min", "max", "mean", "norm", "nans", "zeros"],
    "squash_name": False,
}


def launch(folder: Path, scenarios: list[str], **variables: str) -> None:
    """Run the scenarios on two ranks, one after the other; AssertionError with what the ranks said if one fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **variables}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    ranks = []
    for rank in range(WORLD_SIZE):
        own = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD_SIZE)}
        ranks.append(forked.start(__file__, str(folder), *scenarios, cwd=folder, env=own))
    forked.end_of_all(ranks, SECONDS)


# ---------------------------------------------------------------- in the ranks

Scenario = Callable[[int, Path], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(work: Scenario) -> Scenario:
    SCENARIOS[work.__name__] = work
    return work


def watch(
    rank: int,
    folder: Path,
    wrap: Callable[[Any], Any],
    *,
    steps: int = 2,
    accumulated: int = 1,
    config: dict[str, Any] | None = None,
    optimizer: Callable[[Any], Any] | None = None,
    make: Callable[[], Any] | None = None,
    no_sync: bool = False,
    same_batches: bool = False,
    writes: bool = True,
    **attached: Any,
) -> None:
    """Train model M, wrapped, without and with a monitor; each rank has batches of its own.

    Writes told.{rank}.json: by name the numbers of this rank's own gradients (``local``) and of those that the ranks
    have in the mean (``mean``), as lists, one dict for each step, from a model that is not wrapped.
    """
    import torch
    from unit.monitor.torch.monitored import Measured, ModelM, assert_same, bits

    from msprobe.pytorch import TrainerMon

    def model_m() -> Any:
        torch.manual_seed(0)
        return ModelM() if make is None else make()

    def adam(parameters: Any) -> Any:
        return torch.optim.Adam(parameters, lr=0.01) if optimizer is None else optimizer(parameters)

    def batches() -> Any:
        generator = torch.Generator().manual_seed(10 if same_batches else 10 + rank)
        return [[torch.randn(3, 4, generator=generator) for _ in range(accumulated)] for _ in range(steps)]

    def train(attach: Callable[[Any, Any], None]) -> Any:
        model = wrap(model_m())
        stepping = adam(model.parameters())
        attach(model, stepping)
        losses = []
        for own in batches():
            for at, batch in enumerate(own):
                last = at == len(own) - 1
                import contextlib

                with model.no_sync() if no_sync and not last else contextlib.nullcontext():
                    loss = model(batch).square().mean() / accumulated
                    loss.backward()
                losses.append(loss.detach())
            stepping.step()
            stepping.zero_grad()
        return bits([[one.detach() for one in model.parameters()], losses, torch.get_rng_state()])

    # What a model on one device has.
    plain = model_m()
    stepping = adam(plain.parameters())
    told: list[Any] = []
    for own in batches():
        for batch in own:
            (plain(batch).square().mean() / accumulated).backward()
        local = {name: one.grad.clone() for name, one in plain.named_parameters()}
        for one in plain.parameters():
            torch.distributed.all_reduce(one.grad)
            one.grad /= WORLD_SIZE
        mean = {name: one.grad.clone() for name, one in plain.named_parameters()}
        before = {name: one.detach().clone() for name, one in plain.named_parameters()}
        stepping.step()
        after = {name: one.detach().clone() for name, one in plain.named_parameters()}
        stepping.zero_grad()
        found = {"local": local, "mean": mean, "before": before, "after": after}
        told.append({kind: {name: one.tolist() for name, one in values.items()} for kind, values in found.items()})
    (folder / f"told.{rank}.json").write_text(json.dumps(told))

    settings = folder / f"monitor.{rank}.json"
    settings.write_text(json.dumps({**EVERYTHING, **(config or {})}))
    os.environ["MONITOR_OUTPUT_DIR"] = str(folder / "out")
    bare = train(lambda model, stepping: None)
    monitor = TrainerMon(settings)

    def attach(model: Any, stepping: Any) -> None:
        monitor.set_monitor(model, optimizer=stepping, grad_acc_steps=accumulated, **attached)

    watched = train(attach)
    monitor.stop()
    assert_same(bare, watched)
    assert bool(Measured(monitor).files) == writes


@scenario
def ddp(rank: int, folder: Path) -> None:
    from torch.nn.parallel import DistributedDataParallel

    watch(rank, folder, DistributedDataParallel)


@scenario
def ddp_global(rank: int, folder: Path) -> None:
    from torch.nn.parallel import DistributedDataParallel

    watch(rank, folder, DistributedDataParallel, config={"scope": "global"})


@scenario
def ddp_accumulating(rank: int, folder: Path) -> None:
    from torch.nn.parallel import DistributedDataParallel

    watch(rank, folder, DistributedDataParallel, accumulated=3, no_sync=True)


def _fsdp1(use_orig_params: bool) -> Callable[[Any], Any]:
    def wrap(model: Any) -> Any:
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel

        device = torch.device("cpu")
        model.fc1 = FullyShardedDataParallel(model.fc1, use_orig_params=use_orig_params, device_id=device)
        return FullyShardedDataParallel(model, use_orig_params=use_orig_params, device_id=device)

    return wrap


@scenario
def fsdp1(rank: int, folder: Path) -> None:
    watch(rank, folder, _fsdp1(True))


@scenario
def fsdp1_global(rank: int, folder: Path) -> None:
    watch(rank, folder, _fsdp1(True), config={"scope": "global"})


@scenario
def fsdp1_flat(rank: int, folder: Path) -> None:
    watch(rank, folder, _fsdp1(False))


@scenario
def fsdp1_flat_global(rank: int, folder: Path) -> None:
    watch(rank, folder, _fsdp1(False), config={"scope": "global"})


def _fsdp2(model: Any) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    fully_shard(model.fc1, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@scenario
def fsdp2(rank: int, folder: Path) -> None:
    watch(rank, folder, _fsdp2)


@scenario
def fsdp2_global(rank: int, folder: Path) -> None:
    watch(rank, folder, _fsdp2, config={"scope": "global"})


@scenario
def fsdp2_accumulating(rank: int, folder: Path) -> None:
    watch(rank, folder, _fsdp2, accumulated=2, config={"scope": "global", "monitor_mbs_grad": True})


def _tensor_parallel(model: Any) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    return parallelize_module(model, mesh, {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()})


@scenario
def tensor_parallel(rank: int, folder: Path) -> None:
    watch(rank, folder, _tensor_parallel, same_batches=True)


@scenario
def tensor_parallel_global(rank: int, folder: Path) -> None:
    watch(rank, folder, _tensor_parallel, same_batches=True, config={"scope": "global"})


@scenario
def one_rank(rank: int, folder: Path) -> None:
    from torch.nn.parallel import DistributedDataParallel

    watch(rank, folder, DistributedDataParallel, config={"module_ranks": [1]}, writes=rank == 1)


@scenario
def data_group(rank: int, folder: Path) -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    watch(rank, folder, DistributedDataParallel, dp_group=dist.new_group([0, 1]))


@scenario
def collectives(rank: int, folder: Path) -> None:
    """The program's own collectives: two in one step are one row."""
    import torch
    import torch.distributed as dist

    class Adds(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            for _ in range(2):
                dist.all_reduce(torch.full((2,), rank + 1.0))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    class Adding(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return Adds.apply(self.model(x))

    cc = {"enable": True, "cc_pre_hook": True}
    watch(rank, folder, Adding, config={"cc_distribution": cc, "mg_direction": False})


def _alert(rank: int, folder: Path, wrap: Callable[[Any], Any]) -> None:
    """The number that rank 1 notes at step 3 is not finite, and what it computes from at step 6 is not."""
    import torch
    from unit.monitor.torch.monitored import ModelM, assert_same, bits

    from msprobe.pytorch import TrainerMon

    settings = folder / f"monitor.{rank}.json"
    rules = [{"rule_name": "AnomalyNan"}]
    settings.write_text(
        json.dumps({"wg_distribution": True, "state_distribution": True, "alert": {"rules": rules, "record": True}})
    )
    os.environ["MONITOR_OUTPUT_DIR"] = str(folder / "out")

    def train(is_watched: bool) -> Any:
        torch.manual_seed(0)
        model = wrap(ModelM())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        monitor = TrainerMon(settings) if is_watched else None
        if monitor is not None:
            monitor.set_monitor(model, optimizer=optimizer)
        generator = torch.Generator().manual_seed(10 + rank)
        losses = []
        for step in range(9):
            batch = torch.randn(3, 4, generator=generator)
            with torch.autocast("cpu", torch.bfloat16, enabled=step % 2 == 1):
                loss = model(batch).float().square().mean()
            if monitor is not None:
                monitor.note(loss=float("nan") if step == 3 and rank == 1 else loss.item())
            (loss * float("nan") if step == 6 and rank == 1 else loss).backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        if monitor is not None:
            monitor.stop()
        return bits([losses, torch.get_rng_state()])

    assert_same(train(False), train(True))


@scenario
def alert_ddp(rank: int, folder: Path) -> None:
    from torch.nn.parallel import DistributedDataParallel

    _alert(rank, folder, DistributedDataParallel)


@scenario
def alert_fsdp2(rank: int, folder: Path) -> None:
    _alert(rank, folder, _fsdp2)


@scenario
def appending(rank: int, folder: Path) -> None:
    from torch.nn.parallel import DistributedDataParallel

    watch(rank, folder, DistributedDataParallel)
    config = {"append_output": ["Jan01_00-00-00", "Dec31_23-59-59"]}
    watch(rank, folder, DistributedDataParallel, config=config, start_iteration=2)


def main() -> None:
    faulthandler.dump_traceback_later(SECONDS - 10, exit=True)
    import torch.distributed as dist

    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=WORLD_SIZE,
        timeout=timedelta(seconds=60),
    )
    for name in sys.argv[2:]:
        (folder / name).mkdir(exist_ok=True)
        SCENARIOS[name](rank, folder / name)
        dist.barrier()
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
