"""Of the stand-in: functions."""

from __future__ import annotations

from typing import Any

from mindspore import ops


def linear(x: Any, weight: Any) -> Any:
    return ops.matmul(x, weight.T)


def relu(x: Any) -> Any:
    return ops.relu(x)
