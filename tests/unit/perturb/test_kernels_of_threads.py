"""Kernels of half types that public threads report as wrong: the free benchmark calls each a risk, rough ones are none.

The subjects are those of ``tests/unit/precheck/test_kernels_of_threads.py``, beside a run of the same call in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.benchmarked import details
from support.coded_texts import mentions
from torch.nn import functional as F

from msprobe.pytorch import PrecisionDebugger

BF16 = torch.bfloat16
GENERATOR = torch.Generator().manual_seed(3)


def some(*shape: int, add: float = 0.0) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR) + add


def attention(scale: float) -> Callable[..., torch.Tensor]:
    return lambda q, k, v: (q.float() @ k.float().transpose(-1, -2) * scale).softmax(-1) @ v.float()


def norm(x: torch.Tensor, less: int, epsilon: float) -> torch.Tensor:
    d = x - x.mean(-1, keepdim=True)
    return d * torch.rsqrt(d.square().sum(-1, keepdim=True) / (x.shape[-1] - less) + epsilon)


HEADS = tuple(some(2, 4, 32, 20) for _ in range(3))
#: (function, arguments, what it gives in bfloat16 before it is rounded, whether that is a risk)
KERNELS: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...], Callable[..., torch.Tensor], bool]] = {
    "the scale of padded heads": (F.scaled_dot_product_attention, HEADS, attention(32**-0.5), True),
    "attention by hand": (F.scaled_dot_product_attention, HEADS, attention(20**-0.5), False),
    "values without their scale": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v * 0.707), HEADS, attention(20**-0.5), True
    ),
    "a variance by n - 1": (
        lambda x: F.layer_norm(x, (24,)), (some(64, 24),), lambda x: norm(x.float(), 1, 1e-5), True
    ),
    "another epsilon": (
        lambda x: F.layer_norm(x * 0.05, (64,)), (some(64, 64),), lambda x: norm(x.float() * 0.05, 0, 1e-3), True
    ),
    "a norm by hand": (
        lambda x: F.layer_norm(x, (64,)), (some(64, 64),), lambda x: norm(x.float(), 0, 1e-5), False
    ),
    "gelu by a sigmoid": (F.gelu, (some(64, 64),), lambda x: x.float() * (1.702 * x.float()).sigmoid(), True),
    "exp2 for exp": (lambda x: x.softmax(-1), (some(64, 64),), lambda x: (x.float() * 0.6931).softmax(-1), True),
    "a mean over padding": (lambda x: x.mean(-1), (some(256, 60, add=1.0),), lambda x: x.float().sum(-1) / 64, True),
    "positions one further": (
        lambda x: x * torch.arange(64).cos().to(x.dtype), (some(64, 64),),
        lambda x: x.float() * torch.arange(1, 65).cos(), True,
    ),
    "products whose last terms are missing": (
        torch.matmul, (some(64, 64, add=0.5), some(64, 48, add=0.5)),
        lambda a, b: a[:, :62].float() @ b[:62].float(), True,
    ),
    "a product in float32": (
        torch.matmul, (some(64, 64), some(64, 48)), lambda a, b: a.float() @ b.float(), False
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_of_a_thread_is_a_risk(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    function, args, kernel, risk = KERNELS[name]

    class Kernels:
        @staticmethod
        def kernel(*given: torch.Tensor) -> torch.Tensor:
            return kernel(*given).to(BF16) if given[0].dtype is BF16 else function(*given)

    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(
        task="free_benchmark", dump_path=str(tmp_path), pert_mode="improve_precision", fuzz_device="npu"
    )
    debugger.register_custom_api(Kernels, "kernel")
    try:
        debugger.start()
        Kernels.kernel(*(one.to(BF16) for one in args))
        debugger.stop()
    finally:
        PrecisionDebugger.reset()
    found = [row["verdict"] for row in details(tmp_path) if "kernel" in row["api_name"]]
    assert ("risk" in found) is risk
    assert bool(mentions(capsys.readouterr().out, "benchmark-without-risk")) is not risk
