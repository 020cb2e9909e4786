"""Models of Transformers as networks of the bench, small and with random weights: what users train.

Their optimizers run over lists, as they do on accelerators; dropout draws the same numbers on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_SIZES = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 50,
    "max_position_embeddings": 32,
}
_PICTURES = {"image_size": 24, "patch_size": 8, "num_labels": 10}


class Library(nn.Module):
    """A model of Transformers that gives the loss of tokens, or of pictures and sounds that are drawn by these."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.kind = name
        self.model = _MODELS[name]()

    def forward(self, tokens: torch.Tensor) -> Any:
        seed = int(tokens.sum())
        with torch.no_grad():
            drawn = torch.Generator().manual_seed(seed)
            given = {name: value.to(self._dtype(value)) for name, value in self._given(tokens, drawn).items()}
        torch.manual_seed(seed)
        return self.model(**given).loss

    def _given(self, tokens: torch.Tensor, drawn: torch.Generator) -> dict[str, torch.Tensor]:
        count = len(tokens)
        if self.kind in ("pictures", "residual"):
            side = 24 if self.kind == "pictures" else 64
            return {"pixel_values": torch.randn(count, 3, side, side, generator=drawn), "labels": tokens[:, 0] % 10}
        if self.kind == "sounds":
            return {"input_features": torch.randn(count, 16, 48, generator=drawn), "labels": tokens}
        if self.kind == "classifier":
            return {"input_ids": tokens, "labels": tokens[:, 0] % 2}
        return {"input_ids": tokens, "labels": tokens}

    def _dtype(self, value: torch.Tensor) -> torch.dtype:
        return next(self.model.parameters()).dtype if value.is_floating_point() else value.dtype


def _qwen() -> Any:
    import transformers

    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**_SIZES, num_key_value_heads=4, head_dim=12))


def _gpt() -> Any:
    import transformers

    config = transformers.GPT2Config(
        n_embd=48, n_layer=2, n_head=4, vocab_size=50, n_positions=32, tie_word_embeddings=False
    )
    return transformers.GPT2LMHeadModel(config)


def _bert() -> Any:
    import transformers

    return transformers.BertForSequenceClassification(transformers.BertConfig(**_SIZES))


def _t5() -> Any:
    import transformers

    config = transformers.T5Config(
        d_model=48,
        d_ff=96,
        d_kv=12,
        num_layers=2,
        num_heads=4,
        vocab_size=50,
        decoder_start_token_id=0,
        tie_word_embeddings=False,
    )
    return transformers.T5ForConditionalGeneration(config)


def _mixtral() -> Any:
    import transformers

    config = transformers.MixtralConfig(**_SIZES, num_key_value_heads=4, num_local_experts=4)
    return transformers.MixtralForCausalLM(config)


def _vit() -> Any:
    import transformers

    sizes = {name: size for name, size in _SIZES.items() if name not in ("vocab_size", "max_position_embeddings")}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, **_PICTURES))


def _resnet() -> Any:
    import transformers

    config = transformers.ResNetConfig(embedding_size=16, hidden_sizes=[16, 24], depths=[1, 1], num_labels=10)
    return transformers.ResNetForImageClassification(config)


def _whisper() -> Any:
    import transformers

    config = transformers.WhisperConfig(
        d_model=48,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
        vocab_size=50,
        num_mel_bins=16,
        max_source_positions=24,
        max_target_positions=32,
        decoder_start_token_id=1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    return transformers.WhisperForConditionalGeneration(config)


#: By what they read; their families stand in the functions.
_MODELS: dict[str, Callable[[], Any]] = {
    "chat": _qwen,
    "writer": _gpt,
    "classifier": _bert,
    "summary": _t5,
    "mixture": _mixtral,
    "pictures": _vit,
    "residual": _resnet,
    "sounds": _whisper,
}

_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
#: As in :mod:`.faults`.
TABLE: dict[str, str] = {
    "chat": f"""
        mm scale 0.02 3   mm lost-terms 4   mm last-columns 3 5   rsqrt scale 0.01   mean scale 0.02 2   cos table 16
        silu scale 0.02   silu_backward no-slope 0   {_ATTENTION} scale 0.05 1   {_ATTENTION}_backward tile 6 -1 1
        _log_softmax offset 0.02   embedding_dense_backward lost-duplicates 0   mul scale 0.03 8
    """,
    "writer": """
        addmm scale 0.02 2   addmm lost-terms 8   addmm last-columns 4 1   mm tile 6 2   bmm scale 0.05 1   bmm head 0.1
        _softmax table 8   _softmax_backward_data scale 0.1   tanh table 8   pow scale 0.05 1
        native_layer_norm epsilon 0.1   native_layer_norm_backward no-means 0   embedding_dense_backward last-rows 20
    """,
    "classifier": """
        addmm scale 0.02 4   addmm stale 0.1   mm lost-terms 6   bmm last-rows 2 2   bmm narrow-sums 5   gelu table 8
        gelu_backward scale 0.05   tanh scale 0.03   native_layer_norm unbiased 0
        native_layer_norm_backward no-means 0   _softmax scale 0.03   nll_loss_forward scale 0.05   embedding scale 0.05
    """,
    "summary": """
        mm scale 0.02 6   mm swapped 4 2   mm stale 0.1   bmm scale 0.05 3   bmm lost-terms 2   rsqrt scale 0.02
        mean lost-terms 2   relu offset 0.02   threshold_backward scale 0.1   _softmax last-columns 1
        _log_softmax_backward_data no-means 0   embedding_dense_backward scale 0.05   add scale 0.03 5
    """,
    "mixture": f"""
        mm scale 0.02 9   mm last-rows 2   index last-rows 4 1   index_add scale 0.05   index_add lost-duplicates 0
        silu scale 0.05   silu_backward scale 0.05   _softmax scale 0.02 0   rsqrt scale 0.02 2
        {_ATTENTION} head 0.1   {_ATTENTION}_backward scale 0.05   mul scale 0.05 11
    """,
    "pictures": f"""
        convolution scale 0.02   convolution_backward scale 0.05 -1 1   addmm lost-terms 6   addmm scale 0.02 3
        gelu scale 0.02   gelu_backward no-slope 0   native_layer_norm scale 0.01 2
        native_layer_norm_backward scale 0.1 -1 1   {_ATTENTION} scale 0.03   {_ATTENTION} last-rows 1
        cat last-rows 2   mm tile 6 3   nll_loss_forward scale 0.05
    """,
    "residual": """
        convolution scale 0.02 1   convolution lost-terms 9   convolution tile 6 3
        convolution_backward last-rows 3 -1 1   convolution_backward scale 0.1 2
        native_batch_norm epsilon 0.1   native_batch_norm scale 0.02 2   native_batch_norm_backward no-means 0
        relu offset 0.05   threshold_backward scale 0.1   max_pool2d_with_indices last-columns 1
        mean scale 0.03   addmm scale 0.03
    """,
    "sounds": f"""
        convolution scale 0.02   convolution last-columns 2 1   gelu scale 0.03 1   gelu_backward scale 0.05
        addmm lost-terms 8   addmm scale 0.02 5   mm swapped 4 4   native_layer_norm scale 0.02
        {_ATTENTION} scale 0.05 2   {_ATTENTION}_backward scale 0.1   _log_softmax scale 0.02   mul scale 0.03 3
    """,
}
