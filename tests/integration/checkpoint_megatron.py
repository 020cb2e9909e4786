"""Two gloo ranks that save a small GPT with Megatron's core: `checkpoint_megatron.py FOLDER LAYOUT...`.

LAYOUT: `KIND-tp1`, `KIND-tp2`, `KIND-pp2` or `KIND-ep2`; KIND: "dense" (tied embeddings, gated MLPs, groups of
queries), "experts" (a mixture of experts, with a shared one), "latent" (multi-latent attention, and an optimizer that
is not distributed, as the others' are). All layouts of a kind have the weights of the first one, which
Megatron itself loads into them, and take two steps with gradients that are elements of the weights, so that their
moments are the same, too. FOLDER/LAYOUT has `dist` (torch_dist), and `legacy` (the older format, mp_rank folders).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from on_host import OnHost

SIZES = {"num_layers": 4, "hidden_size": 16, "ffn_hidden_size": 24, "num_attention_heads": 4, "num_query_groups": 2}
VOCABULARY = 32
LATENT = {
    "multi_latent_attention": True, "q_lora_rank": 12, "kv_lora_rank": 8, "qk_head_dim": 4, "qk_pos_emb_head_dim": 4,
    "v_head_dim": 4, "num_query_groups": 4, "rope_type": "rope",
}  # fmt: skip
EXPERTS = {
    "num_moe_experts": 4, "moe_router_topk": 2, "add_bias_linear": False, "moe_ffn_hidden_size": 24,
    "moe_shared_expert_intermediate_size": 8,
}  # fmt: skip
MORE: dict[str, dict[str, Any]] = {"latent": LATENT, "experts": EXPERTS}


def main() -> None:
    dist.init_process_group("gloo")
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value]
    torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]
    OnHost().__enter__()
    first: dict[str, Path] = {}
    for case in sys.argv[2:]:
        kind, layout = case.split("-")
        folder = Path(sys.argv[1]) / case
        run(folder, kind, layout, first.get(kind))
        first.setdefault(kind, folder / "dist")


def run(folder: Path, kind: str, layout: str, earlier: Path | None) -> None:
    from megatron.core import dist_checkpointing, parallel_state  # type: ignore[import-not-found]

    sizes = {f"{word}_model_parallel_size": 2 if layout == f"{short}2" else 1 for word, short in WORDS.items()}
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(**sizes, create_gloo_process_groups=True)
    more = MORE.get(kind, {})
    args = argparse.Namespace(**{**SIZES, **sizes, **more}, swiglu=True, num_experts=more.get("num_moe_experts"))
    model = build(kind, sizes)
    if earlier is not None:
        weights = {"model": model.sharded_state_dict(metadata=dict(METADATA))}
        model.load_state_dict(dist_checkpointing.load(weights, str(earlier / "iter_0000000"))["model"])
    else:
        save(folder / "dist" / "iter_0000000", 0, args, model, None)
    wrapped, optimizer = trained(model, is_distributed=kind != "latent")
    for _ in range(2):
        for parameter in wrapped.parameters():
            parameter.main_grad.copy_(parameter.detach())
        optimizer.step()
    save(folder / "dist" / "iter_0000002", 2, args, model, optimizer)
    save_legacy(folder / "legacy", args, model, optimizer, parallel_state, kind)
    for one in ("dist", "legacy"):
        (folder / one / "latest_checkpointed_iteration.txt").write_text("2")
    dist.barrier()


WORDS = {"tensor": "tp", "pipeline": "pp", "expert": "ep"}
METADATA: dict[str, Any] = {"distrib_optim_sharding_type": "fully_reshardable"}


def build(kind: str, sizes: dict[str, int]) -> Any:
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel  # type: ignore[import-not-found]
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # type: ignore[import-not-found]
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig, multi_latent_attention  # type: ignore[import-not-found]
    from megatron.core.transformer.identity_op import IdentityOp  # type: ignore[import-not-found]

    is_latent, more = kind == "latent", MORE.get(kind, {})
    config = (MLATransformerConfig if is_latent else TransformerConfig)(
        **{**SIZES, **sizes, **more}, use_cpu_initialization=True, gated_linear_unit=True, hidden_dropout=0.0,
        activation_func=torch.nn.functional.silu, attention_dropout=0.0, pipeline_dtype=torch.float32,
        bias_dropout_fusion=False, gradient_accumulation_fusion=False,
    )  # fmt: skip
    torch.manual_seed(7)
    layers = get_gpt_layer_local_spec(num_experts=more.get("num_moe_experts"), multi_latent_attention=is_latent)
    # Latent attention is made for the layers of TransformerEngine; nothing is computed here.
    multi_latent_attention.TELinear = type("TELinear", (), {})
    layers.submodules.self_attention.submodules.core_attention = IdentityOp
    model = GPTModel(
        config,
        layers,
        VOCABULARY,
        8,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=kind == "dense",
        position_embedding_type="rope",
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.linspace(0.1, 0.2, parameter.numel()))
    return model


def trained(model: Any, is_distributed: bool) -> tuple[Any, Any]:
    from megatron.core.distributed import (  # type: ignore[import-not-found]
        DistributedDataParallel,
        DistributedDataParallelConfig,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # type: ignore[import-not-found]

    wrapped = DistributedDataParallel(
        model.config, DistributedDataParallelConfig(use_distributed_optimizer=is_distributed), model
    )
    settings = OptimizerConfig(
        optimizer="adam", lr=0.01, params_dtype=torch.float32, use_distributed_optimizer=is_distributed, clip_grad=0.0
    )
    return wrapped, get_megatron_optimizer(settings, [wrapped])


def save(folder: Path, iteration: int, args: argparse.Namespace, model: Any, optimizer: Any) -> None:
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing import ShardedObject  # type: ignore[import-not-found]

    folder.mkdir(parents=True, exist_ok=True)
    weights = model.sharded_state_dict(metadata=dict(METADATA))
    state = {"args": args, "iteration": iteration, "checkpoint_version": 3.0, "model": weights}
    torch.manual_seed(0)
    of_rank = [{"torch_rng_state": torch.get_rng_state()}]
    sizes = args.pipeline_model_parallel_size, args.tensor_model_parallel_size
    place = parallel_state.get_pipeline_model_parallel_rank(), parallel_state.get_tensor_model_parallel_rank()
    copy = parallel_state.get_data_parallel_rank(with_context_parallel=True)
    state["rng_state"] = ShardedObject("rng_state", of_rank, sizes, place, replica_id=copy)
    if optimizer is not None:
        state["optimizer"] = optimizer.sharded_state_dict(dict(state), is_loading=False, metadata=dict(METADATA))
    dist_checkpointing.save(state, str(folder), content_metadata=METADATA)


def save_legacy(folder: Path, args: argparse.Namespace, model: Any, optimizer: Any, ranks: Any, kind: str) -> None:
    t, p = ranks.get_tensor_model_parallel_rank(), ranks.get_pipeline_model_parallel_rank()
    e = ranks.get_expert_model_parallel_rank()
    name = f"mp_rank_{t:02d}" + (f"_{p:03d}" if args.pipeline_model_parallel_size > 1 else "")
    name += f"_{e:03d}" if args.expert_model_parallel_size > 1 else ""
    place = folder / "iter_0000002" / name
    place.mkdir(parents=True, exist_ok=True)
    state = {"args": args, "iteration": 2, "checkpoint_version": 3.0, "model": model.state_dict_for_save_checkpoint()}
    state["optimizer"] = optimizer.state_dict()
    if kind != "latent":
        optimizer.save_parameter_state(str(place / "distrib_optim.pt"))
    if 0 in (ranks.get_data_parallel_rank(), ranks.get_expert_data_parallel_rank() if kind == "experts" else 1):
        torch.save(state, place / "model_optim_rng.pt")


if __name__ == "__main__":
    main()
