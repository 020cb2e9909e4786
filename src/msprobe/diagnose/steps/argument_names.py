"""The arguments of calls: their plain values, and what those are called that are given by their position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose.steps.timeline import Event, is_tensor


def _table(rows: dict[str, str]) -> dict[str, list[str]]:
    return {name: words.split() for name, words in rows.items()}


#: Of torch.nn.functional: those written in Python as their signatures have it (torch 2.13), the others by its pages.
_NAMES = _table(
    {
        "adaptive_avg_pool2d": "input output_size",
        "adaptive_avg_pool3d": "input output_size",
        "alpha_dropout": "input p training inplace",
        "batch_norm": "input running_mean running_var weight bias training momentum eps",
        "binary_cross_entropy": "input target weight size_average reduce reduction",
        "binary_cross_entropy_with_logits": "input target weight size_average reduce reduction pos_weight",
        "celu": "input alpha inplace",
        "cosine_embedding_loss": "input1 input2 target margin size_average reduce reduction",
        "cross_entropy": "input target weight size_average ignore_index reduce reduction label_smoothing",
        "ctc_loss": "log_probs targets input_lengths target_lengths blank reduction zero_infinity",
        "dropout": "input p training inplace",
        "dropout1d": "input p training inplace",
        "dropout2d": "input p training inplace",
        "dropout3d": "input p training inplace",
        "elu": "input alpha inplace",
        "embedding": "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse",
        "embedding_bag": "input weight offsets max_norm norm_type scale_grad_by_freq mode sparse",
        "feature_alpha_dropout": "input p training inplace",
        "fold": "input output_size kernel_size dilation padding stride",
        "gaussian_nll_loss": "input target var full eps reduction",
        "glu": "input dim",
        "group_norm": "input num_groups weight bias eps",
        "grouped_mm": "mat_a mat_b",
        "gumbel_softmax": "logits tau hard eps dim",
        "hardsigmoid": "input inplace",
        "hardswish": "input inplace",
        "hardtanh": "input min_val max_val inplace",
        "hinge_embedding_loss": "input target margin size_average reduce reduction",
        "huber_loss": "input target reduction delta weight",
        "instance_norm": "input running_mean running_var weight bias use_input_stats momentum eps",
        "kl_div": "input target size_average reduce reduction log_target",
        "l1_loss": "input target size_average reduce reduction weight",
        "layer_norm": "input normalized_shape weight bias eps",
        "leaky_relu": "input negative_slope inplace",
        "linear_cross_entropy": "input linear_weight target",
        "local_response_norm": "input size alpha beta k",
        "log_softmax": "input dim _stacklevel dtype",
        "margin_ranking_loss": "input1 input2 target margin size_average reduce reduction",
        "mish": "input inplace",
        "mse_loss": "input target size_average reduce reduction weight",
        "multi_head_attention_forward": "query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias "
        "bias_k bias_v add_zero_attn dropout_p out_proj_weight out_proj_bias training",
        "multi_margin_loss": "input target p margin weight size_average reduce reduction",
        "multilabel_margin_loss": "input target size_average reduce reduction",
        "multilabel_soft_margin_loss": "input target weight size_average reduce reduction",
        "nll_loss": "input target weight size_average ignore_index reduce reduction",
        "normalize": "input p dim eps out",
        "pad": "input pad mode value",
        "poisson_nll_loss": "input target log_input full size_average eps reduce reduction",
        "relu": "input inplace",
        "relu6": "input inplace",
        "rms_norm": "input normalized_shape weight eps",
        "rrelu": "input lower upper training inplace",
        "selu": "input inplace",
        "silu": "input inplace",
        "smooth_l1_loss": "input target size_average reduce reduction beta",
        "soft_margin_loss": "input target size_average reduce reduction",
        "softmax": "input dim _stacklevel dtype",
        "softmin": "input dim _stacklevel dtype",
        "threshold": "input threshold value inplace",
        "triplet_margin_loss": "anchor positive negative margin p eps swap size_average reduce reduction",
        "triplet_margin_with_distance_loss": "anchor positive negative",
        "unfold": "input kernel_size dilation padding stride",
        "upsample_bilinear": "input size scale_factor",
        "upsample_nearest": "input size scale_factor",
        "avg_pool2d": "input kernel_size stride padding ceil_mode count_include_pad",
        "conv1d": "input weight bias stride padding dilation groups",
        "conv2d": "input weight bias stride padding dilation groups",
        "conv3d": "input weight bias stride padding dilation groups",
        "max_pool2d": "input kernel_size stride padding dilation ceil_mode return_indices",
        "scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal",
        "softplus": "input beta threshold",
    }
)
#: Of the framework itself, which takes some of them in another order; methods have the tensor before them.
_BARE_NAMES = _table(
    {
        "addmm": "input mat1 mat2",
        "amax": "input dim keepdim",
        "amin": "input dim keepdim",
        "argmax": "input dim keepdim",
        "batch_norm": "input weight bias running_mean running_var training momentum eps cudnn_enabled",
        "clamp": "input min max",
        "cumsum": "input dim",
        "dropout": "input p train",
        "group_norm": "input num_groups weight bias eps cudnn_enabled",
        "instance_norm": "input weight bias running_mean running_var use_input_stats momentum eps cudnn_enabled",
        "layer_norm": "input normalized_shape weight bias eps cudnn_enable",
        "lerp": "input end weight",
        "log_softmax": "input dim dtype",
        "masked_fill": "input mask value",
        "mean": "input dim keepdim",
        "pow": "input exponent",
        "rms_norm": "input normalized_shape weight eps",
        "softmax": "input dim dtype",
        "sum": "input dim keepdim",
        "topk": "input k dim largest sorted",
        "transpose": "input dim0 dim1",
        "tril": "input diagonal",
        "triu": "input diagonal",
    }
)
# Functions of MindSpore are called so, too, and most take what those of the framework itself take.
_TABLES = {"Functional": {**_BARE_NAMES, **_NAMES}, "Torch": _BARE_NAMES, "Tensor": _BARE_NAMES, "VF": _BARE_NAMES}


def argument_word(event: Event, slot: str) -> str:
    """What an argument that is given by its position is called: ``eps``; empty where that is not known."""
    head, _, number = slot.partition(".")
    # Of calls that are known by the word of another (bmm, mm: matmul) the arguments may be others.
    word = event.stem.rpartition(".")[2].rstrip("_")
    names = _TABLES.get(event.parts.owner, {}).get(word, []) if word == operation(event.stem) else []
    return names[int(number)] if head == "input" and number.isdigit() and int(number) < len(names) else ""


def argument_name(event: Event, slot: str) -> str:
    """The slot with what it is called: ``input.4 (eps)``; the slot alone where that is not known."""
    word = argument_word(event, slot)
    return f"{slot} ({word})" if word else slot


def argument_given(key: str, word: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The argument of this word, by whatever way it was given to a call of ``Functional.leaky_relu``; None where it was
    not, or its place is not known.
    """
    if word in kwargs:
        return kwargs[word]
    names = _TABLES.get(key.partition(".")[0], {}).get(key.rpartition(".")[2], [])
    place = names.index(word) if word in names else len(args)
    return args[place] if place < len(args) else None


def argument(event: Event, position: int, keyword: str) -> Any:
    """The plain value of an argument, by keyword or position (a method's tensor is position 0); None without it."""
    slots = dict(event.inputs())
    slot = slots.get(f"input.{keyword}", slots.get(f"input.{position}"))
    return slot["value"] if isinstance(slot, dict) and "value" in slot and not is_tensor(slot) else slot
