"""Two gloo ranks that train with DeepSpeed and save: `checkpoint_deepspeed.py FOLDER STAGE...`.

Into FOLDER/STAGE go the checkpoint of DeepSpeed, and `whole.pt`: the float32 weights that its own script puts together.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed  # type: ignore[import-not-found]
import torch
import torch.distributed as dist
from deepspeed.utils.zero_to_fp32 import (  # type: ignore[import-not-found]
    get_fp32_state_dict_from_zero_checkpoint,
)


def main() -> None:
    dist.init_process_group("gloo")
    # Would build a kernel for shared memory, for minutes.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    deepspeed.init_distributed("gloo")
    for stage in sys.argv[2:]:
        run(Path(sys.argv[1]) / stage, int(stage))


def run(folder: Path, stage: int) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3))
    model[1].register_buffer("running", torch.ones(3))
    groups = [{"params": list(model[0].parameters())}, {"params": [*model[1].parameters(), *model[2].parameters()]}]
    settings = {
        "train_micro_batch_size_per_gpu": 3,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": True},
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.Adam(groups, lr=0.01), config=settings)
    for _ in range(3):
        engine.backward(engine(torch.randn(3, 5).bfloat16()).float().square().mean())
        engine.step()
    engine.save_checkpoint(str(folder))
    dist.barrier()
    if dist.get_rank() == 0:
        if stage:
            whole = get_fp32_state_dict_from_zero_checkpoint(str(folder))
        else:
            whole = engine.module.state_dict()
        torch.save({name: tensor.clone() for name, tensor in whole.items()}, folder / "whole.pt")
    dist.barrier()


if __name__ == "__main__":
    main()
