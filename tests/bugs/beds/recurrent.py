"""A model of a stream of text, trained by one process: recurrent layers, and experts that share the tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

IGNORED = -100


@dataclass(frozen=True)
class Settings:
    """Sizes and constants of one training."""

    seed: int = 0
    layers: int = 2
    width: int = 16
    experts: int = 4
    chosen: int = 2
    batch: int = 3
    length: int = 8
    notes: int = 6
    vocabulary: int = 48
    dropout: float = 0.1
    micro_batches: int = 2
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    balance: float = 0.01
    clip: float = 1.0


class Norm(nn.Module):
    """Divides by the root of the mean square."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Notes(nn.Module):
    """Reads short notes of unequal lengths in both directions; a note becomes a vector."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.gru = nn.GRU(settings.width, settings.width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * settings.width, settings.width)

    def forward(self, notes: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(notes, lengths, batch_first=True, enforce_sorted=False)
        _, last = self.gru(packed)
        return self.out(torch.cat((last[0], last[1]), dim=-1))


class Cell(nn.Module):
    """A gated recurrent unit, token by token."""

    def __init__(self, settings: Settings, index: int) -> None:
        super().__init__()
        self.index = index
        self.inner = nn.Linear(settings.width, 3 * settings.width)
        self.hidden = nn.Linear(settings.width, 3 * settings.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(len(x), x.shape[-1])
        states = []
        for token in self.inner(x).unbind(1):
            reset_in, update_in, new_in = token.chunk(3, dim=-1)
            reset_state, update_state, new_state = self.hidden(state).chunk(3, dim=-1)
            reset = torch.sigmoid(reset_in + reset_state)
            update = torch.sigmoid(update_in + update_state)
            new = torch.tanh(new_in + reset * new_state)
            state = (1.0 - update) * new + update * state
            states.append(state)
        return torch.stack(states, dim=1)


class Expert(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.gate = nn.Linear(settings.width, 2 * settings.width, bias=False)
        self.up = nn.Linear(settings.width, 2 * settings.width, bias=False)
        self.down = nn.Linear(2 * settings.width, settings.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Each token goes to the best few of several experts; none is dropped."""

    def __init__(self, settings: Settings, index: int) -> None:
        super().__init__()
        self.index = index
        self.count, self.chosen = settings.experts, settings.chosen
        self.router = nn.Linear(settings.width, settings.experts, bias=False)
        self.experts = nn.ModuleList([Expert(settings) for _ in range(settings.experts)])
        self.balance: torch.Tensor | None = None

    def forward(self, x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, 1)
        logits = self.router(flat)
        chances = torch.softmax(logits, dim=-1, dtype=torch.float32)
        shares, chosen = torch.topk(chances, self.chosen, dim=-1)
        shares = shares / shares.sum(dim=-1, keepdim=True)
        shares = shares.to(x.dtype)
        self.balance = self.imbalance(chances, chosen, real.flatten())
        result = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == number)
            part = expert(flat[rows]) * shares[rows, places, None]
            result = result.index_add(0, rows, part.to(result.dtype))
        return result.view_as(x)

    def imbalance(self, chances: torch.Tensor, chosen: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """The share of the tokens that each expert gets, times its mean chance."""
        weights = real.float() / real.sum()
        got = F.one_hot(chosen, self.count).float().sum(dim=1)
        shares = (got * weights[:, None]).sum(dim=0)
        means = (chances * weights[:, None]).sum(dim=0)
        return self.count * (shares * means).sum()


class Block(nn.Module):
    def __init__(self, settings: Settings, index: int) -> None:
        super().__init__()
        self.index = index
        self.rate = settings.dropout
        self.norm1 = Norm(settings.width)
        self.cell = Cell(settings, index)
        self.norm2 = Norm(settings.width)
        self.experts = Experts(settings, index)

    def forward(self, x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        x = x + F.dropout(self.cell(self.norm1(x)), self.rate, self.training)
        return x + self.experts(self.norm2(x), real)


class Reader(nn.Module):
    """Predicts the next token; the memory goes on from one piece of the stream to the next."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = nn.Embedding(settings.vocabulary, settings.width)
        self.notes = Notes(settings)
        self.into = nn.Linear(settings.width, settings.width)
        self.memory = nn.LSTM(settings.width, settings.width, num_layers=1, batch_first=True)
        self.blocks = nn.ModuleList([Block(settings, index) for index in range(settings.layers)])
        self.norm = Norm(settings.width)
        self.head = nn.Linear(settings.width, settings.vocabulary, bias=False)
        self.state: tuple[torch.Tensor, torch.Tensor] | None = None

    def begin(self, size: int, fresh: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """The state that the memory begins with: what the last piece left, nothing where a text begins."""
        if self.state is None:
            zeros = torch.zeros(1, size, self.settings.width, dtype=dtype)
            self.state = (zeros, zeros)
        keep = (~fresh).to(dtype)[None, :, None]
        hidden, cell = self.state
        return hidden.detach().to(dtype) * keep, cell.detach().to(dtype) * keep

    def forward(
        self, tokens: torch.Tensor, real: torch.Tensor, fresh: torch.Tensor, notes: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        x = self.embedding(tokens)
        note = self.notes(self.embedding(notes), lengths)
        x = x + note[:, None]
        told = self.into(x)
        remembered, self.state = self.memory(told, self.begin(len(tokens), fresh, told.dtype))
        x = x + remembered
        for block in self.blocks:
            x = block(x, real)
        x = self.norm(x)
        return self.head(x)


def initial_state(model: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """The checkpoint that training begins from: weights by the number of inputs, norms and biases slightly off."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, value in model.state_dict().items():
        noise = torch.randn(value.shape, generator=generator)
        state[name] = noise / math.sqrt(value.shape[-1]) if value.dim() > 1 else value + 0.02 * noise
    return state


class Training:
    """One iteration at a time: pieces of the stream, clipping, optimizer, schedule."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        torch.manual_seed(settings.seed)
        self.model = Reader(settings)
        state = initial_state(self.model, settings.seed)
        self.model.load_state_dict(state)
        generator = torch.Generator().manual_seed(settings.seed + 1)
        pieces, rows = 16, settings.batch
        self.tokens = torch.randint(1, settings.vocabulary, (rows, pieces * settings.length + 1), generator=generator)
        self.real = torch.rand(self.tokens.shape, generator=generator) < 0.8
        self.fresh = torch.rand(pieces, rows, generator=generator) < 0.3
        self.notes = torch.randint(1, settings.vocabulary, (pieces, rows, settings.notes), generator=generator)
        self.lengths = torch.randint(1, settings.notes + 1, (pieces, rows), generator=generator)
        decay = settings.weight_decay
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.learning_rate, weight_decay=decay)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 10.0))
        self.losses: list[float] = []

    def batch(self, number: int) -> list[tuple[torch.Tensor, ...]]:
        """Tokens, which of them count, where texts begin, and the notes of the pieces of a step."""
        count, length = self.settings.micro_batches, self.settings.length
        found = []
        for piece in range(number * count, (number + 1) * count):
            place = slice(piece * length, (piece + 1) * length + 1)
            row = (self.tokens[:, place], self.real[:, place], self.fresh[piece], self.notes[piece])
            found.append((*row, self.lengths[piece]))
        return found

    def loss(
        self, tokens: torch.Tensor, real: torch.Tensor, fresh: torch.Tensor, notes: torch.Tensor, lengths: torch.Tensor,
        total: int,
    ) -> torch.Tensor:  # fmt: skip
        labels = tokens[:, 1:].masked_fill(~real[:, 1:], IGNORED)
        logits = self.model(tokens[:, :-1], real[:, :-1], fresh, notes, lengths)
        logits = logits.float()
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
        balance = sum(block.experts.balance for block in self.model.blocks) / len(self.model.blocks)
        return loss / total + self.settings.balance * balance / self.settings.micro_batches

    def step(self, number: int) -> None:
        """One iteration."""
        torch.manual_seed(self.settings.seed + 100 + number)
        batches = self.batch(number)
        total = sum(int(real[:, 1:].sum()) for _, real, *_ in batches)
        self.optimizer.zero_grad()
        for piece in batches:
            loss = self.loss(*piece, total)
            loss.backward()
            self.losses.append(loss.item())
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimizer.step()
        self.schedule.step()
