"""What Megatron calls its parameters, in all its forms, and how each is spread over tensor-parallel ranks."""

from __future__ import annotations

import re

# Plain replacements, in this order: names of the older Megatron and of TransformerEngine -> those of its core.
_REPLACEMENTS = (
    ("self_attention.linear_qkv.layer_norm_", "input_layernorm."),
    ("self_attention.linear_q_proj.layer_norm_", "input_layernorm."),
    ("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."),
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


def sharded_axis(name: str) -> int | None:
    """Along which axis ranks have a part of the parameter; None where each has all of it."""
    if any(word in name for word in _SECOND_AXIS):
        return 1
    if "layernorm" in name or "layer_norm" in name:
        return None
    return 0 if any(word in name for word in _FIRST_AXIS) else None


def is_expert(name: str) -> bool:
    """True for a parameter of an expert that expert-parallel ranks share out."""
    return ".experts." in name and "shared_experts" not in name


def is_vocabulary(name: str) -> bool:
    """True for a parameter with a row for each word, which layouts pad."""
    words = ("word_embeddings.weight", "output_layer.weight", "embed_tokens.weight", "lm_head.weight", "wte.weight")
    return name.endswith(words)
