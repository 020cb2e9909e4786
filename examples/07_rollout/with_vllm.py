"""A real engine and a trainer's model that differ in one setting. Needs vLLM (the CPU build will do).

python with_vllm.py [FOLDER]    writes FOLDER/engine-model, FOLDER/trainer-model and the recording FOLDER/rollout
msprobe rollout FOLDER/rollout/step0 --trainer FOLDER/trainer-model
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from vllm import LLM, SamplingParams

from msprobe.integrations.vllm import WORKER, recording


def main() -> None:
    """Make both models, generate, record."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "output")
    torch.manual_seed(1)
    settings = LlamaConfig(
        hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=256, max_position_embeddings=256, rms_norm_eps=1e-5,
    )  # fmt: skip
    engine, trainer = folder / "engine-model", folder / "trainer-model"
    AutoModelForCausalLM.from_config(settings).save_pretrained(engine)
    # The mistake: the trainer was converted with a different epsilon.
    shutil.copytree(engine, trainer, dirs_exist_ok=True)
    config = json.loads((trainer / "config.json").read_text()) | {"rms_norm_eps": 1e-3}
    (trainer / "config.json").write_text(json.dumps(config))
    llm = LLM(
        str(engine), skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=128,
        worker_extension_cls=WORKER,
    )  # fmt: skip
    prompts = [{"prompt_token_ids": list(range(3, 19))}, {"prompt_token_ids": list(range(40, 50))}]
    with recording(llm, dump_path=str(folder / "rollout"), task="tensor", level="L0", record_root=True):
        llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=16, logprobs=0, detokenize=False))


if __name__ == "__main__":
    main()
