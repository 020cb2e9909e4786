"""Checkpoints that the real Megatron core saves on two ranks, where it is installed: all layouts hold the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from monitored_ranks import has_megatron, launch
from safetensors.torch import save_file

from msprobe.environment.checkpoint.comparison import CheckpointComparison, CheckpointRequest, compare_checkpoints

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has_megatron(), reason="needs Megatron's core"),
]
CASES = ["dense-tp1", "dense-tp2", "dense-pp2", "experts-tp1", "experts-ep2", "latent-tp1", "latent-tp2"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the checkpoints of all layouts."""
    folder = tmp_path_factory.mktemp("ranks")
    launch("checkpoint_megatron.py", folder, CASES)
    return folder


def compared(first: Path, second: Path) -> CheckpointComparison:
    return compare_checkpoints(CheckpointRequest(str(first), str(second)))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", ["dist", "legacy"])
def test_layouts_and_formats_have_equal_weights_and_moments(saved: Path, case: str, form: str) -> None:
    kind = case.partition("-")[0]
    found = compared(saved / f"{kind}-tp1" / "dist", saved / case / form)
    assert {row.kind for row in found.rows} == {"equal"}, found.rows[:3]
    assert not found.replicas
    weights = {row.name for row in found.rows if row.section == "weights"}
    assert len(weights) == {"dense": 51, "experts": 72, "latent": 51}[kind]
    rows = {row.name for row in found.rows}
    assert {f"{name}.{moment}" for name in weights for moment in ("exp_avg", "exp_avg_sq")} <= rows
    assert found.first.iteration == found.second.iteration == 2


def test_another_step_is_reported(saved: Path) -> None:
    place = saved / "dense-tp1" / "dist"
    found = compared(place / "iter_0000000", place / "iter_0000002")
    assert [row.kind for row in found.rows if row.section == "weights"] == ["changed"] * 51


def test_an_export_to_hugging_face_is_the_same_model(saved: Path, tmp_path: Path) -> None:
    state = torch.load(
        saved / "dense-tp1/legacy/iter_0000002/mp_rank_00/model_optim_rng.pt", weights_only=False, map_location="cpu"
    )
    exported = {}
    words = {
        "input_layernorm": "input_layernorm", "pre_mlp_layernorm": "post_attention_layernorm",
        "self_attention.linear_proj": "self_attn.o_proj", "mlp.linear_fc2": "mlp.down_proj",
    }  # fmt: skip
    for name, tensor in state["model"].items():
        if name.endswith("_extra_state"):
            continue
        stem, _, last = name.rpartition(".")
        if stem in ("embedding.word_embeddings", "decoder.final_layernorm"):
            new = {"embedding.word_embeddings": "model.embed_tokens"}.get(stem, "model.norm")
            exported[f"{new}.{last}"] = tensor.clone()
            continue
        layer, _, module = stem.removeprefix("decoder.layers.").partition(".")
        prefix = f"model.layers.{layer}."
        if module == "self_attention.linear_qkv":
            # Two groups of two queries, a key and a value, 4 rows each.
            grouped = tensor.reshape(2, 4, 4, *tensor.shape[1:])
            for word, part in (("q", grouped[:, :2]), ("k", grouped[:, 2]), ("v", grouped[:, 3])):
                exported[f"{prefix}self_attn.{word}_proj.{last}"] = part.reshape(-1, *tensor.shape[1:]).clone()
        elif module == "mlp.linear_fc1":
            for word, part in zip(("gate", "up"), tensor.chunk(2), strict=True):
                exported[f"{prefix}mlp.{word}_proj.{last}"] = part.clone()
        else:
            exported[f"{prefix}{words[module]}.{last}"] = tensor.clone()
    save_file(exported, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 4, "num_key_value_heads": 2}))
    for form in ("dense-tp2/dist", "dense-pp2/legacy"):
        found = compared(saved / form, tmp_path)
        assert found.counts == {"equal": len(exported)}, form
