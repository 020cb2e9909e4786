"""Writes an honest input of each reader into the corpus: ``python -m fuzz.seeds`` in tests/, when a format is new."""

from __future__ import annotations

import contextlib
import io
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile import made, receiver
from support import acl_files
from support.command_line import call

from fuzz.readers import CORPUS, READERS, as_json
from msprobe.foreign import zstd
from msprobe.precheck.columns import DETAILS_HEADER, lines_of

_CALL = {"Functional.relu.0.forward": made.record()}
_DUMP = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
_MODULES = {
    "Module.fc.Linear.forward.0": made.record(),
    "Functional.relu.0.forward": made.record(
        {"type": "int", "value": 1}, made.TENSOR, inplace={"type": "bool", "value": True}
    ),
    "Functional.relu.0.backward": {"input": [made.TENSOR], "output": [{**made.TENSOR, "Max": "nan", "Min": "-inf"}]},
    "Module.fc.Linear.parameters_grad": {"weight": [made.TENSOR]},
}
_PARENTS = {
    "Module.fc.Linear.forward.0": None,
    "Functional.relu.0.forward": "Module.fc.Linear.forward.0",
    "Functional.relu.0.backward": None,
    "Module.fc.Linear.parameters_grad": None,
}
_STACKS = as_json({"0": [list(_MODULES), ["File a.py, line 1, in f, x = relu(y)"]]})
_SLIME = (
    b"(x pid=1) ------------------------ arguments ------------------------\n"
    b"(x pid=1)   lr .............................. 0.1\n(x pid=1)   bf16 ............................ True\n"
    b"(x pid=1) -------------------- end of arguments ---------------------\n"
)
_VERL = (
    b"started {not a dict\n(TaskRunner pid=1) {'actor_rollout_ref': {'actor': {'lr': 0.1, 'on': True}, 'empty': {}},\n"
    b"(TaskRunner pid=1)  'data': {'files': ['a', 'b']}}\nstep 1 loss 0.5\n"
)
_GRADIENTS = 'param_name,max,min,norm,shape\nlayer.weight,1.0,-1.0,2.0,"[2, 3]"\n'


def _details() -> bytes:
    cells = ["pass" if name == "Status" else "(2, 3)" if name == "Shape" else "0.0" for name in DETAILS_HEADER]
    cells[:3] = ["Functional.relu.0.forward.output.0", "torch.float32", "torch.float32"]
    return lines_of([DETAILS_HEADER, cells])


def _graph(suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        place = made.dump(top / "dump", _MODULES, level="mix").parent
        (place / "construct.json").write_bytes(as_json(_PARENTS))
        (place / "stack.json").write_bytes(_STACKS)
        if suffix == ".vis":
            (top / "graph.json").write_bytes(as_json({"npu_path": str(place), "is_print_compare_log": False}))
            call("graph", "-i", top / "graph.json", "-o", top / "out", cwd=top)
        else:
            call("graph_visualize", "-tp", top / "dump", "-o", top / "out", cwd=top)
        found = next((top / "out").rglob(f"*{suffix}"))
        if suffix == ".vis.db":
            with contextlib.closing(sqlite3.connect(found)) as base:
                base.executescript("PRAGMA page_size = 1024; VACUUM")
        return found.read_bytes()


def _verdict() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        made.dump(top / "A", {"Functional.relu.0.forward": made.record()})
        made.dump(top / "B", {"Functional.relu.0.forward": made.record({**made.TENSOR, "Max": 3.0})})
        call("compare", top / "A", top / "B", "-o", top / "out", cwd=top)
        return next((top / "out").rglob("verdict.json")).read_bytes()


def _pack() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.json")
        path.write_bytes(b'{"lr": 0.1, "model": {"layers": 2}}')
        call("config_check", "-d", path, "-o", Path(folder, "pack.zip"), cwd=Path(folder))
        return Path(folder, "pack.zip").read_bytes()


def _written(write: Callable[[Path], object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        write(path)
        return path.read_bytes()


def _arrays(many: bool) -> bytes:
    made_bytes = io.BytesIO()
    if many:
        np.savez(made_bytes, a=np.ones((2, 3), np.float32), b=np.arange(4))
    else:
        np.save(made_bytes, np.ones((2, 3), np.float32))
    return made_bytes.getvalue()


def _safetensors() -> bytes:
    header = as_json({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {"format": "pt"}})
    return struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1, 2)


def _of_torch(is_distributed: bool) -> bytes:
    """The description of a checkpoint of torch.distributed, or a file as torch wrote it before 1.6."""
    import torch
    import torch.distributed.checkpoint as distributed

    state = {"w": torch.ones(2, 3), "steps": 5}
    with tempfile.TemporaryDirectory() as folder:
        if is_distributed:
            distributed.save(state, checkpoint_id=folder)
            return Path(folder, ".metadata").read_bytes()
        torch.save(state, Path(folder, "a.pth"), _use_new_zipfile_serialization=False)
        return Path(folder, "a.pth").read_bytes()


def _monitor(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made.monitored(Path(folder))
        return next(Path(folder).rglob(name)).read_bytes()


def _seeds() -> Iterator[tuple[str, str, bytes]]:
    dumps = as_json({**_DUMP, "data": _CALL}), as_json({**_DUMP, "level": "mix", "data": _MODULES})
    for name in ("dump_json", "dump_checked", "dumps_compared", "overflow"):
        yield name, "seed.json", dumps[0]
        yield name, "modules.json", dumps[1]
    yield "dump_packed", "seed.json.zst", b"".join(zstd.packed([dumps[0]]))
    yield "stack_json", "seed.json", _STACKS
    yield "construct_json", "seed.json", as_json(_PARENTS)
    yield "verdict", "seed.json", _verdict()
    yield "graph_vis", "seed.vis", _graph(".vis")
    yield "graph_database", "seed.db", _graph(".vis.db")
    tensor = _written(made.pt)
    yield "tensor_pt", "seed.pt", tensor
    yield "checkpoint_pt", "seed.pt", tensor
    yield "checkpoint_old", "seed.pth", _of_torch(is_distributed=False)
    yield "checkpoint_npy", "seed.npy", _arrays(many=False)
    yield "checkpoint_npz", "seed.npz", _arrays(many=True)
    yield "checkpoint_safetensors", "seed.safetensors", _safetensors()
    yield "checkpoint_distributed", "seed.metadata", _of_torch(is_distributed=True)
    yield "kernel_file", "seed.bin", acl_files.EXAMPLE
    yield "pack", "seed.zip", _pack()
    yield "settings_yaml", "seed.yaml", b"lr: 0.1\nmodel: &m\n  layers: [1, 2]\nother:\n  <<: *m\n"
    yield "settings_json", "seed.json", b'{"lr": 0.1, "model": {"layers": [1, 2]}}'
    yield "settings_toml", "seed.toml", b"lr = 0.1\n[model]\nlayers = [1, 2]\n"
    yield (
        "settings_shell",
        "seed.sh",
        b'LR=0.1\nARGS="--lr $LR"\nfor i in 1 2; do\n  ARGS="$ARGS --x$i"\ndone\npython train.py $ARGS\n',
    )
    yield "settings_python", "seed.py", b"lr = 0.1\nmodel = dict(layers=[1, 2], size=2 * 64)\nname = f'{lr}'\n"
    yield "verl_log", "seed.log", _VERL
    yield "slime_log", "seed.log", _SLIME
    yield "recorder_settings", "seed.json", as_json({
        "task": "statistics", "dump_path": "/tmp/x", "rank": [], "step": [0, "2-4"], "level": "mix",
        "statistics": {"scope": [], "list": ["relu"], "data_mode": ["all"], "summary_mode": "statistics"},
    })  # fmt: skip
    yield "mapping_data", "seed.yaml", b"Functional.relu.0.forward.input.0: Functional.relu.0.forward.input.0\n"
    yield "mapping_cells", "seed.yaml", b"fc1.Dense: fc1.Linear\n"
    yield "mapping_calls", "seed.yaml", b"- ms_api: mint.relu\n  pt_api: torch.relu\n  ms_args: [0]\n  pt_args: [0]\n"
    yield "mapping_layers", "seed.yaml", b"TopLayer:\n  model: net\nNet:\n  fc1: fc_1\n"
    yield "monitor_csv", "seed.csv", _monitor("*.csv")
    yield "monitor_run", "seed.json", as_json({"format": 1, "rank": 0, "started": "2025-11-01T10:00:00", "config": {}})
    yield "details_csv", "seed.csv", _details()
    yield "gradient_csv", "seed.csv", _GRADIENTS.encode()
    yield "wire_frames", "seed.bin", b"".join(receiver.honest_frames()[:-1])
    sign = as_json({"rank": 0, "process": {"pid": 1, "host": "a", "started": 1, "boot": "", "namespace": 0}})
    yield "shared_folder", "seed.bin", b"start\n" + sign
    yield "shared_folder", "frame.bin", b"frame\n" + receiver.frame("begin", 10, **receiver.BEGIN)
    yield (
        "page_requests",
        "seed.txt",
        b"GET /api/node?index=0&row=1\nHost: 127.0.0.1:80\nX-Msprobe-Token: token\nAccept-Encoding: gzip\n\n",
    )
    body: dict[str, Any] = {"index": 0, "candidate": "a", "reference": None, "with_children": True}
    yield (
        "page_requests",
        "match.txt",
        b"POST /api/matches\nHost: localhost\nX-Msprobe-Token: token\n\n" + as_json(body),
    )
    yield "page_requests", "first.txt", b"GET /?token=token\nHost: 127.0.0.1\n\n"


def main() -> None:
    for name, file, data in _seeds():
        assert name in READERS, name
        assert data, name
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
        (CORPUS / name / file).write_bytes(data)


if __name__ == "__main__":
    main()
