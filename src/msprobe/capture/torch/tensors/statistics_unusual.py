"""Tensors that are more, or less, than strided memory: what they are called and where their values are.

Sparse, quantised, nested, distributed and fake tensors, functorch's wrappers, subclasses. Nothing of the user
runs here, nothing waits for a collective, nothing is communicated. Call inside
``statistics_framework.OwnWork``.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import torch

from msprobe.capture.torch import private
from msprobe.capture.torch.tensors.digest import address_of
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.capture.torch.tensors.storages import may_be_passing
from msprobe.guard import pass_on

ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter})


@dataclasses.dataclass
class Unwrapped:
    """What is known of a tensor without reading its elements.

    ``values``: a plain tensor with the elements to read; None when there are none to be had. ``stored``: the
    plain tensor with the bytes to hash, where that is another (quantised integers). ``sparse``: the tensor
    whose stored values these are, where there is more to it. ``before`` and
    ``behind``: further keys of the description. ``unsupported``: why there are no statistics, where that is
    not clear from the rest.
    """

    type_name: str
    dtype: str
    shape: tuple[int, ...]
    requires_grad: bool
    values: torch.Tensor | None
    stored: torch.Tensor | None = None
    sparse: torch.Tensor | None = None
    before: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    behind: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    unsupported: str | None = None


def unwrap(tensor: torch.Tensor) -> Unwrapped:
    """Find out what ``tensor`` is. Raises what torch raises where it cannot say."""
    kind = type(tensor)
    if kind not in ORDINARY:
        for base in kind.__mro__:
            handle = _BY_CLASS.get(f"{base.__module__}.{base.__qualname__}")
            if handle is not None:
                return handle(tensor)
        return _subclass(tensor)
    if private.is_transformed(tensor):
        return _transformed(tensor)
    if tensor.is_nested:
        return _nested(tensor, tensor.values().detach())
    return _plain(tensor)


def inside_of(tensor: torch.Tensor) -> torch.Tensor:
    """The plain tensor whose memory a wrapper has; any other as it is. Enters ``OwnWork`` itself."""
    if type(tensor) in ORDINARY:
        return tensor
    with OwnWork():
        values = unwrap(tensor).values
    return tensor if values is None else values


def _sizes(tensor: torch.Tensor) -> tuple[int, ...]:
    # A symbolic size has no number outside its graph.
    return tuple(int(n) if isinstance(n, int) else -1 for n in tensor.shape)


def _facts(tensor: torch.Tensor, type_name: str, shape: tuple[int, ...] | None = None) -> Unwrapped:
    sizes = _sizes(tensor) if shape is None else shape
    return Unwrapped(type_name, str(tensor.dtype), sizes, bool(tensor.requires_grad), None)


def _plain(tensor: torch.Tensor, type_name: str = "torch.Tensor") -> Unwrapped:
    unwrapped = _facts(tensor, type_name)
    if tensor.layout != torch.strided:
        return _other_layout(tensor, unwrapped)
    if tensor.device.type == "meta":
        unwrapped.before.append(("device", "meta"))
        return unwrapped
    if tensor.is_quantized:
        return _quantised(tensor, unwrapped)
    values = tensor.detach()
    if not values.is_contiguous():
        unwrapped.before.append(("stride", list(values.stride())))
    if values.device.type != "cpu":
        unwrapped.before.append(("device", str(values.device)))
    if private.is_zero(values):
        values = torch.zeros(unwrapped.shape, dtype=values.dtype, device=values.device)
    if values.is_conj() or values.is_neg():
        values = values.resolve_conj().resolve_neg()
    if values.dtype == torch.complex32:
        unwrapped.stored = values
        values = values.to(torch.complex64)
    unwrapped.values = values
    if not fits(values):
        unwrapped.values = None
        unwrapped.unsupported = "its storage was freed or is smaller than its shape needs"
    return unwrapped


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of torch's own classes, with memory that can be looked at."""
    return type(tensor) in ORDINARY and fits(tensor)


def fits(values: torch.Tensor) -> bool:
    """Whether the elements lie inside their storage, as far as that can be asked."""
    if values.numel() == 0:
        return True
    if may_be_passing(values):
        return bool(address_of(values) != 0)
    last = sum((n - 1) * s for n, s in zip(values.shape, values.stride(), strict=True)) + values.storage_offset()
    return address_of(values) != 0 and (last + 1) * values.element_size() <= values.untyped_storage().nbytes()


def _other_layout(tensor: torch.Tensor, unwrapped: Unwrapped) -> Unwrapped:
    """Statistics are over the stored values; the zeros between them are not counted."""
    layout = str(tensor.layout)
    unwrapped.behind.append(("layout", layout))
    if tensor.device.type not in ("cpu", "meta"):
        unwrapped.before.append(("device", str(tensor.device)))
    if tensor.layout is private.MKLDNN:
        unwrapped.values = tensor.detach().to_dense()
        return unwrapped
    unwrapped.behind.append(("nnz", int(tensor._nnz())))
    if tensor.device.type == "meta":
        unwrapped.before.append(("device", "meta"))
    else:
        unwrapped.values = tensor._values().detach() if tensor.is_sparse else tensor.values().detach()
        unwrapped.sparse = tensor
    return unwrapped


def _quantised(tensor: torch.Tensor, unwrapped: Unwrapped) -> Unwrapped:
    plain = tensor.detach()
    unwrapped.values = plain.dequantize()
    unwrapped.stored = plain.int_repr()
    scheme = plain.qscheme()
    unwrapped.behind.append(("qscheme", str(scheme)))
    if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        unwrapped.behind += [("scale", float(plain.q_scale())), ("zero_point", int(plain.q_zero_point()))]
    elif plain.device.type == "cpu":
        unwrapped.behind += [
            ("axis", int(plain.q_per_channel_axis())),
            ("scale", plain.q_per_channel_scales().tolist()),
            ("zero_point", plain.q_per_channel_zero_points().tolist()),
        ]
    return unwrapped


def _transformed(tensor: torch.Tensor) -> Unwrapped:
    """vmap, grad, jvp, functionalize: the value inside, with its physical shape."""
    type_name = next((name for test, name in private.TRANSFORMED if test(tensor)), "torch.Tensor")
    inner = tensor
    for _ in range(64):
        if not private.is_transformed(inner):
            break
        inner = private.inside_of_transformed(inner)
    unwrapped = unwrap(inner)
    unwrapped.type_name = type_name
    unwrapped.requires_grad = bool(tensor.requires_grad)
    return unwrapped


def _nested(tensor: torch.Tensor, values: torch.Tensor, type_name: str = "torch.Tensor") -> Unwrapped:
    """All components behind one another; the shape is that of this block."""
    unwrapped = unwrap(values)
    unwrapped.type_name = type_name
    unwrapped.requires_grad = bool(tensor.requires_grad)
    unwrapped.behind.insert(0, ("layout", "torch.jagged" if type_name != "torch.Tensor" else "torch.strided (nested)"))
    return unwrapped


def _jagged(tensor: torch.Tensor) -> Unwrapped:
    inner: Any = tensor._values
    return _nested(tensor, inner.detach(), private.JAGGED)


def _fake(tensor: torch.Tensor) -> Unwrapped:
    return _facts(tensor, private.FAKE)


def _functional(tensor: torch.Tensor) -> Unwrapped:
    unwrapped = _facts(tensor, "torch.Tensor")
    unwrapped.behind.append(("class", _class_name(tensor)))
    unwrapped.unsupported = "a tensor that is being traced has no values"
    return unwrapped


def _async_collective(tensor: torch.Tensor) -> Unwrapped:
    """The result of a collective nobody has waited for; waiting here would hide the user's own mistakes."""
    type_name = private.AWAITED
    inner: Any = getattr(tensor, "elem", None)
    if getattr(tensor, "completed", False) and isinstance(inner, torch.Tensor):
        unwrapped = unwrap(inner)
        unwrapped.type_name = type_name
        return unwrapped
    unwrapped = _facts(inner if isinstance(inner, torch.Tensor) else tensor, type_name)
    unwrapped.unsupported = "the collective was not waited for yet"
    return unwrapped


def _distributed(tensor: torch.Tensor) -> Unwrapped:
    """Global shape; statistics of what this rank holds."""
    source: Any = tensor
    unwrapped = unwrap(source._local_tensor)
    local_shape = unwrapped.shape
    unwrapped.shape = _sizes(tensor)
    unwrapped.type_name = "torch.distributed.tensor.DTensor"
    unwrapped.requires_grad = bool(tensor.requires_grad)
    spec = source._spec
    unwrapped.behind += [
        ("placements", [_placement(placement) for placement in spec.placements]),
        ("device_mesh", _ranks_of(spec.mesh)),
        ("local_shape", list(local_shape)),
    ]
    return unwrapped


#: The ranks of a mesh never change, but newer versions of torch put them together anew each time they are asked for:
#: that takes longer than all else about a small tensor.
_RANKS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _ranks_of(mesh: Any) -> Any:
    """The ranks of a mesh of devices, as nested lists that nobody changes."""
    ranks = _RANKS.get(mesh)
    if ranks is None:
        ranks = _RANKS[mesh] = mesh.mesh.tolist()
    return ranks


def _placement(placement: Any) -> dict[str, dict[str, Any]]:
    fields = {}
    if dataclasses.is_dataclass(placement):
        fields = {field.name: getattr(placement, field.name) for field in dataclasses.fields(placement)}
    else:
        for name in ("dim", "split_factor", "reduce_op"):
            value = getattr(placement, name, None)
            if value is not None:
                fields[name] = value
    plain = {name: value if isinstance(value, (bool, int, str)) else str(value) for name, value in fields.items()}
    return {type(placement).__name__.removeprefix("_"): plain}


def _class_name(tensor: torch.Tensor) -> str:
    kind = type(tensor)
    return f"{kind.__module__}.{kind.__qualname__}"


def _subclass(tensor: torch.Tensor) -> Unwrapped:
    """A class of the user's: its memory if it has some, read past everything the class overrides."""
    base = private.TensorBase
    try:
        unwrapped = unwrap(base.as_subclass(tensor, torch.Tensor))
    except Exception as error:
        pass_on(error)
        sizes = tuple(int(n) for n in base.shape.__get__(tensor))
        dtype, requires_grad = base.dtype.__get__(tensor), base.requires_grad.__get__(tensor)
        unwrapped = Unwrapped("torch.Tensor", str(dtype), sizes, bool(requires_grad), None)
        unwrapped.unsupported = "a tensor subclass without memory of its own"
    else:
        if unwrapped.unsupported:
            unwrapped.unsupported = "a tensor subclass without memory of its own"
        unwrapped.requires_grad = bool(base.requires_grad.__get__(tensor))
    unwrapped.behind.append(("class", _class_name(tensor)))
    return unwrapped


_HANDLERS: dict[str, Callable[[torch.Tensor], Unwrapped]] = {
    "distributed": _distributed,
    "awaited": _async_collective,
    "fake": _fake,
    "functional": _functional,
    "jagged": _jagged,
}
_BY_CLASS = {name: _HANDLERS[kind] for name, kind in private.UNUSUAL.items()}
