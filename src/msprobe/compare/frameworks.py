"""Which framework made a dump, and which of its types are alike in another framework."""

from __future__ import annotations

import re
from typing import Any, Literal

from msprobe.compare.problems import InvalidArgumentError
from msprobe.messages import said
from msprobe.store.part import DumpPart

Framework = Literal["pytorch", "mindspore", "mindtorch"]

FRAMEWORKS: tuple[Framework, ...] = ("pytorch", "mindspore", "mindtorch")
_NUMBER = re.compile(
    r"(?:torch\.)?(?:u?(?P<int>int)\d+|b?(?P<float>float)\d\w*|(?P<bool>bool)|(?P<complex>complex)\d+)"
)


def framework_of(part: DumpPart) -> Framework:
    """The framework that a dump names, or that the type of its first tensor says.

    ``mindtorch`` is PyTorch's interface on MindSpore: the names of the one, the tensors of the other. Raises
    InvalidArgumentError where nothing says.
    """
    named = part.header.get("framework")
    if named in FRAMEWORKS:
        known: Framework = named
        return known
    for _, record in part.records():
        kind = _first_type(record)
        if kind is not None:
            return "mindspore" if kind.startswith("mindspore") else "pytorch"
    raise InvalidArgumentError(said("framework-not-named", part.path, named, ", ".join(FRAMEWORKS)))


def crosses(candidate: Framework, reference: Framework) -> bool:
    """True if the two sides name their element types differently."""
    return (candidate == "pytorch") != (reference == "pytorch")


def dtype_family(dtype: str) -> str:
    """int, float, bool or complex for the element types of both frameworks; all else stays itself.

    Source: what mindspore-to-pytorch comparison of mindstudio-probe 8.1.1 takes for equal.

    >>> dtype_family("Float32"), dtype_family("torch.bfloat16"), dtype_family("BFloat16"), dtype_family("UInt8")
    ('float', 'float', 'float', 'int')
    """
    match = _NUMBER.fullmatch(dtype.lower())
    return dtype if match is None else str(match.lastgroup)


def _first_type(value: Any) -> str | None:
    if isinstance(value, dict):
        kind = value.get("type")
        if isinstance(kind, str):
            return kind if kind.startswith(("mindspore", "torch")) else None
        items: Any = value.values()
    elif isinstance(value, list):
        items = value
    else:
        return None
    return next((type_name for item in items if (type_name := _first_type(item)) is not None), None)
