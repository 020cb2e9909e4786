from __future__ import annotations

import argparse
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import compared
from support.coded_texts import raising
from support.megatron_made import dense, save, shard, with_experts

from msprobe.environment.checkpoint.comparison import CheckpointComparison
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import said


def assert_same(found: CheckpointComparison, count: int) -> None:
    assert found.counts == {"equal": count}
    assert not found.replicas


@pytest.mark.parametrize(
    "layout",
    [
        {"tp": 2, "pp": 2, "vpp": 2},
        {"tp": 2, "style": "legacy"},
        {"tp": 2, "style": "te"},
        {"tp": 4, "pp": 4},
        {"pp": 2, "stages": [1, 3]},
        {"tp": 2, "pp": 3, "stages": [2, 1, 1]},
        {"tracker": "release"},
    ],
    ids=str,
)
def test_a_layout_holds_the_same_model_as_one_rank(tmp_path: Path, layout: dict[str, Any]) -> None:
    whole = save(tmp_path / "whole", dense())
    assert_same(compared(whole, save(tmp_path / "split", dense(), **layout)), 53)


@pytest.mark.parametrize("style", ["core", "grouped", "te_grouped"])
def test_experts_are_found_wherever_they_are(tmp_path: Path, style: str) -> None:
    whole = save(tmp_path / "whole", with_experts())
    split = save(tmp_path / "split", with_experts(), ep=2, pp=2, style=style)
    assert_same(compared(whole, split), 5 + 4 * (8 + 1 + 8))
    assert_same(compared(save(tmp_path / "one", with_experts(), style=style), split), 5 + 4 * (8 + 1 + 8))


def test_an_exchanged_expert_is_seen(tmp_path: Path) -> None:
    model = with_experts()
    other = dict(model)
    stem = "decoder.layers.2.mlp.experts.local_experts"
    other[f"{stem}.1.linear_fc1.weight"] = model[f"{stem}.3.linear_fc1.weight"]
    found = compared(save(tmp_path / "a", model), save(tmp_path / "b", other, ep=2, style="te_grouped"))
    assert [row.name for row in found.of("changed")] == [f"{stem}.1.linear_fc1.weight"]


def test_gates_are_joined_with_gates(tmp_path: Path) -> None:
    model = dense(gated=True)
    whole = save(tmp_path / "whole", model, gated=True)
    for tp, told in ((2, {"swiglu": True}), (4, {})):
        assert_same(compared(whole, save(tmp_path / f"tp{tp}", model, tp=tp, gated=True, **told)), 53)


def test_a_missing_rank_is_named_and_can_be_allowed(tmp_path: Path) -> None:
    whole, split = save(tmp_path / "whole", dense()), save(tmp_path / "split", dense(), tp=2, pp=2)
    (split / "iter_0000100/mp_rank_01_001/model_optim_rng.pt").unlink()
    (split / "iter_0000100/mp_rank_01_000/model_optim_rng.pt").unlink()
    with pytest.raises(PathError, match=r"mp_rank_01_000.*mp_rank_01_001.*--allow-missing"):
        compared(whole, split)
    found = compared(whole, split, allow_missing=True)
    assert found.differs
    assert ["mp_rank_01_001" in one.what for one in found.coverage.not_read] == [False, True]


def test_copies_that_differ_between_ranks_are_reported(tmp_path: Path) -> None:
    whole, split = save(tmp_path / "whole", dense()), save(tmp_path / "split", dense(), tp=2)
    path = split / "iter_0000100/mp_rank_01/model_optim_rng.pt"
    state = torch.load(path, weights_only=False)
    state["model"]["decoder.final_layernorm.bias"] += 1
    torch.save(state, path)
    found = compared(whole, split)
    assert [(row.name, row.replicas_differ) for row in found.replicas] == [
        ("decoder.final_layernorm.bias", (False, True))
    ]
    assert found.differs


def test_padded_words_are_compared_where_both_have_them(tmp_path: Path) -> None:
    padded = dense()
    padded["output_layer.weight"] = torch.cat([padded["output_layer.weight"], torch.zeros(8, 8)])
    found = compared(save(tmp_path / "a", dense()), save(tmp_path / "b", padded, tp=2))
    (row,) = found.of("padded")
    assert (row.name, row.padded, row.l2) == ("output_layer.weight", (32, 40), 0.0)
    assert not found.differs


def test_random_and_optimizer_states_of_a_rank_are_compared(tmp_path: Path) -> None:
    def more(seed: int) -> dict[str, Any]:
        state = {"state": {0: {"exp_avg": torch.full((3,), float(seed))}}, "param_groups": [{"lr": 0.1}]}
        random = [{"torch_rng_state": torch.arange(9), "random_rng_state": (3, tuple(range(seed, 625 + seed)), None)}]
        return {"optimizer": {"optimizer": state}, "rng_state": random}

    one = save(tmp_path / "a", dense(), more=more(1))
    found = compared(one, save(tmp_path / "b", dense(), more=more(2)))
    assert sorted((row.section, row.name) for row in found.rows if row.kind != "equal") == [
        ("optimizer", "mp_rank_00.state.0.exp_avg"),
        ("random", "mp_rank_00.rng_state.0.random_rng_state.1"),
    ]
    assert not compared(one, save(tmp_path / "c", dense(), more=more(1))).differs


@pytest.mark.parametrize("text", ["", "../x", "12/..", "-5", "9" * 30, "latest"])
def test_a_tracker_names_an_iteration_only(tmp_path: Path, text: str) -> None:
    folder = save(tmp_path / "a", dense(layers=1))
    (folder / "latest_checkpointed_iteration.txt").write_text(text)
    with raising(InvalidInputError, "megatron-tracker-wrong"):
        compared(folder, folder)


def test_a_folder_of_one_rank_and_an_unread_format_are_explained(tmp_path: Path) -> None:
    folder = save(tmp_path / "a", dense(layers=1))
    assert not compared(folder, folder / "iter_0000100").differs
    zarr = tmp_path / "zarr"
    (zarr / "iter_0000007").mkdir(parents=True)
    (zarr / "latest_checkpointed_iteration.txt").write_text("7")
    (zarr / "iter_0000007/metadata.json").write_text('{"sharded_backend": "zarr", "sharded_backend_version": 1}')
    with pytest.raises(InvalidInputError, match="zarr"):
        compared(folder, zarr)


def test_hugging_face_names_answer_to_those_of_megatron(tmp_path: Path) -> None:
    heads, groups, wide = 4, 2, 2
    model = {
        name: one for name, one in dense(gated=True).items() if not name.endswith("bias") and "position" not in name
    }
    words: dict[str, torch.Tensor] = {}
    for layer in range(4):
        stem, new = f"decoder.layers.{layer}.", f"model.layers.{layer}."
        q, k, v = (torch.randn(n * wide, 8) for n in (heads, groups, groups))
        words |= {f"{new}self_attn.{word}_proj.weight": one for word, one in (("q", q), ("k", k), ("v", v))}
        # In Megatron the queries of a group stand before its key and its value.
        rows = [torch.cat([q.chunk(groups)[g], k.chunk(groups)[g], v.chunk(groups)[g]]) for g in range(groups)]
        model[stem + "self_attention.linear_qkv.weight"] = torch.cat(rows)
        gate, up = model[stem + "mlp.linear_fc1.weight"].chunk(2)
        words |= {
            f"{new}self_attn.o_proj.weight": model[stem + "self_attention.linear_proj.weight"],
            f"{new}input_layernorm.weight": model[stem + "input_layernorm.weight"],
            f"{new}post_attention_layernorm.weight": model[stem + "pre_mlp_layernorm.weight"],
            f"{new}mlp.gate_proj.weight": gate.clone(),
            f"{new}mlp.up_proj.weight": up.clone(),
            f"{new}mlp.down_proj.weight": model[stem + "mlp.linear_fc2.weight"],
        }
    words |= {
        "model.embed_tokens.weight": model["embedding.word_embeddings.weight"],
        "lm_head.weight": model["output_layer.weight"],
        "model.norm.weight": model["decoder.final_layernorm.weight"],
    }
    torch.save(words, tmp_path / "hf.pt")
    told = {"num_attention_heads": heads, "num_query_groups": groups, "group_query_attention": True}
    split = save(tmp_path / "split", model, tp=2, pp=2, gated=True, **told)
    assert_same(compared(split, tmp_path / "hf.pt"), 4 * 9 + 3)
    assert_same(compared(tmp_path / "hf.pt", split), 4 * 9 + 3)
    assert compared(split, tmp_path / "hf.pt", names="none").of("missing")
    with raising(InvalidInputError, "num-attention-heads-missing"):
        compared(save(tmp_path / "untold", model, gated=True), tmp_path / "hf.pt")


@pytest.mark.parametrize("stage", [0, 1])
def test_deepspeed_of_several_model_parallel_ranks(tmp_path: Path, stage: int) -> None:
    model = dense(layers=2)
    args = argparse.Namespace(tensor_model_parallel_size=2)
    folder = tmp_path / "ds"
    folder.mkdir()
    for rank in range(2):
        part = {name: shard(name, one, rank, 2, False).contiguous() for name, one in model.items()}
        shapes = [{name: one.shape for name, one in part.items()}]
        module = {"module": part, "global_steps": 5, "param_shapes": shapes, "args": args}
        torch.save(module, folder / f"mp_rank_{rank:02d}_model_states.pt")
        if stage:
            whole = torch.cat([one.flatten() for one in part.values()])
            state = {"zero_stage": 1, "partition_count": 1, "single_partition_of_fp32_groups": [whole]}
            state["base_optimizer_state"] = {"state": {0: {"exp_avg": whole * 2}}}
            torch.save({"optimizer_state_dict": state}, folder / f"zero_pp_rank_0_mp_rank_{rank:02d}_optim_states.pt")
    found = compared(save(tmp_path / "a", model), folder)
    assert found.counts == {"equal": len(model)}
    if stage:
        name = "decoder.layers.1.mlp.linear_fc2.weight"
        assert torch.equal(torch.from_numpy(found.second.optimizer[name + ".exp_avg"].read()), 2 * model[name])
    (folder / "mp_rank_01_model_states.pt").rename(folder / "mp_rank_02_model_states.pt")
    with pytest.raises(PathError, match="mp_rank_01_model_states"):
        compared(tmp_path / "a", folder)


def test_the_joint_projection_of_mamba_is_joined_part_by_part(tmp_path: Path) -> None:
    sizes = {"z": 8, "x": 8, "B": 4, "C": 4, "dt": 4}
    whole = {name: torch.randn(size, 8) for name, size in sizes.items()}
    shards = [torch.cat([one.chunk(2)[rank] for one in whole.values()]) for rank in range(2)]
    conv = [torch.cat([whole[name].chunk(2)[rank] for name in ("x", "B", "C")]) for rank in range(2)]
    names = "decoder.layers.0.mixer.in_proj.weight", "decoder.layers.0.mixer.conv1d.weight"
    arguments = {"mamba_state_dim": 2, "mamba_num_groups": 2, "mamba_head_dim": 2}
    for ranks in (1, 2):
        for rank in range(ranks):
            place = tmp_path / str(ranks) / f"mp_rank_{rank:02d}"
            place.mkdir(parents=True)
            parts = (shards[rank], conv[rank]) if ranks == 2 else (
                torch.cat([*whole.values()]), torch.cat([whole[name] for name in ("x", "B", "C")])
            )  # fmt: skip
            args = argparse.Namespace(tensor_model_parallel_size=ranks, **arguments)
            torch.save({"args": args, "model": dict(zip(names, parts, strict=True))}, place / "model_optim_rng.pt")
    assert compared(tmp_path / "1", tmp_path / "2").counts == {"equal": 2}


def test_the_format_zarr_of_earlier_cores(tmp_path: Path) -> None:
    """Layers lie one behind the other, in chunks of which the last reaches beyond the tensor."""
    model = dense(layers=2)
    folder = tmp_path / "zarr" / "iter_0000100"
    folder.mkdir(parents=True)
    (tmp_path / "zarr" / "latest_checkpointed_iteration.txt").write_text("100")
    (folder / "metadata.json").write_text('{"sharded_backend": "zarr", "sharded_backend_version": 1}')
    torch.save({"args": argparse.Namespace(num_layers=2), "iteration": 100}, folder / "common.pt")
    stacked: dict[str, list[torch.Tensor]] = {}
    for name, tensor in model.items():
        stacked.setdefault(re.sub(r"layers\.\d+\.", "layers.", name), []).append(tensor)
    for name, layers in stacked.items():
        whole = torch.stack(layers) if "layers." in name else layers[0]
        chunks = [1 if "layers." in name else whole.shape[0], *(5 for _ in whole.shape[1:])]
        (folder / name).mkdir()
        told = {"zarr_format": 2, "shape": [*whole.shape], "chunks": chunks, "dtype": "<f4", "compressor": None}
        (folder / name / ".zarray").write_text(json.dumps({**told, "fill_value": 0, "filters": None, "order": "C"}))
        for at in itertools.product(*(range(-(-n // size)) for n, size in zip(whole.shape, chunks, strict=True))):
            chunk = torch.zeros(chunks)
            part = whole[tuple(slice(i * size, (i + 1) * size) for i, size in zip(at, chunks, strict=True))]
            chunk[tuple(slice(n) for n in part.shape)] = part
            (folder / name / ".".join(map(str, at))).write_bytes(chunk.numpy().tobytes())
    found = compared(save(tmp_path / "a", model), tmp_path / "zarr")
    assert_same(found, len(model))
    assert found.second.format == "Megatron, zarr"
    array = folder / "decoder.final_layernorm.bias" / ".zarray"
    array.write_text(array.read_text().replace('"compressor": null', '"compressor": {"id": "blosc"}'))
    with pytest.raises(InvalidInputError, match="compressed"):
        compared(tmp_path / "a", tmp_path / "zarr")


def test_random_states_of_ranks_that_one_layout_alone_has_are_a_note(tmp_path: Path) -> None:
    model = dense(layers=2)
    more = {"rng_state": [{"torch_rng_state": torch.arange(9)}], "opt_param_scheduler": {"num_steps": 7}}
    found = compared(save(tmp_path / "a", model, more=more), save(tmp_path / "b", model, more=more, tp=2))
    assert not found.differs
    assert found.notes == [said("random-states-of-one-side", "mp_rank_01")]
    other = {"rng_state": [{"torch_rng_state": torch.arange(9) + 1}], "opt_param_scheduler": {"num_steps": 8}}
    changed = compared(tmp_path / "a", save(tmp_path / "c", model, more=other, tp=2))
    assert sorted(row.name for row in changed.of("changed")) == [
        "mp_rank_00.rng_state.0.torch_rng_state",
        "opt_param_scheduler.num_steps",
    ]


def test_latent_attention_answers_to_the_names_of_hugging_face(tmp_path: Path) -> None:
    names = {
        "self_attention.linear_q_down_proj.weight": "self_attn.q_a_proj.weight",
        "self_attention.q_layernorm.weight": "self_attn.q_a_layernorm.weight",
        "self_attention.linear_q_up_proj.weight": "self_attn.q_b_proj.weight",
        "self_attention.linear_kv_down_proj.weight": "self_attn.kv_a_proj_with_mqa.weight",
        "self_attention.kv_layernorm.weight": "self_attn.kv_a_layernorm.weight",
        "self_attention.linear_kv_up_proj.weight": "self_attn.kv_b_proj.weight",
        "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
        "mlp.router.weight": "mlp.gate.weight",
        "mlp.router.expert_bias": "mlp.gate.e_score_correction_bias",
        "mlp.shared_experts.linear_fc2.weight": "mlp.shared_experts.down_proj.weight",
        "mlp.experts.local_experts.1.linear_fc2.weight": "mlp.experts.1.down_proj.weight",
    }
    values = {name: torch.randn(4, 6) for name in names}
    place = tmp_path / "mg" / "mp_rank_00"
    place.mkdir(parents=True)
    torch.save(
        {"model": {f"decoder.layers.0.{name}": one for name, one in values.items()}}, place / "model_optim_rng.pt"
    )
    torch.save({f"model.layers.0.{new}": values[old] for old, new in names.items()}, tmp_path / "hf.pt")
    assert_same(compared(tmp_path / "mg", tmp_path / "hf.pt"), len(names))
