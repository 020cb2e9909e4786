"""Trainings of several kinds, which give their losses and models: :data:`KINDS` names them with the bugs they know."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from unit.lockstep.trainings import wrong_backward

from msprobe.pytorch import PrecisionDebugger

Bugs = Collection[str]
#: Around a step of a training of this model.
Around = Callable[[nn.Module], AbstractContextManager[Any]]
Trained = tuple[list[float], nn.Module]
STEPS = 2


@contextlib.contextmanager
def debugged(model: nn.Module) -> Any:
    """A step that the debugger there is records."""
    PrecisionDebugger.start(model)
    yield
    PrecisionDebugger.stop()
    PrecisionDebugger.step()


class Translator(nn.Module):
    """An encoder and a decoder, whose words are those of the encoder and of the head."""

    def __init__(self, bugs: Bugs) -> None:
        super().__init__()
        self.bugs = bugs
        self.words = nn.Embedding(20, 8, padding_idx=0)
        self.reader = nn.LSTM(8, 4, bidirectional=True, batch_first=True)
        self.writer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.words.weight

    def forward(self, given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Scores of the next words."""
        read, _ = self.reader(self.words(given) * (4.1 if "scale" in self.bugs else 4.0))
        mask = nn.Transformer.generate_square_subsequent_mask(wanted.shape[1])
        mask = torch.zeros_like(mask) if "mask" in self.bugs else mask
        written = self.writer(self.words(wanted), read, tgt_mask=mask, memory_key_padding_mask=given == 0)
        scores: torch.Tensor = self.head(F.normalize(written, p=1.0 if "norm" in self.bugs else 2.0, dim=-1))
        return scores


def translator(bugs: Bugs, around: Around) -> Trained:
    """Tied weights, attention across, masks, dropout."""
    model = Translator(bugs)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    given, wanted = torch.randint(1, 20, (STEPS, 3, 6)), torch.randint(1, 20, (STEPS, 3, 5))
    given[:, 0, 4:] = 0
    losses = []
    for step in range(STEPS):
        with around(model):
            scores = model(given[step], wanted[step, :, :-1])
            loss = F.cross_entropy(scores.flatten(0, 1), wanted[step, :, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model


def adversaries(bugs: Bugs, around: Around) -> Trained:
    """Two optimizers, one graph that both use, running averages, calls that are told by position to write in place."""
    maker = nn.Sequential(
        nn.Unflatten(1, (4, 2, 2)), nn.ConvTranspose2d(4, 3, 4, 2, 1), nn.BatchNorm2d(3), nn.ELU(inplace=True)
    )
    leak = 0.1 if "leak" in bugs else 0.2
    judge = nn.Sequential(
        nn.utils.spectral_norm(nn.Conv2d(3, 6, 3, 2, 1)),
        nn.BatchNorm2d(6),
        nn.LeakyReLU(leak, inplace=True),
        nn.Dropout2d(0.2),
        nn.Flatten(),
        nn.Linear(24, 1),
    )
    of_maker = torch.optim.Adam(maker.parameters(), 1e-3, betas=(0.5, 0.99 if "beta" in bugs else 0.999))
    of_judge = torch.optim.RMSprop(judge.parameters(), 1e-3)
    both, real, losses = nn.ModuleDict({"maker": maker, "judge": judge}), torch.randn(STEPS, 4, 3, 4, 4), []
    loss_of = F.binary_cross_entropy_with_logits
    for step in range(STEPS):
        with around(both):
            made = maker(torch.randn(4, 16))
            of_judge.zero_grad()
            goal = torch.full((4, 1), 0.8 if "goal" in bugs else 0.9)
            told = loss_of(judge(real[step]), goal) + loss_of(judge(made.detach()), torch.zeros(4, 1))
            told.backward()
            of_judge.step()
            of_maker.zero_grad()
            made = wrong_backward(made) if "backward" in bugs else made
            fooled = loss_of(judge(made), torch.ones(4, 1))
            fooled.backward()
            of_maker.step()
        losses += [told.item(), fooled.item()]
    return losses, both


class Repeated(nn.Module):
    """A block whose forward pass is made again for its backward pass."""

    def __init__(self, bugs: Bugs) -> None:
        super().__init__()
        self.top = 0.5 if "tanh" in bugs else 1.0
        self.norm, self.linear, self.drop = nn.LayerNorm(8), nn.Linear(8, 8), nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A residual block."""
        return x + F.hardtanh(self.drop(F.silu(self.linear(self.norm(x)))), -1.0, self.top)


def in_closures(bugs: Bugs, around: Around) -> Trained:
    """The last of two micro-batches is passed in the closure of the optimizer's step, as Lightning does, and all blocks
    are checkpointed the reentrant way.
    """
    model = nn.ModuleList([Repeated(bugs), Repeated(bugs)])
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov="nesterov" in bugs)
    losses: list[float] = []

    def passes() -> torch.Tensor:
        x = torch.randn(6, 8, requires_grad=True)
        for block in model:
            x = checkpoint(block, x, use_reentrant=True)
        loss = F.smooth_l1_loss(x, torch.ones_like(x), beta=0.5 if "beta" in bugs else 1.0) / 2
        loss.backward()
        losses.append(loss.item())
        return loss

    def last() -> torch.Tensor:
        loss = passes()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        return loss

    for _ in range(STEPS):
        with around(model):
            passes()
            optimizer.step(last)  # type: ignore[arg-type]
            optimizer.zero_grad()
    return losses, model


class Halves(nn.Module):
    """Writes into views under autocast, and a part that is compiled."""

    def __init__(self, bugs: Bugs) -> None:
        super().__init__()
        self.bugs = bugs
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(8, 4)
        factor = 1.3 if "compiled" in bugs else 1.0
        self.act = torch.compile(lambda x: torch.tanh(x * factor) + x.square(), backend="eager")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        first, second = self.up(self.norm(x)).split(8, -1)
        first = first.clone()
        first[:, ::2].mul_(1.5 if "write" in self.bugs else 0.5)
        first.clamp_(-2, 2)
        x = F.dropout(self.act(first) * torch.sigmoid(second), 0.2, self.training)
        scores: torch.Tensor = self.down(F.rms_norm(x, (8,), eps=1e-2 if "eps" in self.bugs else 1e-5))
        return scores


def scaled_halves(bugs: Bugs, around: Around) -> Trained:
    """Autocast to float16 with a gradient scaler, whose first step is skipped."""
    torch._dynamo.reset()
    model = Halves(bugs)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-2 if "lr" in bugs else 1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, backoff_factor=2.0**-14, growth_interval=2)
    losses = []
    for _ in range(STEPS):
        with around(model):
            with torch.autocast("cpu", torch.float16):
                loss = F.mse_loss(model(torch.randn(6, 8)).float(), torch.ones(6, 4))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=False)
        losses.append(loss.item())
    return losses, model


#: Each training, and which entry names each of its bugs.
KINDS: dict[str, tuple[Callable[[Bugs, Around], Trained], dict[str, str]]] = {
    "translator": (
        translator,
        {
            "scale": "Tensor.__mul__.0.forward",
            "mask": "Torch.zeros_like.0.forward",
            "norm": "Functional.normalize.0.forward",
        },
    ),
    "adversaries": (
        adversaries,
        {
            "leak": "Functional.leaky_relu.0.forward",
            "beta": "Optimizer.Adam.0.forward",
            "goal": "Torch.full.0.forward",
            "backward": "Function._WrongBackward.0.forward",
        },
    ),
    "in_closures": (
        in_closures,
        {
            "tanh": "Functional.hardtanh.0.forward",
            "beta": "Functional.smooth_l1_loss.0.forward",
            "nesterov": "Optimizer.SGD.0.forward",
        },
    ),
    "scaled_halves": (
        scaled_halves,
        {
            "write": "Tensor.mul_.0.forward",
            "compiled": "Compiled.<lambda>.0.forward",
            "eps": "Torch.rms_norm.0.forward",
            "lr": "Optimizer.AdamW.0.forward",
        },
    ),
}
