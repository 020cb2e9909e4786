"""Work done behind the back of torch's main thread: kernels called by address, threads that prepare batches."""

from __future__ import annotations

import ctypes
import functools
import queue
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised
from .generative import vectors

SOURCE = """
void scale(const float *from, float *to, long count, float factor) {
    for (long i = 0; i < count; i++) to[i] = from[i] * factor;
}
"""


@functools.cache
def kernel() -> Any:
    """A C function that writes `count` floats to an address; without a C compiler a stand-in made of memmove."""
    compiler = shutil.which("cc")
    if compiler is None:

        def scale(source: int, target: int, count: int, factor: float) -> None:
            ctypes.memmove(target, source, 4 * count)
            numbers = (ctypes.c_float * count).from_address(target)
            for i in range(count):
                numbers[i] *= factor

        return scale
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "scale.so")
        Path(folder, "scale.c").write_text(SOURCE)
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, Path(folder, "scale.c")], check=True)
        function = ctypes.CDLL(str(library)).scale
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_float]
    function.restype = None
    return function


def filled(x: torch.Tensor, factor: float) -> torch.Tensor:
    """`x` times `factor`, written by the kernel into memory that torch believes empty."""
    result = torch.empty_like(x, memory_format=torch.contiguous_format)
    kernel()(x.contiguous().data_ptr(), result.data_ptr(), x.numel(), factor)
    return result


class ScaledByKernel(torch.autograd.Function):
    """Forward and backward run in foreign code, as those of Triton and pybind extensions do."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return filled(x, factor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return filled(gradient, ctx.factor), None


@torch.library.custom_op("zoo::scaled", mutates_args=())
def scaled_operator(x: torch.Tensor, factor: float) -> torch.Tensor:
    """The kernel as an operator of torch's registry."""
    return filled(x, factor)


@torch.library.custom_op("zoo::scale_into", mutates_args={"result"})
def scale_into_operator(x: torch.Tensor, result: torch.Tensor, factor: float) -> None:
    """The kernel as an operator that writes into a buffer of its caller."""
    kernel()(x.data_ptr(), result.data_ptr(), x.numel(), factor)


def keep_factor(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.factor = inputs[1]


scaled_operator.register_autograd(lambda ctx, gradient: (filled(gradient, ctx.factor), None), setup_context=keep_factor)


@architecture()
def kernels_called_by_address() -> TrainingCase:
    """A Function, an operator, an operator that writes into a buffer, and a buffer kept and filled again each
    step."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    kept = torch.empty(6, 8)

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        h = ScaledByKernel.apply(net[0](x), 0.5)
        h = scaled_operator(h.tanh(), 2.0)
        kernel()(h.data_ptr(), kept.data_ptr(), kept.numel(), 3.0)
        mask = torch.empty_like(h)
        scale_into_operator(kept, mask, 0.25)
        out = net[1](h + mask)
        return out.square().mean(), {"h": h, "mask": mask, "kept": kept, "out": out}

    return supervised(model, vectors, loss_of)


@architecture()
def batches_prepared_by_a_thread() -> TrainingCase:
    """A thread stays two batches ahead with functions of torch, modules and a generator of its own, and runs
    inside, between and across the regions."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    normalise = nn.LayerNorm(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    asked: queue.Queue[int | None] = queue.Queue()
    ready: queue.Queue[tuple[torch.Tensor, torch.Tensor]] = queue.Queue()

    def prepare() -> None:
        generator = torch.Generator()
        while (number := asked.get()) is not None:
            generator.manual_seed(number)
            with torch.no_grad():
                x = torch.randn(6, 8, generator=generator)
                x = normalise(1.0 / (2.0 + F.dropout(1 + torch.flip(x, (1,)), 0.0).square()))
                ready.put((x, torch.randint(4, (6,), generator=generator)))

    worker = threading.Thread(target=prepare, daemon=True)
    worker.start()
    for number in range(2):
        asked.put(number)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        x, labels = ready.get()
        asked.put(i + 2)
        loss = 1.0 + 2.0 * F.cross_entropy(model(1.0 - x), labels)
        loss.backward()
        optimizer.step()
        region.end()
        return {"loss": loss, "x": x}

    def close() -> None:
        asked.put(None)
        worker.join()

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer}, close=close)


@architecture()
def generation_inside_a_training() -> TrainingCase:
    """Each step samples from the model under `inference_mode`, with a cache of keys and values, in the region,
    and trains on what it sampled."""
    from .adapters import tiny_llama
    from .recurrent import sequences

    model = tiny_llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def run_step(i: int, region: Region) -> Results:
        tokens, _ = sequences(i)
        optimizer.zero_grad()
        region.begin(model)
        model.eval()
        with torch.inference_mode():
            drawn = model.generate(input_ids=tokens[:, :3], max_new_tokens=2, do_sample=True, top_k=5)
            attention = torch.ones_like(drawn)
            attention[:, 0].mul_(1)
        model.train()
        drawn = drawn.clone()
        out = model(input_ids=drawn, attention_mask=attention.clone(), labels=drawn)
        out.loss.backward()
        optimizer.step()
        region.end()
        return {"loss": out.loss, "drawn": drawn, "logits": out.logits}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def autocast_bfloat16_transformer() -> TrainingCase:
    """A language model under autocast to bfloat16: cached casts of weights, a scaler, accumulation, clipping."""
    from .attention import GPT
    from .recurrent import predict_next, sequences

    model = GPT(layers=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        losses = []
        for micro in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss, _ = predict_next(model, *sequences(2 * i + micro, count=2))
            scaler.scale(loss / 2).backward()
            losses.append(loss)
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        scaler.step(optimizer)
        scaler.update()
        region.end()
        return {"losses": losses, "norm": norm, "scale": scaler.get_scale()}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer, "scaler": scaler})
