"""Jitter: results move by a unit as on a different device, the same for equal calls, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.row_by_row import for_each
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from msprobe.capture.torch.jitter import JitteredKernels
from msprobe.pytorch import PrecisionDebugger

TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def jittered(work: Any) -> Any:
    """What ``work`` gives while kernels are jittered."""
    mode = JitteredKernels()
    mode.attach()
    try:
        return work()
    finally:
        mode.detach()


def units_apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """How many units of the last place the elements differ by, at their own size."""
    eps = torch.finfo(one.dtype).eps
    size = other.double().abs()
    return (one.double() - other.double()).abs() / (eps * 2.0 ** torch.floor(torch.log2(size.clamp_min(1e-30))))


@pytest.mark.parametrize("dtype", TYPES)
def test_products_and_sums_move_by_a_unit_at_most(dtype: torch.dtype) -> None:
    a, b = torch.randn(40, 30).to(dtype), torch.randn(30, 50).to(dtype)
    for work in (lambda: a @ b, lambda: a.sum(1), lambda: functional.layer_norm(a, (30,))):
        plain, moved = work(), jittered(work)
        apart = units_apart(moved, plain)
        assert moved.dtype == dtype
        assert float((apart > 0).double().mean()) > (0.04 if dtype.itemsize == 2 else 0.3)
        assert float(apart.max()) <= 2.0


@for_each("dtype", [torch.float32, torch.bfloat16])
@for_each(
    "work",
    [
        lambda x: x + 0.3,
        lambda x: x * 3.0 / 7.0,
        lambda x: torch.relu(x),
        lambda x: x.t().contiguous(),
        lambda x: torch.cat([x, -x]),
        lambda x: x[torch.tensor([3, 1, 2])],
        lambda x: x.amax(1),
        lambda x: functional.max_pool1d(x, 2),
        lambda x: x.to(torch.float16),
        lambda x: x.clone().add_(1.5),
        lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
        lambda x: (x > 0).to(x.dtype).cumsum(1),
        lambda x: (x > 0).to(x.dtype) @ torch.ones(24, 5, dtype=x.dtype),
    ],
)
def test_what_every_device_computes_alike_stays(work: Any, dtype: torch.dtype) -> None:
    x = torch.randn(16, 24).to(dtype)
    assert torch.equal(jittered(lambda: work(x)), work(x))


def test_random_numbers_of_the_program_are_the_same() -> None:
    def draw() -> torch.Tensor:
        torch.manual_seed(3)
        a = functional.dropout(torch.ones(100), 0.5)
        (torch.randn(20, 20) @ torch.randn(20, 20)).sum()
        return torch.cat([a, torch.rand(100)])

    assert torch.equal(jittered(draw), draw())


def test_equal_calls_give_equal_results_also_when_recomputed() -> None:
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(12, 12), nn.GELU(), nn.Linear(12, 12))
    x = torch.randn(5, 12)

    def gradients(recompute: bool) -> list[torch.Tensor]:
        layer.zero_grad()
        made = checkpoint(layer, x, use_reentrant=False) if recompute else layer(x)
        made.square().sum().backward()
        return [one.grad.clone() for one in layer.parameters()]

    def twice() -> Any:
        for _ in range(10):
            gradients(False)  # all that there is to learn of these operators
        return gradients(False), gradients(True)

    plain, recomputed = jittered(twice)
    assert all(torch.equal(one, other) for one, other in zip(plain, recomputed, strict=True))


def test_a_training_moves_and_learns_all_the_same() -> None:
    def losses() -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        x = torch.randn(64, 8)
        y = x.sum(1, keepdim=True).sin()
        found = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    plain, moved = losses(), jittered(losses)
    assert plain != moved
    assert moved == pytest.approx(plain, rel=1e-3)


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}])
def test_what_an_optimizer_writes_moves_also_over_lists(options: dict[str, bool]) -> None:
    def weights() -> torch.Tensor:
        torch.manual_seed(0)
        layer = nn.Linear(20, 20)
        for parameter in layer.parameters():
            parameter.grad = torch.randn_like(parameter)
        torch.optim.AdamW(layer.parameters(), 1e-2, **options).step()
        return layer.weight.detach()

    plain, moved = weights(), jittered(weights)
    assert not torch.equal(moved, plain)
    torch.testing.assert_close(moved, plain, rtol=1e-5, atol=1e-7)


def test_tensors_of_other_layouts_and_modes_of_the_program() -> None:
    def work() -> torch.Tensor:
        with torch.inference_mode():
            sparse = torch.eye(6).to_sparse() @ torch.ones(6, 2)
        x = torch.randn(6, 6).t()
        out = torch.empty(12, 6)[::2]
        torch.mm(x, x, out=out)
        with torch.autocast("cpu", torch.bfloat16):
            return sparse.sum() + out.sum() + (x @ x).float().sum() + torch.empty(0).sum()

    assert jittered(work).isfinite()


def test_tensors_without_values_are_the_business_of_their_own_classes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    layer = nn.Linear(4, 3)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake = mode.from_tensor(torch.randn(2, 4))
    assert jittered(lambda: layer(fake)).shape == (2, 3)
    assert jittered(lambda: torch.jit.trace(layer, torch.randn(2, 4)))(torch.randn(2, 4)).shape == (2, 3)
    symbolic = torch.fx.symbolic_trace(layer)
    assert jittered(lambda: symbolic(torch.randn(2, 4))).shape == (2, 3)


def test_one_thing_is_left_whatever_was_entered_meanwhile() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Own(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "mm" in str(func):
                seen.append(str(func))
            return func(*args, **(kwargs or {}))

    mode = JitteredKernels()
    x = torch.randn(8, 8)
    plain = x @ x
    mode.attach()
    with Own():
        assert not torch.equal(x @ x, plain)
        mode.detach()
        assert torch.equal(x @ x, plain)
    assert seen == ["aten.mm.default"] * 2
    assert torch.equal(x @ x, plain)


def test_a_recording_says_that_it_was_jittered_and_ends_with_it(tmp_path: Path) -> None:
    model = nn.Linear(6, 6)
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1", jitter=True)
    x = torch.randn(4, 6)
    plain = model(x)
    try:
        debugger.start(model)
        assert not torch.equal(model(x), plain)
        debugger.stop()
        assert torch.equal(model(x), plain)
        debugger.step()
    finally:
        PrecisionDebugger.reset()
    (file,) = tmp_path.rglob("dump.json")
    assert json.loads(file.read_text())["msprobe"]["precision"]["jitter"] is True
