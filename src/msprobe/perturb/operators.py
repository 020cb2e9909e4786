"""What is known of operators by their names: which are not made again, which write, and of which the result is known
when two elements are exchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

# Made again they communicate twice, or say nothing: they choose at random, make or move memory, or change what a
# tensor is. Names with `empty` in them give memory that nobody has written.
_NEVER = frozenset(
    "bernoulli bernoulli_ multinomial normal normal_ poisson uniform_ random_ exponential_ geometric_ log_normal_"
    " cauchy_ gumbel_softmax rrelu rrelu_ binomial to cuda cpu npu xpu copy_ clone contiguous detach detach_"
    " requires_grad_ resize_ resize_as_ set_ t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_"
    " rename_ fill_ zero_ zeros_like ones_like full_like new_zeros new_ones new_full new_tensor tensor as_tensor"
    " asarray from_numpy numpy data backward register_hook retain_grad share_memory_ pin_memory record_stream"
    " __setitem__ __get__ __set__ type type_as half float double bfloat16 checkpoint storage untyped_storage"
    " data_ptr item tolist stride is_contiguous __float__ __int__ __bool__ __index__ __complex__".split()
)
_NEVER_BEGIN = (
    "rand",
    "_foreach_",
    "_fused_",
    "manual_seed",
    "trunc_normal",
    "kaiming_",
    "xavier_",
)
# Operators by their full name are what a mode of the program passes on, of calls that are reported besides.
_NEVER_KEYS = ("Distributed.", "Optimizer.", "Compiled.", "Jit.", "Kernel.", "Ops.aten_", "Ops.aten.", "Aten.")
# Names that end so and write nothing.
_NOT_IN_PLACE = re.compile(r"__\w+__$")
_AUGMENTED = re.compile(r"__i(add|sub|mul|matmul|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift)__$")


def last_name(key: str) -> str:
    """``linear`` of ``Functional.linear``."""
    return key.rpartition(".")[2]


def is_left_out(key: str) -> bool:
    """True for a call that is never made again."""
    name = last_name(key)
    return name in _NEVER or "empty" in name or name.startswith(_NEVER_BEGIN) or key.startswith(_NEVER_KEYS)


def writes(key: str, kwargs: Mapping[str, Any]) -> bool:
    """True if the call changes what it is given, as its name and words say: its arguments are copied before it."""
    # An embedding with a greatest norm scales its weight.
    if kwargs.get("out") is not None or kwargs.get("inplace") is True or kwargs.get("max_norm") is not None:
        return True
    name = last_name(key)
    if _NOT_IN_PLACE.search(name):
        return _AUGMENTED.search(name) is not None
    return name.endswith("_") and not name.startswith("_")


def seeks_equals(key: str) -> bool:
    """True if the call asks which elements are equal, so that it answers otherwise to the least noise."""
    return last_name(key) in _BY_EQUALITY


# ---------------------------------------------------------------- exchanging two elements


@dataclass(frozen=True)
class ElementExchange:
    """What to exchange, and what of the result has to be the same then.

    ``places``: which tensor, by its position among the arguments, along which axis (None: first and last element as a
    flat list). ``result``: "same"; "permuted": exchanged along the axis of the first; "last": its last element along
    that axis is the same.
    """

    places: Sequence[tuple[int, int | None]]
    result: Literal["same", "permuted", "last"] = "same"
    #: The gradient goes to one of the elements that are equal to the result, whichever the kernel meets.
    chooses: bool = False

    @property
    def axis(self) -> int | None:
        """The axis of the first tensor."""
        return self.places[0][1]


_REDUCTIONS = frozenset(
    "sum mean norm max min amax amin prod logsumexp nansum nanmean std var median vector_norm reduce_sum reduce_mean"
    " reduce_max reduce_min".split()
)
# amax and amin share the gradient among equal elements, and max and min do so without an axis.
_CHOOSING = frozenset("max min median reduce_max reduce_min".split())
# Noise makes unequal what they take for one.
_BY_EQUALITY = frozenset("unique _unique _unique2 unique_dim unique_consecutive mode".split())
_ALONG = frozenset("softmax log_softmax softmin".split())
_CUMULATIVE = frozenset("cumsum cumprod logcumsumexp".split())
_AXES = ("dim", "axis")


def exchange_of(
    key: str, args: Sequence[Any], kwargs: Mapping[str, Any], ranks: Sequence[int]
) -> ElementExchange | None:
    """How two elements of the inputs can be exchanged so that it is known what comes of it; None if that is not known.

    ``ranks``: the number of dimensions of each positional argument, -1 for what is no tensor.
    """
    name = last_name(key).removesuffix("_ext")
    if not ranks or ranks[0] < 1:
        return None
    if name in _REDUCTIONS:
        return _reduction_axis(name, args, kwargs, ranks)
    if name in _ALONG or name in _CUMULATIVE:
        axis = _axis(args, kwargs, 1)
        if not isinstance(axis, int) or isinstance(axis, bool):
            return None
        return ElementExchange(((0, axis),), "permuted" if name in _ALONG else "last")
    if name in ("dot", "vdot", "inner") and len(ranks) > 1 and ranks[0] == ranks[1] == 1:
        return ElementExchange(((0, 0), (1, 0)))
    if name in ("matmul", "mm", "bmm", "__matmul__", "mv") and len(ranks) > 1 and ranks[1] >= 1:
        return ElementExchange(((0, -1), (1, -2 if ranks[1] > 1 else 0)))
    if name in ("linear", "dense") and len(ranks) > 1 and ranks[1] == 2:
        return ElementExchange(((0, -1), (1, -1)))
    return None


def _reduction_axis(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], ranks: Sequence[int]
) -> ElementExchange | None:
    if name in ("max", "min") and len(ranks) > 1 and ranks[1] >= 0:
        return None  # of two tensors, element by element
    first = 2 if name in ("norm", "vector_norm") else 1
    axis = _axis(args, kwargs, first)
    if name in ("std", "var") and isinstance(axis, bool):
        axis = None
    if isinstance(axis, (tuple, list)):
        axis = axis[0] if axis else None
    if axis is None:
        return ElementExchange(((0, None),), chooses=name == "median")
    if not isinstance(axis, int) or isinstance(axis, bool):
        return None
    return ElementExchange(((0, axis),), chooses=name in _CHOOSING)


def _axis(args: Sequence[Any], kwargs: Mapping[str, Any], position: int) -> Any:
    for word in _AXES:
        if word in kwargs:
            return kwargs[word]
    return args[position] if len(args) > position else None
