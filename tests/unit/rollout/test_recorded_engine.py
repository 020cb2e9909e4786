"""A recorded engine (vLLM, stored) against its trainer's model, healthy and with mismatches of public threads."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")

from safetensors.torch import load_file, save_file  # noqa: E402
from support.command_line import call  # noqa: E402

from msprobe.messages import said  # noqa: E402
from msprobe.rollout.torch.comparing import compare_engine  # noqa: E402

STORED = Path(__file__).parents[2] / "data" / "rollout" / "engine.zip"
LAYER = "model.layers.0"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    with zipfile.ZipFile(STORED) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def weights(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = folder / "model" / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file({name: one.contiguous() for name, one in tensors.items()}, file, {"format": "pt"})


def config(folder: Path, **changes: Any) -> None:
    file = folder / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def exchange(tensors: dict[str, Any]) -> None:
    gate, up = f"{LAYER}.mlp.gate_proj.weight", f"{LAYER}.mlp.up_proj.weight"
    tensors[gate], tensors[up] = tensors[up], tensors[gate]


def heads(tensors: dict[str, Any]) -> None:
    name = f"{LAYER}.self_attn.q_proj.weight"
    tensors[name] = tensors[name].reshape(2, 32, 64)[[1, 0]].reshape(64, 64)


def one_unit(tensors: dict[str, Any]) -> None:
    weight = tensors[f"{LAYER}.self_attn.v_proj.weight"]
    weight[3, 5] = torch.nextafter(weight[3, 5], torch.tensor(9.0))


def turned(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: tensors.update({name: tensors[name].t().contiguous()})


def scaled(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: tensors.update({name: tensors[name] * 1.02})


def theta(base: float) -> dict[str, Any]:
    return {"rope_theta": base, "rope_parameters": {"rope_theta": base, "rope_type": "default"}}


def test_a_healthy_engine_agrees_and_all_of_it_was_looked_at(stored: Path) -> None:
    found = compare_engine(str(stored / "roll"), str(stored / "model"))
    assert (found.status, found.exit_code, found.coverage.is_complete) == ("agree", 0, True)
    assert found.weights == 9
    assert {path.rpartition(".")[2] for path in found.operators} >= {"attn", "rotary_emb", "qkv_proj", "act_fn"}
    assert all(line.wrong == 0 and line.rows for line in found.operators.values())


@pytest.mark.parametrize(
    ("change", "code", "module"),
    [
        (one_unit, "weights-differ", "qkv_proj"),
        (scaled(f"{LAYER}.mlp.down_proj.weight"), "weights-differ", "down_proj"),
        (turned(f"{LAYER}.self_attn.o_proj.weight"), "weights-transposed", "o_proj"),
        (scaled("lm_head.weight"), "weights-differ", "lm_head"),
        (scaled("model.norm.weight"), "weights-differ", "model.norm"),
        (exchange, "weights-exchanged", "gate_up_proj"),
        (heads, "weight-rows-exchanged", "qkv_proj"),
    ],
)
def test_other_weights_are_named(stored: Path, change: Any, code: str, module: str) -> None:
    weights(stored, change)
    found = compare_engine(str(stored / "roll"), str(stored / "model")).all_findings[0]
    assert (found.name, found.arguments["module"].endswith(module)) == (code, True)


@pytest.mark.parametrize(
    ("changes", "module"),
    [
        ({"rms_norm_eps": 1e-2}, "input_layernorm"),
        (theta(500.0), "rotary_emb"),
        ({"hidden_act": "gelu"}, "act_fn"),
    ],
)
def test_another_operator_is_named_with_its_setting(stored: Path, changes: dict[str, Any], module: str) -> None:
    config(stored, **changes)
    found = compare_engine(str(stored / "roll"), str(stored / "model")).all_findings[0]
    assert (found.name, found.arguments["module"].endswith(module)) == ("operator-differs", True)
    if "rms_norm_eps" in changes:
        assert found.arguments["settings"] == {"variance_epsilon": [1e-6, 1e-2]}


def replace(folder: Path, pattern: str, change: Callable[[Any], Any]) -> None:
    """Change recorded values of the engine: the values of each file that matches."""
    files = [one for one in (folder / "roll").rglob("*.pt") if re.search(pattern, one.name)]
    assert files
    for file in files:
        torch.save(change(torch.load(file)), file)


def no_last_head(values: Any) -> Any:
    values[:, 32:] = 0
    return values


@pytest.mark.parametrize(
    ("pattern", "change", "module"),
    [
        (r"attn\.Attention\.forward\.\d+\.output\.0", no_last_head, "self_attn.attn"),
        (r"attn\.Attention\.forward\.1\.output\.0", lambda values: values * 1.02, "self_attn.attn"),
        (r"rotary_emb.*forward\.0\.output\.1", lambda values: values.roll(1, 0), "rotary_emb"),
        (r"post_attention_layernorm.*output\.1", lambda values: values * 2, "post_attention_layernorm"),
        (r"embed_tokens.*output\.0", lambda values: values.roll(1, 1), "embed_tokens"),
        (r"logits_processor.*output\.0", lambda values: values + 0.1, "logits_processor"),
    ],
)
def test_a_wrong_result_of_the_engine_is_named(stored: Path, pattern: str, change: Any, module: str) -> None:
    replace(stored, pattern, change)
    found = compare_engine(str(stored / "roll"), str(stored / "model"))
    first = found.all_findings[0]
    assert (first.name, first.arguments["module"].endswith(module)) == ("operator-differs", True)
    assert first.responses


def test_keys_of_a_cached_prefix_without_its_tokens_are_not_judged_and_it_is_said(stored: Path) -> None:
    file = stored / "roll" / "engine.json"
    engine = json.loads(file.read_text())
    file.write_text(json.dumps({**engine, "steps": engine["steps"][1:]}))
    (stored / "roll" / "responses.jsonl").unlink()
    found = compare_engine(str(stored / "roll"), str(stored / "model"))
    assert (found.status, found.exit_code) == ("agree", 2)
    assert any("self_attn.attn" in one.what for one in found.coverage.not_read)


@pytest.mark.parametrize(("first", "every"), [(0, 2), (1, 2), (0, 7)])
def test_calls_whose_tensors_are_gone_are_not_judged_and_it_is_said(stored: Path, first: int, every: int) -> None:
    """A norm that lost its residual, and attention its keys, would look as if they did something else."""
    for path in sorted(stored.glob("roll/rank0/dump_tensor_data/*"))[first::every]:
        path.unlink()
    done = call("rollout", stored / "roll", "--trainer", stored / "model", "--json", "-")
    told = json.loads(done.stdout)
    assert (done.returncode, told["findings"]) == (2, []), told["findings"]
    assert told["coverage"]["complete"] is False
    lost = [one for one in told["coverage"]["not_read"] if one["why"] == said("no-files-read")]
    assert any("input_layernorm" in one["what"] for one in lost)
    assert said("no-files-read") in call("rollout", stored / "roll", "--trainer", stored / "model").stdout


def test_the_command_and_bad_input(stored: Path) -> None:
    words = ["rollout", stored / "roll", "--trainer", stored / "model"]
    assert call(*words).returncode == 0
    assert "self_attn.attn" in call(*words, "--operators").stdout
    assert json.loads(call(*words, "--json", "-").stdout)["status"] == "agree"
    for bad in (
        ["rollout"],
        ["rollout", stored / "roll"],
        ["rollout", stored / "roll", "--trainer", stored / "none"],
        ["rollout", stored / "none", "--trainer", stored / "model"],
        [*words, "--prefill", "x"],
    ):
        ended = call(*bad)
        assert (ended.returncode, ended.stdout) == (2, "")
    (stored / "roll" / "engine.json").write_text('{"steps": 3}')
    assert call(*words).returncode == 2


def test_fused_modules_are_found_by_their_names_however_many_siblings_there_are() -> None:
    from msprobe.rollout.torch.trainer import Trainer

    def module(*names: str) -> Any:
        made = torch.nn.Module()
        for name in names:
            setattr(made, name, torch.nn.Linear(2, 2))
        return made

    model = torch.nn.Module()
    model.attention = module("q_proj", "k_proj", "v_proj", "o_proj")
    model.mlp = module("gate_proj", "up_proj", "down_proj")
    model.old = module("w1", "w2", "w3")
    model.experts = module(*(f"e{number}" for number in range(300)))
    trainer = Trainer(model)
    for path, parts in (
        ("attention.qkv_proj", ["q_proj", "k_proj", "v_proj"]),
        ("mlp.gate_up_proj", ["gate_proj", "up_proj"]),
        ("attention.o_proj", ["o_proj"]),
        ("attention.rotary_emb", []),
        ("experts.w13_weight", []),
        ("nowhere.qkv_proj", []),
    ):
        assert [one.path.rpartition(".")[2] for one in trainer.parts(path)] == parts


def test_modules_that_trainers_call_differently_are_found() -> None:
    from msprobe.rollout.torch.fused import Paths

    paths = Paths(["layers.0.mlp.gate", "layers.0.mlp.experts", "layers.1.mlp.activation_fn", "layers.2.mlp.act_fn"])
    for path, found in (
        ("layers.0.block_sparse_moe.gate", ["layers.0.mlp.gate"]),
        ("layers.0.block_sparse_moe.experts.routed_experts", ["layers.0.mlp.experts"]),
        ("layers.1.mlp.act_fn", ["layers.1.mlp.activation_fn"]),
        ("layers.2.mlp.act_fn", ["layers.2.mlp.act_fn"]),
        ("layers.3.mlp.act_fn", []),
    ):
        assert paths.parts(path) == found


def test_an_operator_that_the_trainer_cannot_run_is_said_and_not_raised(stored: Path) -> None:
    replace(stored, r"down_proj.*input\.0", lambda values: values[:, :5].clone())
    found = compare_engine(str(stored / "roll"), str(stored / "model"))
    assert (found.status, found.exit_code) == ("agree", 2)
    assert any("down_proj" in one.what for one in found.coverage.not_read)


@pytest.mark.parametrize("which", ["positions", "input_ids"])
def test_wrong_positions_and_tokens_of_the_whole_model_are_named_first(stored: Path, which: str) -> None:
    replace(stored, rf"Module\.root\..*forward\.1\.kwargs\.{which}", lambda values: (values + 1) % 64)
    first = compare_engine(str(stored / "roll"), str(stored / "model")).all_findings[0]
    assert (first.name, first.arguments["call"], first.arguments["wrong"]) == ("inputs-differ", 1, 2)


def log_probs(folder: Path, change: float) -> None:
    file = folder / "roll" / "responses.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        row["log_probs"] = [one + change for one in row["log_probs"]]
    file.write_text("\n".join(json.dumps(row) for row in rows))


def test_where_all_else_agrees_log_probs_that_differ_are_rounding_if_they_are_of_the_logits(stored: Path) -> None:
    found = compare_engine(str(stored / "roll"), str(stored / "model"))
    assert found.only_rounding
    log_probs(stored, -0.5)
    assert not compare_engine(str(stored / "roll"), str(stored / "model")).only_rounding
