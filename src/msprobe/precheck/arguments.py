"""The arguments and results of a recorded call as trees: tensors, plain values and containers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msprobe.foreign.plain_numbers import count_or_none
from msprobe.messages import said

TENSOR_TYPES = frozenset(
    ("torch.Tensor", "torch.nn.parameter.Parameter", "mindspore.Tensor", "mindspore.Parameter", "numpy.ndarray")
)
_DEEPEST = 10
_LIMITS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@dataclass(frozen=True)
class ArgumentTensor:
    """What a record says of one tensor.

    ``dtype`` is the framework's word without its prefix (``float32``). ``low`` and ``high`` are the recorded extremes,
    NaN and infinities included; None where nothing was recorded. ``finite_low`` and ``finite_high`` are the extremes
    of the finite elements, where the record has them. ``zeros``, ``nan`` and ``infinite`` are how many elements are
    so; None where they were not counted. ``is_unset``: memory that was uninitialised. ``stride`` is None for a
    contiguous tensor, ``file`` is the name of the file of its values.
    """

    dtype: str
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    norm: float | None = None
    finite_low: float | None = None
    finite_high: float | None = None
    zeros: int | None = None
    nan: int | None = None
    infinite: int | None = None
    is_unset: bool = False
    stride: tuple[int, ...] | None = None
    requires_grad: bool = False
    file: str | None = None
    is_array: bool = False

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Plain:
    """A value that is no tensor: ``kind`` is the recorded type (``int``, ``slice``, ``torch.dtype``)."""

    kind: str
    value: Any


@dataclass(frozen=True)
class Items:
    """A list or tuple; a record does not say which."""

    items: tuple[Argument, ...]


@dataclass(frozen=True)
class Mapping:
    """A dictionary with names as keys."""

    items: dict[str, Argument]


Argument = ArgumentTensor | Plain | Items | Mapping


class UnreadableArgumentError(ValueError):
    """A record says something of an argument that cannot be understood."""


def argument_of(content: Any, depth: int = 0) -> Argument:
    """The tree of one argument. Raises UnreadableArgumentError."""
    if depth > _DEEPEST:
        raise UnreadableArgumentError(said("lists-too-deep", _DEEPEST))
    if content is None:
        return Plain("NoneType", None)
    if isinstance(content, list):
        return Items(tuple(argument_of(item, depth + 1) for item in content))
    if not isinstance(content, dict):
        return Plain(type(content).__name__, content)
    kind = content.get("type")
    if isinstance(kind, str) and kind in TENSOR_TYPES:
        return _tensor_of(content, str(kind))
    if isinstance(kind, str):
        if "value" in content:
            return Plain(kind, content["value"])
        if "format" in content:
            return Plain(kind, content["format"])
    if "unsupported" in content:
        # What a framework raised may go on for lines, of its C++ stack for one.
        why = next(iter(str(content["unsupported"]).splitlines()), "")
        raise UnreadableArgumentError(said("recorder-could-not-describe", why.rstrip(". ")))
    return Mapping({str(name): argument_of(item, depth + 1) for name, item in content.items()})


def _tensor_of(content: dict[str, Any], kind: str) -> ArgumentTensor:
    shape = content.get("shape")
    dtype = content.get("dtype")
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise UnreadableArgumentError(said("shape-is-no-lengths", shape))
    if not isinstance(dtype, str):
        raise UnreadableArgumentError(said("dtype-is-no-text", dtype))
    stride = content.get("stride")
    if stride is not None and (
        not isinstance(stride, list) or len(stride) != len(shape) or not all(isinstance(n, int) for n in stride)
    ):
        stride = None
    file = content.get("data_name")
    return ArgumentTensor(
        dtype=dtype.rpartition(".")[2].lower(),
        shape=tuple(shape),
        low=_number(content.get("Min")),
        high=_number(content.get("Max")),
        mean=_number(content.get("Mean")),
        norm=_number(content.get("Norm")),
        finite_low=_number(content.get("Min_except_inf_nan")),
        finite_high=_number(content.get("Max_except_inf_nan")),
        zeros=count_or_none(content.get("zero")),
        nan=count_or_none(content.get("nan")),
        infinite=count_or_none(content.get("inf")),
        is_unset=content.get("unset") is True,
        stride=None if stride is None else tuple(stride),
        requires_grad=content.get("requires_grad") is True,
        file=file if isinstance(file, str) and file != "-1" else None,
        is_array=kind == "numpy.ndarray",
    )


def _number(value: Any) -> float | None:
    if isinstance(value, (bool, int, float)):
        return float(value) if isinstance(value, float) else int(value)
    return _LIMITS.get(value.lower()) if isinstance(value, str) else None


def tensors_of(argument: Argument, path: str) -> Iterator[tuple[str, ArgumentTensor]]:
    """All tensors of a tree with their paths (``0.1`` for the second of a list that is the first argument)."""
    if isinstance(argument, ArgumentTensor):
        yield path, argument
    elif isinstance(argument, Items):
        for place, item in enumerate(argument.items):
            yield from tensors_of(item, f"{path}.{place}")
    elif isinstance(argument, Mapping):
        for name, item in argument.items.items():
            yield from tensors_of(item, f"{path}.{name}")


def form_of(argument: Argument) -> Any:
    """What two calls must have in common to be the same test: types, shapes and plain values, no statistics."""
    if isinstance(argument, ArgumentTensor):
        return "tensor", argument.dtype, argument.shape, argument.stride, argument.requires_grad
    if isinstance(argument, Items):
        return "items", tuple(form_of(item) for item in argument.items)
    if isinstance(argument, Mapping):
        return "mapping", tuple((name, form_of(item)) for name, item in sorted(argument.items.items()))
    return "plain", argument.kind, repr(argument.value)
