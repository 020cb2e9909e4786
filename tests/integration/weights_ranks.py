"""A gloo rank of a trainer that FSDP2 shards: `weights_ranks.py RANK FOLDER`. Prints what the check of weights answers.

The engine of each rank holds the whole weights as they were before the last step, then those of now.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from msprobe.rollout.torch.trainer_weights import TrainerWeights
from msprobe.rollout.torch.weight_check import WeightCheck

RANKS = 2


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    # Rows that two ranks do not divide, a vector, and a table.
    return torch.nn.ModuleDict(
        {"embed_tokens": torch.nn.Embedding(9, 6), "up_proj": torch.nn.Linear(6, 7), "norm": torch.nn.LayerNorm(7)}
    )


def main(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    engine, trainer = model(), model()
    mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))
    for one in trainer.children():
        fully_shard(one, mesh=mesh)
    check = WeightCheck(engine)
    answers = [check(trainer)]
    with torch.no_grad():
        for one in trainer.parameters():
            one.to_local().add_(1e-3)
    answers.append(check(trainer))
    with torch.no_grad():
        for name, one in trainer.named_parameters():
            engine.get_parameter(name).copy_(one.full_tensor())
    answers.append(check(TrainerWeights.of_state_dict(trainer.state_dict())))
    found = [[one.equal, sorted({two.name for two in one.findings})] for one in answers]
    (folder / f"answer{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
