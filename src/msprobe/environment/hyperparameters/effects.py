"""What a setting changes: the numbers of a training, its rounding, its speed, or what it writes."""

from __future__ import annotations

import os
import re
from typing import Any, Literal

from msprobe.environment.hyperparameters.names import group_meanings, normal

Effect = Literal["first step", "later steps", "unknown", "rounding", "speed", "output"]
#: From what matters most to what matters least: numbers from the first step on, numbers once weights are updated, what
#: is not known, the last digits, how long it takes, what is logged, saved and where.
EFFECTS: tuple[Effect, ...] = ("first step", "later steps", "unknown", "rounding", "speed", "output")

_GROUPS: dict[str, Effect] = {
    **dict.fromkeys(
        "seed dropout_rate attention_dropout hidden_dropout init_method_std hidden_size num_layers num_attention_heads "
        "num_query_groups ffn_hidden_size norm_epsilon rotary_base num_experts moe_router_topk seq_length bf16 fp16 "
        "compute_dtype residual_dtype softmax_compute_dtype label_smoothing lora_rank micro_batch_size batch_size "
        "model_name_or_path tokenizer_name_or_path".split(),
        "first step",
    ),
    **dict.fromkeys(
        "global_batch_size gradient_accumulation_steps learning_rate min_lr weight_decay clip_grad "
        "adam_beta1 adam_beta2 adam_epsilon optimizer lr_decay_style lr_warmup_iters lr_warmup_fraction train_iters "
        "epochs".split(),
        "later steps",
    ),
    **dict.fromkeys(
        "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size expert_model_parallel_size "
        "zero_stage nproc_per_node nnodes worker_num".split(),
        "rounding",
    ),
    "num_workers": "speed",
    "log_interval": "output",
    "save_interval": "output",
    "eval_interval": "output",
}
#: Words of a name, the first row that has one counts.
_WORDS: tuple[tuple[Effect, frozenset[str]], ...] = (
    (
        "first step",
        frozenset(
            "seed dropout dtype precision init initializer shuffle tokenizer vocab dataset data datasets split "
            "deterministic rope rotary norm normalization activation swiglu bias tie untie embeddings mask padding "
            "packing truncation template moe router expert experts topk lora alpha quantization fp8 tf32 "
            "temperature kl reward loss".split()
        ),
    ),
    (
        "output",
        frozenset(
            "log logs logging logger tensorboard wandb swanlab mlflow comet print verbose report timers profile "
            "profiler profiling monitor project experiment run job output outputs plot debug save saving eval "
            "evaluation test valid addr address port host hostfile ip rdzv master name names time user hub push "
            "node_rank machine_rank telemetry progress".split()
        ),
    ),
    (
        "speed",
        frozenset(
            "workers worker prefetch pin pinned memory overlap async timeout bucket threads proc offload gc cache "
            "reuse connections buffsize blocking queue affinity prefetching allocator alloc conf".split()
        ),
    ),
    (
        "later steps",
        frozenset(
            "lr learning decay momentum beta beta1 beta2 betas eps epsilon clip clipping grad gradient optimizer optim "
            "warmup scheduler schedule ema accumulation batch steps iters epochs scale loss_scale hysteresis".split()
        ),
    ),
    (
        "rounding",
        frozenset(
            "parallel recompute checkpointing flash fused fusion zero shard sharding fsdp compile kernel kernels gemm "
            "distributed ddp sequence attn algo attention implementation impl deepspeed backend".split()
        ),
    ),
)


def effect_of(name: str, *values: Any) -> Effect:
    """What a setting of this name changes. ``values``: those of both sides; paths that end alike are places."""
    if len(values) > 1 and all(_is_path(value) for value in values) and _ends_alike(values):
        return "output"
    for meaning in group_meanings(name):
        return _GROUPS.get(meaning.thing, "unknown")
    words = set(re.split(r"[._]", normal(name)))
    if "rank" in words and words & {"node", "machine", "local"}:
        return "output"
    if {"checkpointing", "recompute"} & words:
        return "rounding"
    if "env" in words and {"timeout", "blocking"} & words:
        return "speed"
    return next((effect for effect, known in _WORDS if words & known), "unknown")


def names_place(value: Any) -> bool:
    """Whether a value reads as the path of a file or folder: ``/data/out``, ``run1.zip``; not ``1/3`` or ``0.5``."""
    if not isinstance(value, str) or any(sign in value for sign in " ,;=") or "://" in value:
        return False
    name = os.path.basename(value.rstrip("/"))
    return value.startswith(("/", "./", "../", "~/")) or bool(
        re.fullmatch(r"[\w.-]*[A-Za-z_][\w-]*\.[A-Za-z]\w{1,6}", name)
    )


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and "/" in value


def _ends_alike(values: tuple[Any, ...]) -> bool:
    return len({os.path.basename(value.rstrip("/")) for value in values}) == 1
