"""What the networks of both frameworks have in common: names, weights, batches, and the mistakes."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

#: Healthy pairs.
NETWORKS = (
    "mlp-relu", "mlp-gelu", "mlp-tanh", "mlp-sigmoid", "mlp-leakyrelu", "gelu", "attention-fused", "attention-called",
    "attention-masked", "norm-layer", "norm-group", "norm-rms", "images-norm", "images-average", "images-max", "tokens",
    "gates-silu", "gates-sigmoid", "places", "branches",
)  # fmt: skip
#: (network, mistake of the MindSpore side, what the first finding must name: one of these words in its text, or its
#: kind behind a colon).
MISTAKES = (
    ("mlp-relu", "other", ("fc1", "activation", "tanh", "relu")),
    ("mlp-gelu", "none", ("gelu", "fc1")),
    ("gelu", "form", ("act", "gelu")),
    ("attention-fused", "scale", ("truediv", "div")),
    ("attention-called", "axis", ("softmax",)),
    ("attention-masked", "mask", ("masked_fill",)),
    ("attention-fused", "residual", ("add",)),
    ("norm-layer", "eps", ("norm",)),
    ("norm-rms", "gain", ("mul",)),
    ("images-max", "pool", ("pool",)),
    ("tokens", "sum", ("sum", "mean")),
    ("gates-silu", "bias", ("wide",)),
    ("gates-silu", "order", ("silu", "gate", "split", "mul")),
    ("gates-sigmoid", "momentum", ("momentum",)),
    ("places", "halves", ("cat", "input")),
    ("places", "position", ("getitem",)),
    ("places", "loss", ("loss", "sum", "mse", "mean")),
    ("branches", "detach", ("stop_gradient", "detach")),
    ("mlp-tanh", "rate", ("lr",)),
    ("mlp-relu", "weight", ("fc2.weight",)),
    ("norm-layer", "data", (":data",)),
    ("mlp-gelu", "decay", ("weight_decay",)),
)

#: Networks that MindSpore's kernels for CPUs have in float16: their batch norm has statistics of another type.
HALF = tuple(name for name in NETWORKS if name != "images-norm")


def asked(standard: list[str]) -> argparse.Namespace:
    """The command line of both scripts; ``standard``: what is recorded if nothing is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*", default=standard)
    parser.add_argument("--level", default="mix")
    parser.add_argument("--dtype", default="float32", help="of weights and batches")
    return parser.parse_args()


def value(number: int, shape: tuple[int, ...]) -> Any:
    """The weight of the trainable parameter with this number."""
    drawn = np.random.default_rng(number).standard_normal(shape)
    return (0.3 * drawn + (1.0 if len(shape) == 1 else 0.0)).astype(np.float32)


def batch(name: str, step: int) -> tuple[Any, Any]:
    """Input and target of a step."""
    drawn = np.random.default_rng(step + 100)
    if name.startswith("tokens"):
        return drawn.integers(0, 50, (4, 6)).astype(np.int32), drawn.integers(0, 16, 4).astype(np.int32)
    return drawn.standard_normal((4, 6, 16)).astype(np.float32), np.zeros(4, np.int32)


def is_named(verdict: Any, words: tuple[str, ...]) -> bool:
    """True if the first finding of a verdict names one of the words, or is of that kind (``:kind``)."""
    if not verdict.findings or verdict.status not in ("diverged", "harmless"):
        return False
    first = verdict.findings[0]
    text = f"{first.message} {first.where} {first.entry} {first.module} :{first.kind}".lower()
    return any(word in text for word in words)
