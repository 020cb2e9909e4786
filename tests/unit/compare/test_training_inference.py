"""A training against the inference engine that joins some of its layers."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import raising
from support.hand_made import write_part

from msprobe.cli import main
from msprobe.compare.problems import InvalidArgumentError, TaskMismatchError
from msprobe.compare.training_inference import DumpedTensor, collect, compare_training, joint_statistics
from msprobe.messages import said
from msprobe.report.consistent_sheet import consistent_check
from msprobe.store.part import DumpPart

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(1, 5, 8))
WEIGHTS = {name: GENERATOR.normal(size=(rows, 8)) for name, rows in (("q", 8), ("k", 4), ("v", 4))}
ATTENTION = "Module.model.layers.0.self_attn"


class Recorder:
    """Writes a tensor dump of modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data: dict[str, Any] = {}
        (folder / "dump_tensor_data").mkdir(parents=True)

    def tensor(self, name: str, array: Any, **more: Any) -> dict[str, Any]:
        values = np.asarray(array, np.float32)
        np.save(self.folder / "dump_tensor_data" / f"{name}.npy", values)
        numbers = {
            "Max": values.max(initial=0),
            "Min": values.min(initial=0),
            "Mean": values.mean() if values.size else 0.0,
        }
        numbers["Norm"] = np.linalg.norm(values)
        found = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(values.shape)}
        return {**found, **{key: float(value) for key, value in numbers.items()}, "data_name": f"{name}.npy", **more}

    def call(self, name: str, given: Any, out: Any, weight: Any = None, **more: Any) -> None:
        record: dict[str, Any] = {"input_args": [self.tensor(f"{name}.input.0", given)], "input_kwargs": {}}
        record["output"] = [self.tensor(f"{name}.output.0", out)]
        if weight is not None:
            record["parameters"] = {"weight": self.tensor(f"{name}.parameters.weight", weight)}
        self.data[name] = {**record, **more}

    def finish(self) -> DumpPart:
        return write_part(self.folder, self.data, task="tensor")


def training(folder: Path, change: float = 1.0) -> DumpPart:
    found = Recorder(folder)
    # In another order than the engine joins them.
    for name in ("v", "q", "k"):
        weight = WEIGHTS[name]
        found.call(f"{ATTENTION}.{name}_proj.Linear.forward.0", X, X @ weight.T * change, weight)
    return found.finish()


def inference(folder: Path) -> DumpPart:
    found = Recorder(folder)
    weight = np.concatenate(list(WEIGHTS.values()))
    found.call(f"{ATTENTION}.qkv_proj.QKVParallelLinear.forward.0", X[0], X[0] @ weight.T, weight)
    found.call("Module.extra.Linear.forward.0", X, X)
    return found.finish()


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_projections_that_the_engine_joins_are_compared_together(tmp_path: Path) -> None:
    pairs = list(compare_training(training(tmp_path / "a"), inference(tmp_path / "b"), "fsdp"))
    told = {pair.candidate[0].name.split(".forward.0.")[1]: pair for pair in pairs if pair.candidate}
    assert list(told) == ["input.0", "parameters.weight", "output.0"]
    assert len(told["input.0"].candidate) == 1
    for slot in ("parameters.weight", "output.0"):
        assert [piece.module for piece in told[slot].candidate] == ["q_proj", "k_proj", "v_proj"]
        assert told[slot].result == "pass"
        assert told[slot].measures.cosine == 1
    assert [pair.reference[0].name.split(".")[1] for pair in pairs if not pair.candidate] == ["extra", "extra"]


def test_a_difference_is_a_warning_and_another_length_an_error(tmp_path: Path) -> None:
    engine = inference(tmp_path / "b")
    pairs = list(compare_training(training(tmp_path / "a", change=3.0), engine, "fsdp"))
    results = {pair.candidate[0].name.split(".forward.0.")[1]: pair.result for pair in pairs if pair.candidate}
    assert results == {"input.0": "pass", "parameters.weight": "pass", "output.0": "warning"}
    other = Recorder(tmp_path / "c")
    other.call(f"{ATTENTION}.qkv_proj.X.forward.0", X[:, :3], X[:, :3])
    (pair, *_) = compare_training(other.finish(), engine, "megatron")
    assert pair.result == "error"
    assert pair.measures.cosine == "shape unmatched"


def test_names_of_megatron_are_those_of_the_engine(tmp_path: Path) -> None:
    names = {
        "embedding.word_embeddings": "model.embed_tokens",
        "decoder.layers.3.self_attention": "model.layers.3.self_attn",
        "decoder.layers.3.self_attention.linear_qkv": "model.layers.3.self_attn.qkv_proj",
        "decoder.layers.3.self_attention.linear_proj": "model.layers.3.self_attn.o_proj",
        "decoder.layers.3.mlp.linear_fc2": "model.layers.3.mlp.down_proj",
        "decoder.layers.3.mlp.router": "model.layers.3.mlp.gate",
        "decoder.layers.3": "model.layers.3",
    }
    sides = [Recorder(tmp_path / "a"), Recorder(tmp_path / "b")]
    for number, pair in enumerate(names.items()):
        for side, path in zip(sides, pair, strict=True):
            side.call(f"Module.{path}.Any.forward.0", X + number, X - number)
    pairs = list(compare_training(sides[0].finish(), sides[1].finish(), "megatron"))
    assert len(pairs) == 2 * len(names)
    assert {pair.result for pair in pairs} == {"pass"}


def test_layers_and_calls_are_kept_apart(tmp_path: Path) -> None:
    found = Recorder(tmp_path)
    for layer in (0, 1):
        for call in (0, 1):
            found.call(f"Module.model.layers.{layer}.mlp.act_fn.SiLU.forward.{call}", X, X)
    places = collect(found.finish(), {})
    assert len({(place.layer, place.call) for place in places}) == 4


def test_what_is_computed_again_in_the_backward_pass_is_left_out(tmp_path: Path) -> None:
    found = Recorder(tmp_path)
    found.call("Module.model.embed_tokens.Embedding.forward.0", X, X)
    found.call("Module.model.norm.Norm.forward.0", X, X)
    found.data["Module.model.Qwen3Model.backward.0"] = {"input": [], "output": []}
    found.call("Module.model.norm.Norm.forward.1", X, X)
    found.call("Module.model.embed_tokens.Embedding.forward.1", X, X)
    found.call("Module.model.norm.Norm.forward.2", X, X)
    found.call("Module.model.norm.Norm.forward.3", X, X, is_recompute=True)
    calls = {(place.module, place.call) for place in collect(found.finish(), {})}
    assert calls == {("embed_tokens", 0), ("norm", 0), ("embed_tokens", 1), ("norm", 2)}


def test_the_sheet_names_all_that_was_joined(tmp_path: Path) -> None:
    training(tmp_path / "a")
    inference(tmp_path / "b")
    arguments = (tmp_path / "a/dump.json", tmp_path / "b/dump.json", tmp_path / "out", "fsdp")
    (path,) = consistent_check(*arguments).written
    found = {row["NPU Name"]: row for row in rows(path)}
    joined = next(
        row for name, row in found.items() if name.endswith("q_proj.Linear.forward.0.output.0") or ";  " in name
    )
    assert joined["NPU Name"].count(";  ") == 2
    assert any(row["NPU Tensor Shape"] == "[1, 5, 8];  [1, 5, 4];  [1, 5, 4]" for row in found.values())
    assert {row["Result"] for name, row in found.items() if name != "N/A"} == {"pass"}
    assert json.loads(found["N/A"]["Err_message"]) == [f"warning: {said('target-row-missing')}"]
    (path,) = consistent_check(*arguments, "xlsx").written
    calamine = pytest.importorskip("python_calamine")
    cells = calamine.CalamineWorkbook.from_path(str(path)).get_sheet_by_name("Sheet").to_python()
    assert any(str(row[0]).count(";\n") == 2 for row in cells)


def test_a_missing_file_is_an_error_in_its_row(tmp_path: Path) -> None:
    part, engine = training(tmp_path / "a"), inference(tmp_path / "b")
    (tmp_path / "a/dump_tensor_data" / f"{ATTENTION}.q_proj.Linear.forward.0.output.0.npy").unlink()
    pairs = [pair for pair in compare_training(part, engine, "fsdp") if pair.candidate]
    assert [pair.result for pair in pairs] == ["pass", "pass", "error"]
    assert "q_proj.Linear.forward.0.output.0.npy" in pairs[-1].messages[0]


@pytest.mark.parametrize(
    ("backend", "told"), [(None, "needs --backend fsdp or megatron, found None"), ("x", "found 'x'")]
)
def test_the_backend_must_be_known(tmp_path: Path, backend: str | None, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told) as caught:
        consistent_check(tmp_path, tmp_path, tmp_path / "out", backend)
    assert caught.value.code == 11


def test_both_must_be_dumps_of_tensors(tmp_path: Path) -> None:
    part = write_part(tmp_path / "a", {}, task="statistics")
    with raising(TaskMismatchError, "inference-needs-tensors", task="statistics"):
        list(compare_training(part, inference(tmp_path / "b"), "fsdp"))


@pytest.mark.parametrize(
    ("words", "status"),
    [(["--consistent_check", "--backend", "fsdp"], 0), (["--consistent_check"], 2), (["--backend", "fsdp"], 2)],
)
def test_the_command_compares_ranks(tmp_path: Path, words: list[str], status: int) -> None:
    for rank in (0, 1):
        training(tmp_path / f"a/rank{rank}")
        inference(tmp_path / f"b/rank{rank}")
    paths = ["-tp", str(tmp_path / "a"), "-gp", str(tmp_path / "b"), "-o", str(tmp_path / "out")]
    assert main(["compare", *paths, *words]) == status
    if status == 0:
        names = sorted(path.name.rsplit("_", 1)[0] for path in (tmp_path / "out").iterdir())
        assert names == ["compare_result_rank0", "compare_result_rank1"]
    else:
        assert not (tmp_path / "out").exists()


def piece(shape: tuple[int, ...], *statistics: float | None) -> DumpedTensor:
    return DumpedTensor("x", "x", "torch.float32", shape, None, statistics, None)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((), (None,) * 4),
        ((piece((2,), 3.0, 1.0, 2.0, 3.0), piece((6,), 5.0, 0.0, 4.0, 4.0)), (5.0, 0.0, 3.5, 5.0)),
        ((piece((2,), 3.0, 1.0, 2.0, 3.0), piece((6,), None, 0.0, None, 4.0)), (None, 0.0, None, 5.0)),
        ((piece((0,), None, None, None, None),), (None,) * 4),
    ],
)
def test_statistics_of_several_tensors_are_those_of_all_their_values(
    pieces: tuple[DumpedTensor, ...], expected: Mapping[str, Any]
) -> None:
    assert joint_statistics(pieces) == expected


class Engine(Recorder):
    """Calls with several inputs and results, as an engine fuses them."""

    def fused(self, name: str, given: list[Any], out: list[Any], weight: Any = None) -> None:
        record: dict[str, Any] = {"input_kwargs": {}}
        record["input_args"] = [self.tensor(f"{name}.input.{place}", one) for place, one in enumerate(given)]
        record["output"] = [self.tensor(f"{name}.output.{place}", one) for place, one in enumerate(out)]
        if weight is not None:
            record["parameters"] = {"weight": self.tensor(f"{name}.parameters.weight", weight)}
        self.data[name] = record


def test_what_an_engine_hands_on_apart_is_compared_with_what_the_training_has_as_one(tmp_path: Path) -> None:
    layer = "Module.model.layers.0"
    residual, given, out = (GENERATOR.normal(size=(1, 5, 8)) for _ in range(3))
    ours, theirs = Recorder(tmp_path / "t"), Engine(tmp_path / "i")
    ours.call(f"{layer}.input_layernorm.LlamaRMSNorm.forward.0", given + residual, out, np.ones(8))
    ours.call(f"{layer}.mlp.act_fn.SiLU.forward.0", given, out)
    ours.call(f"{layer}.mlp.down_proj.Linear.forward.0", given, out, WEIGHTS["q"])
    ours.call(f"{layer}.LlamaDecoderLayer.forward.0", given + residual, out + residual)
    theirs.fused(f"{layer}.input_layernorm.RMSNorm.forward.0", [given, residual], [out, given + residual], np.ones(8))
    theirs.fused(f"{layer}.mlp.act_fn.SiluAndMul.forward.0", [np.concatenate((given, out), -1)], [given * out])
    theirs.fused(f"{layer}.mlp.down_proj.RowParallelLinear.forward.0", [given], [out], np.zeros(0))
    theirs.fused(f"{layer}.LlamaDecoderLayer.forward.0", [np.arange(5), given, residual], [out, residual])
    theirs.data[f"{layer}.LlamaDecoderLayer.forward.0"]["input_args"][0]["dtype"] = "torch.int64"
    found = {
        pair.candidate[0].name: pair
        for pair in compare_training(ours.finish(), theirs.finish(), "fsdp")
        if pair.candidate
    }
    results = {name.removeprefix(f"{layer}."): pair.result for name, pair in found.items()}
    packed = "mlp.down_proj.Linear.forward.0.parameters.weight"
    alone = [name for name, pair in found.items() if not pair.reference and name != f"{layer}.{packed}"]
    assert {name for name, result in results.items() if result != "pass"} == {
        packed,
        *(one.removeprefix(f"{layer}.") for one in alone),
    }
    assert {one.removeprefix(f"{layer}.mlp.").partition(".")[0] for one in alone} == {"act_fn"}
    assert "rollout" in found[f"{layer}.{packed}"].messages[0]
    assert found[f"{layer}.LlamaDecoderLayer.forward.0.input.0"].reference[0].added
