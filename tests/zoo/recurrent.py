"""Models that walk along a sequence."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised


def sequences(i: int, count: int = 3, length: int = 6, vocabulary: int = 17) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2000 + i)
    tokens = torch.randint(vocabulary, (count, length + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def predict_next(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> LossAndResults:
    logits = model(tokens)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), {"logits": logits}


class RecurrentLanguageModel(nn.Module):
    def __init__(self, cell: nn.RNNBase, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(17, 12, padding_idx=0)
        self.cell = cell
        self.head = nn.Linear(width, 17)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out, _ = self.cell(self.embedding(tokens))
        return self.head(out)


@architecture()
def lstm() -> TrainingCase:
    cell = nn.LSTM(12, 10, num_layers=2, dropout=0.3, bidirectional=True, batch_first=True)
    return supervised(RecurrentLanguageModel(cell, 20), sequences, predict_next, clip=1.0)


@architecture()
def gru() -> TrainingCase:
    model = RecurrentLanguageModel(nn.GRU(12, 14, batch_first=True), 14)
    return supervised(model, sequences, predict_next, torch.optim.RMSprop(model.parameters(), lr=1e-2))


@architecture()
def lstm_packed_stateful() -> TrainingCase:
    """Sequences of different length, packed; the state is carried from step to step (truncated
    back-propagation)."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTM(4, 8, proj_size=6)
            self.head = nn.Linear(6, 2)

        def forward(
            self, packed: nn.utils.rnn.PackedSequence, state: tuple[torch.Tensor, torch.Tensor]
        ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
            out, state = self.cell(packed, state)
            padded, lengths = nn.utils.rnn.pad_packed_sequence(out)
            return self.head(padded[lengths - 1, torch.arange(len(lengths))]), state

    model = Model()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    state = (torch.zeros(1, 3, 6), torch.zeros(1, 3, 8))

    def run_step(i: int, region: Region) -> Results:
        nonlocal state
        generator = torch.Generator().manual_seed(2100 + i)
        data = torch.randn(5, 3, 4, generator=generator)
        target = torch.randint(2, (3,), generator=generator)
        optimizer.zero_grad()
        region.begin(model)
        packed = nn.utils.rnn.pack_padded_sequence(data, torch.tensor([3, 5, 2]), enforce_sorted=False)
        logits, state = model(packed, tuple(s.detach() for s in state))
        loss = F.cross_entropy(logits, target)
        loss.backward()
        optimizer.step()
        region.end()
        return {"loss": loss, "state": state}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def gru_cell_loop() -> TrainingCase:
    """A cell called once for each position: one module with many calls in one step, filling a buffer by
    index."""

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(17, 8)
            self.cell = nn.GRUCell(8, 8)
            self.head = nn.Linear(8, 17)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            state = torch.zeros(tokens.shape[0], 8)
            logits = torch.empty(*tokens.shape, 17)
            for position, token in enumerate(tokens.unbind(1)):
                state = self.cell(self.embedding(token), state)
                logits[:, position] = self.head(state)
            return logits

    return supervised(Decoder(), sequences, predict_next)


class SelectiveScan(nn.Module):
    """A Mamba-like block: gated, causal depth-wise convolution, input-dependent linear recurrence."""

    def __init__(self, width: int, states: int = 4) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.expand = nn.Linear(width, 2 * width, bias=False)
        self.conv = nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.select = nn.Linear(width, 2 * states + 1, bias=False)
        self.step_bias = nn.Parameter(torch.full((width,), -1.0))
        self.decay = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(width, 1))
        self.skip = nn.Parameter(torch.ones(width))
        self.project = nn.Linear(width, width, bias=False)
        self.states = states

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        residual = x
        x, gate = self.expand(self.norm(x)).chunk(2, dim=-1)
        x = F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        step, into, out_of = torch.split(self.select(x), [1, self.states, self.states], dim=-1)
        step = F.softplus(step + self.step_bias)
        decay = torch.exp(step.unsqueeze(-1) * -torch.exp(self.decay))
        drive = step.unsqueeze(-1) * into.unsqueeze(2) * x.unsqueeze(-1)
        state = x.new_zeros(x.shape[0], x.shape[2], self.states)
        outputs = []
        for position in range(x.shape[1]):
            state = decay[:, position] * state + drive[:, position]
            outputs.append(torch.einsum("bds,bs->bd", state, out_of[:, position]))
        y = torch.stack(outputs, dim=1) + x * self.skip
        return residual + self.project(y * F.silu(gate))


@architecture()
def mamba_scan() -> TrainingCase:
    model = nn.Sequential(nn.Embedding(17, 8), SelectiveScan(8), SelectiveScan(8), nn.RMSNorm(8), nn.Linear(8, 17))
    return supervised(model, sequences, predict_next, optimizer_inside=False)
