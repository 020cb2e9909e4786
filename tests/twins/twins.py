"""What the twins in both frameworks share: weights by name, batches, and how they are asked for."""

from __future__ import annotations

import argparse
import zlib

import numpy as np

STEPS = 3
NETWORKS = ("conv", "lstm", "tied", "encoder", "plain", "half", "attention", "gru", "norms", "styles", "wrapped")
#: Those that read images; the others read sentences.
OF_IMAGES = ("conv", "plain", "half", "norms", "styles")


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values that depend on the name and the shape alone; scales of norms are near one."""
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    values = (0.25 * draw.standard_normal(shape)).astype(np.float32)
    return 1 + values if len(shape) == 1 and name.endswith("weight") else values


def images(step: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(step)
    return draw.standard_normal((6, 3, 8, 8)).astype(np.float32), draw.integers(0, 5, 6).astype(np.int32)


def sentences(step: int) -> tuple[np.ndarray, np.ndarray]:
    words = np.random.default_rng(step).integers(0, 20, (4, 8)).astype(np.int32)
    return words[:, :-1], words[:, 1:]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("output")
    parser.add_argument("--level", default="mix")
    return parser.parse_args()
