"""Tensors of MindSpore as numpy arrays, for :mod:`msprobe.single_save`."""

from __future__ import annotations

from typing import Any

import mindspore

from msprobe.store.dtypes import Array


def is_tensor(value: object) -> bool:
    """True for tensors and parameters."""
    return isinstance(value, mindspore.Tensor)


def to_array(value: Any) -> Array:
    """The values of a tensor on any device."""
    if value.dtype == mindspore.bfloat16:
        value = value.astype(mindspore.float32)
    array: Array = value.asnumpy()
    return array


def rank() -> int:
    """The rank of this process, 0 outside of distributed runs."""
    from mindspore import communication

    try:
        return int(communication.get_rank())
    except RuntimeError:
        # Not initialised: a run of one process.
        return 0
