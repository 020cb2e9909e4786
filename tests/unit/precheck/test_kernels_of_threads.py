"""Wrong kernels that public threads report, put in the place of a healthy one: each is found, and what they do rightly
is not. A comment names the project and the subject of the thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.prechecked import plugin

from msprobe.pytorch import check_api

Kernel = Callable[..., Any]
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
GENERATOR = torch.Generator().manual_seed(0)


def some(*shape: int, size: float = 1.0, add: float = 0.0) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR) * size + add


def wide(kernel: Kernel) -> Kernel:
    """A kernel that computes in float32 and rounds once."""

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        raised = [one.float() if isinstance(one, torch.Tensor) and one.is_floating_point() else one for one in args]
        return kernel(*raised, **kwargs).to(args[0].dtype)

    return run


def cut_off(result: torch.Tensor) -> torch.Tensor:
    """Float32 to bfloat16 by a shift."""
    return (result.contiguous().view(torch.int32) & ~0xFFFF).view(FP32).to(BF16)


def in_memory_order(x: torch.Tensor) -> torch.Tensor:
    """What a kernel reads that takes a tensor for a contiguous one."""
    flat = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
    return flat[: x.numel()].view(x.shape)


def ten_bits(x: torch.Tensor) -> torch.Tensor:
    """The mantissa of TF32."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(FP32)


def one_by_one(values: torch.Tensor) -> torch.Tensor:
    """The sum of the last dimension, each addition in the type of the values."""
    total = torch.zeros(values.shape[:-1], dtype=values.dtype)
    for place in range(values.shape[-1]):
        total = total + values[..., place]
    return total


def softmax_by_hand(scores: torch.Tensor, row_max: Any = None) -> torch.Tensor:
    largest = scores.amax(-1, keepdim=True) if row_max is None else row_max
    e = (scores - largest).exp()
    return e / e.sum(-1, keepdim=True)


def attention(q: Any, k: Any, v: Any, scale: float | None = None, mask: Any = None, mask_scale: float = 1.0) -> Any:
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return softmax_by_hand(scores if mask is None else scores + mask * mask_scale) @ v


def norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float = 1e-5, less: int = 0) -> torch.Tensor:
    d = x - x.mean(-1, keepdim=True)
    variance = d.square().sum(-1, keepdim=True) / (x.shape[-1] - less)
    return d * torch.rsqrt(variance + epsilon) * weight


def layer_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def last_rows(kernel: Kernel, share: float = 0.75) -> Kernel:
    """A kernel that is right for the first rows alone."""

    def run(*args: Any) -> torch.Tensor:
        result = kernel(*args)
        result[int(share * len(result)) :] = 0
        return result

    return run


Q, K, V = (some(2, 4, 24, 20) for _ in range(3))
MASK = some(24, 24, size=2.0)
LABELS = torch.where(torch.arange(64) % 4 == 0, -100, torch.arange(64) % 32)
SCORES = some(64, 32, size=2.0)
PERMUTED = tuple(some(2, 24, 4, 64).permute(0, 2, 1, 3) for _ in range(3))
TURNED = tuple(some(16, 12).abs().add(0.5).t() for _ in range(3))
MASKED = torch.rand(16, 12, generator=GENERATOR).t() > 0.5
WIDE_WEIGHT = some(6, 8, 3, 3, 3, size=0.2)
SUM = some(8, 2000)

#: (function, arguments, kernel, type, what the kernel is called)
A: dict[str, tuple[Kernel, tuple[Any, ...], Kernel, torch.dtype, str]] = {
    # ROCm/aiter 5151: rmsnorm with add truncates fp32 to bf16; the residual shrinks by 9 % over 72 calls
    "truncated": (
        rms_norm, (some(32, 64), some(64)), lambda x, w: cut_off(rms_norm(x.float(), w.float())), BF16, "Warning"
    ),
    # the same, where a residual is added
    "a truncated sum": (
        torch.add, (some(32, 64), some(32, 64)), lambda x, y: cut_off(x.float() + y.float()), BF16, "Warning"
    ),
    # tenstorrent/tt-metal 45231: layernorm reads its input in TF32; with an offset the variance is lost
    "an offset in ten bits": (
        layer_norm, (some(32, 64, add=3000.0), some(64)), lambda x, w: layer_norm(ten_bits(x), w), FP32, "error"
    ),
    # sgl-project/sglang 28637: heads of 80 are padded to 128, and the scale is that of 128
    "the scale of padded heads": (
        F.scaled_dot_product_attention, (Q, K, V), wide(lambda q, k, v: attention(q, k, v, 32**-0.5)), BF16, "error"
    ),
    # tenstorrent/tt-metal 55333: the mask is multiplied by the scale of the scores
    "a scaled mask": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, MASK.to(q.dtype)), (Q, K, V),
        wide(lambda q, k, v: attention(q, k, v, None, MASK, 20**-0.5)), BF16, "error",
    ),
    # NVIDIA-NeMo/Megatron-Bridge 4155: the scale of the values is dropped
    "values without their scale": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v * 0.707), (Q, K, V), wide(attention), BF16, "error"
    ),
    # Dao-AILab/flash-attention 2082: the largest score of a row is taken for 0 where a block was masked
    "a maximum of nothing": (
        lambda x: x.softmax(-1), (some(32, 64, add=-40.0),),
        lambda x: softmax_by_hand(x, torch.zeros(1, dtype=x.dtype)), FP16, "error",
    ),
    # tenstorrent/tt-metal: variance by n - 1 in a norm of few features
    "a variance by n - 1": (
        layer_norm, (some(64, 48), some(48)), wide(lambda x, w: norm(x, w, less=1)), BF16, "Warning"
    ),
    # the same of 256 features
    "a variance by n - 1 of many": (
        layer_norm, (some(64, 256), some(256)), wide(lambda x, w: norm(x, w, less=1)), BF16, "Warning"
    ),
    # pytorch 156173: index_put accumulates in float16, one after the other
    "a sum in halves": (lambda x: x.sum(-1), (some(64, 8000),), one_by_one, FP16, "Warning"),
    # many: the mean counts tokens that are ignored
    "ignored labels count": (
        lambda x: F.cross_entropy(x, LABELS, reduction="none") / int((LABELS >= 0).sum()), (SCORES,),
        wide(lambda x: F.cross_entropy(x, LABELS, reduction="none") / 64), BF16, "error",
    ),
    # pytorch 197636: bmm is wrong beyond a number of elements
    "the last of a batch": (torch.bmm, (some(8, 12, 16), some(8, 16, 12)), last_rows(torch.bmm), FP32, "error"),
    # pytorch 192212: conv2d with a weight that is a slice of a wider one
    "a slice as weight": (
        lambda x, w: F.conv2d(x, w[:, :, 1]), (some(2, 8, 10, 10), WIDE_WEIGHT),
        lambda x, w: F.conv2d(x, in_memory_order(w[:, :, 1])), FP32, "error",
    ),
    # pytorch 181133: attention of permuted heads
    "permuted heads": (
        F.scaled_dot_product_attention, PERMUTED,
        lambda *heads: F.scaled_dot_product_attention(*map(in_memory_order, heads)), FP32, "error",
    ),
    # pytorch 118115: addcdiv of transposed tensors
    "transposed addcdiv": (
        torch.addcdiv, TURNED, lambda a, b, c: torch.addcdiv(a, in_memory_order(b), c), FP32, "error"
    ),
    # pytorch 150967: where with a transposed condition
    "a transposed condition": (
        lambda x: torch.where(MASKED, x, 0.5), (some(12, 16),),
        lambda x: torch.where(in_memory_order(MASKED), x, 0.5), FP32, "error",
    ),
    # pytorch 125696: mse_loss of strided tensors
    "a strided loss": (
        lambda x, y: F.mse_loss(x, y, reduction="none"), (TURNED[0], TURNED[1]),
        lambda x, y: F.mse_loss(in_memory_order(x), y, reduction="none"), FP32, "error",
    ),
    # pytorch 171602: grid_sample with a permuted grid
    "a permuted grid": (
        lambda x, g: F.grid_sample(x, g.permute(0, 2, 3, 1), align_corners=False),
        (some(1, 4, 8, 8), some(1, 2, 8, 8, size=0.4)),
        lambda x, g: F.grid_sample(x, in_memory_order(g.permute(0, 2, 3, 1)), align_corners=False), FP32, "error",
    ),
}  # fmt: skip


def given(tensors: tuple[Any, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    return [one.to(dtype) for one in tensors]


@pytest.mark.parametrize("name", A)
def test_a_kernel_of_a_thread_is_found_and_a_healthy_one_is_not(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    function, tensors, kernel, dtype, status = A[name]
    args = given(tensors, dtype)
    assert check_api(function, *args, candidate="cpu").forward == "pass"
    candidate = plugin(monkeypatch, lambda called, args, kwargs: kernel(*args, **kwargs))
    found = check_api(function, *args, candidate=candidate)
    assert found.forward in (status, "error"), str(found)


#: Kernels that threads call imprecise, and that round as their type must: no error.
ROUGH: dict[str, tuple[Kernel, tuple[Any, ...], Kernel, torch.dtype]] = {
    # vllm-project/vllm 53203: GemmaRMSNorm adds 1 to its weight in bfloat16
    "one is added in bfloat16": (
        lambda x, w: F.rms_norm(x, (64,), 1 + w, 1e-6), (some(64, 64), some(64, size=0.05)),
        lambda x, w: F.rms_norm(x.float(), (64,), (1 + w).float(), 1e-6).to(BF16), BF16,
    ),
    # pytorch 109188: layer_norm of bfloat16 differs between CPU and CUDA
    "a norm in steps": (layer_norm, (some(32, 64), some(64)), norm, BF16),
    # tenstorrent/tt-metal 30538: a norm by Welford's way errs more in float32
    "moments in one pass": (
        layer_norm, (some(32, 64), some(64)),
        lambda x, w: (x - x.mean(-1, keepdim=True))
        * torch.rsqrt(x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square() + 1e-5) * w, FP32,
    ),
    # many: products in parts, as by split-k
    "a product in parts": (
        torch.matmul, (some(32, 64), some(64, 48)),
        lambda a, b: sum((a[:, n : n + 16] @ b[n : n + 16] for n in range(16, 64, 16)), a[:, :16] @ b[:16]), BF16,
    ),
    # pytorch 57530: atomic additions in another order
    "additions in another order": (
        lambda x: x.sum(0), (some(40, 64),),
        lambda x: sum((row for row in x.flip(0).float()), torch.zeros(64)).to(x.dtype), FP16,
    ),
    # ROCm/triton 323: absolute differences of a norm's gradient
    "a softmax in steps": (lambda x: x.softmax(-1), (some(32, 64),), softmax_by_hand, BF16),
    "attention in float32": (F.scaled_dot_product_attention, (Q, K, V), wide(attention), FP16),
    "a mean in float32": (lambda x: x.mean(-1), (some(40, 64),), wide(lambda x: x.sum(-1) / 64), BF16),
    "a variance of a whole batch": (lambda x: x.var(0), (some(64, 40),), wide(lambda x: x.var(0)), FP16),
    "a loss in parts": (
        lambda x: F.cross_entropy(x, LABELS, reduction="none"), (SCORES,),
        lambda x: torch.cat(
            [F.cross_entropy(x[n : n + 8], LABELS[n : n + 8], reduction="none") for n in range(0, 64, 8)]
        ), BF16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUGH)
def test_a_kernel_that_rounds_as_its_type_must_is_no_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    function, tensors, kernel, dtype = ROUGH[name]
    candidate = plugin(monkeypatch, lambda called, args, kwargs: kernel(*args, **kwargs))
    found = check_api(function, *given(tensors, dtype), candidate=candidate)
    assert found.forward == "pass", str(found)


#: C. Moves and constants: (function, arguments, kernel, type). All are errors.
X = some(4, 6, 8)
MOVES: dict[str, tuple[Kernel, Kernel, torch.dtype]] = {
    # tenstorrent/tt-metal 54223, 52326: a pad value of float32 is packed as two bfloat16
    "a pad value in bfloat16": (
        lambda x: F.pad(x, (1, 1), value=7.0), lambda x: F.pad(x, (1, 1), value=7.00791931), FP32
    ),
    "a fill in bfloat16": (
        lambda x: x.masked_fill(X > 0, -3.0), lambda x: x.masked_fill(X > 0, -3.0117340087890625), FP32
    ),
    # many: minus infinity is replaced by a large number
    "a large number for infinity": (
        lambda x: x.masked_fill(X > 0, -torch.inf), lambda x: x.masked_fill(X > 0, torch.finfo(x.dtype).min), BF16
    ),
    # many: the diagonal is one off in a causal mask
    "a diagonal one off": (lambda x: x.tril(), lambda x: x.tril(-1), FP16),
    "halves exchanged": (
        lambda x: torch.cat([-x[..., 4:], x[..., :4]], -1), lambda x: torch.cat([x[..., :4], -x[..., 4:]], -1), BF16
    ),
    # many: interleaved and half-split rotary places
    "interleaved for halves": (
        lambda x: x.unflatten(-1, (2, 4)).transpose(-1, -2).flatten(-2),
        lambda x: x.unflatten(-1, (4, 2)).transpose(-1, -2).flatten(-2), FP32,
    ),
    "repeat for repeat_interleave": (
        lambda x: x.repeat_interleave(2, 1), lambda x: x.repeat(1, 2, 1), BF16
    ),
    "a roll the other way": (lambda x: x.roll(1, -1), lambda x: x.roll(-1, -1), FP16),
    # pytorch: gather reads the wrong row of a view
    "an index of rows": (
        lambda x: x.index_select(1, torch.tensor([0, 2, 5])), lambda x: x.index_select(1, torch.tensor([0, 2, 4])), FP32
    ),
    "reflect for replicate": (
        lambda x: F.pad(x, (2, 2), mode="replicate"), lambda x: F.pad(x, (2, 2), mode="reflect"), BF16
    ),
    # intel/torch-xpu-ops: a copy that goes through half precision
    "a copy through halves": (lambda x: x.clone(), lambda x: x.half().float(), FP32),
    # llama.cpp forks: rows of a strided view are copied as packed ones
    "rows of a view": (lambda x: x[..., :6].clone(), lambda x: in_memory_order(x[..., :6]).clone(), FP16),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_what_is_moved_or_written_otherwise_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    function, kernel, dtype = MOVES[name]
    x = X.to(dtype)
    assert check_api(function, x, candidate="cpu").forward == "pass"
    candidate = plugin(monkeypatch, lambda called, args, kwargs: kernel(*args, **kwargs))
    assert check_api(function, x, candidate=candidate).forward == "error"
