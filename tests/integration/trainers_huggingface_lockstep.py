"""Trains tiny models with the Trainer of Hugging Face, to be run against themselves: accumulated gradients, clipping,
an evaluation, recomputed layers, autocast.

Arguments: the way, then the bugs that it has.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from trainers_data import Rows
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)

WAY, BUGS = sys.argv[1], sys.argv[2:]


def new_model() -> Any:
    set_seed(3)
    if WAY == "llama":
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=16, bos_token_id=1, eos_token_id=2,
            )
        )  # fmt: skip
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=32, n_positions=16, n_embd=8, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2, pad_token_id=0
        )
    )


class Wrong(Trainer):  # type: ignore[misc]
    """A loss that is a tenth too large."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        """The loss."""
        loss = super().compute_loss(*args, **kwargs)
        return loss * 1.1 if "loss" in BUGS else loss


def main() -> None:
    """Three steps."""
    model = new_model()
    if "act" in BUGS:
        for module in model.modules():
            if hasattr(module, "act_fn"):
                module.act_fn = torch.nn.GELU() if WAY == "llama" else torch.nn.SiLU()
            elif hasattr(module, "act"):
                module.act = torch.nn.SiLU()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=3,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            max_grad_norm=0.5,
            learning_rate=2e-3 if "lr" in BUGS else 1e-3,
            eval_strategy="steps",
            eval_steps=2,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=WAY == "autocast",
            gradient_checkpointing=WAY == "recomputed",
            disable_tqdm=True,
            logging_steps=1,
            seed=3,
        )
        rows = torch.utils.data.Subset(Rows(), range(2))
        Wrong(model=model, args=arguments, train_dataset=Rows(), eval_dataset=rows).train()


main()
