"""Small but real trainings, each built the way people build them, for tests that need a model to record."""

from __future__ import annotations

import os

import torch

from .case import ARCHITECTURES, Architecture, Region, Results, TrainingCase, architecture, build, supervised

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Region",
    "Results",
    "TrainingCase",
    "architecture",
    "build",
    "load_all",
    "supervised",
]

# Libraries ask the hub for what they miss, and keep what stands here when they are imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def load_all() -> dict[str, Architecture]:
    """Import every family and give the filled register."""
    from . import (  # noqa: F401
        adapters,
        attention,
        compiled,
        distributed,
        generative,
        gradients,
        hugging_face,
        in_place,
        libraries,
        modes,
        numerics,
        parallel,
        recurrent,
        trainers,
        training,
        transforms,
        unusual,
        user_code,
        vision,
    )

    if hasattr(torch.library, "custom_op"):  # before torch 2.4 operators were defined in other ways
        from . import foreign  # noqa: F401

    return ARCHITECTURES
