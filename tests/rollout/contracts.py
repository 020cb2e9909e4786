"""Mismatches of the contract: what log-probs mean, and which tokens they are of. No tensors are needed to name them.

Each has the engine's answers as they were recorded, and the trainer's log-probs of the same tokens; either is changed
as the thread says.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from msprobe.rollout.contract import hold
from msprobe.rollout.responses import read_responses

Rows = list[dict[str, Any]]
#: Name -> settings of the sampling, whether the engine's log-probs are processed, a change of both sides, and the code.
Change = Callable[[Rows, Rows], None]


def trainer_rows(model: str, rows: Rows) -> Rows:
    """The trainer's log-probs of the engine's tokens; its dictionaries hold the largest, too."""
    trainer = AutoModelForCausalLM.from_pretrained(model)
    done = []
    for row in rows:
        tokens = torch.tensor([[*row["prompt_token_ids"], *row["token_ids"]]])
        with torch.no_grad():
            whole = torch.log_softmax(trainer(tokens).logits[0, len(row["prompt_token_ids"]) - 1 : -1].float(), -1)
        chosen = whole[torch.arange(len(row["token_ids"])), torch.tensor(row["token_ids"])]
        best = whole.max(-1)
        entries = [
            {str(int(top)): float(value), str(token): float(own)}
            for top, value, token, own in zip(best.indices, best.values, row["token_ids"], chosen, strict=True)
        ]
        done.append({**row, "log_probs": chosen.tolist(), "entries": entries})
    return done


def _nothing(engine: Rows, trainer: Rows) -> None:
    pass


def _divided(engine: Rows, trainer: Rows) -> None:
    for row in engine:
        row["log_probs"] = [one / 0.7 for one in row["log_probs"]]


def _first_entry(engine: Rows, trainer: Rows) -> None:
    for row, other in zip(engine, trainer, strict=True):
        row["log_probs"] = [next(iter(entries.values())) for entries in other["entries"]]
        other["log_probs"] = other["entries"]


def _next_row(engine: Rows, trainer: Rows) -> None:
    moved = [row["log_probs"] for row in trainer]
    for place, row in enumerate(trainer):
        row["log_probs"] = moved[place - 1]


def _no_end(engine: Rows, trainer: Rows) -> None:
    for row in trainer:
        row["token_ids"], row["log_probs"] = row["token_ids"][:-1], row["log_probs"][:-1]


def _masked_end(engine: Rows, trainer: Rows) -> None:
    for row in trainer:
        row["response_mask"] = [1] * (len(row["token_ids"]) - 1) + [0]


def _older(engine: Rows, trainer: Rows) -> None:
    for row, other in zip(engine, trainer, strict=True):
        row["weight_version"], other["weight_version"] = 6, 7


def _next_token(engine: Rows, trainer: Rows) -> None:
    for row in trainer:
        row["log_probs"] = [*row["log_probs"][1:], -1.0]


CONTRACTS: dict[str, tuple[dict[str, Any], bool, Change, str]] = {
    # https://github.com/vllm-project/vime/issues/64
    "log-probs after temperature": ({"temperature": 0.7}, True, _nothing, "temperature-not-applied"),
    # https://github.com/huggingface/trl/issues/7269
    "log-probs over what top-p keeps": ({"temperature": 1.0, "top_p": 0.7}, True, _nothing, "renormalised"),
    # https://github.com/PrimeIntellect-ai/prime-rl/pull/697
    "log-probs divided by the temperature": ({"temperature": 0.7}, False, _divided, "log-probs-divided"),
    # https://github.com/NVIDIA-NeMo/RL/issues/3297
    "the first entry of a dictionary": ({"temperature": 1.0}, False, _first_entry, "wrong-entry"),
    # https://github.com/allenai/open-instruct/issues/1473
    "rows of the next response": ({"temperature": 1.0}, False, _next_row, "shifted-responses"),
    # https://github.com/pytorch/rl/issues/3580
    "an end token that padding swallows": ({"temperature": 1.0}, False, _no_end, "last-token-missing"),
    # https://github.com/modelscope/ms-swift/pull/8427
    "a mask without the last token": ({"temperature": 1.0}, False, _masked_end, "last-token-masked"),
    # https://github.com/verl-project/verl/issues/6280
    "weights of the step before": ({"temperature": 1.0}, False, _older, "weight-versions-differ"),
    # https://github.com/vllm-project/vllm/issues/42259
    "log-probs of the next token": ({"temperature": 1.0}, False, _next_token, "shifted-tokens"),
}


def named(folder: Path, engine: Rows, trainer: Rows, change: Change) -> list[str]:
    """The codes that are found, in order."""
    engine, trainer = copy.deepcopy(engine), copy.deepcopy(trainer)
    change(engine, trainer)
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for side, rows in (("engine", engine), ("trainer", trainer)):
        files.append(folder / f"{side}.jsonl")
        lines = [json.dumps({key: value for key, value in row.items() if key != "entries"}) for row in rows]
        files[-1].write_text("\n".join(lines))
    found = hold(read_responses(str(files[0]), "engine"), read_responses(str(files[1]), "trainer"))
    return [one.name for one in found.findings]
