"""Families of models that the bench does not have: a healthy recording of each, and mismatches of its own kind.

``python -m rollout.families float32 FOLDER [FAMILY ...]`` (from ``tests/``). Limits and operators were written before
these were tried; what was mended for them is in the history of ``rollout/torch``.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from .engines import KINDS, Engine, prompts, sampling
from .mismatches import config, weights

_ENDS = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
_WIDE = {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8, **_ENDS}
_FEW = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


def stale(name: str, times: float = 1.02) -> Any:
    """A weight of the trainer that the engine did not get."""
    return weights(lambda one: one[name].mul_(times))


def theta(base: float) -> Any:
    """Another base of the rotary embedding."""
    return config(rope_parameters={"rope_theta": base, "rope_type": "default"})


@dataclass(frozen=True)
class Family:
    """``own``: what is different from MODEL. ``planted``: change of the trainer's folder -> name and end of a module.

    ``is_apart``: vLLM runs it by the classes of transformers, which it changes in its process.
    """

    config: str
    own: dict[str, Any]
    planted: tuple[tuple[Any, str, str], ...] = ()
    is_apart: bool = False
    options: dict[str, Any] = field(default_factory=dict)


_LAYER = "model.layers.1"
FAMILIES = {
    # Biases of queries, keys and values, tied embeddings.
    "qwen2": Family(
        "Qwen2Config",
        {"tie_word_embeddings": True},
        (
            (stale(f"{_LAYER}.self_attn.k_proj.bias"), "weights-differ", "1.self_attn.qkv_proj"),
            (config(rms_norm_eps=1e-2), "operator-differs", "0.input_layernorm"),
        ),
    ),
    # Norms of queries and keys, one head of keys for all.
    "qwen3": Family(
        "Qwen3Config",
        {"head_dim": 64, "num_key_value_heads": 1},
        (
            (stale(f"{_LAYER}.self_attn.q_norm.weight"), "weights-differ", "1.self_attn.q_norm"),
            (theta(500.0), "operator-differs", "rotary_emb"),
        ),
    ),
    # Norms on both sides of each block, caps of scores and logits, every other layer with a window.
    "gemma2": Family(
        "Gemma2Config",
        _WIDE,
        (
            (config(attn_logit_softcapping=2.0), "operator-differs", "0.self_attn.attn"),
            (config(final_logit_softcapping=2.0), "operator-differs", "logits_processor"),
            (config(query_pre_attn_scalar=64), "operator-differs", "0.self_attn.attn"),
            (stale(f"{_LAYER}.pre_feedforward_layernorm.weight", 1.5), "weights-differ", "1.pre_feedforward_layernorm"),
        ),
    ),
    "gemma3": Family(
        "Gemma3TextConfig",
        {**_WIDE, "layer_types": ["sliding_attention", "full_attention"]},
        ((config(layer_types=["full_attention", "full_attention"]), "operator-differs", "0.self_attn.attn"),),
    ),
    # Multipliers between modules.
    "granite": Family(
        "GraniteConfig",
        {"embedding_multiplier": 3.0, "attention_multiplier": 0.1, "residual_multiplier": 0.5, "logits_scaling": 2.0},
        (
            (config(residual_multiplier=0.22), "between-modules-differs", "0.post_attention_layernorm"),
            (config(embedding_multiplier=1.0), "between-modules-differs", "0.input_layernorm"),
            (config(attention_multiplier=0.2), "operator-differs", "0.self_attn.attn"),
            (config(logits_scaling=1.0), "operator-differs", "logits_processor"),
        ),
    ),
    # Queries, keys and values in one matrix on both sides.
    "phi3": Family(
        "Phi3Config", _ENDS, ((stale(f"{_LAYER}.self_attn.qkv_proj.weight"), "weights-differ", "1.self_attn.qkv_proj"),)
    ),
    # A part of each head is turned; norms with means.
    "stablelm": Family(
        "StableLmConfig",
        {"partial_rotary_factor": 0.5, "use_qkv_bias": True},
        ((config(layer_norm_eps=1e-1), "operator-differs", "0.input_layernorm"),),
    ),
    # Both blocks of a layer have one norm; logits are scaled.
    "cohere": Family(
        "CohereConfig",
        {"logit_scale": 0.25, **_ENDS},
        ((config(logit_scale=0.5), "operator-differs", "logits_processor"),),
    ),
    "glm4": Family("Glm4Config", {"head_dim": 32, "attention_bias": True, **_ENDS}),
    "mixtral": Family(
        "MixtralConfig",
        {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 64},
        ((config(num_experts_per_tok=3), "operator-differs", "0.block_sparse_moe.experts"),),
    ),
    # An expert for all tokens beside the chosen ones.
    "qwen2moe": Family(
        "Qwen2MoeConfig",
        {**_FEW, "shared_expert_intermediate_size": 64, "norm_topk_prob": False, "mlp_only_layers": []},
        ((config(norm_topk_prob=True), "operator-differs", "0.mlp.experts"),),
    ),
    # Norms behind the blocks, and of whole queries and keys.
    "olmo2": Family(
        "Olmo2Config",
        {"num_key_value_heads": 4, **_ENDS},
        ((stale(f"{_LAYER}.post_feedforward_layernorm.weight"), "weights-differ", "1.post_feedforward_layernorm"),),
        is_apart=True,
    ),
    # Biases everywhere, also of logits; a part of each head is turned.
    "phi": Family(
        "PhiConfig",
        {"partial_rotary_factor": 0.5, "num_key_value_heads": 4},
        ((stale(f"{_LAYER}.self_attn.dense.bias"), "weights-differ", "1.self_attn.dense"),),
        is_apart=True,
    ),
}


def answered(roll: Path, model: str, out: Path) -> dict[str, Any]:
    """What the command writes."""
    words = ["rollout", str(roll), "--trainer", model, "-o", str(out)]
    ended = subprocess.run([sys.executable, "-m", "msprobe", *words], capture_output=True, text=True, timeout=300)
    if ended.returncode not in (0, 1, 2) or not (out / "rollout.json").exists():
        raise RuntimeError(ended.stderr[-1000:])
    return {**json.loads((out / "rollout.json").read_text()), "exit": ended.returncode}


def compared(roll: Path, model: str, family: Family, out: Path) -> dict[str, Any]:
    """The same, in this process where that can be."""
    if family.is_apart:
        return answered(roll, model, out)
    from msprobe.rollout.texts import compared_json
    from msprobe.rollout.torch.comparing import compare_engine

    found = compare_engine(str(roll), model)
    return {**compared_json(found), "exit": found.exit_code}


def main(dtype: str, folder: Path, names: list[str]) -> int:
    """Try each family in a process of its own, or those that are named in this one."""
    if len(names) != 1:
        wanted = names or list(FAMILIES)
        command = [sys.executable, "-m", "rollout.families", dtype, str(folder)]
        return sum(subprocess.run([*command, name]).returncode != 0 for name in wanted)
    (name,) = names
    family = FAMILIES[name]
    KINDS[name] = (getattr(transformers, family.config), family.own, {})
    engine = Engine(name, dtype, folder / name, seed=7)
    roll = engine.record("sampled", sampling(8, temperature=0.8), given=prompts(5, 9, seed=3))
    out = folder / name / "answers"
    healthy = compared(roll, engine.trained, family, out)
    wrong = [] if (healthy["status"], healthy["exit"]) == ("agree", 0) else ["healthy"]
    unread = healthy["coverage"]["not_read"][:3]
    print(f"{name} {dtype} healthy: {healthy['status']}, exit {healthy['exit']} {unread}"[:400], flush=True)
    for number, (change, expected, module) in enumerate(family.planted):
        found = compared(roll, engine.trainer(f"planted{number}", change), family, out)
        first = next(iter(found["findings"]), {"name": "", "arguments": {}})
        right = first["name"] == expected and str(first["arguments"].get("module", "")).endswith(module)
        wrong += [] if right else [expected]
        shown = {key: value for key, value in first["arguments"].items() if key in ("module", "units", "deviation")}
        word = "first " if right else "MISSED"
        print(f"{name} {dtype} {word} {expected} {module}: {first['name']} {shown}", flush=True)
    del engine
    gc.collect()
    return len(wrong)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
