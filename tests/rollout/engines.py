"""Small models, engines that hold them, and what each records: for the bench of ``msprobe rollout``."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen3MoeConfig
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

from msprobe.integrations.vllm import WORKER, recording
from msprobe.pytorch import PrecisionDebugger

MODEL: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 256}
MODEL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
EXPERTS = {"head_dim": 32, "moe_intermediate_size": 32, "num_experts": 32, "num_experts_per_tok": 4}
EXPERTS |= {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_parameters": YARN}
#: Kind of engine -> configuration, what is different from MODEL, and options of the engine.
KINDS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "dense": (LlamaConfig, {}, {}),
    "cached": (LlamaConfig, {}, {"enable_prefix_caching": True, "max_num_batched_tokens": 32}),
    "experts": (Qwen3MoeConfig, EXPERTS, {}),
    "window": (MistralConfig, {"sliding_window": 8}, {}),
    "adapter": (LlamaConfig, {}, {"enable_lora": True, "max_lora_rank": 8, "max_loras": 1}),
}
_ADAPTED = {"self_attn.q_proj": 128, "self_attn.v_proj": 64, "mlp.down_proj": 128}

Modules = dict[str, Any]


def make_model(folder: Path, kind: str, dtype: torch.dtype, seed: int = 0, **changes: Any) -> Path:
    """A small random model with grouped heads, whose logits are spread as those of a trained one."""
    torch.manual_seed(seed)
    made, own, _ = KINDS[kind]
    model = AutoModelForCausalLM.from_config(made(**{**MODEL, **own, **changes}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Routers that are not sure, so that rounding turns some of their choices.
            times = 2 if name.endswith("mlp.gate.weight") else 8
            parameter.mul_(times) if parameter.dim() > 1 else parameter.add_(0.2 * torch.randn_like(parameter))
    model.to(dtype).save_pretrained(folder)
    return folder


def make_adapter(folder: Path, base: Path, dtype: torch.dtype, seed: int = 1, rank: int = 4) -> Path:
    """A LoRA adapter of some layers, as PEFT saves it; the engine has room for a larger rank."""
    torch.manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    weights = load_file(base / "model.safetensors")
    for name, one in weights.items():
        path = name.removesuffix(".weight")
        if path.partition("layers.")[2].partition(".")[2] in _ADAPTED:
            key = f"base_model.model.{path}"
            tensors[f"{key}.lora_A.weight"] = (torch.randn(rank, one.shape[1]) * 0.1).to(dtype)
            tensors[f"{key}.lora_B.weight"] = (torch.randn(one.shape[0], rank) * 0.1).to(dtype)
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank, "bias": "none"}
    settings |= {"target_modules": [one.rpartition(".")[2] for one in _ADAPTED], "lora_dropout": 0.0}
    settings |= {"base_model_name_or_path": str(base), "fan_in_fan_out": False, "inference_mode": True}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def prompts(count: int = 5, longest: int = 5, seed: int = 0) -> list[dict[str, Any]]:
    """Prompts of 3 to ``longest`` tokens."""
    made = torch.Generator().manual_seed(seed)
    size = MODEL["vocab_size"]
    lengths = [3 + place % max(1, longest - 2) for place in range(count)]
    return [{"prompt_token_ids": torch.randint(3, size, (one,), generator=made).tolist()} for one in lengths]


def sampling(tokens: int = 12, temperature: float = 0.0, **settings: Any) -> Any:
    """Settings of a generate that gives the log-probs of its tokens."""
    settings = {"logprobs": 0, "max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True, **settings}
    if temperature:
        settings.setdefault("seed", 3)
    return SamplingParams(temperature=temperature, detokenize=False, **settings)


class Engine:
    """One engine; each case is a recorded ``generate``, or a folder of a trainer."""

    def __init__(self, kind: str, dtype: str, folder: Path, seed: int = 0, **changes: Any) -> None:
        self.folder, self.dtype_name, self.dtype = folder, dtype, getattr(torch, dtype)
        self.model = make_model(folder / "model", kind, self.dtype, seed, **changes)
        self.lora: Any = None
        self.answers: list[Any] = []
        if kind == "adapter":
            self.adapter = make_adapter(folder / "adapter", self.model, self.dtype, seed + 1)
            self.lora = LoRARequest("adapter", 1, str(self.adapter))
        settings = {"enable_prefix_caching": False, "max_num_seqs": 8, "max_model_len": 128, "block_size": 32}
        self.llm = LLM(
            str(self.model),
            **{**settings, **KINDS[kind][2]},
            dtype=dtype,
            seed=0,
            skip_tokenizer_init=True,
            enforce_eager=True,
            worker_extension_cls=WORKER,
        )

    @property
    def trained(self) -> str:
        """The folder of the trainer that the engine should agree with."""
        return str(self.adapter if self.lora else self.model)

    def modules(self) -> Modules:
        """The engine's modules by path."""
        found: list[Modules] = self.llm.apply_model(lambda model: dict(model.named_modules()))
        return found[0]

    def generate(self, given: list[dict[str, Any]], settings: Any, lora: bool = True) -> list[Any]:
        """Answers."""
        options = {"lora_request": self.lora} if self.lora and lora else {}
        answers: list[Any] = self.llm.generate(given, settings, use_tqdm=False, **options)
        return answers

    def record(
        self, name: str, settings: Any, planted: Any = None, given: Any = None, lora: bool = True, **options: Any
    ) -> Path:
        """Record one ``generate``; the folder of its step."""
        out = self.folder / "rolls" / _plain(name)
        shutil.rmtree(out, ignore_errors=True)
        PrecisionDebugger.reset()
        self.llm.collective_rpc("msprobe_forget")
        how = {"dump_path": str(out), "task": "tensor", "level": "L0", "record_root": True, **options}
        with planted(self.modules()) if planted else nullcontext(), recording(self.llm, **how):
            self.answers = self.generate(prompts() if given is None else given, settings, lora)
        return out / "step0"

    def trainer(self, name: str, change: Callable[[Path], None]) -> str:
        """A copy of the trainer's folder with a change."""
        folder = self.folder / "trainers" / _plain(name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.trained, folder)
        change(folder)
        return str(folder)

    @contextmanager
    def processed(self) -> Iterator[None]:
        """The engine's log-probs are those after temperature, top-k and top-p."""
        sampler = self.llm.llm_engine.model_executor.driver_worker.worker.model_runner.sampler
        before = sampler.logprobs_mode
        sampler.logprobs_mode = sampler.topk_topp_sampler.logprobs_mode = "processed_logprobs"
        try:
            yield
        finally:
            sampler.logprobs_mode = sampler.topk_topp_sampler.logprobs_mode = before


def _plain(name: str) -> str:
    return name.replace(" ", "_").replace("%", "percent").replace("'", "")
