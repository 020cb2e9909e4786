"""Packs of the configuration check, made by hand or by the published mindstudio-probe (``tests/data/config_check``).

Those are pairs: ``static_1`` of a script with ``--seed 1234 --bf16``, ``batch: 4`` and NCCL_ALGO, ``static_2`` with
``--seed 42 --fp16``, ``bs: 8`` and CUDA_LAUNCH_BLOCKING; ``dynamic_2`` has 0.01 added to one weight of ``dynamic_1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe.environment.configuration.pack import PackWriter, as_json

PUBLISHED = Path(__file__).parents[1] / "data" / "config_check"
VERSIONS = ("8.1.1", "26.2.0")


def write_pack(path: Path, entries: Mapping[str, Any]) -> Path:
    """A pack with these entries; objects are written as JSON."""
    data = {name: value.encode() if isinstance(value, str) else as_json(value) for name, value in entries.items()}
    PackWriter(path).add(data)
    return path


def statistics(*numbers: float, **more: Any) -> dict[str, Any]:
    """Maximum, minimum, mean and norm of a tensor."""
    return {**dict(zip(("max", "min", "mean", "norm"), numbers, strict=True)), **more}
