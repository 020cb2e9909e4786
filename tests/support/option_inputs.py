"""Inputs for the walk over all options of all commands: small, and made once for all of them."""

from __future__ import annotations

import json
import math
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from unit.monitor.runs import STARTED, begun, metrics, row, write_run

from support import acl_files
from support.command_line import call as commanded
from support.graph_dumps import BUILT, make_dump
from support.hand_made import TOY, backward, call, tensor, write_part
from support.packs import PUBLISHED

PUBLISHED_CHECKS = Path(__file__).parents[1] / "unit" / "precheck" / "files_of_8_1_1"
_STACK = {
    "Torch.div.0.forward": [
        "File /train.py, line 15, in step, \n h = torch.div(h, z)",
        "File /train.py, line 30, in <module>, \n step()",
    ],
    "Module.fc.Linear.forward.0": [
        "File /model.py, line 4, in forward, \n return self.fc(x)",
        "File /train.py, line 29, in <module>, \n model(x)",
    ],
}


def make_inputs(folder: Path) -> dict[str, str]:
    """Make all inputs below ``folder``; the words that stand for their paths in the table of options."""
    return {
        name: str(path)
        for part in (_dumps, _tensors, _settings, _calls, _monitored, _kernels, _checkpoints, _logs, _made)
        for name, path in part(folder).items()
    }


def _write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# ---------------------------------------------------------------- dumps


def _training(value: float, bad: float | None = None) -> dict[str, Any]:
    """Two calls in a module, and their gradients; ``bad``: what a call divides its argument to."""
    return {
        "Functional.linear.0.forward": call(tensor(4, 3, value=1.0), tensor(2, 3), out=tensor(4, 2, value=value)),
        "Torch.div.0.forward": call(tensor(4, 2, value=value), out=tensor(4, 2, value=value if bad is None else bad)),
        "Module.fc.Linear.forward.0": call(tensor(4, 3, value=1.0), out=tensor(4, 2, value=value)),
        "Torch.div.0.backward": backward(tensor(4, 2, value=value)),
    }


def _spread(bad: float) -> dict[str, Any]:
    """Records by which a bad value of :func:`_training` gets out of its module, and into the gradients."""
    lost = tensor(4, 2, value=bad)
    return {
        "Functional.relu.0.forward": call(lost, out=lost),
        "Module.fc.Linear.forward.0": call(tensor(4, 3, value=1.0), out=lost),
        "Functional.relu.0.backward": backward(lost),
    }


def _root(folder: Path, values: list[float], ranks: int = 1, bad: float | None = None, more: Any = None) -> Path:
    for step, value in enumerate(values):
        for rank in range(ranks):
            data = {**_training(value, bad), **(more or {})}
            chain = dict.fromkeys(data, "Module.fc.Linear.forward.0")
            chain["Module.fc.Linear.forward.0"] = None  # type: ignore[assignment]
            write_part(folder / f"step{step}" / f"rank{rank}", data, construct=chain, stacks=_STACK).close()
    return folder


def _dumps(folder: Path) -> dict[str, Path]:
    one_more = {"Torch.exp.0.forward": call(tensor(2, value=3.0), out=tensor(2, value=20.0))}
    return {
        "healthy": _root(folder / "healthy", [0.5, 0.25], ranks=2),
        "same": _root(folder / "same", [0.5, 0.25], ranks=2),
        "longer": _root(folder / "longer", [0.5, 0.25], ranks=2, more=one_more),
        "apart": _root(folder / "apart", [0.5, 4.0], ranks=2),
        "bad": _root(folder / "bad", [0.5, 0.25], ranks=2, bad=math.inf),
        "cut": _cut(_root(folder / "cut", [0.5, 0.25], ranks=2, bad=math.inf) / "step1" / "rank1" / "dump.json"),
        "one": _root(folder / "one", [0.5]) / "step0" / "rank0",
        "renumbered": _renumbered(folder / "renumbered"),
        "renumbered_root": _renumbered(folder / "renumbered_root" / "step1" / "rank0").parent.parent,
        "shifted": _shifted(folder / "shifted"),
        "not_a_number": _root(folder / "not_a_number", [0.5], bad=math.nan, more=_spread(math.nan)),
        "negative": _root(folder / "negative", [0.5], bad=-math.inf),
        "large": _root(folder / "large", [0.5], bad=1000.0),
        "graph_file": _write(folder / "graph.json", {"npu_path": str(folder / "bad" / "step0" / "rank0")}),
        "graph_pair": _write(
            folder / "graph_pair.json",
            {"npu_path": str(folder / "renumbered"), "bench_path": str(folder / "one" / "step0" / "rank0")},
        ),
        "toy": TOY,
        "layer_names": TOY / "layer_mapping.yaml",
        "graph_far": _write(
            folder / "graph_far.json",
            {"npu_path": str(folder / "apart/step1/rank0"), "bench_path": str(folder / "healthy/step1/rank0")},
        ),
        "missing": folder / "missing",
    }


def _renumbered(folder: Path) -> Path:
    """With a call of each function in front of those that the others have, and another name for the module."""
    data = _training(0.5)
    more = {f"{name.replace('.0.', '.1.')}": record for name, record in data.items() if not name.startswith("Module")}
    data = {**data, **more, "Module.head.Linear.forward.0": call(tensor(4, 3), out=tensor(4, 2, value=7.0))}
    data["Functional.linear.0.forward"] = call(tensor(5, 7), tensor(9, 7), out=tensor(5, 9))
    chain: dict[str, Any] = dict.fromkeys(data, "Module.fc.Linear.forward.0")
    chain["Module.fc.Linear.forward.0"] = chain["Module.head.Linear.forward.0"] = None
    write_part(folder, data, construct=chain, stacks=_STACK).close()
    return folder


def _shifted(folder: Path) -> Path:
    """All calls with the next number."""
    data = {name.replace(".0.", ".1."): record for name, record in _training(0.5).items() if "Module" not in name}
    write_part(folder, data, construct=dict.fromkeys(data, "Module.fc.Linear.forward.0")).close()
    return folder


def _cut(file: Path) -> Path:
    file.write_text(file.read_text()[:-40])
    return file.parent.parent.parent


def _tensors(folder: Path) -> dict[str, Path]:
    import torch

    for name, factor in (("values", 1.0), ("other_values", 1.25)):
        part = folder / name / "step0" / "rank0"
        data = _training(0.5)
        for key, record in data.items():
            for number, one in enumerate(record["output"]):
                file = f"{key}.output.{number}.pt"
                one["data_name"] = file
                (part / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
                torch.save(factor * torch.arange(1.0, 9.0).reshape(4, 2), part / "dump_tensor_data" / file)
        write_part(part, data, task="tensor", stacks=_STACK).close()
        _redirect(part / "dump.json")
    turned = folder / "matrices"
    turned.mkdir()
    torch.save(2.0 * torch.eye(2), turned / "matrix.pt")
    matrix = {
        "right_matmul": {"target_tensor_map": {str(turned / "matrix.pt"): ["Functional.linear.0.forward.output.0.pt"]}}
    }
    metric = "def column_name():\n    return 'Twice'\n\n\ndef compare(n, b):\n    return float(2 * (n - b).max())\n"
    return {
        "values": folder / "values" / "step0" / "rank0" / "dump.json",
        "other_values": folder / "other_values" / "step0" / "rank0" / "dump.json",
        "matrices": _write(turned / "matrices.yaml", matrix),
        "metric": _write(folder / "alg_twice.py", metric),
    }


def _redirect(dump: Path) -> None:
    content = json.loads(dump.read_text())
    content["dump_data_dir"] = str(dump.parent / "dump_tensor_data")
    dump.write_text(json.dumps(content))


# ---------------------------------------------------------------- settings files


def _settings(folder: Path) -> dict[str, Path]:
    pair = {
        "npu_path": str(folder / "longer/step1/rank0/dump.json"),
        "bench_path": str(folder / "apart/step1/rank0/dump.json"),
    }
    stack = {"stack_path": str(folder / "longer/step1/rank0/stack.json")}
    online = {"task": "run_ut", "dump_path": "x", "run_ut": {"is_online": True, "nfs_path": str(folder)}}
    return {
        "compare_file": _write(folder / "compare.json", pair),
        "stack_file": _write(folder / "stack_compare.json", {**pair, **stack}),
        "kernel_file": _write(folder / "kernels.json", {"npu_path": "a", "bench_path": "b", "rank_id": [0]}),
        "names": _write(
            folder / "names.yaml",
            "Functional.linear.0.forward.output.0: Torch.div.0.forward.output.0\n",
        ),
        "run_config": _write(
            folder / "run.json", {"task": "statistics", "dump_path": str(folder / "out"), "level": "L0"}
        ),
        "check_config": _write(
            folder / "check.json",
            {"task": "run_ut", "dump_path": "x", "run_ut": {"white_list": ["linear"], "precision": 5}},
        ),
        "online_config": _write(folder / "online.json", online),
        "op_config": _write(
            folder / "config_op.json",
            {
                "dump_json_path": str(folder / "calls" / "dump.json"),
                "api_name": "Functional.softmax.0",
                "extract_api_path": str(folder / "extract.json"),
            },
        ),
        "script": _write(folder / "train.py", "print('trained')\n"),
        "layout": _write(folder / "layout.yaml", "candidate: {tp: 1}\nreference: {tp: 1}\n"),
        "merge_config": _write(folder / "merge.yaml", "api: [Torch]\n"),
        "merge_other": _write(folder / "merge_other.yaml", "api: [Functional]\n"),
    }


# ---------------------------------------------------------------- calls that are checked


def _calls(folder: Path) -> dict[str, Path]:
    x = tensor(2, 3, value=0.5, requires_grad=True)
    softmax = call(x, out=x)
    softmax["input_kwargs"] = {"dim": {"type": "int", "value": -1}}
    data = {"Functional.softmax.0.forward": softmax, "Functional.softmax.0.backward": backward(x)}
    write_part(folder / "calls", data).close()
    other = tensor(5, value=0.5)
    write_part(
        folder / "other_calls", {"Functional.softmax.0.forward": {**softmax, "input_args": [other], "output": [other]}}
    ).close()
    verdict = _write(folder / "operators.yaml", "operators:\n  npu_twice: {forward: own.py:clean}\n")
    return {
        "calls": folder / "calls" / "dump.json",
        "other_calls": folder / "other_calls" / "dump.json",
        "operators": verdict,
        "own_code": _write(folder / "own.py", "def clean(name, output, args, kwargs):\n    return output\n"),
        "earlier_check": PUBLISHED_CHECKS / "compared_result.csv",
        "npu_details": PUBLISHED_CHECKS / "npu_details.csv",
        "gpu_details": PUBLISHED_CHECKS / "gpu_details.csv",
    }


# ---------------------------------------------------------------- monitored trainings


def _monitored(folder: Path) -> dict[str, Path]:
    def steps(factor: float) -> list[Any]:
        return [
            metrics(
                step,
                {
                    "grad_reduced": [row("fc1.weight", factor * (1.0 + step)), row("fc2.weight", 2.0 + step)],
                    "actv": [row("fc1.input", 1.0 + step + micro, micro=micro) for micro in (0, 1)],
                },
            )
            for step in range(3)
        ]

    for name, factor in (("monitored", 1.0), ("monitored_apart", 50.0)):
        for rank in (0, 1):
            write_run(begun(folder / name, rank), steps(factor))
    write_run(begun(folder / "two_runs", started=STARTED), steps(1.0))
    write_run(begun(folder / "two_runs", started=STARTED + 86_400), steps(2.0))
    alerts = {}
    for step, tag in ((1, "0:w/rank0/post_grad"), (3, "0:v/rank0/post_grad")):
        alerts[f"{tag}_step_{step}_call_8"] = {
            "rank": 0, "step": step, "micro_step": 0, "pp_stage": 0, "vpp_stage": 0, "call_id": 8, "tag_name": tag,
            "message": f"{tag} at {step}", "group_mates": [0, 1],
        }  # fmt: skip
    _write(folder / "alerts" / "anomaly_detected" / "rank0" / "anomaly.json", alerts)
    return {
        "monitored": folder / "monitored",
        "monitored_apart": folder / "monitored_apart",
        "two_runs": folder / "two_runs",
        "alerts": folder / "alerts" / "anomaly_detected",
        "trend_names": _write(folder / "trend_names.json", {"fc1": "first"}),
    }


# ---------------------------------------------------------------- kernels, graphs of MindSpore


def _kernels(folder: Path) -> dict[str, Path]:
    (folder / "kernels").mkdir()
    (folder / "kernels" / acl_files.NAME).write_bytes(acl_files.EXAMPLE)
    for name, factor in (("kernel_target", 1), ("kernel_golden", 2)):
        for rank in (0, 1):
            for step in (0, 1):
                at = folder / name / f"rank_{rank}" / "Net" / "1" / str(step)
                at.mkdir(parents=True)
                np.save(at / "Add.Default_Add-op1.6.0.101.output.0.0.ND.npy", factor * np.arange(4.0))
    (folder / "other_kernels").mkdir()
    acl_files.write(folder / "other_kernels" / acl_files.NAME, acl_files.of(np.arange(3.0, dtype=np.float32), 1))
    make_dump(folder)
    return {
        "kernels": folder / "kernels",
        "other_kernels": folder / "other_kernels",
        "kernel_target": folder / "kernel_target",
        "kernel_golden": folder / "kernel_golden",
        "graph_dump": folder / "dump",
        "graph_text": Path(BUILT),
        "other_graph_text": TOY.parent / "code_mapping" / "graphs" / "graph_build_1_0200.ir",
    }


# ---------------------------------------------------------------- what is compared before a training


def _checkpoints(folder: Path) -> dict[str, Path]:
    import torch

    def model(scale: float, **more: Any) -> dict[str, Any]:
        weights = {"fc.weight": scale * torch.ones(2, 3), "fc.bias": torch.zeros(2), **more}
        return {
            "model": weights,
            "optimizer": {"state": {0: {"exp_avg": scale * torch.ones(2, 3)}}, "param_groups": []},
        }

    later = {"fc.weight": torch.arange(6.0).reshape(2, 3)}
    torch.save(model(1.0), folder / "a.pt")
    torch.save(model(2.0, **later), folder / "b.pt")
    torch.save(model(2.0, **later), folder / "older.pt")
    renamed = model(1.0)
    renamed["model"]["first.weight"] = renamed["model"].pop("fc.weight")
    torch.save(renamed, folder / "renamed.pt")
    version = PUBLISHED / "26.2.0"
    shutil.copy(version / "static_1.zip", folder / "static_1.zip")
    with zipfile.ZipFile(version / "static_2.zip") as pack, zipfile.ZipFile(folder / "other_pip.zip", "w") as other:
        for name in pack.namelist():
            other.writestr(name, pack.read(name).replace(b"pip=23.2.1", b"pip=1.0"))
    return {
        "ckpt_a": folder / "a.pt",
        "ckpt_b": folder / "b.pt",
        "ckpt_older": folder / "older.pt",
        "ckpt_renamed": folder / "renamed.pt",
        "ckpt_names": _write(folder / "ckpt_names.yaml", "fc.weight: first.weight\n"),
        "pack_a": version / "static_1.zip",
        "pack_b": version / "static_2.zip",
        "pack_pip": folder / "other_pip.zip",
        "weights_a": version / "dynamic_1.zip",
        "weights_b": version / "dynamic_2.zip",
        "variables": _write(folder / "variables.yaml", "CUDA_LAUNCH_BLOCKING: error\nHOME: error\n"),
        "launch": _write(folder / "launch.sh", "export SECRET_TOKEN=abc\npython train.py --lr 0.1\n"),
    }


def _logs(folder: Path) -> dict[str, Path]:
    def log(name: str, ratio: float) -> Path:
        settings = {"actor_rollout_ref": {"actor": {"clip_ratio": ratio}}, "data": {"shuffle": False}}
        return _write(folder / name, f"started\n(TaskRunner pid=1) {settings!r}\nstep 1 loss 0.5")

    def slime(name: str, ratio: float) -> Path:
        first, last = f"{'-' * 24} arguments {'-' * 24}", f"{'-' * 20} end of arguments {'-' * 21}"
        lines = [f"(x pid=1) {line}" for line in (first, f"  lr ........................ {ratio}", last)]
        return _write(folder / name, "\n".join(lines) + "\n")

    def log_probs(name: str, further: float, token: int = 5) -> Path:
        rows = [{"id": place, "token_ids": [3, token], "log_probs": [-1.0, -2.0 - further]} for place in range(2)]
        return _write(folder / name, "".join(json.dumps(one) + "\n" for one in rows))

    with zipfile.ZipFile(Path(__file__).parents[1] / "data" / "rollout" / "engine.zip") as archive:
        archive.extractall(folder / "rollout")
    return {
        "roll": folder / "rollout" / "roll",
        "trainer_model": folder / "rollout" / "model",
        "engine_log_probs": log_probs("engine.jsonl", 0.0),
        "trainer_log_probs": log_probs("trainer.jsonl", 1e-7),
        "other_log_probs": log_probs("other.jsonl", 0.5),
        "other_tokens": log_probs("tokens.jsonl", 0.0, token=6),
        "verl_a": log("verl_a.log", 0.2),
        "verl_b": log("verl_b.log", 0.3),
        "verl_wanted": _write(folder / "verl.yaml", "actor_rollout_ref:\n  actor:\n    clip_ratio: 0.3\n"),
        "slime_a": slime("slime_a.log", 0.2),
        "slime_b": slime("slime_b.log", 0.3),
    }


# ---------------------------------------------------------------- what commands make of these


def _made(folder: Path) -> dict[str, Path]:
    """What the next command reads of the one before: a verdict, sheets, and the gradients of two trainings."""
    healthy = folder / "healthy"
    for name, other in (("verdict", "apart"), ("other_verdict", "bad")):
        done = commanded("compare", folder / other, healthy, "-o", folder / name)
        assert done.returncode < 2, done
    for name, other in (("sheets", "apart"), ("other_sheets", "bad")):
        commanded("compare", "-tp", folder / other / "step1", "-gp", healthy / "step1", "-o", folder / name, "--xlsx")
    (folder / "matches").mkdir()
    return {
        "verdict": folder / "verdict" / "verdict.json",
        "other_verdict": folder / "other_verdict" / "verdict.json",
        "sheets": folder / "sheets",
        "other_sheets": folder / "other_sheets",
        "matches": folder / "matches",
        **_gradients(folder),
    }


def _gradients(folder: Path) -> dict[str, Path]:
    import torch

    from support.probed import Weights, probing, step

    for name, signs in (("gradients_a", (1.0, 1.0)), ("gradients_b", (1.0, -1.0))):
        model = Weights(p0=(4,), p1=(4,))
        (folder / name).mkdir()
        with probing(folder / name, model):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for sign in signs:
                # One gradient differs from the first step on, the other from the second.
                own = signs[1] * torch.tensor([1.0, 2.0, 3.0, -4.0])
                step(optimizer, p0=sign * torch.tensor([1.0, 2.0, 3.0, 4.0]), p1=own)
    return {
        "gradients_a": folder / "gradients_a" / "out",
        "gradients_b": folder / "gradients_b" / "out",
        "gradient_names": _write(folder / "gradient_names.json", {"p0": "p1"}),
    }
