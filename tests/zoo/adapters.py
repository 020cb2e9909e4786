"""Low-rank adapters of the `peft` library on tiny language models with random weights: what fine-tuning does today.

The libraries are imported inside the builders: they take seconds, and most tests do not need them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised
from .hugging_face import language_loss
from .recurrent import sequences


def tiny_llama(**settings: Any) -> nn.Module:
    """A Llama with one layer of width 16, in training mode."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=17,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
        **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, **settings},
    )
    return LlamaForCausalLM(config).train()


def adapted(**settings: Any) -> nn.Module:
    """The tiny Llama with an adapter on its query, value and gate layers; the rest is frozen."""
    base = tiny_llama()
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, lora_alpha=4, lora_dropout=0.1, target_modules=["q_proj", "v_proj", "gate_proj"])
    return get_peft_model(base, LoraConfig(**{**config.to_dict(), **settings}))


@architecture()
def peft_lora_checkpointing() -> TrainingCase:
    """Recomputation under frozen weights: a hook of the library makes the embedding's output require gradients."""
    model = adapted()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    return supervised(model, sequences, language_loss, clip=1.0)


@architecture()
def peft_adapters_merged_and_switched() -> TrainingCase:
    """Two adapters, one of them DoRA: merged into the weights, taken out again, switched, disabled, between
    passes of one region."""
    from peft import LoraConfig

    model = adapted()
    model.add_adapter("other", LoraConfig(r=2, target_modules=["q_proj"], use_dora=True))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)

    def run_step(i: int, region: Region) -> Results:
        tokens, targets = sequences(i)
        optimizer.zero_grad()
        region.begin(model)
        model.set_adapter(["default", "other"][i % 2])
        loss, results = language_loss(model, tokens, targets)
        with model.disable_adapter(), torch.no_grad():
            without = model(input_ids=tokens).logits
        loss.backward()
        optimizer.step()
        model.eval()
        model.merge_adapter()
        with torch.no_grad():
            merged = model(input_ids=tokens).logits
        model.unmerge_adapter()
        model.train()
        region.end()
        return {"loss": loss, **results, "without": without, "merged": merged}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def peft_direct_preference() -> TrainingCase:
    """Preference pairs: the reference is the same model without its adapter, passed before the policy's own
    pass."""
    model = adapted(lora_dropout=0.0)

    def log_probability(net: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        words = F.log_softmax(net(input_ids=tokens).logits.float(), dim=-1)
        return words.gather(-1, targets.unsqueeze(-1)).squeeze(-1).sum(-1)

    def loss_of(net: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> LossAndResults:
        with torch.no_grad(), model.disable_adapter():
            reference = log_probability(net, tokens, targets)
        policy = log_probability(net, tokens, targets)
        chosen, rejected = (policy - reference).chunk(2)
        return -F.logsigmoid(0.1 * (chosen - rejected)).mean(), {"policy": policy, "reference": reference}

    return supervised(model, lambda i: sequences(i, count=4), loss_of)
