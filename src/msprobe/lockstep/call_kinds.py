"""What a call does to what it takes, as far as lockstep has to know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msprobe.capture.events import Call
from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.diagnose.operators import AVERAGING
from msprobe.diagnose.steps.argument_names import argument_given
from msprobe.lockstep.pairing import Values

#: Calls that give a number of Python's; ``Tensor.float`` and its like give another type.
NUMBERS = frozenset(("item", "tolist", "__int__", "__float__", "__bool__", "__index__", "__complex__"))


def is_broadcast(first: Sequence[int], other: Sequence[int]) -> bool:
    """True if the shapes go together but for lengths of 1: taken over other dimensions, as a largest number of all is
    in the place of one for each row, and what is computed with either has one shape.
    """
    return len(first) == len(other) and all(a == b or 1 in (a, b) for a, b in zip(first, other, strict=True))


def is_kept(event: Call, path: str, tensor: Any) -> bool:
    """True for running averages: the call goes on to write to them, and what they hold reaches the next one."""
    averages = operation(event.key) in AVERAGING and path not in ("input.0", "kwargs.input")
    return averages and not tensor.requires_grad


def writes_to_arguments(event: Call) -> bool:
    """True for a call that writes to its arguments."""
    if writes_in_place(event.key) or event.kwargs.get("out") is not None:
        return True
    # An embedding with a greatest norm scales its weight.
    asked = {word: argument_given(event.key, word, event.args, event.kwargs) for word in ("inplace", "max_norm")}
    return asked["inplace"] is True or asked["max_norm"] is not None


def gives_back(event: Call, result: Any, given: Iterable[tuple[Any, Any]], values: Values) -> bool:
    """True for a call that has returned what it was given, and done nothing to it. ``given``: what it got in the place
    of its arguments, each with anything.
    """
    if not hasattr(result, "requires_grad") or writes_to_arguments(event):
        return False
    own = values.arguments(event.args, event.kwargs)
    return any(
        argument is result for argument in (*(argument for argument, _ in given), *(argument for _, argument in own))
    )
