"""Number formats and operators off the usual path: quantised, half, double, complex, sparse,
re-parameterised."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised
from .generative import vectors


class FakeQuantLinear(nn.Module):
    """Weights and activations pass through fake quantisation with a running observer (a buffer written in
    place)."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width_in, width)
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            with torch.no_grad():
                self.largest.mul_(0.9).add_(0.1 * x.abs().max())
        scale = float(self.largest.clamp(min=1e-4)) / 127
        x = torch.fake_quantize_per_tensor_affine(x, scale, 0, -128, 127)
        weight = self.linear.weight
        scales = weight.detach().abs().amax(1) / 127
        zeros = torch.zeros(len(scales), dtype=torch.int32)
        weight = torch.fake_quantize_per_channel_affine(weight, scales, zeros, 0, -128, 127)
        return F.linear(x, weight, self.linear.bias)


@architecture()
def fake_quant() -> TrainingCase:
    model = nn.Sequential(FakeQuantLinear(8, 12), nn.Hardswish(), FakeQuantLinear(12, 4))

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        out = net(x)
        packed = torch.quantize_per_tensor(out.detach(), 0.05, 10, torch.qint8)
        return F.smooth_l1_loss(out, x[:, :4]), {
            "out": out,
            "packed": packed,
            "unpacked": packed.dequantize(),
        }

    return supervised(model, vectors, loss_of)


@architecture()
def float64_cholesky() -> TrainingCase:
    """A Gaussian process in double precision: Cholesky, triangular solve, log determinant."""

    class Kernel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Linear(8, 3)
            self.noise = nn.Parameter(torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            distance = torch.cdist(self.features(x), self.features(x) + 1e-6)
            return torch.exp(-0.5 * distance.square()) + F.softplus(self.noise) * torch.eye(len(x), dtype=x.dtype)

    def loss_of(kernel: nn.Module, x: torch.Tensor) -> LossAndResults:
        factor = torch.linalg.cholesky(kernel(x))
        target = x.sum(1, keepdim=True)
        solved = torch.linalg.solve_triangular(factor, target, upper=False)
        return 0.5 * solved.square().sum() + factor.diagonal().log().sum(), {
            "factor": factor,
            "solved": solved,
        }

    return supervised(Kernel().double(), lambda i: (vectors(i)[0].double(),), loss_of)


@architecture()
def bfloat16_mlp() -> TrainingCase:
    """Everything in bfloat16, with float32 master weights copied back after the optimizer step."""
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).bfloat16()
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=1e-2)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        model.zero_grad()
        region.begin(model)
        out = model(x.bfloat16())
        loss = out.float().square().mean()
        loss.backward()
        for master, parameter in zip(masters, model.parameters(), strict=True):
            master.grad = parameter.grad.float()
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters, model.parameters(), strict=True):
                parameter.copy_(master)
        region.end()
        return {"loss": loss, "out": out}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer, "masters": masters})


@architecture()
def autocast_grad_scaler() -> TrainingCase:
    """CPU autocast to bfloat16 with nested exceptions, and a GradScaler that once meets an overflow and
    skips."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        if i == 1:
            x[0, 0] = float("inf")
        optimizer.zero_grad()
        region.begin(model)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
            product = out @ out.T
            with torch.autocast("cpu", enabled=False):
                loss = out.float().square().mean()
            loss = loss + F.cross_entropy(product, torch.arange(6))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        region.end()
        return {"loss": loss, "out": out, "product": product, "norm": norm, "scale": scaler.get_scale()}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer, "scaler": scaler})


class SpectralMix(nn.Module):
    """A Fourier layer with complex weights."""

    def __init__(self, width: int = 4, modes: int = 4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(modes, width, width, dtype=torch.cfloat) * 0.2)
        self.local = nn.Conv1d(width, width, 1)
        self.modes = modes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x, dim=-1)
        mixed = torch.zeros_like(spectrum)
        mixed[..., : self.modes] = torch.einsum("bim,mio->bom", spectrum[..., : self.modes], self.weight)
        return F.gelu(torch.fft.irfft(mixed, n=x.shape[-1], dim=-1) + self.local(x))


@architecture()
def complex_fft() -> TrainingCase:
    model = nn.Sequential(nn.Conv1d(1, 4, 1), SpectralMix(), SpectralMix(), nn.Conv1d(4, 1, 1))

    def batch(i: int) -> tuple[torch.Tensor]:
        return (torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(i)),)

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        out = net(x)
        shift = torch.view_as_complex(torch.stack([out, x], -1)) * torch.polar(torch.ones(16), torch.arange(16.0))
        conjugate = shift.conj()
        return (shift * conjugate).real.mean() + torch.fft.fft2(out).abs().mean(), {
            "shift": shift,
            "conj": conjugate,
        }

    return supervised(model, batch, loss_of)


@architecture()
def sparse_embedding() -> TrainingCase:
    """Sparse gradients with SparseAdam, EmbeddingBag, and a sparse matrix product."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(30, 8, sparse=True)
            self.bag = nn.EmbeddingBag(30, 8, mode="sum", sparse=True)
            self.head = nn.Linear(16, 3)

        def forward(self, tokens: torch.Tensor, offsets: torch.Tensor, links: torch.Tensor) -> torch.Tensor:
            words = torch.sparse.mm(links, self.words(tokens).reshape(-1, 8))
            bags = self.bag(tokens.flatten(), offsets)
            return self.head(torch.cat([words[: len(bags)], bags], -1))

    model = Model()
    sparse = torch.optim.SparseAdam([model.words.weight, model.bag.weight], lr=1e-2)
    dense = torch.optim.SGD(model.head.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        generator = torch.Generator().manual_seed(i)
        tokens = torch.randint(30, (3, 4), generator=generator)
        links = torch.sparse_coo_tensor(torch.randint(12, (2, 20), generator=generator), torch.ones(20), (12, 12))
        model.zero_grad()
        region.begin(model)
        out = model(tokens, torch.tensor([0, 4, 8]), links)
        loss = F.cross_entropy(out, torch.tensor([0, 1, 2]))
        loss.backward()
        results: Results = {"loss": loss, "out": out, "word_gradient": model.words.weight.grad.clone()}
        sparse.step()
        dense.step()
        region.end()
        return {**results, "links": links, "compressed": links.coalesce().to_sparse_csr()}

    return TrainingCase(run_step, {"model": model, "sparse": sparse, "dense": dense})


@architecture()
def weight_and_spectral_norm() -> TrainingCase:
    """Parametrisations, old and new: the power iteration of spectral norm writes a buffer at every
    forward."""
    from torch.nn.utils import parametrizations, spectral_norm, weight_norm

    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(8, 12)),
        nn.Tanh(),
        parametrizations.spectral_norm(nn.Linear(12, 12)),
        nn.PReLU(),
        parametrizations.orthogonal(nn.Linear(12, 12)),
        nn.Softplus(),
        spectral_norm(nn.Linear(12, 12)),
        nn.GLU(),
        weight_norm(nn.Linear(6, 4)),
    )
    return supervised(model, vectors, lambda net, x: net(x).square().mean())


@architecture()
def deterministic_algorithms() -> TrainingCase:
    """Deterministic mode, with uninitialised memory filled: recording must not trip over it nor change it."""
    before = torch.are_deterministic_algorithms_enabled()
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 8), nn.Softmax(-1))

    def run_step(i: int, region: Region) -> Results:
        torch.use_deterministic_algorithms(True)
        try:
            model.zero_grad()
            region.begin(model)
            out = model(torch.arange(6) + i)
            mixed = torch.zeros(3, 8).index_add(0, torch.tensor([0, 1, 2, 0, 1, 2]), out)
            loss = mixed.cumsum(0).square().sum() + torch.empty(3).nan_to_num().sum()
            loss.backward()
            region.end()
            return {"loss": loss, "mode": torch.are_deterministic_algorithms_enabled()}
        finally:
            torch.use_deterministic_algorithms(before)

    return TrainingCase(run_step, {"model": model})
