"""aten's operators by the sums, products and functions of a kit: what each gives, in wide types.

A rule gets the kit and the arguments of the operator, and gives its floating-point results in their order; None keeps
what torch computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .variants import Kit

Results = Sequence[torch.Tensor | None]


def _mm(kit: Kit, a: Any, b: Any) -> Results:
    return [kit.product(a, b)]


def _addmm(kit: Kit, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Results:
    return [beta * kit.wide(c) + alpha * kit.product(a, b)]


def _columns(x: Any, weight: Any, stride: Any, padding: Any, dilation: Any) -> torch.Tensor:
    return F.unfold(x, weight.shape[2:], dilation, padding, stride)


def _along(kit: Kit, x: Any, w: Any, b: Any) -> torch.Tensor:
    """Each channel with a filter of its own, by steps of one."""
    found = kit.total(x.unfold(-1, w.shape[-1], 1) * kit.wide(w)[:, 0, None, :], (3,))
    return found if b is None else found + kit.wide(b)[:, None]


def _convolution(
    kit: Kit, x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, _out: Any, groups: int
) -> Results:
    if groups == x.shape[1] == w.shape[0] and x.dim() == 3 and not transposed:
        return [_along(kit, F.pad(kit.wide(x), (padding[0], padding[0])), w, b)]
    if transposed or groups != 1 or x.dim() != 4:
        return [None]
    found = kit.product(kit.wide(w).flatten(1), _columns(kit.wide(x), w, stride, padding, dilation))
    if b is not None:
        found = found + kit.wide(b)[:, None]
    size = [(x.shape[2 + n] + 2 * padding[n] - dilation[n] * (w.shape[2 + n] - 1) - 1) // stride[n] + 1 for n in (0, 1)]
    return [found.reshape(x.shape[0], w.shape[0], *size)]


def _convolution_backward(
    kit: Kit,
    g: Any,
    x: Any,
    w: Any,
    _b: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    t: bool,
    _o: Any,
    n: int,
    m: Any,
) -> Results:
    if t or n != 1 or x.dim() != 4:
        return [None] * sum(m)
    flat = kit.wide(g).flatten(2)
    found: list[torch.Tensor | None] = []
    if m[0]:
        columns = kit.product(kit.wide(w).flatten(1).t(), flat)
        found.append(F.fold(columns, x.shape[2:], w.shape[2:], dilation, padding, stride))
    if m[1]:
        columns = _columns(kit.wide(x), w, stride, padding, dilation)
        terms = columns.permute(0, 2, 1).flatten(0, 1)
        found.append(kit.product(flat.permute(1, 0, 2).flatten(1), terms).reshape(w.shape))
    if m[2]:
        found.append(kit.total(flat, (0, 2)))
    return found


def _softmax(kit: Kit, x: Any, dim: int, _half: bool) -> Results:
    raised = kit.exp(kit.wide(x) - kit.wide(x).amax(dim, keepdim=True))
    return [raised / kit.total(raised, (dim,), keep=True)]


def _softmax_backward(kit: Kit, g: Any, y: Any, dim: int, _dtype: Any) -> Results:
    g, y = kit.wide(g), kit.wide(y)
    return [y * (g - kit.total(g * y, (dim,), keep=True))]


def _log_softmax(kit: Kit, x: Any, dim: int, _half: bool) -> Results:
    shifted = kit.wide(x) - kit.wide(x).amax(dim, keepdim=True)
    return [shifted - torch.log(kit.total(kit.exp(shifted), (dim,), keep=True))]


def _log_softmax_backward(kit: Kit, g: Any, y: Any, dim: int, _dtype: Any) -> Results:
    return [kit.wide(g) - kit.exp(y) * kit.total(g, (dim,), keep=True)]


def _layer_norm(kit: Kit, x: Any, shape: Any, w: Any, b: Any, eps: float) -> Results:
    dims = tuple(range(x.dim() - len(shape), x.dim()))
    mean, variance = kit.moments(x, dims)
    inverse = kit.rsqrt(variance + eps)
    found = (kit.wide(x) - mean) * inverse
    if w is not None:
        found = found * kit.wide(w)
    if b is not None:
        found = found + kit.wide(b)
    return [found, mean, inverse]


def _layer_norm_backward(
    kit: Kit, g: Any, x: Any, shape: Any, mean: Any, inverse: Any, w: Any, _b: Any, mask: Any
) -> Results:
    dims = tuple(range(x.dim() - len(shape), x.dim()))
    others = tuple(range(x.dim() - len(shape)))
    g, normal = kit.wide(g), (kit.wide(x) - kit.wide(mean)) * kit.wide(inverse)
    count = math.prod(shape)
    found: list[torch.Tensor | None] = []
    if mask[0]:
        scaled = g if w is None else g * kit.wide(w)
        about = kit.total(scaled, dims, keep=True) + normal * kit.total(scaled * normal, dims, keep=True)
        found.append(kit.wide(inverse) * (scaled - about / count))
    if mask[1]:
        found.append(kit.total(g * normal, others).reshape(shape))
    if mask[2]:
        found.append(kit.total(g, others).reshape(shape))
    return found


def _batch_norm(
    kit: Kit, x: Any, w: Any, b: Any, _mean: Any, _variance: Any, training: bool, _momentum: float, eps: float
) -> Results:
    if not training:
        return [None]  # it keeps nothing
    dims = tuple(dim for dim in range(x.dim()) if dim != 1)
    mean, variance = kit.moments(x, dims)
    inverse = kit.rsqrt(variance + eps)
    shape = [1, -1] + [1] * (x.dim() - 2)
    found = (kit.wide(x) - mean) * inverse * kit.wide(w).reshape(shape) + kit.wide(b).reshape(shape)
    return [found, mean.flatten(), inverse.flatten()]


def _batch_norm_backward(
    kit: Kit, g: Any, x: Any, w: Any, _rm: Any, _rv: Any, mean: Any, inverse: Any, train: bool, _eps: float, mask: Any
) -> Results:
    if not train:
        return [None] * sum(mask)
    dims = tuple(dim for dim in range(x.dim()) if dim != 1)
    shape = [1, -1] + [1] * (x.dim() - 2)
    count = x.numel() // x.shape[1]
    g, inverse = kit.wide(g), kit.wide(inverse).reshape(shape)
    normal = (kit.wide(x) - kit.wide(mean).reshape(shape)) * inverse
    sums, products = kit.total(g, dims, keep=True), kit.total(g * normal, dims, keep=True)
    found: list[torch.Tensor | None] = []
    if mask[0]:
        found.append(kit.wide(w).reshape(shape) * inverse * (g - (sums + normal * products) / count))
    if mask[1]:
        found.append(products.flatten())
    if mask[2]:
        found.append(sums.flatten())
    return found


def _group_norm(kit: Kit, x: Any, w: Any, b: Any, n: int, c: int, _size: int, groups: int, eps: float) -> Results:
    grouped = kit.wide(x).reshape(n, groups, -1)
    mean, variance = kit.moments(grouped, (2,))
    inverse = kit.rsqrt(variance + eps)
    shape = [1, c] + [1] * (x.dim() - 2)
    found = ((grouped - mean) * inverse).reshape(x.shape) * kit.wide(w).reshape(shape) + kit.wide(b).reshape(shape)
    return [found, mean.flatten(1), inverse.flatten(1)]


def _group_norm_backward(
    kit: Kit, g: Any, x: Any, mean: Any, inverse: Any, w: Any, n: int, c: int, _size: int, groups: int, mask: Any
) -> Results:
    shape, other = [1, c] + [1] * (x.dim() - 2), (0, *range(2, x.dim()))
    by_group = (n, groups, -1)
    inverse, mean = (kit.wide(one).reshape(n, groups, 1) for one in (inverse, mean))
    normal = (kit.wide(x).reshape(by_group) - mean) * inverse
    g = kit.wide(g)
    found: list[torch.Tensor | None] = []
    if mask[0]:
        scaled = (g * kit.wide(w).reshape(shape)).reshape(by_group)
        about = kit.total(scaled, (2,), keep=True) + normal * kit.total(scaled * normal, (2,), keep=True)
        found.append((inverse * (scaled - about / scaled.shape[2])).reshape(x.shape))
    if mask[1]:
        found.append(kit.total(g * normal.reshape(x.shape), other))
    if mask[2]:
        found.append(kit.total(g, other))
    return found


#: Of the approximation of GELU by a hyperbolic tangent (Hendrycks and Gimpel, arXiv:1606.08415).
_ROOT, _CUBE = math.sqrt(2.0 / math.pi), 0.044715


def _gelu(kit: Kit, x: Any, *, approximate: str = "none") -> Results:
    if approximate != "none":
        x = kit.wide(x)
        return [0.5 * x * (1.0 + kit.tanh(_ROOT * (x + _CUBE * x**3)))]
    return [0.5 * kit.wide(x) * (1.0 + kit.erf(kit.wide(x) / math.sqrt(2.0)))]


def _gelu_backward(kit: Kit, g: Any, x: Any, *, approximate: str = "none") -> Results:
    x = kit.wide(x)
    if approximate != "none":
        inner = kit.tanh(_ROOT * (x + _CUBE * x**3))
        slope = _ROOT * (1.0 + 3.0 * _CUBE * x * x) * (1.0 - inner * inner)
        return [kit.wide(g) * (0.5 * (1.0 + inner) + 0.5 * x * slope)]
    density = kit.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    return [kit.wide(g) * (0.5 * (1.0 + kit.erf(x / math.sqrt(2.0))) + x * density)]


def _silu(kit: Kit, x: Any) -> Results:
    return [kit.wide(x) * kit.sigmoid(x)]


def _silu_backward(kit: Kit, g: Any, x: Any) -> Results:
    share = kit.sigmoid(x)
    return [kit.wide(g) * share * (1.0 + kit.wide(x) * (1.0 - share))]


def _softplus(kit: Kit, x: Any, beta: Any = 1, _threshold: Any = 20) -> Results:
    x = kit.wide(x) * beta
    return [(x.clamp_min(0.0) + torch.log1p(kit.exp(-x.abs()))) / beta]


def _softplus_backward(kit: Kit, g: Any, x: Any, beta: Any, _threshold: Any) -> Results:
    return [kit.wide(g) * kit.sigmoid(kit.wide(x) * beta)]


def _elu(kit: Kit, x: Any, alpha: Any = 1, scale: Any = 1, inside: Any = 1) -> Results:
    x = kit.wide(x)
    return [scale * torch.where(x > 0, x, alpha * (kit.exp(x * inside) - 1.0))]


def _logsumexp(kit: Kit, x: Any, dim: Any, keepdim: bool = False) -> Results:
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    most = kit.wide(x).amax(dims, keepdim=True)
    found = torch.log(kit.total(kit.exp(kit.wide(x) - most), dims, keep=True)) + most
    return [found if keepdim else found.squeeze(dims)]


def _mse_loss(kit: Kit, x: Any, y: Any, reduction: int = 1) -> Results:
    if reduction != 1:
        return [None]
    return [kit.total((kit.wide(x) - kit.wide(y)) ** 2) / x.numel()]


def _logistic_loss(kit: Kit, x: Any, y: Any, weight: Any = None, positive: Any = None, reduction: int = 1) -> Results:
    if reduction != 1 or weight is not None or positive is not None:
        return [None]
    x, y = kit.wide(x), kit.wide(y)
    return [kit.total(x.clamp_min(0.0) - x * y + torch.log1p(kit.exp(-x.abs()))) / x.numel()]


def _scatter_add(kit: Kit, x: Any, dim: int, places: Any, source: Any) -> Results:
    return [kit.wide(x).scatter_add(dim, places.flip(dim), kit.wide(source).flip(dim))]


def _index_put(kit: Kit, x: Any, places: Any, values: Any, accumulate: bool = False) -> Results:
    if not accumulate or len(places) != 1 or places[0] is None or places[0].dim() != 1:
        return [None]
    if places[0].dtype == torch.bool:
        return [None]
    return [kit.wide(x).index_add(0, places[0].flip(0), kit.wide(values).expand(len(places[0]), *x.shape[1:]).flip(0))]


def _div(kit: Kit, x: Any, y: Any, **options: Any) -> Results:
    if not kit.fast or options or not isinstance(y, torch.Tensor) or not isinstance(x, torch.Tensor):
        return [None]
    return [kit.wide(x) * (1.0 / kit.wide(y))]


def _sum(kit: Kit, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Results:
    dims = None if dim is None or dim == [] else (dim,) if isinstance(dim, int) else tuple(dim)
    return [kit.total(x, dims, keep=keepdim)]


def _mean(kit: Kit, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Results:
    (found,) = _sum(kit, x, dim, keepdim)
    return (
        [found * (found.numel() / x.numel())]
        if found is not None and kit.fast
        else [found / (x.numel() // max(found.numel(), 1)) if found is not None else None]
    )


def attention(kit: Kit, q: Any, k: Any, v: Any, hidden: torch.Tensor | None, scale: float) -> Results:
    """Fused attention with an online softmax over blocks of keys; ``hidden``: True where nothing is attended to."""
    scores = kit.product(q, k.transpose(-2, -1)) * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    block = min(kit.tile, 8)
    largest = torch.full_like(scores[..., :1], -math.inf)
    total, found = torch.zeros_like(largest), torch.zeros(*q.shape[:-1], v.shape[-1], dtype=scores.dtype)
    for start in range(0, k.shape[-2], block):
        part = scores[..., start : start + block]
        higher = torch.maximum(largest, part.amax(-1, keepdim=True))
        safe = torch.where(higher.isinf(), torch.zeros_like(higher), higher)
        raised, less = kit.exp(part - safe), kit.exp(largest - safe)
        total = total * less + kit.total(raised, (-1,), keep=True)
        found = found * less + kit.product(raised.to(q.dtype), v[..., start : start + block, :])
        largest = higher
    return [found / total, (largest + torch.log(total)).squeeze(-1)]


def hidden_places(q: Any, k: Any, causal: bool, off: int = 0) -> torch.Tensor | None:
    """The places that a causal mask hides, moved by ``off``."""
    if not causal:
        return None
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1 + off)


def _attention(
    kit: Kit, q: Any, k: Any, v: Any, p: float = 0.0, causal: bool = False, *, attn_mask: Any = None, scale: Any = None
) -> Results:
    if attn_mask is not None or p:
        return [None, None]
    return attention(kit, q, k, v, hidden_places(q, k, causal), scale or 1.0 / math.sqrt(q.shape[-1]))


def _attention_backward(
    kit: Kit,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    p: float,
    causal: bool,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> Results:
    if attn_mask is not None or p:
        return [None, None, None]
    factor = scale or 1.0 / math.sqrt(q.shape[-1])
    scores = kit.product(q, k.transpose(-2, -1)) * factor
    hidden = hidden_places(q, k, causal)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    shares = kit.exp(scores - kit.wide(lse).unsqueeze(-1))
    arriving = kit.product(g, v.transpose(-2, -1))
    within = kit.total(kit.wide(g) * kit.wide(out), (-1,), keep=True)
    inner = (shares * (arriving - within)).to(q.dtype)
    return [
        kit.product(inner, k) * factor,
        kit.product(inner.transpose(-2, -1), q) * factor,
        kit.product(shares.to(q.dtype).transpose(-2, -1), g),
    ]


def _nll_loss(kit: Kit, x: Any, target: Any, weight: Any, reduction: int, ignored: int) -> Results:
    if weight is not None or reduction != 1 or bool((target == ignored).any()):
        return [None, None]
    return [-kit.total(x.gather(1, target[:, None])) / target.numel(), None]


def _embedding_backward(kit: Kit, g: Any, places: Any, count: int, padding: int, _scaled: bool) -> Results:
    g = g.masked_fill((places == padding).unsqueeze(-1), 0.0)
    found = torch.zeros(count, g.shape[-1], dtype=kit.wide(g).dtype)
    return [found.index_add(0, places.flatten().flip(0), kit.wide(g).flatten(0, -2).flip(0))]


def _index_add(kit: Kit, x: Any, dim: int, places: Any, source: Any, *, alpha: Any = 1) -> Results:
    return [kit.wide(x).index_add(dim, places.flip(0), kit.wide(source).flip(dim), alpha=alpha)]


def _lerp(kit: Kit, x: Any, end: Any, weight: Any) -> Results:
    if isinstance(weight, torch.Tensor):
        return [None]
    return [kit.added(x, (kit.wide(end) - kit.wide(x)).to(kit.dtype), torch.full((), float(weight)))]


def _addcmul(kit: Kit, x: Any, a: Any, b: Any, *, value: Any = 1) -> Results:
    return [kit.added(x, (value * kit.wide(a)).to(kit.dtype), b)]


def _addcdiv(kit: Kit, x: Any, a: Any, b: Any, *, value: Any = 1) -> Results:
    return [kit.added(x, (kit.wide(a) / kit.wide(b)).to(kit.dtype), torch.full((), float(value)))]


def _norm(kit: Kit, x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Results:
    if order != 2:
        return [None]
    dims = None if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return [torch.sqrt(kit.total(kit.wide(x) ** 2, dims, keep=keepdim))]


def _of(function: Callable[[Kit, Any], torch.Tensor]) -> Callable[..., Results]:
    return lambda kit, x: [function(kit, x)]


OPERATORS: dict[str, Callable[..., Results]] = {
    "mm": _mm,
    "bmm": _mm,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_softmax": _softmax,
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax": _log_softmax,
    "_log_softmax_backward_data": _log_softmax_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    "softplus": _softplus,
    "softplus_backward": _softplus_backward,
    "elu": _elu,
    "logsumexp": _logsumexp,
    "mse_loss": _mse_loss,
    "binary_cross_entropy_with_logits": _logistic_loss,
    "scatter_add": _scatter_add,
    "index_put": _index_put,
    "div": _div,
    "gelu": _gelu,
    "gelu_backward": _gelu_backward,
    "silu": _silu,
    "silu_backward": _silu_backward,
    "sigmoid": _of(lambda kit, x: kit.sigmoid(x)),
    "tanh": _of(lambda kit, x: kit.tanh(x)),
    "exp": _of(lambda kit, x: kit.exp(x)),
    "cos": _of(lambda kit, x: kit.cos(x)),
    "sin": _of(lambda kit, x: kit.sin(x)),
    "rsqrt": _of(lambda kit, x: kit.rsqrt(x)),
    "sum": _sum,
    "mean": _mean,
    "nll_loss_forward": _nll_loss,
    "embedding_dense_backward": _embedding_backward,
    "index_add": _index_add,
    "lerp": _lerp,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "linalg_vector_norm": _norm,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
}
