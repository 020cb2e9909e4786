"""Models of the `transformers` library with random weights and tiny shapes; nothing is downloaded.

The library is imported inside the builders: it takes seconds, and most tests do not need it.
"""

from __future__ import annotations

import torch
from torch import nn

from .case import LossAndResults, TrainingCase, architecture, supervised
from .recurrent import sequences


def language_loss(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> LossAndResults:
    out = model(input_ids=tokens, labels=targets.contiguous())
    return out.loss, {"logits": out.logits}


@architecture()
def hf_llama() -> TrainingCase:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=17,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
        tie_word_embeddings=True,
    )
    return supervised(LlamaForCausalLM(config).train(), sequences, language_loss, clip=1.0)


@architecture()
def hf_t5() -> TrainingCase:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=17, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_heads=4, decoder_start_token_id=0)
    return supervised(T5ForConditionalGeneration(config).train(), sequences, language_loss)


@architecture()
def hf_mixtral_checkpointing() -> TrainingCase:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=17,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        max_position_embeddings=16,
        output_router_logits=True,
    )
    model = MixtralForCausalLM(config).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return supervised(model, sequences, language_loss)
