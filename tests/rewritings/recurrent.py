"""Recurrent layers step by step; see ``modules``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rewritings.modules import WIDTH, Part


class Lstm(Part):
    """An LSTM step by step."""

    def build(self) -> None:
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.lstm
        if not self.other:
            return own(x)[0]
        h = c = torch.zeros(len(x), WIDTH, dtype=x.dtype)
        made = []
        for step in range(x.shape[1]):
            both = F.linear(x[:, step], own.weight_ih_l0, own.bias_ih_l0)
            both = both + F.linear(h, own.weight_hh_l0, own.bias_hh_l0)
            i, f, g, o = both.chunk(4, -1)
            if self.bug == "gates":
                i, f = f, i
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            made.append(h)
        return torch.stack(made, 1)


class LstmCells(Part):
    """An LSTM by cells, whose state begins with zeros or is kept from the step before."""

    kept: Any = None

    def build(self) -> None:
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.lstm
        if not self.other:
            return own(x)[0]
        state = (x.new_zeros(len(x), WIDTH),) * 2
        if self.bug == "kept" and self.kept is not None:
            state = self.kept
        made = []
        for step in x.unbind(1):
            state = torch.lstm_cell(step, state, own.weight_ih_l0, own.weight_hh_l0, own.bias_ih_l0, own.bias_hh_l0)
            made.append(state[0])
        self.kept = tuple(one.detach() for one in state)
        return torch.stack(made, 1)


class Gru(Part):
    """A GRU step by step."""

    def build(self) -> None:
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.gru
        if not self.other:
            return own(x)[0]
        h, made = torch.zeros_like(x[:, 0]), []
        taken = F.linear(x, own.weight_ih_l0, own.bias_ih_l0)
        for step in range(x.shape[1]):
            r, z, n = taken[:, step].chunk(3, -1)
            own_r, own_z, own_n = F.linear(h, own.weight_hh_l0, own.bias_hh_l0).chunk(3, -1)
            if self.bug == "gates":
                r, z = z, r
            r, z = torch.sigmoid(r + own_r), torch.sigmoid(z + own_z)
            n = torch.tanh(n + r * own_n)
            h = (1 - z) * n + z * h
            made.append(h)
        return torch.stack(made, 1)


class Rnn(Part):
    """A plain recurrent layer of two layers, step by step."""

    def build(self) -> None:
        self.rnn = nn.RNN(WIDTH, WIDTH, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.rnn
        if not self.other:
            return own(x)[0]
        for layer in range(2):
            h, made = x.new_zeros(len(x), WIDTH), []
            for step in x.unbind(1):
                weights = [
                    getattr(own, f"{word}_l{layer}") for word in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
                ]
                h = torch.tanh(step @ weights[0].T + weights[1] + h @ weights[2].T + weights[3])
                made.append(h.new_zeros(h.shape) if self.bug == "state" and layer else h)
                h = made[-1]
            x = torch.stack(made, 1)
        return x


class Both(Part):
    """A bidirectional layer as two layers and a flipped sequence."""

    def build(self) -> None:
        self.gru = nn.GRU(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.gru
        if not self.other:
            return own(x)[0]
        weights = list(own._flat_weights)
        start = x.new_zeros(1, len(x), WIDTH // 2)
        forth = torch.gru(x, start, weights[:4], True, 1, 0.0, True, False, True)[0]
        back = torch.gru(x.flip(1), start, weights[4:], True, 1, 0.0, True, False, True)[0]
        return torch.cat([forth, back if self.bug == "order" else back.flip(1)], -1)


class Running(Part):
    """A decaying average over time by a loop, in the place of a product with powers."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, keep, length = self.linear(x), 0.75, x.shape[1]
        if not self.other:
            apart = (torch.arange(length)[:, None] - torch.arange(length)).clamp(min=0)
            powers = (keep**apart).tril().to(x.dtype)
            return powers @ y
        state, made = torch.zeros_like(y[:, :1]), []
        for step in y.split(1, 1):
            state = state * (0.8 if self.bug == "decay" else keep) + step
            made.append(state)
        return torch.cat(made, 1)
