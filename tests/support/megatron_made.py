"""A small model as Megatron saves it in any layout, written by hand: what a checkpoint of that layout holds, as the
specification of
its layouts says.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

VOCABULARY, HIDDEN, FFN, LAYERS, EXPERTS = 32, 8, 16, 4, 4
Weights = dict[str, torch.Tensor]


def dense(seed: int = 0, gated: bool = False, layers: int = LAYERS) -> Weights:
    """The whole model under the names of the core: 53 parameters."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    wide = 2 * FFN if gated else FFN
    model = {
        "embedding.word_embeddings.weight": random(VOCABULARY, HIDDEN),
        "embedding.position_embeddings.weight": random(16, HIDDEN),
    }
    for layer in range(layers):
        stem = f"decoder.layers.{layer}."
        for name, shape in (
            ("input_layernorm.weight", (HIDDEN,)),
            ("input_layernorm.bias", (HIDDEN,)),
            ("self_attention.linear_qkv.weight", (3 * HIDDEN, HIDDEN)),
            ("self_attention.linear_qkv.bias", (3 * HIDDEN,)),
            ("self_attention.linear_proj.weight", (HIDDEN, HIDDEN)),
            ("self_attention.linear_proj.bias", (HIDDEN,)),
            ("pre_mlp_layernorm.weight", (HIDDEN,)),
            ("pre_mlp_layernorm.bias", (HIDDEN,)),
            ("mlp.linear_fc1.weight", (wide, HIDDEN)),
            ("mlp.linear_fc1.bias", (wide,)),
            ("mlp.linear_fc2.weight", (HIDDEN, FFN)),
            ("mlp.linear_fc2.bias", (HIDDEN,)),
        ):
            model[stem + name] = random(*shape)
    model |= {"decoder.final_layernorm.weight": random(HIDDEN), "decoder.final_layernorm.bias": random(HIDDEN)}
    return model | {"output_layer.weight": random(VOCABULARY, HIDDEN)}


def with_experts(seed: int = 0) -> Weights:
    """The same with experts for MLPs, and a router in each layer."""
    generator = torch.Generator().manual_seed(seed + 1)
    model = {}
    for name, tensor in dense(seed).items():
        if ".mlp." not in name:
            model[name] = tensor
        elif name.endswith("linear_fc1.weight"):
            stem = name.removesuffix("linear_fc1.weight")
            model[stem + "router.weight"] = torch.randn(EXPERTS, HIDDEN, generator=generator)
            for expert in range(EXPERTS):
                inner = f"{stem}experts.local_experts.{expert}."
                model[inner + "linear_fc1.weight"] = torch.randn(FFN, HIDDEN, generator=generator)
                model[inner + "linear_fc2.weight"] = torch.randn(HIDDEN, FFN, generator=generator)
    return model


def save(
    folder: Path,
    model: Weights,
    *,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    vpp: int = 1,
    style: str = "core",
    stages: list[int] | None = None,
    gated: bool = False,
    iteration: int = 100,
    tracker: str | None = None,
    more: dict[str, Any] | None = None,
    **arguments: Any,
) -> Path:
    """Write the model in a layout. ``style``: core, legacy, te, grouped, te_grouped. ``stages``: layers of each
    stage.
    """
    name = tracker or str(iteration)
    folder.mkdir(parents=True)
    (folder / "latest_checkpointed_iteration.txt").write_text(name)
    below = folder / ("release" if name == "release" else f"iter_{iteration:07d}")
    layers = 1 + max(int(name.split(".")[2]) for name in model if name.startswith("decoder.layers."))
    is_moe = any("local_experts" in name for name in model)
    args = argparse.Namespace(
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        expert_model_parallel_size=ep,
        num_experts=EXPERTS if is_moe else None,
        **arguments,
    )
    counts = stages or [layers // (pp * vpp)] * (pp * vpp)
    for t in range(tp):
        for p in range(pp):
            for e in range(ep):
                state: dict[str, Any] = {
                    "args": args,
                    "iteration": iteration,
                    "checkpoint_version": 3.0,
                    **(more or {}),
                }
                for chunk in range(vpp):
                    part = _part(model, counts, chunk * pp + p, e, ep)
                    part = {name: shard(name, tensor, t, tp, gated) for name, tensor in part.items()}
                    state["model" if vpp == 1 else f"model{chunk}"] = _styled(part, style)
                rank = f"mp_rank_{t:02d}" + (f"_{p:03d}" if pp > 1 else "") + (f"_{e:03d}" if ep > 1 else "")
                (below / rank).mkdir(parents=True)
                torch.save(state, below / rank / "model_optim_rng.pt")
    return folder


def _part(model: Weights, counts: list[int], place: int, expert_rank: int, expert_ranks: int) -> Weights:
    begin, each = sum(counts[:place]), EXPERTS // expert_ranks
    part = {}
    for name, tensor in model.items():
        if name.startswith("decoder.layers."):
            words = name.split(".")
            layer = int(words[2]) - begin
            if not 0 <= layer < counts[place]:
                continue
            words[2] = str(layer)
            if "local_experts" in words:
                at = words.index("local_experts") + 1
                if int(words[at]) // each != expert_rank:
                    continue
                words[at] = str(int(words[at]) % each)
            part[".".join(words)] = tensor
        elif (name.startswith("embedding") == (place == 0) and (place in (0, len(counts) - 1))) or len(counts) == 1:
            part[name] = tensor
    return part


def shard(name: str, tensor: torch.Tensor, rank: int, ranks: int, gated: bool) -> torch.Tensor:
    if "linear_fc1" in name and gated:
        gate, up = tensor.chunk(2)
        return torch.cat([gate.chunk(ranks)[rank], up.chunk(ranks)[rank]])
    if any(word in name for word in ("linear_qkv", "linear_fc1", "word_embeddings", "output_layer")):
        return tensor.chunk(ranks)[rank].clone()
    if name.endswith(("linear_fc2.weight", "linear_proj.weight")):
        return tensor.chunk(ranks, 1)[rank].clone()
    return tensor


def _styled(part: Weights, style: str) -> dict[str, Any]:
    if style == "legacy":
        return {"language_model": {"embedding": _nested(part, "embedding."), "encoder": _encoder(part), **_head(part)}}
    if style == "te":
        names = (
            ("input_layernorm.", "self_attention.linear_qkv.layer_norm_"),
            ("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"),
        )
        renamed = {}
        for name, tensor in part.items():
            for old, new in names:
                name = name.replace(old, new)
            renamed[name] = tensor
        return {**renamed, "decoder.layers.0.self_attention.linear_qkv._extra_state": torch.zeros(3, dtype=torch.uint8)}
    if style in ("grouped", "te_grouped"):
        return _grouped(part, style)
    return dict(part)


def _grouped(part: Weights, style: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    apart: dict[tuple[str, str], dict[int, torch.Tensor]] = {}
    for name, tensor in part.items():
        stem, found_experts, rest = name.partition("local_experts.")
        if found_experts:
            number, module, _ = rest.split(".")
            apart.setdefault((stem, module), {})[int(number)] = tensor
        else:
            found[name] = tensor
    for (stem, module), experts in apart.items():
        ordered = [experts[number] for number in sorted(experts)]
        if style == "te_grouped":
            found |= {f"{stem}{module}.weight{number}": tensor for number, tensor in enumerate(ordered)}
        elif module == "linear_fc1":
            found[stem + "weight1"] = torch.stack([one.T for one in ordered]).reshape(HIDDEN, -1)
        else:
            found[stem + "weight2"] = torch.stack([one.T for one in ordered]).reshape(-1, HIDDEN)
    return found


def _nested(part: Weights, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, tensor in part.items():
        if name.startswith(prefix):
            module, _, last = name.removeprefix(prefix).rpartition(".")
            found.setdefault(module, {})[last] = tensor
    return found


def _encoder(part: Weights) -> Weights:
    words = (
        ("decoder.", ""),
        ("linear_qkv", "query_key_value"),
        ("self_attention.linear_proj", "self_attention.dense"),
        ("pre_mlp_layernorm", "post_attention_norm"),
        ("input_layernorm", "input_norm"),
        ("linear_fc1", "dense_h_to_4h"),
        ("linear_fc2", "dense_4h_to_h"),
        ("final_layernorm", "final_norm"),
    )
    found = {}
    for name, tensor in part.items():
        if name.startswith("decoder."):
            for old, new in words:
                name = name.replace(old, new)
            found[name] = tensor
    return found


def _head(part: Weights) -> dict[str, Any]:
    return {"output_layer": {"weight": part["output_layer.weight"]}} if "output_layer.weight" in part else {}
