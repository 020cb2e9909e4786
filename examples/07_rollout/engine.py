"""The engine: draws words from the likeliest ones (top_p), and writes what it thinks of each.

    python engine.py FILE           log-probs of what it drew from: the mistake
    python engine.py FILE --raw     log-probs of the whole distribution

It does not know msprobe.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from model import LENGTH, WORDS, Model

REQUESTS, TOP_P = 16, 0.8


def likeliest(odds: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of the likeliest words that have TOP_P together; of all others minus infinity."""
    ordered, words = odds.sort(descending=True)
    kept = ordered.exp().cumsum(-1) - ordered.exp() < TOP_P
    return torch.full_like(odds, -torch.inf).scatter(-1, words, ordered.where(kept, -torch.inf)).log_softmax(-1)


def main() -> None:
    """Generate."""
    parser = argparse.ArgumentParser(description="Generate words.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--raw", action="store_true", help="write log-probs of the whole distribution")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    model = Model()
    words = torch.randint(0, WORDS, (REQUESTS, 1), generator=torch.Generator().manual_seed(2))
    prompt, log_probs = words, []
    draws = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for _ in range(LENGTH):
            whole = model(words)[:, -1].log_softmax(-1)
            cut = likeliest(whole)
            word = cut.exp().multinomial(1, generator=draws)
            log_probs.append((whole if chosen.raw else cut).gather(1, word))
            words = torch.cat((words, word), 1)
    rows = zip(prompt.tolist(), words[:, 1:].tolist(), torch.cat(log_probs, 1).tolist(), strict=True)
    chosen.file.parent.mkdir(parents=True, exist_ok=True)
    with chosen.file.open("w") as file:
        for number, (asked, drawn, odds) in enumerate(rows):
            row = {"request_id": number, "prompt": asked, "token_ids": drawn, "log_probs": odds, "top_p": TOP_P}
            file.write(json.dumps(row) + "\n")
    print(f"engine: {REQUESTS} responses of {LENGTH} words")


if __name__ == "__main__":
    main()
