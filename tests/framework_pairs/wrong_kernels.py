"""Wrong kernels of the PyTorch side, below the recorder: what one operator gives is scaled, or loses its last rows."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

#: Operator of aten, what is wrong with it and by how much, which of its calls is (-1: all), and which result.
KERNELS = (
    ("addmm", "scale", 0.05, -1, 0), ("addmm", "last-rows", 2, -1, 0), ("addmm", "scale", 0.02, 1, 0),
    ("mm", "scale", 0.05, -1, 0), ("mm", "last-rows", 1, 1, 0), ("bmm", "scale", 0.05, -1, 0),
    ("bmm", "last-rows", 1, 0, 0), ("_softmax", "scale", 0.05, -1, 0),
    ("_softmax_backward_data", "scale", 0.05, -1, 0), ("gelu", "scale", 0.03, -1, 0),
    ("gelu_backward", "scale", 0.05, -1, 0), ("tanh", "scale", 0.03, -1, 0), ("tanh_backward", "scale", 0.05, -1, 0),
    ("relu", "scale", 0.03, -1, 0), ("threshold_backward", "scale", 0.05, -1, 0),
    ("leaky_relu", "scale", 0.03, -1, 0), ("native_layer_norm", "scale", 0.03, -1, 0),
    ("native_layer_norm_backward", "scale", 0.05, -1, 0), ("native_group_norm", "scale", 0.03, -1, 0),
    ("native_group_norm_backward", "scale", 0.05, -1, 0), ("convolution", "scale", 0.03, -1, 0),
    ("convolution", "last-rows", 2, -1, 0), ("convolution_backward", "scale", 0.05, -1, 1),
    ("silu", "scale", 0.03, -1, 0), ("silu_backward", "scale", 0.05, -1, 0), ("sigmoid", "scale", 0.03, -1, 0),
    ("sigmoid_backward", "scale", 0.05, -1, 0), ("avg_pool2d", "scale", 0.03, -1, 0),
    ("embedding", "scale", 0.03, -1, 0), ("mean", "scale", 0.03, -1, 0),
    ("embedding_dense_backward", "scale", 0.05, -1, 0), ("rsqrt", "scale", 0.03, -1, 0),
)  # fmt: skip


def _faults() -> dict[str, Any]:
    from bugs.kernels.faults import Fault  # which imports torch

    made = (Fault("", *kernel[:3], only=kernel[3], slot=kernel[4]) for kernel in KERNELS)
    return {fault.id.strip("-"): fault for fault in made}


def kernel_names() -> tuple[str, ...]:
    """A name for each wrong kernel."""
    return tuple(_faults())


def kernel_of(name: str) -> AbstractContextManager[Any]:
    """The device that has this wrong kernel; nothing for an empty name."""
    if not name:
        return nullcontext()
    from bugs.kernels.device import Device

    return Device("", _faults()[name])


def changed_first(healthy: Path, faulty: Path) -> frozenset[str]:
    """The record of the first step whose result differs first, and those that show the same: a module and the call in
    it, the gradient of a weight that a call back gives. Empty where nothing differs.
    """
    before, after = (_results(next((dump / "step0").glob("rank*/dump.json"))) for dump in (healthy, faulty))
    changed = [name for name, shown in after.items() if before.get(name) != shown]
    if not changed:
        return frozenset()
    first = after[changed[0]]
    return frozenset(name for name in changed if any(shown in first for shown in after[name]))


def _results(file: Path) -> dict[str, list[Any]]:
    """What was recorded of the results of each record, in the order of execution."""
    found: dict[str, list[Any]] = {}
    data = json.loads(file.read_text())["data"]
    passes = [name for name in data if not name.endswith("parameters_grad")]
    last = max((place for place, name in enumerate(passes) if ".backward" in name), default=-1)
    gradients = [name for name in data if name.endswith("parameters_grad")]
    for name in (*passes[: last + 1], *gradients, *passes[last + 1 :]):
        record = data[name]
        leaves = record["output"] if "output" in record else [leaf for each in record.values() for leaf in each]
        found[name] = [
            [leaf.get(key) for key in ("Max", "Min", "Mean", "Norm")] for leaf in leaves if isinstance(leaf, dict)
        ]
    return found
