"""The planted mismatches of the bench: each is the cause of a public thread, whose address stands beside it.

A row: name, kind of engine, what is planted, and what must be named first (code, and the end of the module's path).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from .engines import YARN

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Planted:
    """``trainer``: a change of the trainer's folder; ``engine``: a change of the engine's modules while it runs."""

    name: str
    code: str
    module: str = ""
    kind: str = "dense"
    trainer: Callable[[Path], None] | None = None
    engine: Any = None


def weights(change: Callable[[Tensors], None], file: str = "model.safetensors") -> Callable[[Path], None]:
    """Change tensors of a folder."""

    def changed(folder: Path) -> None:
        tensors = load_file(folder / file)
        change(tensors)
        save_file({name: one.contiguous() for name, one in tensors.items()}, folder / file, {"format": "pt"})

    return changed


def config(**changes: Any) -> Callable[[Path], None]:
    """Change settings of a model's folder."""

    def changed(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return changed


def rope(**changes: Any) -> Callable[[Path], None]:
    """Change the rotary embedding of a model's folder."""
    return config(rope_parameters={**YARN, **changes})


_Q, _O = "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.o_proj.weight"
_GATE, _UP = "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"


def _one_step(tensors: Tensors) -> None:
    """A step of an optimizer at lr 1e-6: few elements move in bfloat16, each by one unit."""
    tensors[_Q].add_(1e-6 * torch.sign(torch.randn_like(tensors[_Q])).to(tensors[_Q].dtype))
    tensors[_Q][3, 5] = torch.nextafter(tensors[_Q][3, 5], torch.full((), 9.0, dtype=tensors[_Q].dtype))


def _exchange(tensors: Tensors) -> None:
    tensors[_GATE], tensors[_UP] = tensors[_UP], tensors[_GATE]


def _heads(tensors: Tensors) -> None:
    tensors[_Q] = tensors[_Q].reshape(4, 32, 128)[[0, 2, 1, 3]].reshape(128, 128)


def _shards(tensors: Tensors) -> None:
    """Halves of gate and up of two ranks, one behind the other."""
    gates, ups = tensors[_GATE].chunk(2), tensors[_UP].chunk(2)
    tensors[_GATE], tensors[_UP] = torch.cat((gates[0], ups[0])), torch.cat((gates[1], ups[1]))


def through_narrower(modules: dict[str, Any]) -> Any:
    """The engine's weight loses bits on its way: the norm in front of the logits, which no kernel packs."""
    weight = modules["model.norm"].weight
    return _changed(weight, weight.data.to(torch.bfloat16 if weight.dtype is torch.float32 else torch.float8_e4m3fn))


@contextmanager
def _changed(weight: Any, values: Any) -> Iterator[None]:
    before = weight.data.clone()
    weight.data.copy_(values.to(weight.dtype))
    try:
        yield
    finally:
        weight.data.copy_(before)


def filled_with_one(modules: dict[str, Any]) -> Any:
    """A weight of the engine that nothing was loaded into."""
    weight = modules["model.layers.1.input_layernorm"].weight
    return _changed(weight, torch.ones_like(weight))


def of_another_layer(modules: dict[str, Any]) -> Any:
    """The engine has the norm of layer 0 in layer 1."""
    weight = modules["model.layers.1.post_attention_layernorm"].weight
    return _changed(weight, modules["model.layers.0.post_attention_layernorm"].weight.data)


@contextmanager
def empty_adapter(modules: dict[str, Any]) -> Iterator[None]:
    """The names of an adapter match no layer of the engine: nothing is loaded."""
    stacked = [
        one
        for module in modules.values()
        for name in ("lora_a_stacked", "lora_b_stacked")
        for one in getattr(module, name, ())
    ]
    before = [one.clone() for one in stacked]
    for one in stacked:
        one.zero_()
    try:
        yield
    finally:
        for one, values in zip(stacked, before, strict=True):
            one.copy_(values)


def wrapped(path: str, change: Callable[[Callable[..., Any], tuple[Any, ...]], Any]) -> Any:
    """A module whose calls are changed: ``change(run, inputs)`` gives the result."""

    @contextmanager
    def planted(modules: dict[str, Any]) -> Iterator[None]:
        module = modules[path]
        forward = module.forward
        module.forward = lambda *given, **options: change(lambda *now: forward(*(now or given), **options), given)
        try:
            yield
        finally:
            del module.forward

    return planted


def _one_too_far(run: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Positions one too far, in decode alone."""
    positions, queries, keys = given
    return run(positions + 1, queries, keys) if len(positions) < 8 else run()


@contextmanager
def half_variance(modules: dict[str, Any]) -> Iterator[None]:
    """A norm whose mean of squares is computed in bfloat16."""
    module = modules["model.layers.0.post_attention_layernorm"]
    forward = module.forward

    def changed(given: Any, residual: Any = None) -> Any:
        total = given if residual is None else given + residual
        half = total.to(torch.bfloat16)
        wide = half.square().mean(-1, keepdim=True).float()
        done = total.float() * torch.rsqrt(wide + module.variance_epsilon) * module.weight.float()
        return done.to(given.dtype) if residual is None else (done.to(given.dtype), total)

    module.forward = changed
    try:
        yield
    finally:
        module.forward = forward
        del module.forward


def _last_row(run: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    done = run()
    first = (done[0] if isinstance(done, tuple) else done).clone()
    first[-1] = first[0]
    return (first, *done[1:]) if isinstance(done, tuple) else first


def _last_head_lost(run: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    done = run().clone()
    done[:, -32:] = 0
    return done


def _lora_rank(tensors: Tensors) -> None:
    name = next(one for one in tensors if "layers.1.mlp.down_proj.lora_B" in one)
    tensors[name] = tensors[name] * 1.01


PLANTED = [
    # https://github.com/verl-project/verl/issues/2996
    Planted(
        "a missed optimizer step in one layer", "weights-differ", "1.self_attn.qkv_proj", trainer=weights(_one_step)
    ),
    # https://github.com/Tencent-Hunyuan/UniRL/pull/226
    Planted(
        "stale weights of one layer",
        "weights-differ",
        "0.mlp.down_proj",
        trainer=weights(lambda one: one["model.layers.0.mlp.down_proj.weight"].mul_(1.02)),
    ),
    # https://github.com/nntrainer/nntrainer/pull/4194
    Planted("gate and up exchanged", "weights-exchanged", "0.mlp.gate_up_proj", trainer=weights(_exchange)),
    # https://github.com/NVIDIA-NeMo/RL/pull/2802
    Planted("heads in another order", "weight-rows-exchanged", "1.self_attn.qkv_proj", trainer=weights(_heads)),
    # https://github.com/tenstorrent/tt-metal/pull/52818
    Planted("shards of fused halves", "weight-rows-exchanged", "0.mlp.gate_up_proj", trainer=weights(_shards)),
    # https://github.com/Accio-Lab/Dressage/issues/1
    Planted(
        "a square weight transposed",
        "weights-transposed",
        "1.self_attn.o_proj",
        trainer=weights(lambda one: one.update({_O: one[_O].t().contiguous()})),
    ),
    # https://github.com/ROCm/ATOM/pull/2028
    Planted("a norm's weight that never arrived", "weights-missing", "1.input_layernorm", engine=filled_with_one),
    # https://github.com/PrimeIntellect-ai/prime-rl/pull/2823
    Planted(
        "a head of logits that is a step old",
        "weights-differ",
        "lm_head",
        trainer=weights(lambda one: one["lm_head.weight"].mul_(1.02)),
    ),
    # https://github.com/OpenRLHF/OpenRLHF/issues/1349
    Planted("a weight that went through a narrower type", "weights-cast", "model.norm", engine=through_narrower),
    # https://github.com/Open-Athena/MarinFold/issues/236
    Planted("the weight of another layer", "weights-of-another", "1.post_attention_layernorm", engine=of_another_layer),
    # https://github.com/vllm-project/vllm/issues/34186
    Planted(
        "an adapter that binds nothing", "adapter-not-bound", "0.self_attn.qkv_proj", "adapter", engine=empty_adapter
    ),
    # https://github.com/unslothai/unsloth/pull/8701
    Planted("an adapter that no request names", "adapter-not-applied", "0.self_attn.qkv_proj", "adapter"),
    # https://github.com/modelscope/ms-swift/pull/9077
    Planted(
        "an adapter of an earlier step",
        "weights-differ",
        "1.mlp.down_proj",
        "adapter",
        weights(_lora_rank, "adapter_model.safetensors"),
    ),
    # https://github.com/vllm-project/vllm/pull/35515
    Planted("another eps", "operator-differs", "0.input_layernorm", trainer=config(rms_norm_eps=1e-2)),
    # https://github.com/vllm-project/vllm/pull/42624
    Planted(
        "another theta",
        "operator-differs",
        "rotary_emb",
        trainer=config(rope_theta=5000.0, rope_parameters={"rope_theta": 5000.0, "rope_type": "default"}),
    ),
    # https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/4661
    Planted("another activation", "operator-differs", "0.mlp.act_fn", trainer=config(hidden_act="gelu")),
    # https://github.com/vllm-project/vllm/issues/27722
    Planted("a yarn range that is rounded", "operator-differs", "rotary_emb", "experts", rope(truncate=False)),
    # https://github.com/PrimeIntellect-ai/prime-rl/pull/2802
    Planted("a yarn factor that is dropped", "operator-differs", "rotary_emb", "experts", rope(attention_factor=1.0)),
    # https://github.com/radixark/miles/issues/2722
    Planted(
        "weights of experts that are not normalised",
        "operator-differs",
        "0.mlp.experts",
        "experts",
        config(norm_topk_prob=False),
    ),
    # https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/2656
    Planted(
        "a window that is one too wide", "operator-differs", "0.self_attn.attn", "window", config(sliding_window=9)
    ),
    # https://github.com/InternLM/lmdeploy/issues/4917
    Planted("a prefix cache of older weights", "stale-cache", "0.self_attn.attn", "cached"),
    # https://github.com/NVIDIA-NeMo/RL/issues/2141
    Planted(
        "positions off by one in decode",
        "operator-differs",
        "rotary_emb",
        engine=wrapped("model.layers.0.self_attn.rotary_emb", _one_too_far),
    ),
    # https://github.com/vllm-project/vllm/pull/36101
    Planted("a variance in bfloat16", "operator", "0.post_attention_layernorm", engine=half_variance),
    # https://github.com/vllm-project/vllm/issues/1464
    Planted(
        "a row that depends on its batch",
        "operator-differs",
        "0.mlp.down_proj",
        engine=wrapped("model.layers.0.mlp.down_proj", _last_row),
    ),
    # https://github.com/vllm-project/vllm/pull/42650
    Planted(
        "a head of attention that is lost",
        "operator-differs",
        "1.self_attn.attn",
        engine=wrapped("model.layers.1.self_attn.attn", _last_head_lost),
    ),
]
