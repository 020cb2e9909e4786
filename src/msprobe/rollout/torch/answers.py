"""What a recorded engine answered: tokens and log-probs of each request, against the trainer's for the same tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from msprobe.foreign.json_text import parse_json
from msprobe.foreign.opening import file_bytes
from msprobe.rollout.contract import ROUNDING_OF_FLOAT32, Contract, hold
from msprobe.rollout.responses import Response, Responses, read_responses
from msprobe.rollout.torch.recorded import ModuleCall, RowOrigins
from msprobe.rollout.torch.routing import ExpertChoices
from msprobe.rollout.torch.trainer import Trainer

_MOST_LOGITS = 1 << 26


class Answers:
    """``responses.jsonl`` of a step; where there is none, the tokens that the model was given, pass by pass.

    Then what a request was given first is its prompt, and the log-probs are those of the recorded logits.
    """

    def __init__(self, path: str, passes: Sequence[RowOrigins]) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self._is_written = os.path.isfile(path)
        for line in file_bytes(path).splitlines() if self._is_written else ():
            row = parse_json(line, path) if line.strip() else None
            if isinstance(row, dict):
                self.rows.append(row)
        if not self._is_written:
            self.rows = _rows_of_passes(passes)
        self.tokens = {
            str(row.get("request_id")): [*map(int, row.get("prompt_token_ids", [])), *map(int, row["token_ids"])]
            for row in self.rows
            if isinstance(row.get("token_ids"), list)
        }
        self._log_probs: dict[str, list[Any]] = {
            str(row.get("request_id")): row.get("log_probs") or [None] * len(row.get("token_ids", ()))
            for row in self.rows
        }
        self._away: list[float] = []
        self.cached = {str(row.get("request_id")): int(row.get("cached_tokens", 0)) for row in self.rows}

    def note_logits(self, call: ModuleCall) -> None:
        """Are the log-probs of a pass those of its logits?"""
        logits = next((result for result in call.results if result is not None), None)
        if logits is None or call.positions is None or len(call.requests) != len(logits):
            return
        whole = torch.log_softmax(logits.float(), -1)
        for row, (request, position) in enumerate(zip(call.requests, call.positions.tolist(), strict=True)):
            tokens, given = self.tokens.get(request), self._log_probs.get(request)
            place = position + 1 - (len(tokens or ()) - len(given or ()))
            if tokens is None or given is None or not 0 <= place < len(given):
                continue
            value = float(whole[row, tokens[position + 1]])
            if not self._is_written:
                given[place] = value
            elif given[place] is not None:
                self._away.append(abs(value - float(given[place])))

    def are_of_logits(self) -> bool:
        """Were there log-probs, and all of them those of the logits that were recorded?"""
        return not self._is_written or (bool(self._away) and max(self._away) <= ROUNDING_OF_FLOAT32)

    def contract(self, trainer: Trainer, choices: ExpertChoices) -> Contract | None:
        """The engine's log-probs against the trainer's for the same tokens; None where there are none."""
        engine = self._engine()
        if engine is None:
            return None
        mine, theirs = [], []
        for response, row in zip(engine.rows, self.rows, strict=False):
            if response.tokens is None:
                continue
            count, prompt = len(response.tokens), [int(token) for token in row.get("prompt_token_ids", [])]
            tokens = torch.tensor([[*prompt, *response.tokens.tolist()]])
            with choices.trainer_choices() as theirs_chose:
                logits = trainer.model(tokens).logits[0, len(prompt) - 1 : -1].float()
            values = torch.log_softmax(logits, -1)[torch.arange(count), tokens[0, -count:]]
            whole = logits.double().numpy() if logits.numel() * len(engine.rows) <= _MOST_LOGITS else None
            flipped = choices.flipped(response.name, len(prompt) - 1, count, theirs_chose)
            mine.append(response if flipped is None else replace(response, router=np.zeros_like(flipped)))
            theirs.append(
                Response(response.name, values.double().numpy(), tokens=response.tokens, logits=whole, router=flipped)
            )
        rows = Responses(engine.path, engine.field, tuple(mine), engine.unread, engine.is_named)
        return hold(rows, Responses("the trainer's model", "logits", tuple(theirs), is_named=True))

    def _engine(self) -> Responses | None:
        if self._is_written:
            has_any = any(row.get("log_probs") for row in self.rows)
            return read_responses(self.path, "engine") if has_any else None
        rows = []
        for row in self.rows:
            values = self._log_probs[row["request_id"]]
            numbers = np.asarray([np.nan if value is None else value for value in values], np.float64)
            rows.append(Response(row["request_id"], numbers, tokens=np.asarray(row["token_ids"], np.int64)))
        known = any(np.isfinite(row.log_probs).any() for row in rows)
        return Responses(self.path, "logits", tuple(rows), is_named=True) if known else None


def _rows_of_passes(passes: Sequence[RowOrigins]) -> list[dict[str, Any]]:
    tokens: dict[str, dict[int, int]] = {}
    first: dict[str, int] = {}
    for pass_ in passes:
        if pass_.positions is None or pass_.tokens is None or len(pass_.requests) != len(pass_.tokens):
            continue
        for name, place, token in zip(pass_.requests, pass_.positions.tolist(), pass_.tokens.tolist(), strict=True):
            tokens.setdefault(name, {})[int(place)] = int(token)
        for name in set(pass_.requests):
            first.setdefault(name, len(tokens[name]))
    rows = []
    for name, known in tokens.items():
        whole: list[int] = []
        while len(whole) in known:
            whole.append(known[len(whole)])
        count = first[name]
        if 0 < count < len(whole):
            rows.append({"request_id": name, "prompt_token_ids": whole[:count], "token_ids": whole[count:]})
    return rows
