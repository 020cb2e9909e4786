"""What both trainings have in common: sizes, weights and batches, made by numpy, and the mistakes to plant."""

from __future__ import annotations

import argparse

import numpy as np

WORDS, WIDTH, HEADS, BLOCKS, LENGTH, BATCH, STEPS = 24, 16, 2, 2, 8, 4, 3
LEARNING_RATE, BETAS, WEIGHT_DECAY = 1e-2, (0.9, 0.999), 0.0

#: What goes wrong with ``--mistake NAME``, in the framework that is started with it.
MISTAKES = {
    "scale": "the scores of attention are divided by the square root of the whole width, in the second block",
    "mask": "attention of the second block sees the future",
    "epsilon": "the last norm has another epsilon",
    "gelu": "the first block has the approximate GELU",
    "residual": "the second block does not add its input to what attention gives",
    "not_loaded": "one weight keeps the values it was born with",
    "weight": "one number of a weight differs",
    "stopped": "no gradient goes back through the keys of the first block",
    "gradient": "the gradient that comes back to the second block is halved on its way",
    "learning_rate": "the learning rate is half as large",
    "betas": "the second beta of Adam is 0.99",
    "weight_decay": "weights decay",
}


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """The first weights, under PyTorch's names; dense layers as ``[results, inputs]``, as both frameworks keep them."""
    draw = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (0.3 * draw.standard_normal(shape)).astype(np.float32)

    found = {"words.weight": normal(WORDS, WIDTH), "places.weight": normal(LENGTH, WIDTH)}
    for block in (f"blocks.{number}" for number in range(BLOCKS)):
        for name in ("query", "key", "value", "merge"):
            found[f"{block}.attention.{name}.weight"] = normal(WIDTH, WIDTH)
            found[f"{block}.attention.{name}.bias"] = normal(WIDTH)
        for name, (results, inputs) in {"wide": (4 * WIDTH, WIDTH), "narrow": (WIDTH, 4 * WIDTH)}.items():
            found[f"{block}.{name}.weight"] = normal(results, inputs)
            found[f"{block}.{name}.bias"] = normal(results)
    for norm in ("norm", *(f"blocks.{number}.norm{place}" for number in range(BLOCKS) for place in (1, 2))):
        found[f"{norm}.weight"], found[f"{norm}.bias"] = 1 + normal(WIDTH), normal(WIDTH)
    return found | {"head.weight": normal(WORDS, WIDTH), "head.bias": normal(WORDS)}


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Words and the words that follow them, both of shape ``[BATCH, LENGTH]``."""
    words = np.random.default_rng(100 + step).integers(0, WORDS, (BATCH, LENGTH + 1))
    return words[:, :-1], words[:, 1:]


def arguments() -> argparse.Namespace:
    """Where the dump goes, the mistake, and what is recorded."""
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--mistake", choices=MISTAKES)
    parser.add_argument("--level", default="mix")
    parser.add_argument("--task", default="statistics")
    parser.add_argument("--summary", default="statistics")
    parser.add_argument("--steps", type=int, default=STEPS)
    return parser.parse_args()


def configuration(asked: argparse.Namespace) -> dict[str, object]:
    """The configuration of the debugger."""
    own = {"summary_mode": asked.summary} if asked.task == "statistics" else {}
    return {"task": asked.task, "dump_path": asked.output, "level": asked.level, asked.task: own}
