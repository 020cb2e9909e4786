"""What an engine's log-probs may mean: for each known meaning, what the trainer's would have to be.

Each is tried on the tokens themselves: a meaning holds where it leaves a small rest of the differences. Threads in
which people found them by hand: vime 64, trl 4159 and NeMo-RL 902 (before or after temperature), trl 6789 and
vllm 42259 (renormalised over what top-k and top-p keep), NeMo-RL 3297 (a neighbour's entry of the dictionary),
open-instruct 1473 (rows shifted).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msprobe.rollout.responses import Floats, Response

#: A meaning holds where it leaves at most this share of the mean absolute difference,
SHARE_LEFT = 0.2
#: and no more than rounding of half types may leave (see ``contract``).
REST = 0.05
#: With fewer tokens nothing is said of meanings.
FEWEST = 8
_LEAST_SPREAD = 1e-6
_TEMPERATURES = np.exp(np.linspace(np.log(0.05), np.log(5.0), 93))

Pair = tuple[Response, Response]
#: Values of the engine and of the trainer that belong together under a meaning.
Values = tuple[Floats, Floats]


@dataclass(frozen=True)
class Meaning:
    """A meaning that holds: its name, its arguments, and the mean absolute difference that is left under it."""

    name: str
    arguments: dict[str, Any]
    rest: float


def explained(pairs: Sequence[Pair], mean: float) -> Meaning | None:
    """The meaning that leaves the smallest rest of a mean absolute difference ``mean``, if any holds."""
    meanings: list[Meaning] = []
    for name, arguments, values in _tried(pairs):
        engine, trainer = values
        usable = np.isfinite(engine) & np.isfinite(trainer)
        if usable.sum() < FEWEST:
            continue
        rest = float(np.abs(engine - trainer)[usable].mean())
        # One value against one value agrees with anything.
        spreads = np.std(engine[usable]) > _LEAST_SPREAD
        if spreads and rest <= min(SHARE_LEFT * mean, REST):
            meanings.append(Meaning(name, arguments, rest))
    return min(meanings, key=lambda meaning: meaning.rest, default=None)


def _tried(pairs: Sequence[Pair]) -> list[tuple[str, dict[str, Any], Values]]:
    engine, trainer = together(pairs)
    tried: list[tuple[str, dict[str, Any], Values]] = []
    for base in (2.0, 10.0):
        for side, direction in (("engine", 1.0), ("trainer", -1.0)):
            scale = np.log(base) ** direction
            tried.append(("log-base", {"base": base, "side": side}, (engine * scale, trainer)))
    for side, values in (("engine", (_log(engine), trainer)), ("trainer", (engine, _log(trainer)))):
        tried.append(("probabilities", {"side": side}, values))
    # A log-prob is at most 0, so the side with the wrong sign is the one that is not.
    for side, signed, values in (("engine", engine, (-engine, trainer)), ("trainer", trainer, (engine, -trainer))):
        if np.nanmedian(signed) > 0:
            tried.append(("sign", {"side": side}, values))
    warm = next((response.settings["temperature"] for response, _ in pairs if "temperature" in response.settings), 1.0)
    if warm not in (0.0, 1.0):
        # It divides logits; log-probs that are divided are no distribution (prime-rl 697).
        for side, values in (("engine", (engine * warm, trainer)), ("trainer", (engine, trainer * warm))):
            tried.append(("log-probs-divided", {"temperature": warm, "side": side}, values))
    for places in (1, -1, 2, -2):
        tried.append(("shifted-tokens", {"places": places}, _shifted(pairs, places)))
    for rows in (1, -1):
        if len(pairs) > 2:
            tried.append(("shifted-responses", {"rows": rows}, _shifted_rows(pairs, rows)))
    tried += _entries(pairs)
    tried += _logits_meanings(pairs)
    return tried


def together(pairs: Sequence[Pair]) -> Values:
    """Log-probs of all tokens that count, of both sides."""
    engine, trainer = [], []
    for response, other in pairs:
        count = min(len(response.log_probs), len(other.log_probs))
        use = counted(response, other, count)
        engine.append(response.log_probs[:count][use])
        trainer.append(other.log_probs[:count][use])
    return np.concatenate(engine or [np.zeros(0)]), np.concatenate(trainer or [np.zeros(0)])


def counted(engine: Response, trainer: Response, count: int) -> Any:
    """Which of the first ``count`` tokens count: on both sides where both say so."""
    use = np.ones(count, bool)
    for side in (engine, trainer):
        if side.mask is not None:
            use &= side.mask[:count]
    return use


def _log(values: Floats) -> Floats:
    is_probability = (values > 0) & (values <= 1)
    return np.where(is_probability, np.log(np.where(is_probability, values, 1.0)), np.nan)


def _shifted(pairs: Sequence[Pair], places: int) -> Values:
    engine, trainer = [], []
    for response, other in pairs:
        count = min(len(response.log_probs), len(other.log_probs))
        if count <= abs(places):
            continue
        use = counted(response, other, count)
        first, second = (
            (slice(places, count), slice(0, count - places))
            if places > 0
            else (
                slice(0, count + places),
                slice(-places, count),
            )
        )
        both = use[first] & use[second]
        engine.append(response.log_probs[first][both])
        trainer.append(other.log_probs[second][both])
    return np.concatenate(engine or [np.zeros(0)]), np.concatenate(trainer or [np.zeros(0)])


def _shifted_rows(pairs: Sequence[Pair], rows: int) -> Values:
    moved = [(response, pairs[(place + rows) % len(pairs)][1]) for place, (response, _) in enumerate(pairs)]
    return together(moved)


def _entries(pairs: Sequence[Pair]) -> list[tuple[str, dict[str, Any], Values]]:
    """The engine's dictionaries hold the token itself and others: which entry was taken on the trainer's side?"""
    chosen: dict[str, Callable[[dict[int, float]], float]] = {
        "first": lambda entries: next(iter(entries.values())),
        "largest": lambda entries: max(entries.values()),
        "last": lambda entries: list(entries.values())[-1],
    }
    if not any(response.candidates or other.candidates for response, other in pairs):
        return []
    done = []
    for entry, of in chosen.items():
        engine: list[Floats] = []
        trainer: list[Floats] = []
        for response, other in pairs:
            count = min(len(response.log_probs), len(other.log_probs))
            use = counted(response, other, count)
            for side, values, into in ((response, response.log_probs, engine), (other, other.log_probs, trainer)):
                taken = np.asarray([of(entries) for entries in side.candidates]) if side.candidates else values
                into.append(taken[:count][use])
        done.append(("wrong-entry", {"entry": entry}, (np.concatenate(engine), np.concatenate(trainer))))
    return done


# ---- with whole logits on one side


def _logits_meanings(pairs: Sequence[Pair]) -> list[tuple[str, dict[str, Any], Values]]:
    """Where the trainer's file has logits: after which processing do they give the engine's log-probs?"""
    rows = [
        (response, other)
        for response, other in pairs
        if other.logits is not None and (other.tokens is not None or response.tokens is not None)
    ]
    if not rows:
        return []
    tried = []
    settings: dict[str, float] = {}
    for response, other in rows:
        settings = {**other.settings, **response.settings, **settings}
    temperature = settings.get("temperature") or 1.0
    warm = [temperature, *[float(temperature_tried) for temperature_tried in _TEMPERATURES]]
    best = min(warm, key=lambda temperature_tried: _rest(rows, temperature_tried))
    tried.append(("processed", {"temperature": best}, _processed(rows, best, 0, 1.0)))
    top_k, top_p = int(settings.get("top_k", 0)), settings.get("top_p", 1.0)
    for warmth in {1.0, temperature}:
        if top_k > 0:
            tried.append(("processed", {"temperature": warmth, "top_k": top_k}, _processed(rows, warmth, top_k, 1.0)))
        if top_p < 1:
            tried.append(("processed", {"temperature": warmth, "top_p": top_p}, _processed(rows, warmth, 0, top_p)))
        if top_k > 0 and top_p < 1:
            both = {"temperature": warmth, "top_k": top_k, "top_p": top_p}
            tried.append(("processed", both, _processed(rows, warmth, top_k, top_p)))
    return tried


def _rest(rows: Sequence[Pair], temperature: float) -> float:
    engine, trainer = _processed(rows, temperature, 0, 1.0)
    difference = np.abs(engine - trainer)
    return float(np.nanmean(difference)) if np.isfinite(difference).any() else float("inf")


def _processed(rows: Sequence[Pair], temperature: float, top_k: int, top_p: float) -> Values:
    engine, trainer = [], []
    for response, other in rows:
        assert other.logits is not None
        tokens = other.tokens if other.tokens is not None else response.tokens
        assert tokens is not None
        count = min(len(response.log_probs), len(other.logits), len(tokens))
        use = counted(response, other, count)
        engine.append(response.log_probs[:count][use])
        trainer.append(_chosen(other.logits[:count], tokens[:count], temperature, top_k, top_p)[use])
    return np.concatenate(engine), np.concatenate(trainer)


def _chosen(logits: Floats, tokens: Any, temperature: float, top_k: int, top_p: float) -> Floats:
    """Log-probs of ``tokens`` by the softmax of ``logits / temperature`` over what top-k and top-p keep."""
    scaled = logits / temperature
    scaled = scaled - scaled.max(axis=1, keepdims=True)
    if 0 < top_k < scaled.shape[1]:
        least = np.partition(scaled, -top_k, axis=1)[:, -top_k, None]
        scaled = np.where(scaled < least, -np.inf, scaled)
    if top_p < 1:
        order = np.argsort(-scaled, axis=1)
        sizes = np.exp(np.take_along_axis(scaled, order, axis=1))
        sizes /= sizes.sum(axis=1, keepdims=True)
        dropped = np.cumsum(sizes, axis=1) - sizes > top_p
        ordered = np.where(dropped, -np.inf, np.take_along_axis(scaled, order, axis=1))
        scaled = np.empty_like(scaled)
        np.put_along_axis(scaled, order, ordered, axis=1)
    total = np.log(np.exp(scaled).sum(axis=1))
    known = (tokens >= 0) & (tokens < logits.shape[1])
    picked = np.take_along_axis(scaled, np.where(known, tokens, 0)[:, None], axis=1)[:, 0]
    log_probs: Floats = np.where(known & np.isfinite(picked), picked - total, np.nan)
    return log_probs
