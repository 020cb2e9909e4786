"""Train a small network on numbered tokens; the ranks share the batch and add up their gradients.

bash trusted.sh        two ranks, which train well
bash suspect.sh        two ranks, which do not

Sentences are filled up with token 0, whose embedding is zero. Rank 0 has none that is too short, rank 1 has.
"""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import yaml
from torch import nn

from msprobe.core.config_check import ConfigChecker

TOKENS, LENGTH = 50, 12


class Norm(nn.Module):
    """Divides each token's vector by its root mean square."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, length, size]; the result has the same shape."""
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)


class Model(nn.Module):
    """Tokens to the odds of the next one."""

    def __init__(self, size: int, layers: int, epsilon: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, size, padding_idx=0)
        self.norms = nn.ModuleList(Norm(size, epsilon) for _ in range(layers))
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))
        self.head = nn.Linear(size, TOKENS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: [batch, length]; the result is [batch, length, TOKENS]."""
        x = self.tokens(tokens)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + F.gelu(layer(norm(x)))
        return self.head(x)


def arguments() -> argparse.Namespace:
    """The command line; names as Megatron has them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden-size", type=int, default=32)
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--norm-epsilon", type=float, default=1e-5)
    parser.add_argument("--micro-batch-size", type=int, default=4)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--lr", "--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--log-interval", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--save-pack", help="where the pack of the configuration check goes")
    parser.add_argument("--save", type=Path, help="where the weights go before the first step")
    return parser.parse_args()


def main() -> None:
    """Train, on all ranks that torchrun has started, or on one."""
    args = arguments()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    if args.save_pack:
        ConfigChecker.apply_patches("pytorch")
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(args.seed)
    model = Model(args.hidden_size, args.num_layers, args.norm_epsilon)
    if args.save and rank == 0:
        args.save.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), args.save)
    if args.save_pack:
        ConfigChecker(model, output_zip_path=args.save_pack, settings=args)
    settings = yaml.safe_load(Path(__file__).with_name("optimizer.yaml").read_text())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, **settings)
    draws = torch.Generator().manual_seed(args.seed + rank)
    for step in range(args.steps):
        batch = torch.randint(1, TOKENS, (args.micro_batch_size, LENGTH + 1), generator=draws)
        if rank == 1:
            batch[-1, -4:] = 0
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            if world > 1:
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
        optimizer.step()
        if rank == 0 and step % args.log_interval == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
