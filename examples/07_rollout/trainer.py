"""The trainer: log-probs of the words that the engine drew, as a policy gradient needs them.

    python trainer.py ENGINE_FILE FILE

It does not know msprobe.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from model import Model


def main() -> None:
    """Score."""
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    words = torch.tensor([row["prompt"] + row["token_ids"] for row in rows])
    with torch.no_grad():
        odds = Model()(words[:, :-1]).log_softmax(-1).gather(2, words[:, 1:, None])[..., 0]
    with Path(sys.argv[2]).open("w") as file:
        for row, log_probs in zip(rows, odds.tolist(), strict=True):
            scored = {"request_id": row["request_id"], "token_ids": row["token_ids"], "log_probs": log_probs}
            file.write(json.dumps(scored) + "\n")
    print(f"trainer: mean log-probability {odds.mean().item():.4f}")


if __name__ == "__main__":
    main()
