"""A small policy whose responses are known: logits, tokens drawn from them, and what each side may write of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

VOCABULARY = 40


@dataclass
class Made:
    """Responses of one policy. ``logits``: [responses, tokens, vocabulary]; ``tokens`` are drawn at ``temperature``."""

    logits: Any
    tokens: Any
    temperature: float = 1.0

    def log_probs(self, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, noise: float = 0.0) -> Any:
        """The log-probs of the tokens; ``noise``: relative rounding of the logits."""
        moved = self.logits * (1 + noise * np.random.default_rng(7).standard_normal(self.logits.shape))
        whole = processed(moved, temperature, top_k, top_p)
        return np.take_along_axis(whole, self.tokens[..., None], axis=2)[..., 0]


def processed(logits: Any, temperature: float, top_k: int, top_p: float) -> Any:
    """Log-probs of all tokens, written the plain way: one position after the other."""
    done = np.empty_like(logits)
    for place in np.ndindex(logits.shape[:2]):
        row = logits[place] / temperature
        keep = np.ones(len(row), bool)
        order = np.argsort(-row)
        if top_k:
            keep[order[top_k:]] = False
        if top_p < 1:
            sizes = np.exp(row - row.max()) * keep
            sizes /= sizes.sum()
            reached = 0.0
            for token in order:
                keep[token] &= reached <= top_p
                reached += sizes[token]
        row = np.where(keep, row, -np.inf)
        done[place] = row - np.log(np.exp(row - row.max()).sum()) - row.max()
    return done


def made(
    responses: int = 12, tokens: int = 40, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0
) -> Made:
    """Responses drawn after the processing that is given."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((responses, tokens, VOCABULARY)) * 2
    whole = np.exp(processed(logits, temperature, top_k, top_p))
    drawn = (rng.random((responses, tokens, 1)) > np.cumsum(whole, axis=2)).sum(axis=2)
    return Made(logits, np.minimum(drawn, VOCABULARY - 1), temperature)


def rows(made: Made, log_probs: Any, **further: Any) -> list[dict[str, Any]]:
    """A row for each response, as JSON lines have them."""
    return [
        {
            "request_id": f"r{place}",
            "response_ids": [int(one) for one in made.tokens[place]],
            "log_probs": [float(one) for one in log_probs[place]],
            **{name: value[place] if isinstance(value, list) else value for name, value in further.items()},
        }
        for place in range(len(made.tokens))
    ]
