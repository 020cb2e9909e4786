from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from support.checkpoints import compared
from support.coded_texts import raising

from msprobe.environment.checkpoint.opening import open_checkpoint
from msprobe.errors import InvalidInputError, PathError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
TYPES += (torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2)


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "layers.0.weight": torch.randn(40, 600, generator=generator),
        "layers.0.bias": torch.randn(40, generator=generator).bfloat16(),
        "layers.1.weight": torch.randn(7, 40, generator=generator).half(),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3.5),
        "table": torch.arange(12).reshape(3, 4).t(),
    }


@pytest.mark.parametrize("legacy", [False, True])
def test_every_type_and_view_is_read_as_torch_reads_it(tmp_path: Path, legacy: bool) -> None:
    base = torch.arange(48)
    tree: dict[str, torch.Tensor] = {str(kind): base.to(kind).reshape(6, 8)[1:, ::2] for kind in TYPES}
    tree |= {
        "expanded": torch.randn(4).expand(3, 4),
        "shared": base[4:9],
        "parameter": torch.nn.Parameter(torch.randn(3)),
    }
    torch.save(tree, tmp_path / "x.pt", _use_new_zipfile_serialization=not legacy)
    found = open_checkpoint(str(tmp_path / "x.pt")).weights
    for name, tensor in tree.items():
        wide = tensor.detach().float() if "bfloat" in name or "float8" in name else tensor.detach()
        assert found[name].shape == tuple(tensor.shape)
        np.testing.assert_array_equal(found[name].read(), wide.numpy(), err_msg=name)


def test_one_state_is_the_same_in_all_formats(tmp_path: Path) -> None:
    state = weights()
    torch.save({"model": state}, tmp_path / "a.pt")
    torch.save({f"module._orig_mod.{name}": one for name, one in state.items()}, tmp_path / "wrapped.pt")
    torch.save(state, tmp_path / "legacy.pth", _use_new_zipfile_serialization=False)
    whole = {name: one.contiguous() for name, one in state.items()}
    save_file(whole, tmp_path / "b.safetensors")
    dcp.save({"model": state}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    sharded = tmp_path / "sharded"
    sharded.mkdir()
    names = sorted(state)
    for number, part in enumerate((names[:3], names[3:])):
        torch.save({name: state[name] for name in part}, sharded / f"pytorch_model-{number}.bin")
    where = {name: f"pytorch_model-{int(name not in names[:3])}.bin" for name in names}
    (sharded / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": where}))
    for other in ("wrapped.pt", "legacy.pth", "b.safetensors", "dcp", "sharded"):
        found = compared(tmp_path / "a.pt", tmp_path / other)
        assert found.counts == {"equal": 6}, other
        assert not found.differs


def test_arrays_of_numpy(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.asfortranarray(np.ones((300, 200), np.float16))}
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    np.save(tmp_path / "a.npy", arrays["a"])
    torch.save({name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in arrays.items()}, tmp_path / "a.pt")
    assert compared(tmp_path / "a.npz", tmp_path / "a.pt").counts == {"equal": 2}
    assert compared(tmp_path / "a.npz", tmp_path / "b.npz").counts == {"equal": 2}
    assert compared(tmp_path / "a.npy", tmp_path / "a.npy").counts == {"equal": 1}


def message(tag: str, kind: str, dims: tuple[int, ...], content: bytes) -> bytes:
    """One value of a checkpoint of MindSpore."""

    def field(number: int, data: bytes) -> bytes:
        assert len(data) < 1 << 14
        return bytes([number << 3 | 2, len(data) & 0x7F | 0x80, len(data) >> 7]) + data

    tensor = b"".join(bytes([8, n]) for n in dims) + field(2, kind.encode()) + field(3, content)
    return field(1, field(1, tag.encode()) + field(2, tensor))


def test_a_checkpoint_of_mindspore_answers_to_pytorch(tmp_path: Path) -> None:
    weight, bias = torch.randn(4, 3), torch.randn(4).bfloat16()
    table = torch.randn(6, 5)
    halves = table.numpy().tobytes()[:40], table.numpy().tobytes()[40:]
    data = message("layers-0.gamma", "Float32", (4, 3), weight.numpy().tobytes())
    data += message("layers-0.beta", "BFloat16", (4,), bias.view(torch.int16).numpy().tobytes())
    # A large parameter is written in slices.
    data += message("embedding_table", "Float32", (6, 5), halves[0]) + message(
        "embedding_table", "Float32", (6, 5), halves[1]
    )
    data += message("moments.layers-0.gamma", "Float32", (4, 3), weight.numpy().tobytes())
    (tmp_path / "x.ckpt").write_bytes(data + message("epoch_num", "Int64", (), (3).to_bytes(8, "little")))
    torch.save({"layers.0.weight": weight, "layers.0.bias": bias, "weight": table}, tmp_path / "x.pt")
    found = compared(tmp_path / "x.ckpt", tmp_path / "x.pt")
    assert found.counts == {"equal": 3}
    assert sorted(found.first.optimizer) == ["epoch_num", "layers-0.gamma.momentum_buffer"]


def field(number: int, data: bytes) -> bytes:
    """A field of a protobuf message."""
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def layout(name: str, devices: list[int], axes: list[int], shards: tuple[int, int] = (0, 0)) -> bytes:
    """How a parameter lies on devices, as a strategy file says it."""
    numbers = b"".join(b"\x08" + (b"\xff" * 9 + b"\x01" if one < 0 else bytes([one])) for one in axes)
    told = field(1, b"".join(bytes([8, one]) for one in devices)) + field(2, numbers)
    told += bytes([5 << 3, 0, 6 << 3, shards[0], 7 << 3, shards[1]])
    return field(3, field(1, name.encode()) + field(2, told))


def test_slices_of_the_ranks_of_mindspore_are_put_together_by_its_strategy(tmp_path: Path) -> None:
    """As MindSpore's own merge_sliced_parameter does it, by which these slices were checked."""
    whole = {"a.weight": torch.randn(8, 6), "b.weight": torch.randn(4, 8), "c.gamma": torch.randn(6)}
    axes = {"a.weight": [1, 0], "b.weight": [-1, 0], "c.gamma": [-1], "d.weight": [0, -1]}
    whole["d.weight"] = torch.randn(8, 4)
    whole["adam_m.a.weight"] = whole["a.weight"] * 2
    (tmp_path / "strategy").mkdir()
    told = b"".join(layout(name, [2, 2], one, (2, 2) if name == "d.weight" else (0, 0)) for name, one in axes.items())
    (tmp_path / "strategy" / "ckpt_strategy_rank_0.ckpt").write_bytes(b"\x08\x00" + told)

    def saved(path: Path, tensors: dict[str, torch.Tensor]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            b"".join(message(name, "Float32", (*one.shape,), one.numpy().tobytes()) for name, one in tensors.items())
        )

    for rank in range(4):
        row, column = divmod(rank, 2)
        part = {
            "a.weight": whole["a.weight"].chunk(2)[row].chunk(2, 1)[column],
            "b.weight": whole["b.weight"].chunk(2, 1)[column],
            "c.gamma": whole["c.gamma"],
            "d.weight": whole["d.weight"].chunk(2)[column].chunk(2)[row],
        }
        part["adam_m.a.weight"] = part["a.weight"] * 2
        saved(
            tmp_path / "ckpt" / f"rank_{rank}" / "net-1_5.ckpt", {name: one.contiguous() for name, one in part.items()}
        )
        saved(tmp_path / "ckpt" / f"rank_{rank}" / "net-1_4.ckpt", {"a.weight": torch.zeros(4, 3)})
    saved(tmp_path / "whole.ckpt", whole)
    found = compared(tmp_path / "ckpt", tmp_path / "whole.ckpt")
    assert found.counts == {"equal": 5}
    assert found.first.iteration == 5
    assert "a.weight.exp_avg" in found.first.optimizer
    (tmp_path / "strategy" / "ckpt_strategy_rank_0.ckpt").unlink()
    alone = compared(tmp_path / "ckpt", tmp_path / "ckpt")
    assert alone.counts == {"equal": 20}
    assert "no strategy file" in alone.notes[-1]
    (tmp_path / "ckpt" / "rank_1").rename(tmp_path / "ckpt" / "rank_7")
    with pytest.raises(PathError, match="lacks rank_1"):
        compared(tmp_path / "ckpt", tmp_path / "whole.ckpt")


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_slices_of_deepspeed_make_whole_weights(tmp_path: Path, stage: int) -> None:
    ranks = 2
    state = {"a.weight": torch.randn(3, 5), "a.bias": torch.randn(3), "b.weight": torch.randn(7)}
    groups = [{"a.weight": state["a.weight"], "b.weight": state["b.weight"]}, {"a.bias": state["a.bias"]}]
    shapes = [{name: one.shape for name, one in group.items()} for group in groups]
    folder = tmp_path / "ds" / "global_step7"
    folder.mkdir(parents=True)
    (tmp_path / "ds/latest").write_text("global_step7")
    model: dict[str, Any] = {"global_steps": 7, "param_shapes": shapes, "buffer_names": ["running"]}
    model["module"] = {**{name: one.bfloat16() for name, one in state.items()}, "running": torch.ones(2)}
    if stage == 0:
        model["module"] = {**state, "running": torch.ones(2)}
    for rank in range(ranks):
        name = f"zero_pp_rank_{rank}_mp_rank_00"
        if stage == 3 or rank == 0:
            torch.save(model, folder / f"{name if stage == 3 else 'mp_rank_00'}_model_states.pt")
        if not stage:
            continue
        flat = []
        for group in groups:
            if stage == 3:
                parts = []
                for one in group.values():
                    share = math.ceil(one.numel() / ranks)
                    padded = torch.cat([one.flatten(), torch.zeros(share * ranks - one.numel())])
                    parts.append(padded[rank * share : (rank + 1) * share])
                flat.append(torch.cat(parts))
            else:
                whole = torch.cat([one.flatten() for one in group.values()])
                padded = torch.cat([whole, torch.zeros(-len(whole) % (2 * ranks))])
                flat.append(padded.chunk(ranks)[rank].clone())
        key = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
        moments = {"state": {at: {"exp_avg": one * 2, "step": 7.0} for at, one in enumerate(flat)}}
        optimizer = {"zero_stage": stage, "partition_count": ranks, key: flat}
        optimizer["optimizer_state_dict" if stage == 3 else "base_optimizer_state"] = moments
        torch.save({"optimizer_state_dict": optimizer}, folder / f"{name}_optim_states.pt")
    expected = {"model": {**state, "running": torch.ones(2)}}
    torch.save(expected, tmp_path / "a.pt")
    found = compared(tmp_path / "a.pt", tmp_path / "ds")
    assert found.counts == {"equal": 4}
    assert found.second.iteration == 7
    if stage:
        moment = found.second.optimizer["a.weight.exp_avg"].read()
        np.testing.assert_array_equal(moment, 2 * state["a.weight"].numpy())
        (folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
        with pytest.raises(Exception, match="of rank 1"):
            compared(tmp_path / "a.pt", tmp_path / "ds")


def test_what_python_numpy_and_torch_drew_is_compared(tmp_path: Path) -> None:
    def state(seed: int) -> dict[str, Any]:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        drawn = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}
        return {"model": weights(), "rng_state": drawn}

    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        torch.save(state(seed), tmp_path / f"{name}.pt")
    assert not compared(tmp_path / "a.pt", tmp_path / "b.pt").differs
    found = compared(tmp_path / "a.pt", tmp_path / "c.pt")
    assert {row.name.split(".")[1] for row in found.of("changed", section="random")} == {"python", "numpy", "cpu"}
    assert not compared(tmp_path / "a.pt", tmp_path / "c.pt", sections=("weights",)).differs


def test_a_model_that_was_saved_whole_answers_to_its_state(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3, bias=False), torch.nn.BatchNorm1d(3), torch.nn.LSTM(3, 2))
    model.register_buffer("not_saved", torch.ones(2), persistent=False)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    torch.save(model, tmp_path / "whole.pt")
    torch.save({"network": model, "epoch": 3}, tmp_path / "inside.pt")
    for name in ("whole.pt", "inside.pt"):
        assert compared(tmp_path / "state.pt", tmp_path / name).counts == {"equal": len(model.state_dict())}


def test_a_map_gives_names_their_partners(tmp_path: Path) -> None:
    torch.save({"net.a0.w": torch.ones(2), "old": torch.ones(3)}, tmp_path / "a.pt")
    torch.save({"body.0.weight": torch.ones(2), "new": torch.ones(3)}, tmp_path / "b.pt")
    (tmp_path / "map.yaml").write_text("old: new\n'net\\.a(\\d+)\\.w': 'body.\\1.weight'\n")
    assert compared(tmp_path / "a.pt", tmp_path / "b.pt").counts == {"missing": 2, "extra": 2}
    assert compared(tmp_path / "a.pt", tmp_path / "b.pt", names=str(tmp_path / "map.yaml")).counts == {"equal": 2}
    (tmp_path / "map.yaml").write_text("- old")
    with raising(InvalidInputError, "name-map-form"):
        compared(tmp_path / "a.pt", tmp_path / "b.pt", names=str(tmp_path / "map.yaml"))
