"""Mistakes, and second forms, that others reported in public: each in a small decoder, in float32 and bfloat16.

Where each comes from (issues and pull requests on GitHub): recomputation with other random numbers
openai/guided-diffusion#167; an auxiliary loss whose gradient is thrown away, or scaled, NVIDIA-NeMo/Automodel#1408 and
#1412; angles of rounded positions huggingface/candle#3520 and NVIDIA/Megatron-LM#535; packed rows with positions that
run on hiyouga/LlamaFactory#7318, and that see each other huggingface/transformers#46634; no weights in float32
NVIDIA/apex#1731; rounded states databricks/flashoptim#2, and of a resumed training ultralytics/ultralytics#24085;
buffers that an average lacks FlyreelAI/sesemi#36; noise that a recomputation reads too early pytorch/pytorch#193671.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from unit.diagnose.real_pairs import Training, compare_trainings

from msprobe.diagnose.findings import Verdict

VOCABULARY, WIDTH, LENGTH, HEADS = 32, 32, 12, 4
PRECISIONS = (torch.float32, torch.bfloat16)


class Block(nn.Module):
    """One of a decoder. ``mask``: who sees whom; nothing later if it is not given."""

    mask: Tensor | None = None

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def turned(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mixed(self.before(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(
            self.turned(query), self.turned(key), value, attn_mask=self.mask, is_causal=self.mask is None
        )
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    def __init__(self, kind: type[Block] = Block) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([kind() for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def embedded(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens)  # type: ignore[no-any-return]

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedded(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class Trained:
    """A training as most are. Those below change one of its parts; ``right``: as it should be."""

    model: nn.Module

    def __init__(self, dtype: torch.dtype, right: bool) -> None:
        self.right = right
        self.model = self.built().to(dtype)
        self.optimizer = self.stepped_by(list(self.model.parameters()))

    def built(self) -> nn.Module:
        return Decoder()

    def stepped_by(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, 1e-3)

    def step(self, number: int) -> None:
        tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=torch.Generator().manual_seed(number))
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
        self.optimizer.step()


class _Recomputed(torch.autograd.Function):
    """Computes a block again in the backward pass."""

    @staticmethod
    def forward(context: Any, run: Any, keeps: bool, x: Tensor, *weights: Tensor) -> Any:
        context.run, context.keeps, context.state = run, keeps, torch.get_rng_state()
        context.save_for_backward(x, *weights)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        x, *weights = context.saved_tensors
        x, state = x.detach().requires_grad_(), torch.get_rng_state()
        if context.keeps:
            torch.set_rng_state(context.state)
        with torch.enable_grad():
            result = context.run(x)
        torch.set_rng_state(state)
        return None, None, *torch.autograd.grad(result, [x, *weights], gradient)


class OtherRandomNumbers(Trained):
    def built(self) -> nn.Module:
        keeps = self.right

        class Dropping(Block):
            def forward(self, x: Tensor) -> Tensor:
                def run(x: Tensor) -> Tensor:
                    return F.dropout(super(Dropping, self).forward(x), 0.2)

                return _Recomputed.apply(run, keeps, x, *self.parameters())  # type: ignore[no-any-return,no-untyped-call]

        return Decoder(Dropping)


class _WithLoss(torch.autograd.Function):
    """Gives its argument, and a loss beside it a gradient."""

    scale = 1.0

    @staticmethod
    def forward(context: Any, x: Tensor, loss: Tensor) -> Any:
        context.save_for_backward(loss)
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        (loss,) = context.saved_tensors
        return gradient, torch.ones_like(loss) * _WithLoss.scale


class Experts(nn.Module):
    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.gate, self.keeps = nn.Linear(WIDTH, 4, bias=False), keeps
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).float().softmax(-1)
        used = weights.argmax(-1).flatten().bincount(minlength=4) / weights[..., 0].numel()
        with_loss = _WithLoss.apply(weights, (weights.mean((0, 1)) * used).sum() * 2)  # type: ignore[no-untyped-call]
        weights = (with_loss if self.keeps else weights).to(x.dtype)
        return x + sum(weights[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))  # type: ignore[no-any-return]


class LossThrownAway(Trained):
    def built(self) -> nn.Module:
        model = Decoder()
        model.blocks.append(Experts(self.right))
        return model


class LossScaled(Trained):
    def built(self) -> nn.Module:
        model = Decoder()
        model.blocks.append(Experts(keeps=True))
        return model

    def step(self, number: int) -> None:
        _WithLoss.scale = 1.0 if self.right else 0.5
        super().step(number)


class RoundedPositions(Trained):
    def built(self) -> nn.Module:
        wide = torch.float32 if self.right else torch.bfloat16

        class Turning(Block):
            def turned(self, x: Tensor) -> Tensor:
                frequencies = 1.0 / (100.0 ** (torch.arange(0, 8, 2) / 8))
                angles = torch.outer(torch.arange(290, 290 + LENGTH).to(wide), frequencies.to(wide)).repeat(1, 2)
                other = torch.cat((-x[..., 4:], x[..., :4]), -1)
                return x * angles.cos().to(x.dtype) + other * angles.sin().to(x.dtype)

        return Decoder(Turning)


class Placed(Decoder):
    """With a place for each token. ``lengths``: of the documents in a row."""

    def __init__(self, lengths: tuple[int, ...], kind: type[Block] = Block) -> None:
        super().__init__(kind)
        self.places, self.lengths = nn.Embedding(64, WIDTH), lengths

    def embedded(self, tokens: Tensor) -> Tensor:
        return super().embedded(tokens) + self.places(torch.cat([torch.arange(length) for length in self.lengths]))


def within_documents(*lengths: int) -> type[Block]:
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    mask = torch.ones(LENGTH, LENGTH).tril().bool() & (document[:, None] == document)
    return type("WithinDocuments", (Block,), {"mask": mask})


class PositionsRunOn(Trained):
    def built(self) -> nn.Module:
        return Placed((5, 7) if self.right else (12,), within_documents(5, 7))


class DocumentsSeeEachOther(Trained):
    def built(self) -> nn.Module:
        return Placed((5, 7), within_documents(5, 7) if self.right else Block)


class InRowsOfTheirOwn(Placed):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens.reshape(-1, 6)).reshape(-1, LENGTH, VOCABULARY)


class Packed(Trained):
    """Two documents in a row, or each in its own."""

    def built(self) -> nn.Module:
        return InRowsOfTheirOwn((6,)) if self.right else Placed((6, 6), within_documents(6, 6))


class OwnAdam(torch.optim.Optimizer):
    """States in float32. ``rounds``: to bfloat16 in each step; ``keeps``: the weights in float32, too."""

    def __init__(self, parameters: Any, rounds: bool = False, keeps: bool = False) -> None:
        super().__init__(parameters, {"lr": 1e-3})
        self.rounds, self.keeps = rounds, keeps

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for weight in self.param_groups[0]["params"]:
            state = self.state[weight]
            if not state:
                state.update(mean=torch.zeros_like(weight).float(), square=torch.zeros_like(weight).float(), steps=0)
                if self.keeps:
                    state["master"] = weight.float().clone()
            state["steps"] += 1
            gradient = weight.grad.float()
            self.average(state, gradient)
            if self.rounds:
                for name in ("mean", "square"):
                    state[name].copy_(state[name].bfloat16())
            size = (state["square"] / (1 - 0.95 ** state["steps"])).sqrt() + 1e-8
            change = state["mean"] / (1 - 0.9 ** state["steps"]) / size
            if self.keeps:
                weight.copy_(state["master"].sub_(change, alpha=1e-3))
            else:
                weight.sub_(change.to(weight.dtype), alpha=1e-3)

    def average(self, state: Any, gradient: Tensor) -> None:
        state["mean"].lerp_(gradient, 0.1)
        state["square"].mul_(0.95).addcmul_(gradient, gradient, value=0.05)


class AnotherAdam(OwnAdam):
    """The same in a class of another name, as a fused one is, and in other calls."""

    def average(self, state: Any, gradient: Tensor) -> None:
        state["mean"].mul_(0.9).add_(gradient, alpha=0.1)
        state["square"].mul_(0.95).add_(gradient * gradient * 0.05)


class ClassOfOptimizer(Trained):
    def stepped_by(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return (OwnAdam if self.right else AnotherAdam)(parameters)


class DecaysOtherwise(Trained):
    def stepped_by(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return (torch.optim.AdamW if self.right else torch.optim.Adam)(parameters, 1e-3, weight_decay=0.01)


class NoWeightsInFloat32(Trained):
    def stepped_by(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return OwnAdam(parameters, keeps=self.right)


class RoundedStates(Trained):
    def stepped_by(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return OwnAdam(parameters, rounds=not self.right)


class ResumedInHalf(Trained):
    def step(self, number: int) -> None:
        if number == 1:
            kept = copy.deepcopy(self.optimizer.state_dict())
            for state in kept["state"].values() if not self.right else ():
                state["exp_avg_sq"] = state["exp_avg_sq"].half().to(state["exp_avg_sq"].dtype)
            self.optimizer.load_state_dict(kept)
        super().step(number)


class Leaky(Trained):
    """Behind its result a slope that is drawn, which is computed again in the backward pass."""

    def built(self) -> nn.Module:
        slope, right = nn.RReLU(0.1, 0.9), self.right

        class Sloping(Decoder):
            def embedded(self, tokens: Tensor) -> Tensor:
                x = super().embedded(tokens)
                return slope(x) if right else checkpoint(slope, x, use_reentrant=False)  # type: ignore[no-any-return]

        return Sloping()

    def step(self, number: int) -> None:
        # What is computed again stops before the slope is written: what was in its memory must not decide a test.
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            super().step(number)
        finally:
            torch.use_deterministic_algorithms(False)


class AverageWithoutBuffers(Trained):
    """A network of pictures, and the averages of its weights, which nobody reads in these steps."""

    def built(self) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))

    def step(self, number: int) -> None:
        if number == 0:
            self.average = copy.deepcopy(self.model).requires_grad_(False)
        weight = next(self.model.parameters())
        x = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(number)).to(weight.dtype)
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(x).float(), torch.arange(8)).backward()
        self.optimizer.step()
        with torch.no_grad():
            for average, weight in zip(self.average.parameters(), self.model.parameters(), strict=True):
                average.lerp_(weight, 0.1)
            for kept, buffer in zip(self.average.buffers(), self.model.buffers(), strict=True):
                if self.right:
                    kept.copy_(buffer)


#: The first finding and its call, where the candidate is wrong, and where the reference is.
MISTAKES: dict[type[Trained], tuple[tuple[str, str], tuple[str, str]]] = {
    OtherRandomNumbers: (("argument-differs", "Function._Recomputed.0.forward"),) * 2,
    LossThrownAway: (
        ("gradient-missing", "Function._WithLoss.0.forward"),
        ("gradient-extra", "Function._WithLoss.0.forward"),
    ),
    LossScaled: (("argument-differs", "Tensor.__mul__.6.forward"),) * 2,
    RoundedPositions: (("argument-differs", "Tensor.to.0.forward"),) * 2,
    PositionsRunOn: (("argument-differs", "Torch.arange.0.forward"),) * 2,
    DocumentsSeeEachOther: (("arguments-differ", "Functional.scaled_dot_product_attention.0.forward"),) * 2,
    DecaysOtherwise: (
        ("optimizer-class-differs", "Optimizer.Adam.0.forward"),
        ("optimizer-class-differs", "Optimizer.AdamW.0.forward"),
    ),
    ResumedInHalf: (("extra-calls", "Tensor.half.0.forward"), ("missing-calls", "Tensor.half.0.forward")),
    Leaky: (
        ("nan-or-infinity-made", "Functional.rrelu.0.backward"),
        ("backward-result-differs", "Functional.rrelu.0.backward"),
    ),
}
#: Mistakes of which each precision shows something else, or no effect: rounding to bfloat16 is as large there.
BY_PRECISION: dict[tuple[type[Trained], torch.dtype], tuple[str, tuple[str, str]]] = {
    (NoWeightsInFloat32, torch.float32): ("diverged", ("optimizer-state-on-one-side",) * 2),
    (NoWeightsInFloat32, torch.bfloat16): ("diverged", ("dtype-differs-by-extra-call",) * 2),
    (RoundedStates, torch.float32): ("diverged", ("extra-calls", "missing-calls")),
    (RoundedStates, torch.bfloat16): ("harmless", ("extra-calls", "missing-calls")),
    (Packed, torch.float32): ("harmless", ("argument-differs",) * 2),
    (Packed, torch.bfloat16): ("harmless", ("argument-differs",) * 2),
    (AverageWithoutBuffers, torch.float32): ("harmless", ("missing-calls", "extra-calls")),
    (AverageWithoutBuffers, torch.bfloat16): ("harmless", ("missing-calls", "extra-calls")),
    (ClassOfOptimizer, torch.float32): ("harmless", ("optimizer-class-differs",) * 2),
    # Weights of so few digits do not show which of two optimizers made them.
    (ClassOfOptimizer, torch.bfloat16): ("diverged", ("optimizer-class-differs",) * 2),
}
SIDES = ((False, True), (True, False))


def verdict_of(folder: Path, kind: type[Trained], dtype: torch.dtype, sides: tuple[bool, bool]) -> Verdict:
    def building(right: bool) -> Callable[[], Training]:
        def build() -> Training:
            training = kind(dtype, right)
            return training.model, training.step

        return build

    return compare_trainings(folder, *map(building, sides), steps=2)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_named(kind: type[Trained], dtype: torch.dtype, tmp_path: Path) -> None:
    for number, (sides, wanted) in enumerate(zip(SIDES, MISTAKES[kind], strict=True)):
        verdict = verdict_of(tmp_path / str(number), kind, dtype, sides)
        assert verdict.status == "diverged"
        assert (verdict.findings[0].name, verdict.findings[0].entry) == wanted


@pytest.mark.parametrize(("kind", "dtype"), BY_PRECISION)
def test_it_counts_where_it_shows(kind: type[Trained], dtype: torch.dtype, tmp_path: Path) -> None:
    status, names = BY_PRECISION[kind, dtype]
    for number, (sides, wanted) in enumerate(zip(SIDES, names, strict=True)):
        verdict = verdict_of(tmp_path / str(number), kind, dtype, sides)
        assert (verdict.status, verdict.findings[0].name) == (status, wanted)
