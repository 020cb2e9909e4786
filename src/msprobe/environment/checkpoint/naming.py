"""Which parameter of one checkpoint answers to which of the other: names as they are, without wrappers, in other
words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msprobe.compare.name_table import PARAMETER_NAMES
from msprobe.environment.checkpoint.contents import Checkpoint, small_file
from msprobe.environment.checkpoint.tensors import CheckpointTensor, QkvRows, TensorSlice
from msprobe.errors import InvalidInputError
from msprobe.foreign import yaml_text
from msprobe.foreign.patterns import Pattern, compile_pattern
from msprobe.messages import said

_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)\.")
_PREFIX = re.compile(r"^(?:(?:module|model|state_dict|network|base_model)\.)+")
_MINDSPORE_NUMBER = re.compile(r"-(\d+)(?=\.|$)")
_HF_ATTENTION = (".self_attn.q_proj.weight", ".self_attn.kv_b_proj.weight")
_MEGATRON_LATENT = "self_attention.linear_kv_up_proj.weight"
_MEGATRON_ATTENTION = ("self_attention.linear_qkv.weight", _MEGATRON_LATENT)
_HF_LATENT = (("self_attention.q_layernorm.", "self_attn.q_a_layernorm."),)
_HF_LAYER = (
    ("self_attention.linear_q_down_proj.", "self_attn.q_a_proj."),
    ("self_attention.linear_q_up_proj.", "self_attn.q_b_proj."),
    ("self_attention.linear_q_proj.", "self_attn.q_proj."),
    ("self_attention.linear_kv_down_proj.", "self_attn.kv_a_proj_with_mqa."),
    ("self_attention.linear_kv_up_proj.", "self_attn.kv_b_proj."),
    ("self_attention.kv_layernorm.", "self_attn.kv_a_layernorm."),
    ("mlp.router.expert_bias", "mlp.gate.e_score_correction_bias"),
    ("self_attention.linear_proj.", "self_attn.o_proj."),
    ("self_attention.q_layernorm.", "self_attn.q_norm."),
    ("self_attention.k_layernorm.", "self_attn.k_norm."),
    ("pre_mlp_layernorm.", "post_attention_layernorm."),
    ("mlp.linear_fc2.", "mlp.down_proj."),
    ("mlp.router.", "mlp.gate."),
    ("mlp.experts.local_experts.", "mlp.experts."),
    (".linear_fc2.", ".down_proj."),
)
Names = tuple[tuple[str, str], ...]
_HF_TOP = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "output_layer.weight": "lm_head.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "decoder.final_layernorm.bias": "model.norm.bias",
}


@dataclass(frozen=True)
class ParameterPair:
    """One parameter of each side; None where a side does not have it. ``name`` is that of the first side that has
    it.
    """

    name: str
    first: CheckpointTensor | None
    second: CheckpointTensor | None
    other_name: str | None = None


def pair_up(
    first: dict[str, CheckpointTensor], second: dict[str, CheckpointTensor], wrappers: bool = True
) -> list[ParameterPair]:
    """Every parameter of either side once, in the order of the first.

    Equal names answer to each other. What is left over is paired by what remains of names without ``module.``,
    ``model.``, ``_orig_mod.`` and the like, then in the words of PyTorch for MindSpore's, where that is one on each
    side, then with ``wrappers`` by what remains without the words that no name of the other side has. Where no name has
    a partner so, one prefix is taken off that makes all names of a side answer, as ``state.`` of
    ``{"state": model.state_dict()}``.
    """
    partner = {name: name for name in first if name in second}
    for plain in (_unwrapped, unprefixed, _in_torch_words):
        taken = set(partner.values())
        left = _by_name([name for name in first if name not in partner], plain)
        right = _by_name([name for name in second if name not in taken], plain)
        partner.update({name: right[key] for key, name in left.items() if key in right})
    for is_turned in (False, True) if wrappers else ():
        taken = set(partner.values())
        rest = [name for name in first if name not in partner], [name for name in second if name not in taken]
        long, short = rest[::-1] if is_turned else rest
        by_name = _without_own_words(long, short, second if is_turned else first, first if is_turned else second)
        partner.update({pair[is_turned]: pair[1 - is_turned] for pair in by_name.items()})
    if not partner:
        partner = _below_prefix(list(first), list(second))
        if not partner:
            partner = {name: other for other, name in _below_prefix(list(second), list(first)).items()}
    taken = set(partner.values())
    pairs = []
    for name, tensor in first.items():
        other = partner.get(name)
        pairs.append(
            ParameterPair(name, tensor, None if other is None else second[other], other if other != name else None)
        )
    return pairs + [ParameterPair(name, None, tensor) for name, tensor in second.items() if name not in taken]


def pair_up_below_keys(first: dict[str, CheckpointTensor], second: dict[str, CheckpointTensor]) -> list[ParameterPair]:
    """As :func:`pair_up`, for what stands below several keys: each by itself, as each may have wrappers of its own."""
    sides: list[dict[str, dict[str, CheckpointTensor]]] = [{}, {}]
    for side, named in zip(sides, (first, second), strict=True):
        for name, tensor in named.items():
            key, _, rest = name.partition(".")
            side.setdefault(key, {})[rest] = tensor
    pairs = []
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        for pair in pair_up(sides[0].get(key, {}), sides[1].get(key, {}), wrappers=False):
            other = pair.other_name and f"{key}.{pair.other_name}"
            pairs.append(replace(pair, name=f"{key}.{pair.name}" if pair.name else key, other_name=other))
    return pairs


def _without_own_words(
    longer: list[str], shorter: list[str], all_longer: Iterable[str], all_shorter: Iterable[str]
) -> dict[str, str]:
    """Pairs of names where those of one side have words that no name of the other has, and are the same without."""
    if not longer or not shorter:
        return {}
    words = {word for name in all_shorter for word in name.split(".")}
    own = {word for name in all_longer for word in name.split(".")} - words
    if not own:
        return {}
    held = _by_name(longer, lambda name: ".".join(word for word in name.split(".") if word not in own))
    wanted = set(shorter)
    return {name: key for key, name in held.items() if key in wanted}


def _below_prefix(longer: list[str], shorter: list[str]) -> dict[str, str]:
    """Pairs of names where those of one side begin with a prefix that the other lacks; none if it is not the only one.

    All names of the other side must be found, or all of this side have the prefix.
    """
    if not longer or not shorter:
        return {}
    held, wanted = _by_name(longer, _in_torch_words), _by_name(shorter, _in_torch_words)
    common: list[str] = []
    ending = "." + next(iter(wanted), "")
    prefixes = {name.removesuffix(ending) + "." for name in held if name.endswith(ending)}
    for same in zip(*(name.split(".")[:-1] for name in held), strict=False):
        if len(set(same)) > 1:
            break
        common.append(same[0])
        prefixes.add(".".join(common) + ".")
    prefixed = []
    for prefix in prefixes:
        pairs = {name: wanted[rest] for key, name in held.items() if (rest := key.removeprefix(prefix)) in wanted}
        is_common = all(key.startswith(prefix) for key in held)
        if pairs and (len(pairs) == len(shorter) or (is_common and 2 * len(pairs) > len(shorter))):
            prefixed.append(pairs)
    return prefixed[0] if len(prefixed) == 1 else {}


def _by_name(names: list[str], plain: Callable[[str], str]) -> dict[str, str]:
    by_key: dict[str, str] = {}
    twice = set()
    for name in names:
        key = plain(name)
        if key in by_key:
            twice.add(key)
        by_key[key] = name
    return {key: name for key, name in by_key.items() if key not in twice}


def _unwrapped(name: str) -> str:
    return _WRAPPERS.sub("", name)


def unprefixed(name: str) -> str:
    """A name without the words of wrappers and of whole models."""
    return _PREFIX.sub("", _unwrapped(name))


def _in_torch_words(name: str) -> str:
    words = _MINDSPORE_NUMBER.sub(r".\1", unprefixed(name)).split(".")
    # The last of a weight, the last but one of a moment.
    for at in (-1, -2)[: len(words)]:
        if words[at] in PARAMETER_NAMES:
            words[at] = PARAMETER_NAMES[words[at]]
            break
    return ".".join(words)


# ---- maps between names ----


def apply_map(checkpoint: Checkpoint, mapping: dict[str, str]) -> Checkpoint:
    """The checkpoint with the names of ``mapping``: whole names, or regular expressions that match a whole name."""
    patterns = [(_pattern(old), new) for old, new in mapping.items()]

    def renamed(name: str) -> str:
        if name in mapping:
            return mapping[name]
        for pattern, new in patterns:
            if pattern.fullmatch(name):
                try:
                    return pattern.sub(new, name, count=1)
                except (re.error, IndexError) as problem:
                    raise InvalidInputError(said("name-map-replacement-wrong", new, problem)) from problem
        return name

    states = {}
    for name, tensor in checkpoint.optimizer.items():
        stem, _, moment = name.rpartition(".")
        states[f"{renamed(stem)}.{moment}" if stem in checkpoint.weights else name] = tensor
    return replace(
        checkpoint, weights={renamed(name): tensor for name, tensor in checkpoint.weights.items()}, optimizer=states
    )


def _pattern(text: str) -> Pattern:
    return compile_pattern(text, "name map")


def read_map(path: str) -> dict[str, str]:
    """A YAML file ``{name of the first: name of the second}``. Raises PathError, InvalidInputError."""
    content = yaml_text.load(small_file(path), path)
    if not isinstance(content, dict) or not all(isinstance(text, str) for pair in content.items() for text in pair):
        raise InvalidInputError(said("name-map-form", Path(path)))
    return content


def in_same_words(first: Checkpoint, second: Checkpoint) -> tuple[Checkpoint, Checkpoint]:
    """Both with Hugging Face's names, where one has these and the other Megatron's; else as they are."""
    if _is_megatron(first) and _is_hugging_face(second):
        return _hugging_face(first, second), second
    if _is_megatron(second) and _is_hugging_face(first):
        return first, _hugging_face(second, first)
    return first, second


def _is_megatron(checkpoint: Checkpoint) -> bool:
    return any(name.endswith(_MEGATRON_ATTENTION) for name in checkpoint.weights)


def _is_hugging_face(checkpoint: Checkpoint) -> bool:
    return any(name.endswith(_HF_ATTENTION) for name in checkpoint.weights)


def _hugging_face(checkpoint: Checkpoint, partner: Checkpoint) -> Checkpoint:
    """Megatron's parameters under the names of Hugging Face; q, k and v, gate and up on their own."""
    is_latent = any(name.endswith(_MEGATRON_LATENT) for name in checkpoint.weights)
    groups, each = (1, 1) if is_latent else _attention(checkpoint, partner)
    renamed = (*_HF_LATENT, *_HF_LAYER) if is_latent else _HF_LAYER
    weights: dict[str, CheckpointTensor] = {}
    for name, tensor in checkpoint.weights.items():
        for new, part in _translated(name, tensor, groups, each, renamed):
            weights[new] = part
    return replace(checkpoint, weights=weights, optimizer=_states_translated(checkpoint, groups, each, renamed))


def _states_translated(checkpoint: Checkpoint, groups: int, each: int, renamed: Names) -> dict[str, CheckpointTensor]:
    """States of parameters under the names of Hugging Face; a step goes to each of the parts."""
    states: dict[str, CheckpointTensor] = {}
    for name, tensor in checkpoint.optimizer.items():
        stem, _, moment = name.rpartition(".")
        weight = checkpoint.weights.get(stem)
        if weight is None:
            states[name] = tensor
            continue
        is_whole = tensor.shape == weight.shape
        for new, part in _translated(stem, tensor if is_whole else weight, groups, each, renamed):
            states[f"{new}.{moment}"] = part if is_whole else tensor
    return states


def _attention(checkpoint: Checkpoint, partner: Checkpoint) -> tuple[int, int]:
    """How many groups of heads share a key, and how many queries each has."""
    settings = {**partner.settings, **{key: value for key, value in checkpoint.settings.items() if value is not None}}
    heads = settings.get("num_attention_heads")
    if type(heads) is not int or heads < 1:
        raise InvalidInputError(said("num-attention-heads-missing", checkpoint.path, partner.path))
    content = settings.get("num_query_groups") if settings.get("group_query_attention", True) else None
    groups = partner.settings.get("num_key_value_heads", content)
    groups = groups if type(groups) is int and groups > 0 and heads % groups == 0 else heads
    return groups, heads // groups


def _translated(name: str, tensor: CheckpointTensor, groups: int, each: int, renamed: Names) -> list[tuple[str, Any]]:
    if name in _HF_TOP:
        return [(_HF_TOP[name], tensor)]
    if not name.startswith("decoder.layers."):
        return [(name, tensor)]
    name = "model.layers." + name.removeprefix("decoder.layers.")
    if ".self_attention.linear_qkv." in name:
        return _query_key_value(name, tensor, groups, each)
    for old, new in renamed:
        name = name.replace(old, new)
    if ".linear_fc1." in name and tensor.shape and tensor.shape[0] % 2 == 0:
        half = tensor.shape[0] // 2
        shape = (half, *tensor.shape[1:])
        return [
            (name.replace(".linear_fc1.", f".{word}."), TensorSlice(shape, tensor.dtype, tensor, begin, half))
            for word, begin in (("gate_proj", 0), ("up_proj", half))
        ]
    return [(name, tensor)]


def _query_key_value(name: str, tensor: CheckpointTensor, groups: int, each: int) -> list[tuple[str, Any]]:
    rows = tensor.shape[0]
    wide, rest = divmod(rows, groups * (each + 2))
    if rest:
        raise InvalidInputError(said("qkv-rows-do-not-fit", name, rows, groups, each))
    seen = (groups, (each + 2) * wide, *tensor.shape[1:])
    pieces = []
    for word, begin, end in (("q", 0, each), ("k", each, each + 1), ("v", each + 1, each + 2)):
        shape = (groups * (end - begin) * wide, *tensor.shape[1:])
        part = QkvRows(shape, tensor.dtype, tensor, seen, begin * wide, end * wide)
        pieces.append((name.replace("self_attention.linear_qkv.", f"self_attn.{word}_proj."), part))
    return pieces
