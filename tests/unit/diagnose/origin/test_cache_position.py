"""The cache of keys and values of one side is off by one position: recordings of a small decoder that generates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_trainings

from msprobe.diagnose.findings import Verdict


class Attention(nn.Module):
    """Keys and values of the tokens so far are kept; ``form``: how they are written. ``write`` and ``read``: how far
    that is from where it should be.
    """

    def __init__(self, form: str, write: int, read: int, size: int) -> None:
        super().__init__()
        self.form, self.write, self.read = form, write, read
        self.inner = nn.Linear(8, 24)
        self.register_buffer("keys", torch.zeros(2, size, 8), persistent=False)
        self.register_buffer("values", torch.zeros(2, size, 8), persistent=False)

    def forward(self, x: torch.Tensor, start: int) -> torch.Tensor:
        q, k, v = self.inner(x).chunk(3, -1)
        begin, end = start + self.write, start + self.write + x.shape[1]
        if self.form == "slice":
            self.keys[:, begin:end] = k
            self.values[:, begin:end] = v
        else:
            places = torch.arange(begin, end)
            self.keys.index_copy_(1, places, k)
            self.values.index_copy_(1, places, v)
        end = start + x.shape[1] + self.read
        return F.scaled_dot_product_attention(q, self.keys[:, :end], self.values[:, :end])


class Decoder(nn.Module):
    def __init__(self, form: str, write: int, read: int, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.attention = Attention(form, write, read, size)
        self.head = nn.Linear(8, 16)

    def forward(self, tokens: torch.Tensor, start: int) -> torch.Tensor:
        x = self.embedding(tokens)
        x = x + self.attention(x, start)
        return self.head(x)  # type: ignore[no-any-return]


def generating(form: str = "slice", write: int = 0, read: int = 0, size: int = 16) -> Callable[[], Training]:
    """A prompt of four tokens, then two tokens one by one."""

    def build() -> Training:
        model = Decoder(form, write, read, size).eval()
        prompt = torch.randint(16, (2, 4))

        @torch.no_grad()
        def step(_: int) -> None:
            model(prompt, 4)  # positions below four are of a prefix that is not here
            for start in (8, 9):
                model(prompt[:, :2], start)

        return model, step

    return build


def compared(folder: Path, candidate: Callable[[], Training], reference: Callable[[], Training]) -> Verdict:
    return compare_trainings(folder, candidate, reference)


@pytest.mark.parametrize(
    ("form", "wrong", "status"),
    [
        ("slice", {"write": 1}, "diverged"),
        ("slice", {"write": -1}, "harmless"),  # without a mask, the order of positions does not matter
        ("slice", {"read": -1}, "diverged"),
        ("copy", {"write": 1}, "diverged"),
    ],
    ids=["written one later", "written one earlier", "the newest not read", "written by index one later"],
)
def test_the_call_is_named_that_gives_a_cache_another_position(
    tmp_path: Path, form: str, wrong: dict[str, int], status: str
) -> None:
    verdict = compared(tmp_path, generating(form, **wrong), generating(form))
    first = verdict.findings[0]
    assert (verdict.status, first.kind, first.cause) == (status, "argument", None)
    assert first.arguments["call"] == first.entry
    assert first.module == "attention"


@pytest.mark.parametrize(
    ("candidate", "reference"),
    [
        (generating(), generating()),
        (generating("copy"), generating("slice")),
        (generating(size=24), generating(size=16)),
    ],
    ids=["the same", "written by index", "a longer cache"],
)
def test_caches_that_hold_the_same_are_no_finding(
    tmp_path: Path, candidate: Callable[[], Training], reference: Callable[[], Training]
) -> None:
    verdict = compared(tmp_path, candidate, reference)
    assert verdict.status in ("agree", "harmless")
