"""Two gloo ranks that train with DeepSpeed, without the monitor and with it: `monitor_deepspeed.py FOLDER CASE...`.

CASE: STAGE-TYPE; the first step in fp16 is left out because a loss is infinite. Both parts of the model are a group of
their own. Into FOLDER/CASE go what the monitor writes, and `mean.json`: name -> norm of the gradient of the first step
in the mean of both ranks, from a model that is not wrapped.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed  # type: ignore[import-not-found]
import torch
import torch.distributed as dist
from unit.monitor.torch.monitored import EVERYTHING, ModelM, assert_same, bits

from msprobe.pytorch import TrainerMon


def main() -> None:
    dist.init_process_group("gloo")
    # Would build a kernel for shared memory, for minutes.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    # Half precision is slow on the host, but it is right.
    type(deepspeed.get_accelerator()).is_fp16_supported = lambda self: True
    deepspeed.init_distributed("gloo")
    for case in sys.argv[2:]:
        stage, kind = case.split("-")
        run(Path(sys.argv[1]) / case, int(stage), kind)


def run(folder: Path, stage: int, kind: str) -> None:
    rank = dist.get_rank()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[kind]
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 3,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        **({kind: {"enabled": True}} if kind != "fp32" else {}),
    }

    def batches() -> list[Any]:
        generator = torch.Generator().manual_seed(10 + rank)
        return [torch.randn(3, 4, generator=generator).to(dtype) for _ in range(6)]

    def train(attach: Any) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        groups = [{"params": list(part.parameters())} for part in (model.fc1, model.fc2)]
        engine, stepping, _, _ = deepspeed.initialize(
            model=model, optimizer=torch.optim.Adam(groups, lr=0.01), config=dict(settings)
        )
        attach(engine, stepping)
        losses = []
        given = batches()
        if dtype is torch.float16:
            # A step that is left out, and the same data again.
            given = [one * 1e4 for one in given[:2]] + given
        for batch in given:
            loss = engine(batch).float().square().mean()
            engine.backward(loss)
            engine.step()
            losses.append(loss.detach())
        return bits([[one.detach() for one in model.parameters()], losses, torch.get_rng_state()])

    torch.manual_seed(0)
    plain = ModelM().to(dtype)
    for batch in batches()[:2]:
        (plain(batch).float().square().mean() / 2).backward()
    found = {}
    for name, one in plain.named_parameters():
        assert one.grad is not None
        gradient = one.grad.float()
        dist.all_reduce(gradient)
        found[name] = float(gradient.norm()) / 2
    (folder / "mean.json").write_text(json.dumps(found))
    bare = train(lambda engine, stepping: None)
    config = folder / f"monitor.{rank}.json"
    config.write_text(json.dumps({**EVERYTHING, "ur_distribution": False, "stack_info": False}))
    os.environ["MONITOR_OUTPUT_DIR"] = str(folder / "out")
    monitor = TrainerMon(config)
    watched = train(lambda engine, stepping: monitor.set_monitor(engine, optimizer=stepping, grad_acc_steps=2))
    monitor.stop()
    assert_same(bare, watched)


main()
