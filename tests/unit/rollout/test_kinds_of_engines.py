"""Recorded engines of other kinds (vLLM, stored): experts, an adapter, a prefix cache that is right or older."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")
pytest.importorskip("safetensors")

from safetensors.torch import load_file, save_file  # noqa: E402
from support.coded_texts import mentions  # noqa: E402

from msprobe.rollout.compared import RolloutAnswer  # noqa: E402
from msprobe.rollout.texts import compared_lines  # noqa: E402
from msprobe.rollout.torch.comparing import compare_engine  # noqa: E402
from msprobe.rollout.torch.digests import row_digests  # noqa: E402

STORED = Path(__file__).parents[2] / "data" / "rollout"
QKV = "model.layers.0.self_attn.qkv_proj"


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[[str], Path]:
    def unpack(name: str) -> Path:
        for archive in ("engine.zip", name):
            with zipfile.ZipFile(STORED / archive) as opened:
                if archive == name:
                    opened.extractall(tmp_path / "own")
                else:
                    opened.extractall(tmp_path / "dense")
        settings = tmp_path / "own" / "adapter" / "adapter_config.json"
        if settings.exists():
            tree = {**json.loads(settings.read_text()), "base_model_name_or_path": str(tmp_path / "dense" / "model")}
            settings.write_text(json.dumps(tree))
        return tmp_path

    return unpack


def compared(folder: Path, roll: str, model: str) -> RolloutAnswer:
    return compare_engine(str(folder / "own" / roll), str(folder / model))


def first(found: RolloutAnswer) -> tuple[str, str]:
    one = found.all_findings[0]
    return one.name, one.arguments["module"]


def test_experts_are_judged_by_the_routers_own_logits(unpacked: Any) -> None:
    folder = unpacked("experts.zip")
    found = compared(folder, "roll", "own/model")
    assert (found.status, found.exit_code) == ("agree", 0)
    assert found.operators["model.layers.0.mlp.experts"].rows
    file = folder / "own" / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "norm_topk_prob": False}))
    assert first(compared(folder, "roll", "own/model")) == ("operator-differs", "model.layers.0.mlp.experts")


def test_a_stale_expert_is_named_however_a_kernel_packs_it(unpacked: Any) -> None:
    folder = unpacked("experts.zip")
    file = folder / "own" / "model" / "model.safetensors"
    tensors = load_file(file)
    name = next(one for one in tensors if "experts.2.up_proj" in one)
    tensors[name][1, 1] += 1e-6
    save_file(tensors, file, {"format": "pt"})
    code, module = first(compared(folder, "roll", "own/model"))
    assert (code, module) == ("weights-differ", "model.layers.0.mlp.experts.routed_experts")


def test_an_adapter_is_part_of_the_trainer(unpacked: Any) -> None:
    folder = unpacked("adapter.zip")
    found = compared(folder, "roll", "own/adapter")
    assert (found.status, found.exit_code) == ("agree", 0)
    base = compared(folder, "roll", "dense/model")
    assert first(base)[0] == "weights-differ", "the engine has an adapter that this trainer has not"


def test_an_adapter_that_binds_nothing_is_named(unpacked: Any) -> None:
    folder = unpacked("adapter.zip")
    file = folder / "own" / "roll" / "engine.json"
    engine = json.loads(file.read_text())
    for module in engine["modules"].values():
        for name, digests in module.get("weights", {}).items():
            if name.startswith("lora_"):
                width = 8 if name.startswith("lora_b") else 64
                module["weights"][name] = row_digests(torch.zeros(len(digests), width))
    file.write_text(json.dumps(engine))
    assert first(compared(folder, "roll", "own/adapter"))[0] == "adapter-not-bound"


def test_an_adapter_that_no_request_names_is_named(unpacked: Any) -> None:
    folder = unpacked("adapter.zip")
    weights = load_file(folder / "dense" / "model" / "model.safetensors")
    fused = torch.cat([weights[f"model.layers.0.self_attn.{one}_proj.weight"] for one in "qkv"])
    dump = next((folder / "own" / "roll").rglob("dump_tensor_data"))
    for given in dump.glob(f"Module.{QKV}.*.input.0.pt"):
        torch.save(torch.load(given) @ fused.t(), str(given).replace("input.0", "output.0"))
    assert first(compared(folder, "roll", "own/adapter")) == ("adapter-not-applied", QKV)


def test_a_prefix_cache_is_judged_with_keys_of_the_trainer(unpacked: Any) -> None:
    folder = unpacked("cached.zip")
    found = compared(folder, "roll", "dense/model")
    assert (found.status, found.exit_code) == ("agree", 0)
    attention = found.operators["model.layers.0.self_attn.attn"]
    assert attention.stand_in == attention.rows > 0
    assert any(
        mentions(line, "keys-of-the-trainer") or mentions(line, "keys-cached-before") for line in compared_lines(found)
    )


def test_a_prefix_cache_of_older_weights_is_named(unpacked: Any) -> None:
    folder = unpacked("cached.zip")
    file = folder / "dense" / "model" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.0.input_layernorm.weight"] *= 1.25
    save_file(tensors, file, {"format": "pt"})
    found = compared(folder, "stale", "dense/model")
    assert first(found) == ("stale-cache", "model.layers.0.self_attn.attn")
    assert found.all_findings[0].arguments["cached"] == 64


@pytest.mark.parametrize(
    "broken",
    [
        {"peft_type": "LOHA"},
        {"base_model_name_or_path": "nowhere"},
        {"r": None},
    ],
)
def test_adapters_that_are_not_read_are_refused(unpacked: Any, broken: dict[str, Any]) -> None:
    from msprobe.errors import InvalidInputError

    folder = unpacked("adapter.zip")
    file = folder / "own" / "adapter" / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **broken}))
    with pytest.raises(InvalidInputError, match="adapter"):
        compared(folder, "roll", "own/adapter")
