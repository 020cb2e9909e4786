"""Malicious and broken checkpoints: refused in one sentence, nothing executed, nothing written, little memory used."""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import resource
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from msprobe.environment.checkpoint.comparison import CheckpointRequest, compare_checkpoints
from msprobe.errors import MsprobeError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
_TENSOR = {"w": torch.arange(6.0).reshape(2, 3)}


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, place: Path, function: Any = os.system) -> None:
        self.place, self.function = place, function

    def __reduce__(self) -> Any:
        return self.function, (f"touch {self.place}",)


def archive(path: Path, pickled: bytes, compress: int = zipfile.ZIP_STORED, **more: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compress) as out:
        out.writestr("archive/data.pkl", pickled)
        for name, data in more.items():
            out.writestr("archive/" + name.replace("__", "/"), data)
    return path


def tensor_pickle(
    shape: bytes, strides: bytes, offset: bytes = b"K\0", key: bytes = b"0", count: bytes = b"K\6"
) -> bytes:
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX" + struct.pack("<I", len(key)) + key
    storage += b"X\x03\0\0\0cpu" + count + b"tQ"
    return (
        b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" + storage + offset + shape + strides
        + b"\x89}tRs."
    )  # fmt: skip


def edited_dcp(folder: Path, old: bytes, new: bytes) -> Path:
    dcp.save({"model": _TENSOR}, checkpoint_id=folder, no_dist=True)
    metadata = (folder / ".metadata").read_bytes()
    assert old in metadata
    (folder / ".metadata").write_bytes(metadata.replace(old, new))
    return folder


def safetensors(path: Path, header: Any, data: bytes = b"\0" * 24, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def saved(path: Path, value: Any, **options: Any) -> Path:
    torch.save(value, path, **options)
    return path


def indexed(folder: Path, file: str) -> Path:
    folder.mkdir()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": file}}))
    return folder


def tracked(folder: Path, name: str, text: str) -> Path:
    folder.mkdir()
    (folder / name).write_text(text)
    return folder


def linked(folder: Path) -> Path:
    edited_dcp(folder, b"__0_0.distcp", b"__0_1.distcp")
    (folder / "__0_1.distcp").mkdir()
    return folder


def npz(path: Path, shape: tuple[int, ...], data: bytes, compress: int = zipfile.ZIP_DEFLATED) -> Path:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", compress) as out:
        out.writestr("w.npy", head.getvalue() + data)
    return path


_DEEP = b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b"."
_HASHED = b"\x80\x02})" + b"\x85" * 200_000 + b"K\1s."
_LAUGHS = (
    b"\x80\x02]"
    + b"".join(b"]q%c" % n + b"(" + b"h%c" % (n - 1) * 10 + b"e" if n else b"]q\0K\1a" for n in range(30))
    + b"."
)
_MANY = b"\x80\x02(" + b"}" * 9_000_000 + b"l."

CASES: dict[str, Callable[[Path], Path]] = {
    "empty file": lambda p: written(p / "x.pt", b""),
    "text": lambda p: written(p / "x.pt", b"this is no checkpoint"),
    "zeros": lambda p: written(p / "x.bin", bytes(4096)),
    "cut archive": lambda p: written(p / "x.pt", saved(p / "y.pt", _TENSOR).read_bytes()[:-40]),
    "cut legacy file": lambda p: written(
        p / "x.pt", saved(p / "y.pt", _TENSOR, _use_new_zipfile_serialization=False).read_bytes()[:-4]
    ),
    "archive without pickle": lambda p: npz(p / "x.pt", (1,), b"1234"),
    "two pickles": lambda p: archive(p / "x.pt", pickle.dumps({}), b__data=b"", **{"c__data.pkl": b"."}),
    "compressed pickle": lambda p: archive(p / "x.pt", pickle.dumps("a" * 10_000_000), zipfile.ZIP_DEFLATED),
    "no values": lambda p: archive(p / "x.pt", tensor_pickle(b"K\2K\3\x86", b"K\3K\1\x86")),
    "short values": lambda p: archive(p / "x.pt", tensor_pickle(b"K\2K\3\x86", b"K\3K\1\x86"), data__0=b"1234"),
    "reaches out": lambda p: archive(p / "x.pt", tensor_pickle(b"K\2K\3\x86", b"K\7K\1\x86"), data__0=bytes(24)),
    "offset out": lambda p: archive(p / "x.pt", tensor_pickle(b"K\2\x85", b"K\1\x85", b"K\5"), data__0=bytes(24)),
    "negative stride": lambda p: archive(
        p / "x.pt", tensor_pickle(b"K\2\x85", b"J\xff\xff\xff\xff\x85"), data__0=bytes(24)
    ),
    "repeated for ever": lambda p: archive(
        p / "x.pt", tensor_pickle(b"\x8a\6\0\0\0\0\0\1\x85", b"K\0\x85"), data__0=bytes(24)
    ),
    "key leads out": lambda p: archive(
        p / "x.pt", tensor_pickle(b"K\2\x85", b"K\1\x85", key=b"../../etc"), data__0=bytes(24)
    ),
    "shape is a text": lambda p: archive(p / "x.pt", tensor_pickle(b"X\1\0\0\0a\x85", b"K\1\x85"), data__0=bytes(24)),
    "nested deep": lambda p: archive(p / "x.pt", _DEEP),
    "hash of nested tuples": lambda p: archive(p / "x.pt", _HASHED),
    "laughs": lambda p: archive(p / "x.pt", _LAUGHS),
    "nine million dicts": lambda p: archive(p / "x.pt", _MANY),
    "huge memo index": lambda p: archive(p / "x.pt", b"\x80\x02}r\xff\xff\xff\xff."),
    "huge text": lambda p: archive(p / "x.pt", b"\x80\x04\x8d\0\0\0\0\0\0\0\x40a."),
    "huge bytearray": lambda p: archive(p / "x.pt", b"\x80\x05\x96\0\0\0\0\0\0\0\x40a."),
    "huge integer": lambda p: archive(p / "x.pt", b"\x80\x02\x8b\0\0\0\x7f" + bytes(100) + b"."),
    "in itself": lambda p: archive(p / "x.pt", b"\x80\x02}q\0X\1\0\0\0ah\0s."),
    "unknown instruction": lambda p: archive(p / "x.pt", b"\x80\x02\xff."),
    "registered class": lambda p: archive(p / "x.pt", b"\x80\x02\x82\x01."),
    "stack runs out": lambda p: archive(p / "x.pt", b"\x80\x02R."),
    "header too long": lambda p: safetensors(p / "x.safetensors", {}, length=1 << 60),
    "header is no JSON": lambda p: safetensors(p / "x.safetensors", b"[" * 100_000),
    "header is a list": lambda p: safetensors(p / "x.safetensors", []),
    "place out of file": lambda p: safetensors(
        p / "x.safetensors", {"w": {"dtype": "F32", "shape": [1 << 30], "data_offsets": [0, 1 << 32]}}
    ),
    "size and shape": lambda p: safetensors(
        p / "x.safetensors", {"w": {"dtype": "F32", "shape": [7], "data_offsets": [0, 24]}}
    ),
    "negative place": lambda p: safetensors(
        p / "x.safetensors", {"w": {"dtype": "F32", "shape": [6], "data_offsets": [-24, 0]}}
    ),
    "shard leads out": lambda p: indexed(p / "hf", "../x.safetensors"),
    "shard is absolute": lambda p: indexed(p / "hf", "/etc/passwd"),
    "shard is missing": lambda p: indexed(p / "hf", "a.safetensors"),
    "index is no JSON": lambda p: tracked(p / "hf", "model.safetensors.index.json", "[" * 100_000),
    "latest leads out": lambda p: tracked(p / "ds", "latest", "../.."),
    "tracker leads out": lambda p: tracked(p / "mg", "latest_checkpointed_iteration.txt", "../.."),
    "block file leads out": lambda p: edited_dcp(p / "dcp", b"__0_0.distcp", b"../../etc/ab"),
    "block file is a folder": lambda p: linked(p / "dcp"),
    "other metadata": lambda p: written(_made(p / "dcp") / ".metadata", pickle.dumps({})).parent,
    "evil metadata": lambda p: written(_made(p / "dcp") / ".metadata", pickle.dumps(Evil(p / "evil"))).parent,
    "numpy bomb": lambda p: npz(p / "x.npz", (1 << 40,), b"1234"),
    "numpy of objects": lambda p: _object_array(p / "x.npy"),
    "mindspore cut": lambda p: written(p / "x.ckpt", b"\n\x7f\n\x08a.weight"),
    "mindspore lies": lambda p: written(p / "x.ckpt", b"\n\x15\n\x01a\x12\x10\x08\xff\x7f\x12\x07Float32\x1a\x02ab"),
    "mindspore varint": lambda p: written(p / "x.ckpt", b"\n" + b"\xff" * 100),
    "empty folder": lambda p: _made(p / "empty"),
    "list in itself": lambda p: archive(p / "x.pt", b"\x80\x02]q\0h\0a."),
    "tuple of a list of itself": lambda p: archive(p / "x.pt", b"\x80\x02]q\0(h\0tq\1ah\1."),
    "object that is its own state": lambda p: archive(p / "x.pt", b"\x80\x02ca\nB\n)\x81q\0h\0b."),
    "object that is a key of itself": lambda p: archive(p / "x.pt", b"\x80\x02ca\nB\n)\x81q\0h\0K\1sh\0h\0s."),
    "mark as a value": lambda p: archive(p / "x.pt", b"\x80\x02((\x85."),
    "size of the directory is a lie": lambda p: _lying(
        archive(p / "x.pt", tensor_pickle(_TWO, _ONE), data__0=bytes(8))
    ),
    "values that are compressed": lambda p: archive(
        p / "x.pt", tensor_pickle(_TWO, _ONE), zipfile.ZIP_DEFLATED, data__0=bytes(1 << 20)
    ),
    "entry leads out": lambda p: archive(p / "x.pt", b"\x80\x02}.", **{"..__..__evil": b"x"}),
    "huge shape": lambda p: archive(
        p / "x.pt", tensor_pickle(_HUGE + _HUGE + b"\x86", _HUGE + b"K\1\x86"), data__0=bytes(8)
    ),
    "sixty dimensions": lambda p: archive(
        p / "x.pt", tensor_pickle(b"(" + b"K\1" * 60 + b"t", b"(" + b"K\1" * 60 + b"t"), data__0=bytes(24)
    ),
    "shape and strides of other lengths": lambda p: archive(
        p / "x.pt", tensor_pickle(b"K\2K\3\x86", b"K\1\x85"), data__0=bytes(24)
    ),
    "tensors of the same bytes": lambda p: safetensors(
        p / "x.safetensors", {"a": {**_SIX, "data_offsets": [0, 24]}, "b": {**_SIX, "data_offsets": [8, 32]}}, bytes(32)
    ),
    "name twice": lambda p: safetensors(
        p / "x.safetensors", b'{"w":' + json.dumps({**_SIX, "data_offsets": [0, 24]}).encode() + b',"w":{}}'
    ),
    "type is a list": lambda p: safetensors(
        p / "x.safetensors", {"w": {"dtype": ["F32"], "shape": [6], "data_offsets": [0, 24]}}
    ),
    "shape is endless": lambda p: safetensors(
        p / "x.safetensors", {"w": {"dtype": "F32", "shape": [2] * 1000, "data_offsets": [0, 24]}}
    ),
    "shape is a truth": lambda p: safetensors(
        p / "x.safetensors", {"w": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}
    ),
    "a pipe": lambda p: piped(p / "x.pt"),
    "a pipe in a folder": lambda p: piped(_made(p / "hf") / "model.safetensors").parent,
    "a pipe for a description": lambda p: piped(_made(p / "dcp") / ".metadata").parent,
    "a link to a device": lambda p: pointing(p / "x.bin", "/dev/zero"),
    "a link to nothing": lambda p: pointing(p / "x.bin", str(p / "nothing")),
    "a link in a circle": lambda p: pointing(p / "x.bin", str(p / "x.bin")),
    "a description of another file": lambda p: pointing(_made(p / "dcp") / ".metadata", "/etc/passwd").parent,
    "weight map is a list": lambda p: tracked(p / "hf", "model.safetensors.index.json", '{"weight_map": [1]}'),
    "weight map of numbers": lambda p: tracked(p / "hf", "model.safetensors.index.json", '{"weight_map": {"w": 1}}'),
    "tracker of a million digits": lambda p: tracked(p / "mg", "latest_checkpointed_iteration.txt", "9" * 1_000_000),
    "latest with a zero byte": lambda p: tracked(p / "ds", "latest", "a\0b"),
    "sizes of texts": lambda p: edited_dcp(p / "dcp", b"K\2K\3\x86", b"X" + bytes(4)),
    "ranks without end": lambda p: megatron(
        p / "mg", tensor_model_parallel_size=1 << 15, pipeline_model_parallel_size=1 << 15
    ),
    "one rank of a thousand": lambda p: megatron(p / "mg", tensor_model_parallel_size=1000),
    "experts that do not fit": lambda p: megatron(p / "mg", num_experts=7),
    "slices of no shape": lambda p: deepspeed(p / "ds", {"w": "shape"}),
    "slices of a huge shape": lambda p: deepspeed(p / "ds", {"w": (1 << 40, 1 << 20)}),
    "slices of a negative shape": lambda p: deepspeed(p / "ds", {"w": (-6,)}),
    "frozen parts that are not there": lambda p: deepspeed(p / "ds", {"w": (6,)}, frozen={"a": 1}),
    "shared by a list": lambda p: deepspeed(p / "ds", {"w": (6,)}, shared=[(["a"], ["b"])]),
    "mindspore of forty dimensions": lambda p: written(
        p / "x.ckpt", b"\n\x5f\n\x01a\x12\x5a" + b"\x08\x01" * 40 + b"\x12\x07Float32\x1a"
    ),
    "mindspore in itself": lambda p: written(p / "x.ckpt", b"\n\x08\x12\x06\x12\x04\x12\x02\x12\x00"),
    "mindspore of an odd type": lambda p: written(p / "x.ckpt", b"\n\x0c\n\x01a\x12\x07\x12\x05Evil!"),
    "npz that leads out": lambda p: _npz_of(p / "x.npz", "../evil.txt"),
    "npz of version nine": lambda p: _npz_of(p / "x.npz", "w.npy", b"\x93NUMPY\x09\0" + bytes(100)),
    "npz whose header is code": lambda p: _npz_of(
        p / "x.npz", "w.npy", b"\x93NUMPY\1\0\x40\0" + b"__import__('os').system('touch evil')".ljust(64)
    ),
}  # fmt: skip


_TWO, _ONE, _HUGE = b"K\2\x85", b"K\1\x85", b"\x8a\7\0\0\0\0\0\0\x10"
_SIX = {"dtype": "F32", "shape": [6]}


def piped(path: Path) -> Path:
    os.mkfifo(path)
    return path


def pointing(path: Path, target: str) -> Path:
    path.symlink_to(target)
    return path


def megatron(folder: Path, **arguments: Any) -> Path:
    (folder / "mp_rank_00").mkdir(parents=True)
    state = {"decoder.layers.0.mlp.experts.weight1": torch.ones(4, 5)}
    saved(folder / "mp_rank_00/model_optim_rng.pt", {"args": argparse.Namespace(**arguments), "model": state})
    return folder


def deepspeed(folder: Path, shapes: Any, frozen: Any = None, shared: Any = None) -> Path:
    folder.mkdir()
    model = {"module": {}, "param_shapes": [shapes], "shared_params": shared}
    if frozen:
        model |= {"frozen_param_shapes": {}, "frozen_param_fragments": frozen}
    saved(folder / "mp_rank_00_model_states.pt", model)
    state = {"zero_stage": 1, "partition_count": 1, "single_partition_of_fp32_groups": [torch.ones(6)]}
    saved(
        folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        {"optimizer_state_dict": {**state, "base_optimizer_state": {"state": {}}}},
    )
    return folder


def _lying(path: Path) -> Path:
    """The directory says that the values have another length than the entry has."""
    data = path.read_bytes()
    at = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    path.write_bytes(data[: at + 20] + struct.pack("<II", 1 << 30, 1 << 30) + data[at + 28 :])
    return path


def _npz_of(path: Path, name: str, data: bytes = b"x") -> Path:
    with zipfile.ZipFile(path, "w") as out:
        out.writestr(name, data)
    return path


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _object_array(path: Path) -> Path:
    np.save(path, np.array([Evil(path.parent / "evil")], dtype=object), allow_pickle=True)
    return path


@pytest.mark.parametrize("case", CASES)
def test_a_broken_checkpoint_is_refused_in_one_sentence(tmp_path: Path, case: str) -> None:
    assert len(CASES) >= 90
    good = saved(tmp_path / "good.pt", _TENSOR)
    bad = CASES[case](tmp_path)
    before = sorted(tmp_path.rglob("*"))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MsprobeError) as found:
        compare_checkpoints(CheckpointRequest(str(good), str(bad)))
    assert "\n" not in found.value.message
    assert len(found.value.message) < 1200
    assert str(tmp_path) in found.value.message
    assert sorted(tmp_path.rglob("*")) == before
    assert not (tmp_path / "evil").exists()
    limit = 1 << 30 if case == "nine million dicts" else 100 << 20
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * 1024 < limit


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("function", [os.system, exec, eval, subprocess.call, open, getattr])
def test_nothing_that_a_pickle_calls_is_called(tmp_path: Path, legacy: bool, function: Any) -> None:
    good = saved(tmp_path / "good.pt", {"model": _TENSOR})
    tree = {
        "model": _TENSOR,
        "args": Evil(tmp_path / "evil", function),
        "optimizer": [Evil(tmp_path / "evil", function)],
    }
    bad = saved(tmp_path / "bad.pt", tree, _use_new_zipfile_serialization=not legacy)
    found = compare_checkpoints(CheckpointRequest(str(good), str(bad)))
    assert found.counts == {"equal": 1}
    assert not (tmp_path / "evil").exists()


def test_a_pickle_sets_nothing_on_what_reads_it(tmp_path: Path) -> None:
    from msprobe.environment.checkpoint.torch_files import REBUILD

    before = dict(REBUILD), REBUILD["torch._utils._rebuild_tensor_v2"].__defaults__
    # Attributes of a function that is named, by an instruction that sets the state of an object.
    stream = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}N}X\x0c\0\0\0__defaults__K\1\x85s\x86b0N."
    with pytest.raises(MsprobeError):
        compare_checkpoints(CheckpointRequest(*[str(archive(tmp_path / "x.pt", stream))] * 2))
    assert (dict(REBUILD), REBUILD["torch._utils._rebuild_tensor_v2"].__defaults__) == before


def test_values_that_are_gone_when_they_are_read_are_reported_row_by_row(tmp_path: Path) -> None:
    dcp.save({"model": _TENSOR}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    block = next((tmp_path / "dcp").glob("*.distcp"))
    data = bytearray(block.read_bytes())
    data[: len(data) // 2] = bytes(len(data) // 2)
    block.write_bytes(data)
    found = compare_checkpoints(CheckpointRequest(str(saved(tmp_path / "a.pt", _TENSOR)), str(tmp_path / "dcp")))
    assert found.counts == {"unreadable": 1}
    assert "distcp" in found.rows[0].detail


def test_every_mistake_of_both_sides_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(MsprobeError, match=r"a\.pt.*b\.pt.*c\.pt"):
        compare_checkpoints(
            CheckpointRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), earlier=str(tmp_path / "c.pt"))
        )
