"""Which names of settings mean the same thing in Megatron, DeepSpeed, Hugging Face, accelerate, MindFormers, Lightning.

Two names are the same where their words are (``hidden-size``, ``hidden_size``), or where one row of ``GROUPS`` has
both. Parts before the last dot count unless they only say where settings are kept (``optimizer.params.lr`` is ``lr``;
``critic.optim.lr`` is not ``actor.optim.lr``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

#: A row for each thing: its canonical name, and others. The first row with a name of either side counts, so rows go
#: from the special to the general. The rows of mindstudio-probe 8.1.1 and 26.2 are among them.
GROUPS: dict[str, str] = {
    "micro_batch_size": "mbs per_device_train_batch_size train_micro_batch_size_per_gpu per_gpu_train_batch_size "
    "batch_size_per_gpu batch_size_per_device device_batch_size",
    "global_batch_size": "gbs train_batch_size train_global_batch_size",
    "batch_size": "batch bs batch_size_per_gpu",
    "gradient_accumulation_steps": "grad_accum_steps accumulate_grad_batches accumulation_steps "
    "gradient_accumulation grad_accumulation_steps",
    "learning_rate": "lr learningrate base_lr base_learning_rate",
    "min_lr": "eta_min lr_end min_learning_rate",
    "weight_decay": "wd weightdecay",
    "clip_grad": "gradient_clipping max_grad_norm gradient_clip_val clip_grad_norm grad_clip",
    "adam_beta1": "beta1",
    "adam_beta2": "beta2",
    "adam_epsilon": "adam_eps optimizer.eps optimizer.params.eps optim.eps",
    "optimizer": "optim optimizer_type optimizer.type optimizer_name",
    "lr_decay_style": "lr_scheduler_type lr_scheduler scheduler.type lr_schedule.type",
    "lr_warmup_iters": "warmup_steps num_warmup_steps warmup_num_steps warmup_iters lr_warmup_steps",
    "lr_warmup_fraction": "warmup_ratio lr_warmup_steps_ratio",
    "train_iters": "max_steps max_iters total_steps train_steps num_train_steps max_train_steps",
    "epochs": "num_epochs max_epochs epoch num_train_epochs total_epochs",
    "seed": "random_seed manual_seed",
    "dropout_rate": "dropout drop_rate",
    "attention_dropout": "attention_dropout_rate attn_pdrop attn_dropout attention_probs_dropout_prob",
    "hidden_dropout": "hidden_dropout_rate resid_pdrop hidden_dropout_prob",
    "init_method_std": "initializer_range init_std",
    "hidden_size": "n_embd d_model hidden_dim embed_dim",
    "num_layers": "num_hidden_layers n_layer n_layers",
    "num_attention_heads": "n_head n_heads num_heads",
    "num_query_groups": "num_key_value_heads n_kv_heads num_kv_heads",
    "ffn_hidden_size": "intermediate_size ffn_dim",
    "norm_epsilon": "rms_norm_eps layernorm_epsilon layer_norm_eps layer_norm_epsilon norm_eps",
    "rotary_base": "rope_theta",
    "num_experts": "n_routed_experts num_local_experts expert_num",
    "moe_router_topk": "num_experts_per_tok num_experts_chosen",
    "seq_length": "seq_len max_seq_length max_seq_len sequence_length cutoff_len",
    "bf16": "bf16.enabled use_bf16 bfloat16.enabled",
    "fp16": "fp16.enabled use_fp16",
    "compute_dtype": "dtype torch_dtype params_dtype mixed_precision precision",
    "residual_dtype": "fp32_residual_connection",
    "softmax_compute_dtype": "attention_softmax_in_fp32",
    "label_smoothing": "label_smoothing_factor",
    "lora_rank": "lora_r",
    "tensor_model_parallel_size": "tensor_parallel_size tp_size tp",
    "pipeline_model_parallel_size": "pipeline_parallel_size pipeline_stage pp_size pp",
    "context_parallel_size": "cp_size cp",
    "expert_model_parallel_size": "expert_parallel_size expert_parallel ep_size ep",
    "zero_stage": "zero_optimization.stage",
    "nproc_per_node": "num_gpus local_worker_num nproc_per_machine",
    "nnodes": "num_nodes num_machines",
    "worker_num": "num_processes",
    "num_workers": "dataloader_num_workers num_parallel_workers",
    "log_interval": "logging_steps steps_per_print log_every_n_steps",
    "save_interval": "save_steps save_freq",
    "eval_interval": "eval_steps test_freq",
    "model_name_or_path": "model_name model_path pretrained_model_name_or_path",
    "tokenizer_name_or_path": "tokenizer_name tokenizer_path",
}
#: Parts of a name that only say where a setting is kept.
_CONTAINERS = frozenset(
    "optimizer optim params scheduler lr_schedule training train trainer training_args training_arguments args "
    "arguments config cfg model model_config model_args hparams hyperparameters hyper_parameters runner_config "
    "parallel parallel_config network kwargs settings common defaults".split()
)
#: Last parts that mean nothing without the one before.
_EMPTY_WORDS = frozenset(
    "type name enabled enable path value mode class device steps size params dtype stage ratio eps dir file n".split()
)
_BETAS = re.compile(r"(?:(.*)\.)?(?:adam_)?betas")
#: Words of which two names that mean the same cannot have different ones, however alike they look.
_OPPOSITES = (
    frozenset({"min", "max"}),
    frozenset({"train", "eval", "valid", "val", "test"}),
    frozenset({"bf16", "fp16", "fp32", "fp8", "fp64", "tf32", "int8", "int4"}),
    frozenset({"attention", "hidden", "embedding", "ffn", "router", "expert"}),
    frozenset({"load", "save", "log", "eval"}),
    frozenset({"start", "end", "first", "last", "begin"}),
    frozenset({"encoder", "decoder"}),
    frozenset({"micro", "global"}),
    frozenset({"tensor", "pipeline", "context", "expert", "data", "sequence"}),
    frozenset({"actor", "critic", "ref", "rollout", "reward"}),
    frozenset({"height", "width"}),
    frozenset({"samples", "iters", "tokens", "steps", "epochs"}),
    frozenset({"q", "k", "v", "kv", "o", "qk"}),
    frozenset({"no", "disable", "use", "enable"}),
)


@dataclass(frozen=True)
class NameMeaning:
    """What a name means: the thing, and the parts before it that say which one."""

    thing: str
    of: tuple[str, ...]


@cache
def normal(name: str) -> str:
    """Lower case, with ``_`` between words."""
    return re.sub(r"[-\s]+", "_", name.strip().lstrip("+-")).lower()


@cache
def _groups() -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for canonical, others in GROUPS.items():
        for name in (canonical, *others.split()):
            groups[name] = (*groups.get(name, ()), canonical)
    return groups


@cache
def plain_meaning(name: str) -> NameMeaning:
    """The meaning by the words of the name alone."""
    parts = normal(name).split(".")
    own = 2 if len(parts) > 1 and parts[-1] in _EMPTY_WORDS else 1
    return NameMeaning(".".join(parts[-own:]), _prefix(parts[:-own]))


@cache
def group_meanings(name: str) -> tuple[NameMeaning, ...]:
    """The meanings by ``GROUPS``; none if no row has the name."""
    parts = normal(name).split(".")
    meanings = []
    for own in range(min(3, len(parts)), 0, -1):
        for group in _groups().get(".".join(parts[-own:]), ()):
            meanings.append(NameMeaning(group, _prefix(parts[:-own])))
        if meanings:
            break
    return tuple(meanings)


def _prefix(parts: list[str]) -> tuple[str, ...]:
    return tuple(part for part in parts if part not in _CONTAINERS)


def betas_of(name: str) -> tuple[str, str] | None:
    """The names of both values, for a list of Adam's betas."""
    match = _BETAS.fullmatch(normal(name))
    if match is None:
        return None
    before = f"{match[1]}." if match[1] else ""
    return f"{before}adam_beta1", f"{before}adam_beta2"


def may_be_same(name: str, two: str) -> bool:
    """False if the names say different things although they look alike: other numbers in them, or opposite words."""
    first, second = normal(name), normal(two)
    if re.findall(r"\d+", first) != re.findall(r"\d+", second):
        return False
    words, others = (set(re.split(r"[._]", name)) for name in (first, second))
    left, right = words - others, others - words
    return not any(left & opposites and right & opposites for opposites in _OPPOSITES) and not (
        {"no", "disable"} & (left ^ right)
    )
