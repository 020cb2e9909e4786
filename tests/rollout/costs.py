"""What recording costs an engine, whether it changes it, and a model of half a billion parameters end to end.

``python -m rollout.costs weights|innocent|steps|large FOLDER`` (from ``tests/``; ``weights`` needs no engine). Times
are ratios of medians of alternating runs.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

QWEN = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14}
QWEN |= {"num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": True}


def seconds(run: Callable[[], Any]) -> float:
    """How long a call takes."""
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def of_weights(folder: Path) -> None:
    """The check of weights of a model of 1 GB (Qwen2-0.5B, bfloat16), over one copy of the same weights."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    from msprobe.rollout.torch.weight_check import WeightCheck

    trainer = AutoModelForCausalLM.from_config(Qwen2Config(**QWEN)).to(torch.bfloat16)
    engine = AutoModelForCausalLM.from_config(Qwen2Config(**QWEN)).to(torch.bfloat16)
    engine.load_state_dict(trainer.state_dict())
    size = sum(one.numel() * one.element_size() for one in trainer.parameters())
    check = WeightCheck(engine)
    taken = [(check(trainer).seconds, seconds(lambda: engine.load_state_dict(trainer.state_dict()))) for _ in range(5)]
    checks, copies = (statistics.median(one) for one in zip(*taken, strict=True))
    print(f"{size / 1e9:.2f} GB: {checks:.2f} s, {checks / copies:.1f} times a copy of it")


def of_innocent(folder: Path, cases: int = 200) -> None:
    """Answers of recorded generates are those of the same ones that are not: tokens and log-probs, bit for bit."""
    from .engines import KINDS, Engine

    same = count = 0
    kinds = [(kind, dtype) for kind in KINDS for dtype in ("float32", "bfloat16")]
    for kind, dtype in kinds:
        engine = Engine(kind, dtype, folder / f"{kind}-{dtype}")
        each = -(-cases // len(kinds))
        same += sum(_is_same(engine, kind, case) for case in range(each))
        count += each
        # A further engine of this process must find no group of an earlier one.
        del engine
        gc.collect()
        print(f"{kind} {dtype}: {same} of {count} the same", flush=True)


def _is_same(engine: Any, kind: str, case: int) -> bool:
    from .engines import prompts, sampling

    given = prompts(1 + case % 5, 3 + case % 9, seed=100 + case)
    # Seeded sampling and chunked prefill do not go together in this build.
    settings = sampling(2 + case % 4, temperature=0.0 if kind == "cached" else (0.0, 0.7, 1.0)[case % 3])
    engine.llm.reset_prefix_cache()
    plain = _answers(engine.generate(given, settings))
    engine.llm.reset_prefix_cache()
    how = {"task": ("tensor", "statistics")[case % 2], "level": ("L0", "mix")[case % 7 == 0]}
    engine.record(f"case{case % 2}", settings, given=given, **how)
    return _answers(engine.answers) == plain


def _answers(outputs: list[Any]) -> list[Any]:
    return [
        (tuple(one.token_ids), [{token: entry.logprob for token, entry in places.items()} for places in one.logprobs])
        for output in outputs
        for one in output.outputs
    ]


def of_steps(folder: Path) -> None:
    """A generate that is recorded over one that is not, by task and level; a small model is the worst case."""
    from .engines import Engine, prompts, sampling

    sizes = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8}
    engine = Engine("dense", "bfloat16", folder / "steps", vocab_size=4096, **sizes)
    given, settings = prompts(4, 12, seed=5), sampling(12)
    engine.generate(given, settings)
    for task in ("statistics", "tensor"):
        pairs = []
        for _ in range(5):
            plain = seconds(lambda: engine.generate(given, settings))
            pairs.append((plain, seconds(lambda task=task: engine.record(task, settings, given=given, task=task))))
        plain, recorded = (statistics.median(one) for one in zip(*pairs, strict=True))
        print(f"{task}, L0: {recorded / plain:.1f} times (12 steps of 4 requests, 8 layers of width 512)", flush=True)


def of_large(folder: Path) -> None:
    """Record a model of the shape of Qwen2-0.5B with random weights, and compare it; then with one wrong weight."""
    from safetensors.torch import load_file, save_file
    from transformers import Qwen2Config

    from msprobe.rollout.texts import compared_lines
    from msprobe.rollout.torch.comparing import compare_engine

    from . import engines

    engines.KINDS["large"] = (Qwen2Config, QWEN, {"max_num_batched_tokens": 256})
    begun = time.perf_counter()
    engine = engines.Engine("large", "bfloat16", folder / "large")
    made = time.perf_counter()
    roll = engine.record("large", engines.sampling(3), given=[{"prompt_token_ids": [3, 1000, 20000, 7, 99]}])
    recorded = time.perf_counter()
    print("\n".join(compared_lines(compare_engine(str(roll), engine.trained))))
    compared = time.perf_counter()
    print(f"engine {made - begun:.0f} s, recording {recorded - made:.0f} s, comparison {compared - recorded:.0f} s")
    size = sum(one.stat().st_size for one in roll.rglob("*") if one.is_file())
    print(f"{sum(1 for _ in roll.rglob('*.pt'))} tensors, {size / 1e6:.0f} MB")

    def one_step(folder: Path) -> None:
        file = folder / "model.safetensors"
        tensors = load_file(file)
        name = "model.layers.17.self_attn.k_proj.weight"
        tensors[name][3, 5] = torch.nextafter(tensors[name][3, 5], torch.full((), 9.0, dtype=torch.bfloat16))
        save_file(tensors, file, {"format": "pt"})

    print("\n".join(compared_lines(compare_engine(str(roll), engine.trainer("one element", one_step)))[:3]))


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    globals()[f"of_{sys.argv[1]}"](Path(sys.argv[2]))
