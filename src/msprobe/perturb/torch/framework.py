"""What the free benchmark asks of PyTorch (:class:`msprobe.perturb.framework.Framework`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from msprobe.capture.torch import listener_support, private
from msprobe.capture.torch.tensors.digest import address_of
from msprobe.capture.torch.tensors.statistics_unusual import ORDINARY
from msprobe.capture.torch.tensors.storages import address_of_storage
from msprobe.config.settings import FreeBenchmark, PerturbationMode
from msprobe.messages import said
from msprobe.perturb.framework import ErrorLimits, Invocation, Reactions, TensorDistance
from msprobe.perturb.thresholds import unit_of
from msprobe.perturb.torch import comparing, copies, kernels, running
from msprobe.perturb.trees import leaves

_TF32_UNIT = 2.0**-11


class TorchFramework:
    """See the protocol, which has the meaning of each method."""

    # ---------------------------------------------------------------- unseen

    asks_later = False

    def settle(self) -> None:
        """Errors come at once, or with the device's next answer."""

    def aside(self) -> AbstractContextManager[None]:
        return listener_support.aside()

    def random_numbers_kept(self) -> AbstractContextManager[None]:
        return listener_support.random_numbers_kept()

    def is_in_optimizer(self) -> bool:
        return running.is_in_optimizer()

    # ---------------------------------------------------------------- tensors

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def why_not(self, value: Any) -> str:
        if not isinstance(value, torch.Tensor):
            return _why_not_value(value)
        if type(value) not in ORDINARY:
            return said("has-value-with-effects", type(value).__name__)
        if private.is_transformed(value):
            return said("inside-transform")
        if value.layout is not torch.strided or value.is_nested or value.is_quantized:
            return said("tensor-type-unsupported")
        if value.is_meta:
            return said("tensor-on-meta")
        if value.numel() and not address_of(value):
            return said("tensor-memory-given-back")
        return ""

    def why_not_call(self, key: str) -> str:
        """What draws random numbers is made again with the same ones."""
        return ""

    def is_float(self, tensor: Any) -> bool:
        return bool(tensor.is_floating_point() or tensor.is_complex())

    def dtype(self, tensor: Any) -> str:
        return str(tensor.dtype).removeprefix("torch.")

    def shown_dtype(self, tensor: Any) -> str:
        return str(tensor.dtype)

    def shown_shape(self, tensor: Any) -> str:
        return f"torch.Size({list(tensor.shape)})"

    def rank(self, tensor: Any) -> int:
        return int(tensor.dim())

    def nbytes(self, tensor: Any) -> int:
        return int(tensor.numel() * tensor.element_size())

    def requires_grad(self, tensor: Any) -> bool:
        return bool(tensor.requires_grad)

    def versions(self, tensors: Sequence[Any]) -> Sequence[int]:
        return [-1 if tensor.is_inference() else tensor._version for tensor in tensors]

    def shares_memory(self, results: Sequence[Any], arguments: Sequence[Any]) -> bool:
        known = {address_of_storage(tensor) for tensor in arguments}
        return any(address_of_storage(tensor) in known for tensor in results)

    def unit(self, tensor: Any) -> float:
        if tensor.dtype is torch.float32 and _multiplies_in_less():
            return _TF32_UNIT
        return unit_of(self.dtype(tensor))

    def free_memory(self, tensor: Any) -> int | None:
        return running.free_memory(tensor.device)

    # ---------------------------------------------------------------- copies

    def detached(self, tensor: Any) -> Any:
        return tensor.detach()

    def twin(self, tensor: Any) -> Any:
        return copies.twin(tensor)

    def cast(self, tensor: Any, dtype: str) -> Any:
        return copies.cast(tensor, getattr(torch, dtype))

    def with_dtype_of(self, tensor: Any, other: Any) -> Any:
        with torch.set_grad_enabled(tensor.requires_grad):
            return tensor.to(device=other.device, dtype=other.dtype)

    def on_cpu(self, tensor: Any) -> Any:
        return copies.twin(tensor) if tensor.is_cpu else tensor.detach().to("cpu")

    def on_device_of(self, tensor: Any, other: Any) -> Any:
        return tensor.to(other.device)

    def perturbed(self, mode: PerturbationMode, tensor: Any, settings: FreeBenchmark) -> Any:
        return kernels.perturbed(mode, tensor.detach(), settings.noise, settings.noise_scale)

    def exchanged(self, tensor: Any, axis: int | None) -> Any:
        return kernels.exchanged(tensor.detach(), axis)

    def as_required(self, tensor: Any, own: Any) -> Any:
        wanted = own.requires_grad and (tensor.is_floating_point() or tensor.is_complex())
        return tensor.detach().requires_grad_(True) if wanted else tensor

    def last(self, tensor: Any, axis: int) -> Any:
        return tensor.select(axis, -1)

    def rounded(self, tensor: Any, unit: float, seed: int) -> Any:
        return kernels.rounded(tensor.detach(), unit, seed)

    def moved(self, tensor: Any, seed: int) -> Any:
        return kernels.moved(tensor.detach(), 2 * unit_of(self.dtype(tensor)), seed)

    # ---------------------------------------------------------------- running

    def ones_for(self, result: Any) -> Sequence[Any]:
        tensors = [leaf for _, leaf in leaves(result) if isinstance(leaf, torch.Tensor)]
        return [torch.ones_like(tensor) if self.is_float(tensor) else None for tensor in tensors]

    def context(self) -> Any:
        return running.Moment.now()

    def precision(self, context: Any) -> str:
        return context.precision if context is not None else ""

    def again(self, call: Invocation, widened: bool = False) -> Any:
        return running.again(call, widened)

    def vjp(
        self, call: Invocation, wanted: Sequence[tuple[Any, ...]], gradients: Sequence[Any], widened: bool = False
    ) -> list[Any]:
        return running.vjp(call, wanted, gradients, widened)

    def with_graph(self, call: Invocation, on_cpu: bool) -> Any:
        return running.with_graph(call, on_cpu)

    # ---------------------------------------------------------------- comparing

    def distance(self, first: Any, other: Any) -> float:
        return comparing.distance(first, other)

    def compare(self, own: Any, other: Any, limits: ErrorLimits) -> TensorDistance:
        return comparing.compare(own, other, limits)

    def compare_with_cpu(self, own: Any, golden: Any, limit: float, mean_limit: float) -> TensorDistance:
        return comparing.compare_with_cpu(own, golden, limit, mean_limit)

    def is_explained(self, own: Any, other: Any, limits: ErrorLimits, reactions: Reactions) -> bool:
        return comparing.is_explained(own, other, limits, reactions)

    def goes_one_way(self, own: Any, reactions: Reactions) -> str:
        return comparing.goes_one_way(own, reactions)


def _why_not_value(value: Any) -> str:
    if isinstance(value, torch.Generator):
        return said("draws-from-generator")
    if callable(value) and not isinstance(value, type):
        return said("is-given-function")
    return ""


def _multiplies_in_less() -> bool:
    """True where products of float32 numbers may be computed with fewer bits (TF32)."""
    asked: Callable[[], str] | None = getattr(torch, "get_float32_matmul_precision", None)
    if asked is not None and asked() != "highest":
        return True
    return torch.cuda.is_available() and bool(torch.backends.cudnn.allow_tf32)
