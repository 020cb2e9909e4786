"""The bench of ``msprobe rollout``: a real engine, planted mismatches, healthy pairs.

``python -m rollout.bench float32 FOLDER [KIND ...]`` in the environment of ``make test-rollout`` (from ``tests/``);
``some`` in place of the type: a few of each sort in bfloat16.
What must be named first is the code of what was planted and, where there is one, its module; a healthy pair must agree.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from msprobe.integrations.vllm import weight_check
from msprobe.rollout.compared import RolloutAnswer
from msprobe.rollout.torch.comparing import compare_engine

from .contracts import CONTRACTS, named, trainer_rows
from .engines import KINDS, Engine, prompts, sampling
from .mismatches import PLANTED, Planted, _changed, weights
from .plugin import recorded

LONG = 30


class Score:
    """What was named, and what healthy pairs were answered."""

    def __init__(self) -> None:
        self.missed: list[str] = []
        self.accused: list[str] = []
        self.planted = self.healthy = self.contracts = 0

    def planted_one(self, one: Planted, found: RolloutAnswer) -> None:
        """Count a mismatch."""
        self.planted += 1
        first = found.all_findings[0] if found.all_findings else None
        right = first is not None and first.name.startswith(one.code)
        right = right and str(first.arguments.get("module", "")).endswith(one.module)
        if not right:
            self.missed.append(one.name)
        print(
            f"{'first ' if right else 'MISSED'} {one.name}: {first and (first.name, first.arguments)}"[:300], flush=True
        )

    def contract(self, name: str, code: str, found: list[str]) -> None:
        """Count a mismatch that the contract alone names."""
        self.planted += 1
        right = found[:1] == [code]
        self.contracts += right
        if not right:
            self.missed.append(name)
        print(f"{'first ' if right else 'MISSED'} {name}: {found}", flush=True)

    def healthy_one(self, name: str, found: RolloutAnswer) -> None:
        """Count a healthy pair."""
        self.healthy += 1
        if (found.status, found.exit_code) != ("agree", 0):
            self.accused.append(name)
        flipped = found.contract.measures.flipped if found.contract else 0
        stood_in = sum(line.stand_in for line in found.operators.values())
        print(
            f"healthy {name}: {found.status}, exit {found.exit_code}, {flipped} flipped, {stood_in} stand-ins "
            f"{found.all_findings[:1]} {found.coverage.not_read[:2]}"[:400],
            flush=True,
        )


def compared(roll: Path, model: str) -> RolloutAnswer:
    """One comparison, as the command makes it."""
    return compare_engine(str(roll), model)


def of_dense(engine: Engine, score: Score) -> None:
    """Greedy, sampled, other batching, decode against prefill."""
    greedy = engine.record("greedy", sampling())
    score.healthy_one("greedy", compared(greedy, engine.trained))
    score.healthy_one("sampled", compared(engine.record("sampled", sampling(temperature=1.0)), engine.trained))
    many = prompts(14, 20, seed=4)
    score.healthy_one("other batching", compared(engine.record("batching", sampling(9), given=many), engine.trained))
    rows = _rows(greedy)
    again = [{"prompt_token_ids": [*row["prompt_token_ids"], *row["token_ids"]]} for row in rows]
    score.healthy_one(
        "prefill of decoded", compared(engine.record("prefill", sampling(1), given=again), engine.trained)
    )
    _planted("dense", engine, score, greedy)
    _live(engine, score)
    _plugged_in(engine, score)
    rolls: dict[str, list[dict[str, Any]]] = {}
    for name, (settings, is_processed, change, code) in CONTRACTS.items():
        key = f"{json.dumps(settings)} {is_processed}"
        if key not in rolls:
            rolls[key] = _sampled(engine, name, settings, is_processed)
        rows = rolls[key]
        folder = engine.folder / "contracts" / name.replace(" ", "_")
        score.contract(name, code, named(folder, rows, trainer_rows(engine.trained, rows), change))


def _live(engine: Engine, score: Score) -> None:
    """A step of AdamW at a rate of 1e-6 that did not arrive, asked of the running engine (verl 2996)."""
    check = weight_check(engine.llm)
    policy = AutoModelForCausalLM.from_pretrained(engine.trained)
    if not check(policy):
        score.accused.append("weights as they were loaded")
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6, weight_decay=0.0)
    for one in policy.parameters():
        one.grad = torch.randn_like(one)
    optimizer.step()
    arrived = check(policy)
    codes = {one.name for one in arrived.findings}
    if codes != {"weights-stale"}:
        score.missed.append("a step that did not arrive")
    print(
        f"live: {codes}, {len(arrived.findings)} of {arrived.coverage.read['weights']} weights, "
        f"{arrived.seconds:.2f} s",
        flush=True,
    )


def _plugged_in(engine: Engine, score: Score, twice: bool = True) -> None:
    """A script in a process of its own, which the plug-in records; ``twice``: its answers must be those without."""
    steps, answers, before = recorded(str(engine.model), engine.dtype_name, engine.folder / "plugin", twice)
    for number, step in enumerate(steps):
        score.healthy_one(f"plug-in, generate {number}", compared(step, engine.trained))
    if len(steps) != 2 or answers != before:
        score.missed.append("plug-in")
    print(f"plug-in: {len(steps)} steps, answers of a run that is not recorded: {answers == before}", flush=True)


def _sampled(engine: Engine, name: str, settings: dict[str, Any], is_processed: bool) -> list[dict[str, Any]]:
    """Many tokens, without a dump of tensors."""
    how = {"task": "statistics"}
    given = prompts(16, 6, seed=9)
    if is_processed:
        with engine.processed():
            return _rows(engine.record(name, sampling(LONG, **settings), given=given, **how))
    return _rows(engine.record(name, sampling(LONG, **settings), given=given, **how))


def _rows(roll: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (roll / "responses.jsonl").read_text().splitlines()]


#: Weights, settings, positions, a kernel: what ``some`` plants.
_SOME = {
    "a missed optimizer step in one layer",
    "gate and up exchanged",
    "a norm's weight that never arrived",
    "another eps",
    "positions off by one in decode",
    "a head of attention that is lost",
}


def of_some(engine: Engine, score: Score) -> None:
    """A little of what a dense engine is asked."""
    greedy = engine.record("greedy", sampling())
    score.healthy_one("greedy", compared(greedy, engine.trained))
    score.healthy_one("sampled", compared(engine.record("sampled", sampling(temperature=1.0)), engine.trained))
    _planted("dense", engine, score, greedy, _SOME)
    _live(engine, score)
    _plugged_in(engine, score, twice=False)


def of_cached(engine: Engine, score: Score) -> None:
    """Chunked prefill, a prefix cache that is used rightly, and one that is not reset after an update."""
    long = prompts(4, 60, seed=2)
    for one in long:
        one["prompt_token_ids"] = (long[-1]["prompt_token_ids"] * 30)[:64] + one["prompt_token_ids"][:4]
    score.healthy_one("chunked prefill", compared(engine.record("chunked", sampling(8), given=long), engine.trained))
    score.healthy_one("prefix cache", compared(engine.record("cached", sampling(8), given=long), engine.trained))
    engine.llm.reset_prefix_cache()
    engine.generate(long, sampling(2))
    norms = [f"model.layers.{layer}.input_layernorm" for layer in range(2)]
    modules = engine.modules()
    stale = next(one for one in PLANTED if one.kind == "cached")
    model = engine.trainer(stale.name, weights(lambda one: [one[f"{name}.weight"].mul_(1.25) for name in norms]))
    first, second = (_changed(modules[name].weight, modules[name].weight.data * 1.25) for name in norms)
    with first, second:
        roll = engine.record(stale.name, sampling(8), given=long)
    score.planted_one(stale, compared(roll, model))


def of_experts(engine: Engine, score: Score) -> None:
    """A mixture of experts, whose routers may flip."""
    roll = engine.record("experts", sampling(9, temperature=1.0), given=prompts(6, 6))
    score.healthy_one("mixture of experts", compared(roll, engine.trained))
    _planted("experts", engine, score, roll)


def of_window(engine: Engine, score: Score) -> None:
    """Attention that looks back a few tokens."""
    _planted("window", engine, score, engine.record("window", sampling()))


def of_adapter(engine: Engine, score: Score) -> None:
    """LoRA."""
    roll = engine.record("adapter", sampling())
    score.healthy_one("LoRA", compared(roll, engine.trained))
    unnamed = next(one for one in PLANTED if one.code == "adapter-not-applied")
    score.planted_one(unnamed, compared(engine.record(unnamed.name, sampling(), lora=False), engine.trained))
    _planted("adapter", engine, score, roll)


def _planted(kind: str, engine: Engine, score: Score, healthy: Path, names: Collection[str] = ()) -> None:
    """Each mismatch of one kind of engine: in the trainer's folder, or in the engine while it is recorded."""
    for one in PLANTED:
        if one.kind != kind or (names and one.name not in names):
            continue
        if one.trainer is not None:
            score.planted_one(one, compared(healthy, engine.trainer(one.name, one.trainer)))
        elif one.engine is not None:
            score.planted_one(one, compared(engine.record(one.name, sampling(), one.engine), engine.trained))


def main(dtype: str, folder: Path, kinds: list[str]) -> int:
    """Run all cases; print what was named first, and what healthy pairs were answered."""
    score = Score()
    begun = time.monotonic()
    for kind in kinds or list(KINDS):
        engine = Engine(kind if kind in KINDS else "dense", dtype, folder / kind)
        globals()[f"of_{kind}"](engine, score)
        del engine
        gc.collect()
        print(f"{kind}: {time.monotonic() - begun:.0f} s", flush=True)
    print(
        f"{dtype}: named first {score.planted - len(score.missed)} of {score.planted} ({score.contracts} by the "
        f"contract alone), healthy pairs that differ {len(score.accused)} of {score.healthy}"
    )
    print("missed:", score.missed, "accused:", score.accused)
    return 0 if not score.missed and not score.accused else 1


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    wanted, where, which = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    sys.exit(main("bfloat16", where, ["some"]) if wanted == "some" else main(wanted, where, which))
