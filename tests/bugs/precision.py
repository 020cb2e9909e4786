"""In which precision a program trains: as it is written, its weights in bfloat16, or under autocast.

The program's text stays as it is, so that one pattern is planted in all of them.
"""

from __future__ import annotations

from typing import Any

PRECISIONS = ("float32", "bfloat16", "autocast")


def set_precision(training: Any, precision: str) -> None:
    """Let a training run in one of :data:`PRECISIONS`; call it before the first step.

    ``bfloat16``: all parameters; tables of positions and running averages keep float32. ``autocast``: forward pass and
    loss (``Training.loss``), or the model alone where a program has no such method.
    """
    import torch

    if precision == "bfloat16":
        for parameter in training.model.parameters():
            parameter.data = parameter.data.bfloat16()
    elif precision == "autocast":
        owner, name = (training, "loss") if hasattr(training, "loss") else (training.model, "forward")
        setattr(owner, name, torch.autocast("cpu", torch.bfloat16)(getattr(owner, name)))
    elif precision != "float32":
        raise ValueError(f"{precision!r} is none of {', '.join(PRECISIONS)}")
