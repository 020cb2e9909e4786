"""Two gloo ranks that train with Megatron's core, without and with the monitor: `monitor_megatron.py FOLDER CASE...`.

CASE: KIND-TYPE. KIND: "plain", or "distributed" for its distributed optimizer. TYPE: fp32, bf16, or fp16, whose first
step is left out because a loss is infinite. Into FOLDER/CASE go what the monitor writes, and `mean.json`: name -> norm
of the gradient of the first step in the mean of both ranks, from a model that is not wrapped. Gradients are clipped to
a tenth of their norm.

Megatron's core is made for devices and asks for "cuda" by name: here that is the host.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from on_host import OnHost
from unit.monitor.torch.monitored import EVERYTHING, ModelM, assert_same, bits

from msprobe.pytorch import TrainerMon

STEPS = 3


def main() -> None:
    dist.init_process_group("gloo")
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value]
    OnHost().__enter__()
    from megatron.core import parallel_state  # type: ignore[import-not-found]

    parallel_state.initialize_model_parallel(create_gloo_process_groups=True)
    for case in sys.argv[2:]:
        run(Path(sys.argv[1]) / case, *case.split("-"))


def run(folder: Path, kind: str, dtype_name: str) -> None:
    from megatron.core.distributed import (  # type: ignore[import-not-found]
        DistributedDataParallel,
        DistributedDataParallelConfig,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # type: ignore[import-not-found]
    from megatron.core.transformer import TransformerConfig  # type: ignore[import-not-found]

    rank = dist.get_rank()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype_name]
    types = {"bf16": dtype_name == "bf16", "fp16": dtype_name == "fp16"}
    is_distributed = kind == "distributed"

    def batches() -> list[Any]:
        generator = torch.Generator().manual_seed(10 + rank)
        return [torch.randn(3, 4, generator=generator).to(dtype) for _ in range(2 * STEPS)]

    optimizers: list[Any] = []

    def train(attach: Any) -> Any:
        torch.manual_seed(0)
        model = ModelM().to(dtype)
        wrapped = DistributedDataParallel(
            TransformerConfig(num_layers=1, hidden_size=4, num_attention_heads=1, **types),
            DistributedDataParallelConfig(use_distributed_optimizer=is_distributed, grad_reduce_in_fp32=True),
            model,
        )
        settings = OptimizerConfig(
            optimizer="adam",
            lr=0.01,
            weight_decay=0.0,
            params_dtype=dtype,
            use_distributed_optimizer=is_distributed,
            clip_grad=0.03,
            initial_loss_scale=2.0**10,
            min_loss_scale=1.0,
            **types,
        )
        optimizer = get_megatron_optimizer(settings, [wrapped])
        attach(wrapped, optimizer)
        losses = []
        given = batches()
        if dtype is torch.float16:
            # A step that is left out, and the same data again.
            given = [one * 1e4 for one in given[:2]] + given
        while given:
            wrapped.zero_grad_buffer()
            optimizer.zero_grad()
            for micro in range(2):
                with wrapped.no_sync() if micro == 0 else nullcontext():
                    loss = wrapped(given.pop(0)).float().square().mean() / 2
                    optimizer.scale_loss(loss).backward()
                losses.append(loss.detach())
            wrapped.finish_grad_sync()
            losses.append(optimizer.step()[0])
        optimizers.append(optimizer)
        return bits([[one.detach() for one in model.parameters()], losses, torch.get_rng_state()])

    torch.manual_seed(0)
    plain = ModelM().to(dtype)
    total: dict[str, torch.Tensor] = {}
    for batch in batches()[:2]:
        plain.zero_grad()
        (plain(batch).float().square().mean() / 2).backward()
        for name, one in plain.named_parameters():
            assert one.grad is not None
            total[name] = total.get(name, torch.zeros(one.shape)) + one.grad.float()
    for gradient in total.values():
        dist.all_reduce(gradient)
    (folder / "mean.json").write_text(json.dumps({name: float(one.norm()) / 2 for name, one in total.items()}))
    bare = train(lambda model, optimizer: None)
    config = folder / f"monitor.{rank}.json"
    config.write_text(json.dumps({**EVERYTHING, "ur_distribution": False, "stack_info": False}))
    os.environ["MONITOR_OUTPUT_DIR"] = str(folder / "out")
    monitor = TrainerMon(config)

    watched = train(lambda model, optimizer: monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=2))
    monitor.stop()
    assert_same(bare, watched)
    assert "prepare_grads" not in vars(optimizers[-1])


main()
