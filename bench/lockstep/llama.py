"""A small Llama of Hugging Face with random weights: the training that the README runs in lockstep.

    msprobe run --config bench/lockstep/llama.json -- bench/lockstep/llama.py
    msprobe lockstep dump -o out -- bench/lockstep/llama.py norm rope decay

Each word plants a bug: ``norm`` another epsilon in one norm, ``rope`` position frequencies that were rounded to
bfloat16, ``decay`` weight decay that is ten times as large.
"""

from __future__ import annotations

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

STEPS, BATCH, LENGTH = 2, 2, 16


def main(bugs: list[str]) -> None:
    """Train; ``bugs``: which are planted."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            use_cache=False,
        )
    )
    if "norm" in bugs:
        model.model.layers[1].post_attention_layernorm.variance_epsilon = 1e-3
    if "rope" in bugs:
        rotary = model.model.rotary_emb
        rotary.inv_freq = rotary.inv_freq.bfloat16().float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1 if "decay" in bugs else 0.01)
    for _ in range(STEPS):
        tokens = torch.randint(0, 64, (BATCH, LENGTH))
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1:])
