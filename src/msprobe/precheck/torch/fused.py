"""What fused functions of torch_npu compute, written with functions of torch: the reference for their kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from msprobe.messages import said


def fast_gelu(x: Tensor) -> Tensor:
    """``x exp(0.851 (x - |x|)) / (1 + exp(-1.702 |x|))``."""
    size = x.abs()
    return x * torch.exp(0.851 * (x - size)) / (1 + torch.exp(-1.702 * size))


def swiglu(x: Tensor, dim: int = -1) -> Tensor:
    """``silu`` of the first half times the second half; half types round after ``silu``, as the kernel does."""
    first, second = torch.chunk(x, 2, dim)
    if x.dtype in (torch.float16, torch.bfloat16):
        return (functional.silu(first.float()).to(x.dtype).float() * second.float()).to(x.dtype)
    return functional.silu(first) * second


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """``x r gamma`` and ``r = rsqrt(mean(x^2) + epsilon)``."""
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
    return x * r * gamma, r if r.dtype is torch.float64 else r.float()


def rotary_mul(x: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half") -> Tensor:
    """``r1 x + r2 cat(-x2, x1)`` of the halves of the last dimension."""
    first, second = torch.chunk(x, 2, -1)
    return r1 * x + r2 * torch.cat((-second, first), -1)


def scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False) -> Tensor:
    """``softmax`` of scaled values, masked ones at -10000; ``fixed_triu_mask``: all above the diagonal are masked."""
    if fixed_triu_mask:
        mask = torch.triu(torch.ones(mask.shape, dtype=torch.bool, device=mask.device), 1)
    wide = x if x.dtype is torch.float64 else x.float()
    return torch.softmax((wide * scale).masked_fill(mask.bool(), -10000.0), -1).to(x.dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x weight^T + bias``."""
    return functional.linear(x, weight, bias)


def confusion_transpose(x: Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> Tensor:
    """Permute and reshape, in either order."""
    return x.permute(*perm).contiguous().view(*shape) if transpose_first else x.view(*shape).permute(*perm)


def mish(x: Tensor) -> Tensor:
    """``x tanh(softplus(x))``."""
    return functional.mish(x)


def group_norm_silu(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, group: int, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """``silu`` of the group norm, and its mean and reciprocal deviation by group."""
    grouped = x.reshape(x.shape[0], group, -1)
    mean = grouped.mean(-1)
    deviation = torch.rsqrt(grouped.var(-1, unbiased=False) + eps)
    return functional.silu(functional.group_norm(x, group, weight, bias, eps)), mean, deviation


def layer_norm_eval(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Layer norm."""
    return functional.layer_norm(x, normalized_shape, weight, bias, eps)


def sort_v2(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """The sorted values."""
    return torch.sort(x, dim=dim, descending=descending).values


def moe_gating_top_k_softmax(x: Tensor, finished: Tensor | None = None, k: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest of a softmax, the experts they belong to, and the grid of row numbers."""
    scores = torch.softmax(x if x.dtype is torch.float64 else x.float(), -1)
    values, experts = torch.sort(scores, dim=-1, descending=True, stable=True)
    values, experts = values[..., :k].to(x.dtype), experts[..., :k].to(torch.int32)
    if finished is not None:
        experts = experts.masked_fill(finished.bool().unsqueeze(-1), x.shape[-1])
    rows = x.numel() // x.shape[-1]
    grid = torch.arange(rows * k, dtype=torch.int32, device=x.device).reshape(k, rows).t()
    return values, experts, grid.reshape(experts.shape)


def _moments(grad: Tensor, m: Tensor, v: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    return beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad * grad


def apply_adam(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    use_locking: bool | None = None,
    use_nesterov: bool | None = None,
    out: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of Adam; ``out`` holds variable, first and second moment."""
    variable, m, v = out
    m, v = _moments(grad, m, v, beta1, beta2)
    rate = lr * (1 - beta2_power) ** 0.5 / (1 - beta1_power)
    towards = beta1 * m + (1 - beta1) * grad if use_nesterov else m
    return variable - rate * towards / (v.sqrt() + epsilon), m, v


def apply_adam_w(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    max_grad_norm: Any = None,
    amsgrad: bool | None = None,
    maximize: bool | None = None,
    out: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of AdamW."""
    variable, m, v = out
    m, v = _moments(-grad if maximize else grad, m, v, beta1, beta2)
    size = (v / (1 - beta2_power * beta2)).sqrt() + epsilon
    return variable * (1 - lr * weight_decay) - lr * m / (1 - beta1_power * beta1) / size, m, v


def fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    prefix: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    sparse_mode: int = 0,
    **unused: Any,
) -> Tensor:
    """``softmax(q k^T scale + pse, masked) v`` in double precision, in the layout of the query. Nothing is dropped."""
    layouts = ("BSH", "SBH", "BSND", "BNSD")
    if input_layout not in layouts:
        raise ValueError(said("layout-of-attention-unknown", input_layout, ", ".join(layouts)))
    depth = query.shape[-1] // head_num if input_layout in ("BSH", "SBH") else query.shape[-1]
    q, k, v = (_heads_first(tensor.double(), input_layout, depth) for tensor in (query, key, value))
    k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
    scores = q @ k.transpose(-1, -2) * scale
    if pse is not None:
        scores = scores + pse.double()
    masked = _band(q.shape[2], k.shape[2], sparse_mode, pre_tockens, next_tockens, atten_mask)
    if masked is not None:
        scores = scores - 40000.0 * masked.double()
    return _heads_back(torch.softmax(scores, -1) @ v, input_layout).to(query.dtype)


def _heads_first(x: Tensor, layout: str, depth: int) -> Tensor:
    if layout in ("BSH", "SBH"):
        x = x.reshape(*x.shape[:2], -1, depth)
        return x.permute(0, 2, 1, 3) if layout == "BSH" else x.permute(1, 2, 0, 3)
    return x.permute(0, 2, 1, 3) if layout == "BSND" else x


def _heads_back(x: Tensor, layout: str) -> Tensor:
    if layout == "BSH":
        return x.permute(0, 2, 1, 3).flatten(2)
    if layout == "SBH":
        return x.permute(2, 0, 1, 3).flatten(2)
    return x.permute(0, 2, 1, 3) if layout == "BSND" else x


def _band(rows: int, columns: int, mode: int, before: int, after: int, given: Tensor | None) -> Tensor | None:
    """What is masked: nothing (mode 1 without mask), the given mask, or all but a band around the diagonal."""
    ones = torch.ones(rows, columns, dtype=torch.bool)
    if mode == 2:
        return torch.triu(ones, 1)
    if mode == 3:
        return torch.triu(ones, 1 + columns - rows)
    if mode == 4:
        shift = columns - rows
        return torch.triu(ones, 1 + after + shift) | torch.tril(ones, -1 - before + shift)
    return None if given is None else given.bool()


#: Name in a dump -> what computes the same.
FORWARD: dict[str, Callable[..., Any]] = {
    "npu_apply_adam": apply_adam,
    "npu_apply_adam_w": apply_adam_w,
    "npu_confusion_transpose": confusion_transpose,
    "npu_fast_gelu": fast_gelu,
    "npu_fusion_attention": fusion_attention,
    "npu_group_norm_silu": group_norm_silu,
    "npu_layer_norm_eval": layer_norm_eval,
    "npu_linear": linear,
    "npu_mish": mish,
    "npu_moe_gating_top_k_softmax": moe_gating_top_k_softmax,
    "npu_rms_norm": rms_norm,
    "npu_rotary_mul": rotary_mul,
    "npu_scaled_masked_softmax": scaled_masked_softmax,
    "npu_sort_v2": sort_v2,
    "npu_swiglu": swiglu,
}
