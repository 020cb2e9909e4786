"""What is known of an operator overload before it is called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

# What these give is memory without values.
_UNSET_RESULTS = frozenset(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))
# These look at nothing of what they write over, which often is such memory.
_ONLY_WRITES = frozenset(
    "bernoulli_ cauchy_ copy_ exponential_ fill_ geometric_ log_normal_ normal_ random_ uniform_ zero_".split()
)
# Their results are complete at some later time, which nobody here may wait for.
_LATE_SPACES = frozenset(("c10d", "_c10d_functional", "_c10d_functional_autograd"))
# Operators of torch itself, which count what they write.
OWN_SPACES = frozenset(("aten", "prim", "prims", "quantized", "sparse", "mkldnn", "debugprims", "rngprims"))
SKIPPED_SPACES = frozenset(("prim", "profiler", "prims", "debugprims", "rngprims", "inductor_prims", "static_runtime"))

_NUMBERS = frozenset((int, float, bool, complex))


class Operator(NamedTuple):
    """What is known of one operator overload."""

    key: str
    text: str
    skipped: bool
    unset_result: bool
    late: bool
    # Of somebody else: it may write what its schema does not say.
    foreign: bool
    # Arguments that it writes to: positions, and names where they can only be given by name.
    writes: tuple[int, ...]
    writes_named: tuple[str, ...]
    # Those of them whose values it does not look at.
    unset: tuple[int, ...]
    unset_named: frozenset[str]
    # Positions of tensors, which Python sees as numbers where C++ made tensors of numbers.
    tensors: tuple[int, ...]


def describe_operator(op: Any) -> Operator:
    """Look at the schema of an operator overload."""
    schema = op._schema
    space, _, name = str(schema.name).partition("::")
    writes: list[int] = []
    writes_named: list[str] = []
    unset_named: list[str] = []
    tensors: list[int] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes_named.append(argument.name)
            if argument.kwarg_only:
                unset_named.append(argument.name)  # out=
            else:
                writes.append(position)
        if not argument.kwarg_only and str(argument.type) in ("Tensor", "Optional[Tensor]"):
            tensors.append(position)
    return Operator(
        key=f"Aten.{name}" if space == "aten" else f"Ops.{space}_{name}",
        text=str(op),
        skipped=space in SKIPPED_SPACES,
        unset_result=name in _UNSET_RESULTS,
        late=space in _LATE_SPACES,
        foreign=space not in OWN_SPACES,
        writes=tuple(writes),
        writes_named=tuple(writes_named),
        unset=tuple(writes) if name in _ONLY_WRITES else (),
        unset_named=frozenset(unset_named),
        tensors=tuple(tensors),
    )


def written(operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    values = [args[i] for i in operator.writes if i < len(args)]
    values += [kwargs[name] for name in operator.writes_named if name in kwargs]
    for value in values:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor):
                yield item


def several(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (list, tuple)) else [result]


def without_values(value: Any, operator: Operator) -> Any:
    """A tensor whose values mean nothing, or nothing yet."""
    if isinstance(value, (list, tuple)):
        return [without_values(item, operator) for item in value]
    if not isinstance(value, torch.Tensor):
        return None
    shape = [n if type(n) is int else str(n) for n in value.shape]
    tree: dict[str, Any] = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": shape}
    tree.update(Max=None, Min=None, Mean=None, Norm=None, requires_grad=value.requires_grad)
    if operator.late:
        tree["completed"] = False
    else:
        tree["unset"] = True
    return tree


def has_numbers(operator: Operator, args: Sequence[Any]) -> bool:
    count = len(args)
    return any(i < count and type(args[i]) in _NUMBERS for i in operator.tensors)
