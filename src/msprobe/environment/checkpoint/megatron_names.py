"""What Megatron calls its parameters, in all its forms, and how each is spread over tensor-parallel ranks."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from msprobe.environment.checkpoint.tensors import CheckpointTensor, Replicas, joined

# Plain replacements, in this order: names of the older Megatron and of TransformerEngine -> those of its core.
_REPLACEMENTS = (
    ("self_attention.linear_qkv.layer_norm_", "input_layernorm."),
    ("self_attention.linear_q_proj.layer_norm_", "input_layernorm."),
    ("self_attention.linear_q_up_proj.layer_norm_", "self_attention.q_layernorm."),
    ("self_attention.linear_kv_up_proj.layer_norm_", "self_attention.kv_layernorm."),
    ("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."),
    ("mixer.in_proj.layer_norm_", "norm."),
    ("language_model.", ""),
    ("encoder", "decoder"),
    (".input_norm.", ".input_layernorm."),
    ("query_key_value", "linear_qkv"),
    (".dense.", ".linear_proj."),
    ("post_attention_layernorm", "pre_mlp_layernorm"),
    ("post_attention_norm", "pre_mlp_layernorm"),
    ("dense_h_to_4h", "linear_fc1"),
    ("dense_4h_to_h", "linear_fc2"),
    ("mlp.local_experts", "mlp.experts.local_experts"),
    ("final_norm", "final_layernorm"),
    ("word_embeddings_for_head", "output_layer"),
)
_WRAPPERS = re.compile(r"^(?:module\.)+")
_TE_EXPERT = re.compile(r"(mlp\.experts)\.(linear_fc[12])\.(weight|bias)(\d+)$")
_FIRST_AXIS = (
    "linear_qkv",
    "linear_fc1",
    "word_embeddings.weight",
    "output_layer.weight",
    "linear_q_up_proj",
    "linear_kv_up_proj",
    "linear_q_proj.",
    "linear_kv_proj.",
    "eh_proj.weight",
    "mixer.in_proj",
    "mixer.conv1d",
    "mixer.A_log",
    "mixer.D",
    "mixer.dt_bias",
    "mixer.norm.weight",
)
_SECOND_AXIS = ("linear_fc2.weight", "linear_proj.weight", "mixer.out_proj.weight")

LAYER = re.compile(r"(^|\.)(decoder\.layers\.)(\d+)(\.)")
EXPERT = re.compile(r"(local_experts\.)(\d+)(\.)")


def core_name(name: str) -> str:
    """The name that Megatron's core gives a parameter, local experts and all.

    >>> core_name("language_model.encoder.layers.0.self_attention.query_key_value.weight")
    'decoder.layers.0.self_attention.linear_qkv.weight'
    >>> core_name("decoder.layers.1.mlp.experts.linear_fc1.weight3")
    'decoder.layers.1.mlp.experts.local_experts.3.linear_fc1.weight'
    """
    name = _WRAPPERS.sub("", name)
    for old, new in _REPLACEMENTS:
        # A name of the core has the new word already.
        if old == "mlp.local_experts" and "mlp.experts.local_experts" in name:
            continue
        name = name.replace(old, new)
    if "embedding.word_embeddings" not in name and name.startswith("word_embeddings."):
        name = "embedding." + name
    return _TE_EXPERT.sub(r"\1.local_experts.\4.\2.\3", name)


def sharded_axis(name: str, rows: int, settings: dict[str, Any]) -> int | None:
    """Along which axis ranks have a part of the parameter, of which one has ``rows`` rows; None where each has all."""
    if "linear_q_down_proj" in name or "linear_kv_down_proj" in name:
        # Some versions give each rank all of it.
        rank = settings.get("q_lora_rank" if "linear_q_down_proj" in name else "kv_lora_rank")
        return 0 if isinstance(rank, int) and rows < rank else None
    if any(word in name for word in _SECOND_AXIS):
        return 1
    if "layernorm" in name or "layer_norm" in name:
        return None
    return 0 if any(word in name for word in _FIRST_AXIS) else None


def is_expert(name: str) -> bool:
    """True for a parameter of an expert that expert-parallel ranks share out."""
    return ".experts." in name and "shared_experts" not in name


_VOCABULARY = re.compile(
    r"(?:word_embeddings|output_layer|embed_tokens|lm_head|wte)\.weight(?:\.(?:exp_avg|exp_avg_sq|master))?$"
)


def is_vocabulary(name: str) -> bool:
    """True for a parameter, or moments of one, with a row for each word, which layouts pad."""
    return bool(_VOCABULARY.search(name))


def mamba_sections(name: str, settings: dict[str, Any], rows: int) -> tuple[int, ...]:
    """What a shard with ``rows`` rows of Mamba's joint projection holds, and its convolution: sizes of z, x, B, C, dt.

    Nothing for other parameters, and where the arguments do not say.
    """
    is_projection = "mixer.in_proj.weight" in name
    if not is_projection and "mixer.conv1d" not in name:
        return ()
    state, groups = settings.get("mamba_state_dim", 128), settings.get("mamba_num_groups", 8)
    wide, ranks = settings.get("mamba_head_dim", 64), settings.get("tensor_model_parallel_size", 1)
    if not all(type(number) is int and number > 0 for number in (state, groups, wide, ranks)) or groups % ranks:
        return ()
    both = groups // ranks * state
    if not is_projection:
        inner = rows - 2 * both
        return (inner, both, both) if inner > 0 else ()
    # Rows are 2 inner + 2 groups x state + inner / wide.
    inner, left = divmod((rows - 2 * both) * wide, 2 * wide + 1)
    return (inner, inner, both, both, inner // wide) if not left and inner > 0 and inner % wide == 0 else ()


_PART = re.compile(r"(.*mixer\.(?:in_proj|conv1d)\.(?:weight|bias))\.(z|x|B|C|dt)$")


def joined_parts(tensors: dict[str, CheckpointTensor]) -> dict[str, CheckpointTensor]:
    """Mamba's joint projections, whose parts ``torch_dist`` keeps under names of their own."""
    result: dict[str, CheckpointTensor] = {}
    parts: dict[str, dict[str, CheckpointTensor]] = {}
    for name, tensor in tensors.items():
        match = _PART.fullmatch(name)
        if match:
            parts.setdefault(match[1], {})[match[2]] = tensor
        else:
            result[name] = tensor
    for name, some in parts.items():
        ordered = tuple(some[word] for word in ("z", "x", "B", "C", "dt") if word in some)
        result[name] = joined(ordered, 0)
    return result


def is_gated(shapes: dict[str, tuple[int, ...]], settings: dict[str, Any]) -> bool:
    """Do the first layers of MLPs hold a gate and what is gated? Shapes of one rank decide, else the arguments."""
    for name, first in shapes.items():
        second = shapes.get(name.replace("linear_fc1", "linear_fc2"))
        if name.endswith("linear_fc1.weight") and second and len(first) == len(second) == 2:
            return first[0] == 2 * second[1]
    return any(settings.get(key) is True for key in ("swiglu", "gated_linear_unit", "geglu"))


def whole(
    name: str, parts: dict[tuple[int, int], CheckpointTensor], gated: bool, alone: bool, settings: dict[str, Any]
) -> CheckpointTensor:
    """One parameter of the shards of tensor-parallel ranks, and of its copies on expert-parallel ones."""
    copies: dict[int, dict[int, CheckpointTensor]] = defaultdict(dict)
    for (tensor, expert), part in sorted(parts.items()):
        copies[expert][tensor] = part
    rows = next(iter(parts.values())).shape[:1]
    axis = None if alone or not rows else sharded_axis(name, rows[0], settings)
    if axis is None:
        every = [part for parts_of_copy in copies.values() for part in parts_of_copy.values()]
    else:
        sections = (1, 1) if gated and "linear_fc1" in name else mamba_sections(name, settings, rows[0])
        every = [joined(tuple(parts_of_copy.values()), axis, sections) for parts_of_copy in copies.values()]
    if len(every) == 1:
        return every[0]
    return Replicas(every[0].shape, every[0].dtype, tuple(every))
