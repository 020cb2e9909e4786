"""Train a small GPT twice, once with a mistake in it, record both trainings, and let msprobe find the mistake.

    python demo.py [FOLDER]         (FOLDER: where the results go, `output` beside this file if left out)

The text is the source of Python's standard library. The mistake is one that is made when attention is
written anew for other hardware: the second block divides the scores by the square root of the whole width,
not of a head's width. The training does not crash, and its loss goes down.
"""

from __future__ import annotations

import math
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from msprobe.pytorch import PrecisionDebugger, seed_all

WIDTH, HEADS, LAYERS, CONTEXT, BATCH, STEPS = 64, 4, 3, 64, 16, 41


class Attention(nn.Module):
    def __init__(self, broken: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        # The mistake: WIDTH instead of WIDTH // HEADS.
        self.scale = 1 / math.sqrt(WIDTH if broken else WIDTH // HEADS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * self.scale
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, broken: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(broken)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, letters: int, broken: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(letters, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block(broken and i == 1) for i in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, letters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def read_text() -> tuple[torch.Tensor, int]:
    """Some modules of the standard library, as numbers of letters; how many letters there are."""
    folder = Path(sysconfig.get_path("stdlib"))
    files = sorted(folder.glob("*.py"))[:40]
    text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    letters = sorted(set(text))
    numbers = {letter: i for i, letter in enumerate(letters)}
    return torch.tensor([numbers[letter] for letter in text]), len(letters)


def train(text: torch.Tensor, letters: int, broken: bool, dump_path: Path) -> list[float]:
    """One training, recorded; its losses. The four lines with `debugger` are all that recording takes."""
    seed_all(1234)
    model = GPT(letters, broken)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    debugger = PrecisionDebugger(str(Path(__file__).with_name("config.json")), dump_path=str(dump_path))
    losses = []
    for number in range(STEPS):
        if sys.stderr.isatty():
            print(f"\r{dump_path.name}: step {number + 1} of {STEPS} ", end="", file=sys.stderr, flush=True)
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH, 1))
        batch = text[starts + torch.arange(CONTEXT + 1)]

        debugger.start(model)
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        debugger.stop()

        optimizer.zero_grad()
        debugger.step()
        losses.append(loss.item())
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    # Only because a second training follows in this process.
    PrecisionDebugger.reset()
    return losses


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("output")
    text, letters = read_text()
    print(f"Training a GPT of {LAYERS} blocks on {len(text):,} letters of Python's standard library, twice.\n")
    losses = {}
    for name in ("healthy", "broken"):
        begin = time.perf_counter()
        losses[name] = train(text, letters, name == "broken", folder / name)
        print(f"{name}: {STEPS} steps in {time.perf_counter() - begin:.0f} s")

    print("\n  step   loss healthy   loss broken")
    for step in range(0, STEPS, 10):
        print(f"{step:6}{losses['healthy'][step]:15.4f}{losses['broken'][step]:14.4f}")
    print("\nBoth seem to learn. What was recorded of them:\n")
    for name in ("healthy", "broken"):
        subprocess.run([sys.executable, "-m", "msprobe", "summary", str(folder / name)], check=True)
        print()
    print("Each step has a folder; dump.json holds every call and module, forward and backward, with its statistics,")
    print("stack.json where it was made, construct.json in which module:")
    for name in ("healthy", "broken"):
        print(f"  {(folder / name / 'step0' / 'rank').resolve()}")
    compare(folder / "broken", folder / "healthy", folder / "comparison")


def compare(candidate: Path, reference: Path, results: Path) -> None:
    """Say where they part, write it as a page and as a sheet, and offer the page of a server."""
    command = ["compare", str(candidate), str(reference), "-o", str(results), "--html", "--xlsx"]
    print(f"\nWhere do they part? msprobe {' '.join(command)}\n", flush=True)
    status = subprocess.run([sys.executable, "-m", "msprobe", *command]).returncode
    if status != 1:
        sys.exit(f"The comparison ended with {status}; 1 (they part) was expected.")
    print(
        "\nThat is the line which uses what was planted in class Attention, in the second of three blocks. Open these:"
    )
    print(f"  {(results / 'verdict.html').resolve()}   in a browser: both trainings side by side, in one file")
    print(f"  {(results / 'compare_result_step0_rank.xlsx').resolve()}   every tensor of both runs, row by row")
    print("Or look at every step and tensor, served on this machine only:")
    print(f"  {sys.executable} -m msprobe view {candidate.resolve()} {reference.resolve()}")


if __name__ == "__main__":
    main()
