"""What the support of all frameworks do alike (:class:`msprobe.capture.adapter.ListenerSupport`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msprobe.messages import said


def copied(value: Any, tensors: type, copy: Callable[[Any], Any]) -> Any:
    """``value``, with a copy of each tensor in it and in its lists, tuples and dicts."""
    if isinstance(value, tensors):
        return copy(value)
    if type(value) in (list, tuple):
        return type(value)(copied(item, tensors, copy) for item in value)
    if type(value) is dict:
        return {key: copied(item, tensors, copy) for key, item in value.items()}
    return value


def check_is_new(results: Sequence[Any], arguments: Sequence[Any]) -> None:
    """Raise ValueError if a tensor among the results of a call is one of those among its arguments."""
    written = {id(tensor) for tensor in arguments}
    if any(id(tensor) in written for tensor in results):
        raise ValueError(said("result-is-argument"))


def check_is_alike(own: Any, given: Any, tensors: type, what: str) -> None:
    """Raise ValueError unless ``own``, which is ``what``, and ``given`` are tensors of the same shape and type."""
    are_tensors = isinstance(own, tensors) and isinstance(given, tensors)
    if not are_tensors or own.shape != given.shape or own.dtype != given.dtype:
        raise ValueError(said("replacement-differs", what, _kind(own, tensors), _kind(given, tensors)))


def _kind(value: Any, tensors: type) -> str:
    if isinstance(value, tensors):
        dtype = str(value.dtype).lower().removeprefix("torch.")  # type: ignore[attr-defined]
        return said("tensor-of-shape", dtype, list(value.shape))  # type: ignore[attr-defined]
    return said("value-of-type", type(value).__name__)
