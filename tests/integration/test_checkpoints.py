"""Checkpoints that other packages have written, compared with what these packages say is in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from support import forked
from support.command_line import call

from msprobe.environment.checkpoint.comparison import CheckpointRequest, compare_checkpoints

HERE = Path(__file__).resolve().parent


def test_shards_of_two_ranks_are_the_whole_model_and_its_moments(tmp_path: Path) -> None:
    # As in all tests of ranks: over the loopback, whatever the machine's name leads to. A rank that a signal ends says
    # where it was.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": "2"}
    script = str(HERE / "checkpoint_ranks.py")
    forked.end_of_all(
        [
            forked.start(script, str(tmp_path), cwd=tmp_path, env={**environment, "RANK": str(rank)})
            for rank in range(2)
        ],
        200,
    )
    assert len(list((tmp_path / "dcp").glob("*.distcp"))) == 2
    found = compare_checkpoints(CheckpointRequest(str(tmp_path / "dcp"), str(tmp_path / "whole.pt")))
    assert found.first.iteration == found.second.iteration == 2
    assert len(found.first.weights) == 6
    moments = [name for name in found.first.optimizer if name.endswith("exp_avg")]
    assert len(moments) == 6
    odd = [row for row in found.rows if row.kind != "equal"]
    assert not odd, odd[:5]
    # One shard of one rank with another number.
    block = sorted((tmp_path / "dcp").glob("*.distcp"))[1]
    weight = torch.load(tmp_path / "whole.pt", weights_only=True)["model"]["0.weight"]
    data, sought = bytearray(block.read_bytes()), weight[4:].contiguous().numpy().tobytes()
    assert bytes(data).count(sought) == 1
    data[data.index(sought)] ^= 1
    block.write_bytes(bytes(data))
    changed = compare_checkpoints(CheckpointRequest(str(tmp_path / "dcp"), str(tmp_path / "whole.pt")))
    assert [(row.name, row.kind) for row in changed.rows if row.kind != "equal"] == [("0.weight", "changed")]


def test_models_that_transformers_saves_in_shards(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    torch.save(model.state_dict(), tmp_path / "state.pt")
    for other in ("shards", "state.pt"):
        found = compare_checkpoints(CheckpointRequest(str(tmp_path / "whole"), str(tmp_path / other)))
        assert found.counts == {"equal": len(model.state_dict())}
    # The bodies alone: names without the prefix of the head.
    torch.save(model.model.state_dict(), tmp_path / "body.pt")
    found = compare_checkpoints(CheckpointRequest(str(tmp_path / "shards"), str(tmp_path / "body.pt")))
    assert found.counts == {"missing": 1, "equal": len(model.model.state_dict())}
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.mul_(1.5)
    model.save_pretrained(tmp_path / "scaled", max_shard_size="20KB")
    done = call("config_check", "-c", tmp_path / "whole", tmp_path / "scaled", "-o", tmp_path / "o.json", "--jobs", "2")
    assert done.returncode == 1
    assert "scaled: model.layers.1.mlp.up_proj.weight (the second is 1.5 times the first" in done.stdout
