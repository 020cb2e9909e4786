"""``"api_scope": "all"``: the functions that are recorded beside those of the list.

All that computes among the public functions of the places where programs look them up. Not recorded: questions (rank,
element type, whether something is a tensor), what reads values to the host, what makes functions of functions
(``grad``, ``vmap``: what they run is recorded), and the vocabulary of MindSpore's compiler.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from mindspore import ops

# Questions, places, and setting up: no values are computed.
_QUESTIONS = re.compile(r"(get|is|set|init|destroy|new_group|prim|op_info|custom_info|jit|requires)_.*")
_NOT_RECORDED = frozenset(
    """
    grad value_and_grad vmap jvp vjp jacfwd jacrev linearize jet derivative kernel ms_kernel constexpr add_flags
    deprecated print_ tensordump wait_stream new_group
    asnumpy numpy item itemset tolist numel ndimension dim size stride storage_offset data_ptr element_size nelement
    register_hook hooks remove_hook requires_grad_ init_data assign_value_cpp flush_from_cache convert_bytes_to_tensor
    from_dlpack to_dlpack getitem_index_info setitem_index_info offload offload_file_path pin_memory storage
    untyped_storage wait_pipeline data_sync type value empty empty_like new_empty
    """.split()
)
# What public functions are made of, under names that nobody calls.
_PARTS = re.compile(r".+_(ext|op|func)|inplace_(elu|sigmoid|silu)")
# Objects of any kind go between ranks, not tensors.
_OBJECTS = re.compile(r".*_object(_list)?")
_OPERATORS = frozenset(
    f"__{name}__"
    for name in (
        "getitem setitem invert pos neg abs divmod round"
        " add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
        " radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul rand ror rxor"
        " iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift"
        " eq ne lt le gt ge"
    ).split()
)
# Objects under the names of functions, such as `ops.tensor_add`.
_PRIMITIVES = re.compile(r"tensor_\w+|reduce_(max|mean|min|sum)|scatter_nd_update|pows|floordiv|floormod")
# Collectives are recorded under the groups of collectives.
_COMMUNICATION = re.compile(r"(comm_func|distributed)")


def functions_of(holder: Any) -> Iterator[tuple[str, Any]]:
    """(name, function) of all of a module or class that is recorded, the list apart."""
    is_class = isinstance(holder, type)
    place = getattr(holder, "__name__", "")
    for name in sorted(dir(holder)):
        attribute = inspect.getattr_static(holder, name, None)
        if isinstance(attribute, (staticmethod, classmethod, property, type)) or not _is_wanted(name, is_class):
            continue
        if isinstance(attribute, ops.Primitive):
            if not is_class and _PRIMITIVES.fullmatch(name):
                yield name, attribute
        elif inspect.isroutine(attribute) and not _is_foreign(attribute, place):
            yield name, attribute


def _is_wanted(name: str, is_class: bool) -> bool:
    if name.startswith("_"):
        return is_class and name in _OPERATORS
    without = _QUESTIONS.match(name) or _OBJECTS.fullmatch(name) or (not is_class and _PARTS.fullmatch(name))
    return name not in _NOT_RECORDED and not without


def _is_foreign(function: Any, place: str) -> bool:
    """True for a collective in a module that is not of collectives, and for anything else in one that is."""
    home = str(getattr(function, "__module__", ""))
    return bool(_COMMUNICATION.search(home)) != bool(_COMMUNICATION.search(place))
