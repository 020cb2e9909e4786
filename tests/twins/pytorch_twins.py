"""Small trainings in PyTorch: ``python pytorch_twins.py NETWORK OUTPUT [--level LEVEL]``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from twins import OF_IMAGES, STEPS, arguments, drawn, images, sentences

from msprobe.pytorch import PrecisionDebugger


class Conv(nn.Module):
    """Convolution, batch norm and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.pool, self.relu, self.flatten = nn.MaxPool2d(2, 2), nn.ReLU(), nn.Flatten()
        self.head = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.relu(self.norm1(self.conv1(x))))
        x = x + self.relu(self.norm2(self.conv2(x)))
        return self.head(self.flatten(F.avg_pool2d(x, 2, 2)))


class Recurrent(nn.Module):
    """An LSTM that reads words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 20)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.words(words))[0])


class Tied(nn.Module):
    """The embedding's table is the weight of the last product."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.middle = nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.middle(self.norm(self.words(words))))
        return torch.matmul(x, self.words.weight.t())


class Encoder(nn.Module):
    """Attention in calls alone, dropout of nothing, a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), nn.Parameter(torch.zeros(7, 8))
        self.all, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.dropout, self.norm = nn.Dropout(0.0), nn.LayerNorm(8, eps=1e-6)
        self.head = nn.Linear(8, 20)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places
        q, k, v = torch.split(self.all(self.norm(x)), 8, dim=-1)
        scores = torch.bmm(q, k.transpose(1, 2)) / 8**0.5
        scores = scores.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -1e4)
        x = x + self.dropout(self.out(torch.bmm(torch.softmax(scores, -1), v)))
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.head(F.silu(x))


class Plain(nn.Module):
    """Weights used by calls, without layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Parameter(torch.zeros(192, 16)), nn.Parameter(torch.zeros(16, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sigmoid(torch.matmul(x.reshape(6, -1), self.one))
        return torch.matmul(torch.cat([x[:, :8], x[:, 8:]], dim=1), self.two).clamp(-3, 3)


class Half(nn.Module):
    """The same layers in a half type."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(192, 32), nn.LayerNorm(32), nn.Linear(32, 5)
        self.half()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.one(x.reshape(6, -1).half()))
        return self.two(F.relu(x)).float()


class Attention(nn.Module):
    """The framework's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(20, 8), nn.LayerNorm(8)
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 20)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(words))
        return self.head(x + self.attention(x, x, x, need_weights=False)[0])


class Gated(nn.Module):
    """Two layers of a GRU, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(16, 20)
        self.gru = nn.GRU(8, 8, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.words(words))[0])


class Norms(nn.Module):
    """Transposed and one-dimensional convolution, a norm of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.act = nn.ConvTranspose2d(3, 8, 2, 2), nn.GroupNorm(2, 8), nn.LeakyReLU(0.1)
        self.conv, self.soft, self.head = nn.Conv1d(8, 4, 3, padding=1), nn.Softmax(-1), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(self.act(self.norm(self.up(x))).flatten(2)).mean(-1)
        return self.head(x * self.soft(x))


class Styles(nn.Module):
    """Layers here are functions in the twin, and the other way round. Some gradients are zero in exact arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.relu, self.two = nn.Linear(192, 16), nn.ReLU(), nn.Parameter(torch.zeros(16, 16))
        self.norm, self.three = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.one(torch.flatten(x, 1)))
        x = F.gelu(F.linear(x, self.two)) + x.sum(dim=1, keepdim=True)
        x = F.layer_norm(x, (16,), self.norm.weight, self.norm.bias)
        return F.log_softmax(self.three(x), dim=-1)


KINDS = {
    "conv": Conv,
    "lstm": Recurrent,
    "tied": Tied,
    "encoder": Encoder,
    "plain": Plain,
    "half": Half,
    "attention": Attention,
    "gru": Gated,
    "norms": Norms,
    "styles": Styles,
    "wrapped": Encoder,
}


def main() -> None:
    asked = arguments()
    torch.manual_seed(0)
    model = KINDS[asked.network]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(drawn(name, tuple(parameter.shape))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batch = images if asked.network in OF_IMAGES else sentences
    debugger = PrecisionDebugger(dump_path=asked.output, level=asked.level)
    for step in range(STEPS):
        x, y = map(torch.from_numpy, batch(step))
        debugger.start(model)
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1).long())
        loss.backward()
        debugger.stop()
        optimizer.step()
        debugger.step()


if __name__ == "__main__":
    main()
