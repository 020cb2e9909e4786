"""Small recordings that graphs are built of: a transformer of four blocks, healthy or with a bug in its third MLP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from support.recorded import record_steps


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.proj(F.scaled_dot_product_attention(q, k, v))


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc2(F.gelu(self.fc1(x)))
        return y * self.scale if self.scale != 1.0 else y


class Renamed(MLP):
    pass


class Block(nn.Module):
    def __init__(self, width: int, name: str = "mlp", mlp: type[MLP] = MLP) -> None:
        super().__init__()
        self.n1 = nn.LayerNorm(width)
        self.attn = Attention(width)
        self.n2 = nn.LayerNorm(width)
        self.add_module(name, mlp(width))
        self.name = name
        self.extra = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.extra:
            F.linear(x, self.attn.proj.weight)
        x = x + self.attn(self.n1(x))
        y: torch.Tensor = x + getattr(self, self.name)(self.n2(x))
        return y


class Net(nn.Module):
    def __init__(self, width: int = 16, **block: Any) -> None:
        super().__init__()
        self.emb = nn.Embedding(32, width)
        self.layers = nn.ModuleList(Block(width, **block) for _ in range(4))
        self.head = nn.Linear(width, 32)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.emb(words)
        for layer in self.layers:
            x = layer(x)
        found: torch.Tensor = self.head(x)
        return found


def recording(
    place: Path, change: Callable[[Net], Any] | None = None, micro: int = 1, steps: int = 1, **settings: Any
) -> Path:
    """Record a training of the same weights and words; the folder of the first step. ``change``: done to the model."""
    torch.manual_seed(0)
    model = Net(**settings.pop("block", {}))
    words = torch.randint(0, 32, (2, 6))
    if change is not None:
        change(model)

    def work() -> None:
        for _ in range(micro):
            loss = F.cross_entropy(model(words).flatten(0, 1), words.flatten())
            loss.backward()

    record_steps(place, [work] * steps, model, **{"level": "mix", **settings})
    return place / "step0"


def scaled(model: Net) -> None:
    """The bug: the third MLP gives half as much again."""
    model.layers[2].mlp.scale = 1.5  # type: ignore[union-attr]


def nodes_of(file: Path, side: str | None = None) -> dict[str, Any]:
    """The nodes of a ``.vis`` file, read by json alone."""
    content = json.loads(file.read_text())
    found: dict[str, Any] = (content if side is None else content[side])["node"]
    return found


def compare_file(folder: Path, candidate: Path, reference: Path | None = None, **more: Any) -> Path:
    """A compare.json."""
    folder.mkdir(parents=True, exist_ok=True)
    fields: Mapping[str, Any] = {"npu_path": str(candidate), **more}
    if reference is not None:
        fields = {**fields, "bench_path": str(reference)}
    (folder / "compare.json").write_text(json.dumps(fields))
    return folder / "compare.json"
