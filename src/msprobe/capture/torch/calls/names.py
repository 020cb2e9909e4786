"""What a function of torch is called in a dump.

The interpreter hands the recorder function objects. This table gives each its prefix and name, and says
whether the list in ``support_wrap_ops.yaml`` names it: such an API is recorded as one unit and numbered as
other tools number it. Everything else is recorded under names of the same form, where it is a single
operation; Python functions off the list are transparent, so that what they call is recorded instead.

An operator and the method behind it reach the recorder as one and the same function (``a + b`` and
``a.add(b)``), but are numbered apart. The instruction that made the call says which it was.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional

from msprobe.capture.api_list import api_list
from msprobe.capture.torch import private


class Api(NamedTuple):
    """How calls of one function are recorded. ``key`` is the entry name without number and direction."""

    key: str
    listed: bool
    # Not recorded, but what it calls inside is. With a key: recorded under it where it cannot be entered.
    transparent: bool = False
    # Operator forms: the name to use when the call was made by an operator instead (`a + b`), as (key,
    # listed).
    operator: tuple[str, bool] | None = None
    reflected: tuple[str, bool] | None = None
    name: str = ""
    # A Python function: it hands its arguments on in another form than it was given.
    python: bool = False
    # The function that calls this one if an argument says so, and is the one that users call:
    # `max_pool2d(..., return_indices=True)` runs `max_pool2d_with_indices`.
    dispatcher: Any = None
    # Runs and records the call, where that takes a way of its own: (api, function, args, kwargs) -> result.
    # Looked at only if ``transparent``.
    unit: Callable[..., Any] | None = None


TRANSPARENT = Api("", False, transparent=True)

# Questions about a tensor, bookkeeping and conversions that compute nothing: part of no record.
_SILENT_METHODS = frozenset(
    """
    dim ndimension size stride storage_offset numel nelement data_ptr element_size is_contiguous is_pinned
    is_shared is_floating_point is_complex is_signed is_same_size is_set_to is_inference is_conj is_neg
    is_coalesced get_device has_names register_hook register_post_accumulate_grad_hook retain_grad
    requires_grad_ untyped_storage storage storage_type __len__ __hash__ __dir__ __setstate__
    __reduce_ex__ __array_priority__ __dlpack__ __dlpack_device__ __cuda_array_interface__ dense_dim
    sparse_dim _nnz _is_view _dimI _dimV names _is_zerotensor _has_symbolic_sizes_strides __array__ pin_memory
    share_memory_ is_distributed dtype device layout is_sparse _make_subclass _make_wrapper_subclass
    _make_dtensor as_subclass _fix_weakref _view_func _view_func_unsafe _rev_view_func_unsafe _typed_storage
    _reduce_ex_internal __torch_dispatch__ is_nonzero_ _use_count qscheme q_scale q_per_channel_scales
    q_per_channel_zero_points q_per_channel_axis dim_order
    """.split()
)
_SILENT_FUNCTIONS = frozenset(
    """
    is_tensor is_storage is_complex is_conj is_neg is_floating_point is_inference is_same_size is_signed
    is_distributed numel result_type can_cast promote_types get_device typename is_grad_enabled
    broadcast_shapes is_vulkan_available _is_functional_tensor set_default_dtype get_default_dtype
    _has_compatible_shallow_copy_type _C._get_tracing_state compiled_with_cxx11_abi get_rng_state
    set_rng_state manual_seed seed initial_seed _functionalize_sync _is_zerotensor _disable_functionalization
    _enable_functionalization _sync
    """.split()
)
# Properties whose result is computed: transposes and parts of complex numbers.
_COMPUTED_PROPERTIES = ("T", "mT", "H", "mH", "real", "imag")

# Old names of other functions (mm, hspmm, sspaddmm): calls under these names reach us as calls of those.
_OLD_ALIASES = frozenset(("dsmm", "spmm", "hsmm", "saddmm"))
# method -> (operator, in-place operator); the reflected forms follow from the listed names
_OPERATORS = {
    "add": "__add__",
    "sub": "__sub__",
    "mul": "__mul__",
    "div": "__truediv__",
    "remainder": "__mod__",
    "pow": "__pow__",
    "matmul": "__matmul__",
    "lt": "__lt__",
    "le": "__le__",
    "gt": "__gt__",
    "ge": "__ge__",
    "eq": "__eq__",
    "ne": "__ne__",
    "neg": "__neg__",
    "abs": "__abs__",
    "positive": "__pos__",
    "bitwise_and": "__and__",
    "bitwise_or": "__or__",
    "bitwise_xor": "__xor__",
    "bitwise_not": "__invert__",
    "floor_divide": "__floordiv__",
    "add_": "__iadd__",
    "sub_": "__isub__",
    "mul_": "__imul__",
    "div_": "__itruediv__",
    "remainder_": "__imod__",
    "pow_": "__ipow__",
    "floor_divide_": "__ifloordiv__",
}
_REFLECTED = {"add": "__radd__", "mul": "__rmul__"}


@lru_cache(maxsize=4)
def listed_names(file: str | None = None) -> dict[str, frozenset[str]]:
    """The API list, the shipped one or that of ``file``: group -> names."""
    groups = api_list("msprobe.capture.torch", file, _known)
    return {group: frozenset(names) for group, names in groups.items()}


def _known(group: str) -> Callable[[str], bool] | None:
    holder = {"functional": functional, "tensor": torch.Tensor, "torch": torch}.get(group)
    return None if holder is None else lambda name: _resolve(holder, name) is not None


def _resolve(holder: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        holder = getattr(holder, part, None)
        if holder is None:
            return None
    return holder


class ApiNames:
    """Function object -> :class:`Api`; None for functions that are part of no record.

    ``include_unlisted`` False restricts recording to the list: the shipped one, or that of ``list_file``. All operators
    of ``own_namespaces`` (of ``torch.ops``) count as listed.
    """

    def __init__(
        self, include_unlisted: bool = True, list_file: str | None = None, own_namespaces: Collection[str] = ()
    ) -> None:
        self._own_namespaces = frozenset(own_namespaces)
        self.include_unlisted = include_unlisted
        self.list_file = list_file
        self.table: dict[Any, Api | None] = {}
        # Namespace of operators -> who knows how they are recorded: (operator, key) -> its Api.
        self.namespaces: dict[str, Callable[[Any, str], Api | None]] = {}
        # How an operator of a namespace that is none of torch's own is recorded: (namespace, key or "") -> its Api.
        self.foreign_operator: Callable[[str, str], Api | None] = lambda space, key: None
        self._wrapped: list[tuple[Any, str]] = []
        groups = listed_names(list_file)
        self._listed: dict[str, frozenset[str]] = {
            "Functional": groups.get("functional", frozenset()),
            "Tensor": groups.get("tensor", frozenset()),
            "Torch": frozenset(n.rsplit(".", 1)[-1] for n in groups.get("torch", ())),
        }
        self._fill(groups)

    def find(self, function: Any) -> Api | None:
        """The API of a function that is not in ``table`` yet; the answer is remembered."""
        api = self._find(function)
        if len(self.table) < 100_000:
            self.table[function] = api
        return api

    # ------------------------------------------------------------ filling

    def _fill(self, groups: dict[str, frozenset[str]]) -> None:
        for name in sorted(groups.get("functional", ())):
            self._add(_resolve(functional, name), f"Functional.{name}")
        for name in sorted(groups.get("tensor", ())):
            # `2 / a` arrives as __rdiv__, which is one function with __rtruediv__; only the list's own
            # spelling counts.
            if name == "__rdiv__":
                continue
            function = getattr(torch.Tensor, name, None)
            self._add(function, f"Tensor.{name}")
        for name in sorted(groups.get("torch", ()), key=lambda n: ("." not in n, n in _OLD_ALIASES, n)):
            self._add(_resolve(torch, name), f"Torch.{name.rsplit('.', 1)[-1]}")
        for name in sorted(groups.get("_VF", ())):
            function = getattr(private.VF, name, None)
            if function is not None:
                self.table[function] = Api(f"VF.{name}", True, name=name)
        npu = getattr(torch, "npu", None) and _module("torch_npu")
        if npu:
            for name in sorted(groups.get("torch_npu", ())):
                self._add(getattr(npu, name, None), f"NPU.{name}")
        # Where somebody has put a wrapper in a function's place, either of the two may arrive. What a listed one wraps
        # may be on the list itself: `Tensor.__pow__` wraps `Tensor.pow`.
        for function, key in self._wrapped:
            if function not in self.table:
                self._add(function, key)
        self._fill_operators()
        private.has("choices by argument")  # said here if not
        for dispatcher, choice in list(private.boolean_dispatched.items()):
            chosen = self.table.get(choice["if_true"])
            if chosen is not None and self.table.get(dispatcher) is not None:
                self.table[choice["if_true"]] = chosen._replace(dispatcher=dispatcher)
        for name in _SILENT_METHODS:
            self._silence(getattr(torch.Tensor, name, None))
        for name in _SILENT_FUNCTIONS:
            self._silence(_resolve(torch, name))
        for function in (
            torch.Tensor.backward,
            torch.autograd.grad,
            torch.autograd.backward,
            torch.Tensor.__repr__,
        ):
            self.table[function] = TRANSPARENT
        for name in _COMPUTED_PROPERTIES:
            getter = getattr(getattr(torch.Tensor, name, None), "__get__", None)
            if getter is not None:
                self.table[getter] = self._unlisted("Tensor", name)
        self._fill_rest()

    def _add(self, function: Any, key: str) -> None:
        # A function can be reached under several names; the first group that lists it names it.
        if function is None or not callable(function):
            return
        if function not in self.table:
            python = isinstance(function, types.FunctionType)
            self.table[function] = Api(key, True, name=key.split(".", 1)[1], python=python)
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            self._wrapped.append((wrapped, key))

    def _silence(self, function: Any) -> None:
        if function is None:
            return
        target = function if callable(function) else getattr(function, "__get__", None)
        if target is not None and target not in self.table:
            self.table[target] = None

    def _fill_operators(self) -> None:
        listed = self._listed["Tensor"]
        for method, operator in _OPERATORS.items():
            function = getattr(torch.Tensor, method, None)
            if function is None:
                continue
            reflected = _REFLECTED.get(method)
            plain = self.table.get(function) or Api(f"Tensor.{method}", method in listed, name=method)
            self.table[function] = plain._replace(
                operator=(f"Tensor.{operator}", operator in listed),
                reflected=(f"Tensor.{reflected}", reflected in listed) if reflected else None,
            )

    def _fill_rest(self) -> None:
        """Everything else with a name: single operations of the public modules."""
        spaces: list[tuple[Any, str]] = [
            (functional, "Functional"),
            (torch.Tensor, "Tensor"),
            (torch, "Torch"),
        ]
        spaces += [
            (space, "Torch")
            for space in (getattr(torch, n, None) for n in ("linalg", "fft", "special", "sparse", "nested"))
            if space is not None
        ]
        for space, prefix in spaces:
            for name, function in _functions(space):
                if function in self.table:
                    continue
                python = isinstance(function, types.FunctionType)
                if python:
                    self.table[function] = TRANSPARENT._replace(key=f"{prefix}.{name}", name=name, python=True)
                else:
                    self.table[function] = self._unlisted(prefix, name)

    def _unlisted(self, prefix: str, name: str) -> Api | None:
        return Api(f"{prefix}.{name}", False, name=name) if self.include_unlisted else None

    # ------------------------------------------------------------ late finds

    def _find(self, function: Any) -> Api | None:
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None and wrapped in self.table:
            return self.table[wrapped]
        owner = type(function).__name__
        if owner in ("OpOverload", "OpOverloadPacket"):
            return self._operator_api(function)
        if isinstance(function, type):
            return None  # torch.device, torch.Size and the like
        if owner == "method-wrapper":
            # Reading or writing an attribute that no table entry names: shape, dtype, grad, data, ...
            return None
        if isinstance(function, types.FunctionType | types.MethodType):
            return TRANSPARENT
        name = getattr(function, "__name__", "")
        if not name:
            return TRANSPARENT if callable(function) else None
        for prefix, space in (
            ("VF", private.VF),
            ("Torch", torch),
            ("Functional", functional),
        ):
            if space is not None and getattr(space, name, None) is function:
                return self._unlisted(prefix, name)
        # What torch's own modules in C have: linalg_x and the like.
        for family in ("linalg_", "fft_", "special_"):
            if name.startswith(family):
                return self._unlisted("Torch", name.removeprefix(family))
        if name.startswith(
            ("_record_function", "_set_", "_get_", "_is_", "_has_", "_exit_", "_enter_", "_push_", "_pop_")
        ):
            return None
        prefix = "Tensor" if "TensorBase" in getattr(function, "__qualname__", "") else "Torch"
        return self._unlisted(prefix, name)

    def _operator_api(self, function: Any) -> Api | None:
        name = function.name() if hasattr(function, "name") and callable(function.name) else str(function)
        name = getattr(function, "_qualified_op_name", None) or name
        space, _, op = str(name).partition("::")
        if space == "profiler":
            return None
        name = f"{space}_{op.split('.')[0]}" if op else space.replace(".", "_")
        known = self.namespaces.get(space)
        if known is not None:
            return known(function, f"Ops.{name}")
        if space in self._own_namespaces:
            return Api(f"Ops.{name}", True, name=name)
        foreign = self.foreign_operator(space, f"Ops.{name}" if self.include_unlisted else "")
        return foreign if foreign is not None else self._unlisted("Ops", name)


def _module(name: str) -> Any:
    import sys

    return sys.modules.get(name)


def _functions(space: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in sorted(dir(space)):
        # Deprecated names warn when they are read; special names that every object has are no operations.
        if name in (
            "__class__",
            "__init__",
            "__new__",
            "__getattribute__",
            "__subclasshook__",
            "__init_subclass__",
        ):
            continue
        try:
            function = vars(space).get(name) if isinstance(space, types.ModuleType) else getattr(space, name)
        except Exception:
            continue
        if function is None or isinstance(function, type | types.ModuleType) or not callable(function):
            continue
        kinds = (
            types.FunctionType,
            types.BuiltinFunctionType,
            types.MethodDescriptorType,
            types.WrapperDescriptorType,
        )
        if isinstance(function, kinds):
            if isinstance(function, types.WrapperDescriptorType) and function.__objclass__ is object:
                continue
            yield name, function
