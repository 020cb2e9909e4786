"""What may be wrong in a kernel, and the wrong kernels of each network.

A fault changes what one operator gives, in all calls or in one, behind what the device makes of it. Those that sum,
mask or look up otherwise compute the operator anew, by a kit that is wrong in one thing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch

from . import further_networks, library_networks
from .operators import OPERATORS, attention, hidden_places
from .other_faults import TABLE
from .variants import Kit, to_bits

if TYPE_CHECKING:
    from .device import OperatorCall


@dataclass(frozen=True)
class Fault:
    """``operator``: aten's name without the underscore of a write. ``kind``: of :data:`KINDS`, with an ``amount``.
    ``only``: the number of the one call that is wrong, from 0; -1: all are. ``slot``: which of its floating-point
    results is.
    """

    network: str
    operator: str
    kind: str
    amount: float = 0.0
    only: int = -1
    slot: int = 0

    @property
    def id(self) -> str:
        """A name of its own, also of a folder."""
        only = "" if self.only < 0 else f"-call{self.only}"
        slot = f"-result{self.slot}" if self.slot else ""
        return f"{self.network}-{self.operator.strip('_')}-{self.kind}-{self.amount:g}{only}{slot}"

    def apply(self, call: OperatorCall) -> None:
        """Write into the result what the wrong kernel makes of it."""
        if self.only not in (-1, call.number) or len(call.results) <= self.slot:
            return
        result = call.results[self.slot]
        values = KINDS[self.kind](call, result, self.amount, self.slot)
        if values is not None:
            result.copy_(values.reshape(result.shape))


Kind = Callable[["OperatorCall", torch.Tensor, float, int], "torch.Tensor | None"]


def _rows(result: torch.Tensor) -> torch.Tensor:
    """A copy, as rows; of a vector one number is a row."""
    return result.clone().reshape(-1, result.shape[-1] if result.dim() > 1 else 1)


def _scale(_call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    return result.float() * (1.0 + amount)


def _last_rows(_call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    found = _rows(result)
    found[-int(amount) :] = 0.0
    return found


def _last_columns(_call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    found = result.clone()
    found[..., -int(amount) :] = 0.0
    return found


def _tile(_call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    found = _rows(result)
    found[-int(amount) :, : int(amount)] = 0.0
    return found


def _repeated(_call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    found, size = _rows(result), int(amount)
    found[size : 2 * size] = found[: len(found[size : 2 * size])].clone()
    return found


def _swapped(_call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    found = result.clone()
    size = min(int(amount), result.shape[-1] // 2)
    found[..., :size], found[..., size : 2 * size] = result[..., size : 2 * size].clone(), result[..., :size].clone()
    return found


def _head(_call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    """The second head is scaled, or (an amount of 0) has what the first has."""
    found = result.clone()
    mine, first = (found[:, 1], found[:, 0]) if found.dim() == 4 else (found[1::4], found[0::4])
    mine.copy_(mine.float() * (1.0 + amount) if amount else first)
    return found


def _stale(call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor | None:
    """The end of the buffer has what the call before left there."""
    if call.before is None:
        return None
    found, size = result.clone().flatten(), max(1, int(amount * result.numel()))
    found[-size:] = call.before.flatten()[-size:]
    return found


def _flushed(_call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    return torch.where(result.abs() < amount * result.abs().max(), torch.zeros_like(result), result)


def _truncated(_call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    """Towards zero, to so many bits."""
    lost = 23 - int(amount)
    return (result.float().contiguous().view(torch.int32) >> lost << lost).view(torch.float32)


def _cast(_call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    return to_bits(result, int(amount))


def _offset(_call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    return result.float() + amount * result.float().square().mean().sqrt()


def _block_kept(call: OperatorCall, result: torch.Tensor, amount: float, _slot: int) -> torch.Tensor:
    """The last block of what is written to stays as it was."""
    found, size = result.clone().flatten(), max(1, int(amount * result.numel()))
    before = call.args[0][0] if isinstance(call.args[0], list) else call.args[0]
    found[-size:] = before.flatten()[-size:].to(found.dtype)
    return found


class _LostTerms(Kit):
    """The last terms of products do not count."""

    def product(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return super().product(a[..., : -_AMOUNT[0]], b[..., : -_AMOUNT[0], :])

    def total(self, x: torch.Tensor, dims: tuple[int, ...] | None = None, keep: bool = False) -> torch.Tensor:
        last = (x.dim() - 1 if not dims else dims[-1]) if x.dim() else 0
        return super().total(x.narrow(last, 0, max(1, x.shape[last] - _AMOUNT[0])) if x.dim() else x, dims, keep)


class _NarrowSums(Kit):
    """Sums are kept in so many bits while they grow."""

    def product(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.float(), b.float()
        found = torch.zeros(())
        for at in range(0, a.shape[-1], 2):
            found = to_bits(found + a[..., at : at + 2] @ b[..., at : at + 2, :], _AMOUNT[0])
        return found

    def total(self, x: torch.Tensor, dims: tuple[int, ...] | None = None, keep: bool = False) -> torch.Tensor:
        every = tuple(range(x.dim())) if not dims else tuple(dim % x.dim() for dim in dims)
        kept = [dim for dim in range(x.dim()) if dim not in every]
        flat = x.float().permute(*kept, *every).reshape(*[x.shape[dim] for dim in kept], -1)
        found = torch.zeros(())
        for at in range(0, flat.shape[-1], 2):
            found = to_bits(found + flat[..., at : at + 2].sum(-1), _AMOUNT[0])
        return found.reshape([1 if dim in every else size for dim, size in enumerate(x.shape)]) if keep else found


class _Table(Kit):
    """Functions are looked up in a table, of so many places for 1."""

    def _place(self, x: torch.Tensor) -> torch.Tensor:
        return torch.round(x.float() * _AMOUNT[0]) / _AMOUNT[0]

    def exp(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(self._place(x))

    def sigmoid(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self._place(x))

    def tanh(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self._place(x))

    def erf(self, x: torch.Tensor) -> torch.Tensor:
        return torch.erf(self._place(x))

    def cos(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cos(self._place(x))

    def sin(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(self._place(x))

    def rsqrt(self, x: torch.Tensor) -> torch.Tensor:
        return torch.rsqrt(to_bits(x.float(), int(math.log2(_AMOUNT[0]))))


class _Unbiased(Kit):
    """Variances of all elements but one."""

    def moments(self, x: torch.Tensor, dims: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        mean, variance = super().moments(x, dims)
        count = math.prod(x.shape[dim] for dim in dims)
        return mean, variance * count / (count - 1)


class _NoMeans(Kit):
    """What is summed to be subtracted does not count."""

    def total(self, x: torch.Tensor, dims: tuple[int, ...] | None = None, keep: bool = False) -> torch.Tensor:
        found = super().total(x, dims, keep)
        return torch.zeros_like(found) if keep else found


class _NoSlope(Kit):
    """The slope of a gate does not count in its gradient."""

    def exp(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(self.wide(x))


#: The amount of the kit that is in use.
_AMOUNT = [1]


def _by_kit(kit: type[Kit]) -> Kind:
    def computed(call: OperatorCall, _result: torch.Tensor, amount: float, slot: int) -> torch.Tensor | None:
        _AMOUNT[0] = int(amount)
        wrong = kit(**{one.name: getattr(call.kit, one.name) for one in fields(Kit)}).of(call.results[0].dtype)
        return OPERATORS[call.name](wrong, *call.args, **call.options)[slot]

    return computed


def _mask(call: OperatorCall, _result: torch.Tensor, amount: float, slot: int) -> torch.Tensor | None:
    q, k, v = call.args[:3]
    hidden = hidden_places(q, k, True, int(amount))
    if hidden is not None:
        hidden[0, 0] = False
    return attention(call.kit.of(q.dtype), q, k, v, hidden, 1.0 / math.sqrt(q.shape[-1]))[slot]


def _with(place: int) -> Kind:
    """The operator with the amount for one of its arguments: epsilon, a factor of the scores."""

    def computed(call: OperatorCall, _result: torch.Tensor, amount: float, slot: int) -> torch.Tensor | None:
        args = [*call.args[:place], amount, *call.args[place + 1 :]]
        return OPERATORS[call.name](call.kit.of(call.results[0].dtype), *args, **call.options)[slot]

    return computed


def _lost_duplicates(call: OperatorCall, result: torch.Tensor, _amount: float, _slot: int) -> torch.Tensor:
    """Of several writes to one place the last one counts."""
    if call.name == "index_add":
        found = call.args[0].clone()
        found[call.args[2]] = call.args[0][call.args[2]] + call.args[3]
        return found
    found = torch.zeros_like(result)
    found[call.args[1].flatten()] = call.args[0].flatten(0, -2)
    return found


KINDS: dict[str, Kind] = {
    "scale": _scale,
    "last-rows": _last_rows,
    "last-columns": _last_columns,
    "tile": _tile,
    "repeated": _repeated,
    "swapped": _swapped,
    "head": _head,
    "stale": _stale,
    "flushed": _flushed,
    "truncated": _truncated,
    "cast": _cast,
    "offset": _offset,
    "block-kept": _block_kept,
    "lost-terms": _by_kit(_LostTerms),
    "narrow-sums": _by_kit(_NarrowSums),
    "table": _by_kit(_Table),
    "unbiased": _by_kit(_Unbiased),
    "no-means": _by_kit(_NoMeans),
    "no-slope": _by_kit(_NoSlope),
    "mask": _mask,
    "epsilon": _with(4),
    "batch-epsilon": _with(7),
    "lost-duplicates": _lost_duplicates,
}

_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
#: Operator, kind, amount and, where not all calls are wrong or not the first result, which.
_TABLE: dict[str, str] = {
    "decoder": f"""
        {_ATTENTION} scale 0.1            {_ATTENTION} scale 0.02
        {_ATTENTION} scale 0.05 1         {_ATTENTION} mask 1
        {_ATTENTION} mask -1              {_ATTENTION} head 0.1
        {_ATTENTION} head 0               {_ATTENTION} last-rows 1
        {_ATTENTION} narrow-sums 5        {_ATTENTION}_backward scale 0.05
        {_ATTENTION}_backward no-means 0  {_ATTENTION}_backward tile 6 -1 1
        {_ATTENTION}_backward lost-terms 2 -1 2
        mm tile 8         mm lost-terms 8 3     mm scale 0.01 4      mm narrow-sums 6
        addmm last-columns 3    addmm stale 0.1     addmm swapped 4 1  addmm lost-terms 8
        silu table 8      silu scale 0.02       silu_backward no-slope 0
        rsqrt scale 0.01  mean scale 0.02 1     cos table 16         sin scale 0.05
        _log_softmax offset 0.01                _log_softmax_backward_data last-rows 3
        embedding_dense_backward lost-duplicates 0   embedding_dense_backward scale 0.1
        addcdiv block-kept 0.25   lerp scale 0.05 3  addcmul cast 4   linalg_vector_norm scale 0.1 2
    """,
    "encoder": """
        bmm scale 0.01 0    bmm head 0.1   bmm lost-terms 2 1  bmm tile 4   bmm narrow-sums 6   bmm stale 0.05
        _softmax scale 0.02   _softmax table 8   _softmax last-columns 1   _softmax last-rows 4 1  _softmax flushed 0.05
        _softmax_backward_data no-means 0      _softmax_backward_data scale 0.1
        native_layer_norm epsilon 0.1   native_layer_norm unbiased 0   native_layer_norm scale 0.01 2
        native_layer_norm truncated 6   native_layer_norm repeated 2 1
        native_layer_norm_backward no-means 0   native_layer_norm_backward scale 0.05 -1 1
        native_layer_norm_backward last-rows 8 -1 2
        addmm lost-terms 8 5   addmm cast 5   addmm scale 0.005 3   addmm last-rows 2
        gelu table 16    gelu flushed 0.02   gelu scale 0.02   gelu_backward no-slope 0   gelu_backward scale 0.05
        tanh table 8     mm swapped 8 2    mm lost-terms 6    mm scale 0.1 5   sum lost-terms 5
        allreduce cast 3   allreduce last-rows 90   allreduce scale 0.05   sqrt scale 0.05 2  addcdiv stale 0.2
    """,
    "images": """
        convolution scale 0.02    convolution lost-terms 9   convolution last-rows 4   convolution last-columns 2 1
        convolution tile 6    convolution narrow-sums 6   convolution stale 0.1   convolution scale 0.005 2
        convolution cast 5 1  convolution swapped 3
        convolution_backward scale 0.05   convolution_backward last-rows 3 -1 1   convolution_backward lost-terms 4 -1 1
        convolution_backward tile 4 0    convolution_backward scale 0.1 2 2   convolution_backward narrow-sums 5 -1 1
        native_batch_norm epsilon 0    native_batch_norm batch-epsilon 0.02   native_batch_norm unbiased 0
        native_batch_norm scale 0.01   native_batch_norm truncated 6 1   native_batch_norm last-rows 10
        native_batch_norm_backward no-means 0   native_batch_norm_backward scale 0.05 -1 1
        native_batch_norm_backward scale 0.02 1   native_batch_norm_backward last-columns 1
        mean scale 0.02   mean lost-terms 1   addmm scale 0.02   addmm narrow-sums 5   mm last-rows 2
        relu offset 0.01   threshold_backward scale 0.05 1    max_pool2d_with_indices last-columns 1
        max_pool2d_with_indices_backward stale 0.2   _log_softmax scale 0.05   add scale 0.05 0
    """,
    "experts": """
        addmm scale 0.02    addmm lost-terms 8 2    addmm last-rows 1   addmm stale 0.2   addmm narrow-sums 6
        addmm repeated 2 3   addmm tile 5 6   addmm truncated 6   mm scale 0.05 0   mm lost-terms 4
        mm last-columns 4 3
        mm cast 4 6   index_add scale 0.02   index_add last-rows 3   index_add swapped 5 2
        _softmax scale 0.05   _softmax table 16    _softmax_backward_data no-means 0   _softmax_backward_data scale 0.1
        silu table 8   silu flushed 0.02   silu scale 0.01 2   silu_backward no-slope 0   silu_backward scale 0.05
        native_layer_norm epsilon 0.05   native_layer_norm scale 0.01   native_layer_norm unbiased 0 1
        native_layer_norm_backward no-means 0   native_layer_norm_backward scale 0.1 -1 2
        index_select last-rows 1    embedding scale 0.02   embedding_dense_backward lost-duplicates 0
        div scale 0.02 0    sum lost-terms 1   nll_loss_forward scale 0.05   lerp block-kept 0.25   addcdiv scale 0.1 4
    """,
    "recurrent": """
        sigmoid table 8    sigmoid scale 0.02 3   sigmoid flushed 0.3   tanh table 16   tanh scale 0.02
        tanh truncated 5
        addmm lost-terms 8    addmm scale 0.02    addmm last-columns 4 2    addmm stale 0.1    addmm narrow-sums 6
        addmm tile 3 5   mm scale 0.05   mm lost-terms 4   mm repeated 1 4   mm swapped 6   mm narrow-sums 5
        native_layer_norm unbiased 0   native_layer_norm scale 0.01   native_layer_norm last-rows 4
        native_layer_norm_backward no-means 0   native_layer_norm_backward scale 0.05 -1 1
        sigmoid_backward scale 0.05   sigmoid_backward last-columns 4   tanh_backward scale 0.05
        tanh_backward offset 0.02
        _log_softmax scale 0.02   _log_softmax offset 0.02 2   _log_softmax_backward_data no-means 0
        nll_loss_forward scale 0.05 1   embedding_dense_backward lost-duplicates 0   cat last-rows 1 3  mul scale 0.02 5
        linalg_vector_norm scale 0.1   addcdiv block-kept 0.5   lerp cast 4   sqrt scale 0.1   addcmul scale 0.2 6
    """,
}


def _read(network: str, text: str) -> list[Fault]:
    words, found = text.split(), []
    while words:
        operator, kind, amount, *rest = words[:5]
        numbers: list[Any] = []
        for word in rest:
            if not word.lstrip("-").isdigit():
                break
            numbers.append(int(word))
        found.append(Fault(network, operator, kind, float(amount), *numbers))
        words = words[3 + len(numbers) :]
    return found


_EVERY = {**_TABLE, **TABLE, **library_networks.TABLE, **further_networks.TABLE}
FAULTS = {one.id: one for network, text in _EVERY.items() for one in _read(network, text)}
