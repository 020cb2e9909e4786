"""The scores of the same words by two programs, as trainer and rollout engine of a reinforcement learning give them.

    python rollout.py trainer
    python rollout.py engine            words are padded in front, and places are counted from the padding on

Neither knows msprobe.
"""

from __future__ import annotations

import argparse

import torch
from train import LENGTH, Model, batch_of

PADDING = 4


def main() -> None:
    """Score."""
    parser = argparse.ArgumentParser(description="Score words.")
    parser.add_argument("side", choices=("trainer", "engine"))
    side = parser.parse_args().side
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Model()
    words = batch_of(0)[:, : LENGTH - PADDING]
    # The mistake: the first word of a padded sequence is not at place 0.
    places = torch.arange(words.shape[1]) + (PADDING if side == "engine" else 0)
    odds = model(words, places).log_softmax(-1)
    print(f"{side}: mean log-probability {odds[:, :-1].gather(2, words[:, 1:, None]).mean().item():.4f}")
    odds.sum().backward()  # only so that msprobe run sees a step; a trainer has one anyway


if __name__ == "__main__":
    main()
