"""What the blocks of each page find in their folder: made once, and the same files for all pages."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from support import forked, rollouts_made
from support.command_line import call
from support.megatron_made import dense, save
from support.option_inputs import make_inputs

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data" / "documents"
TWINS = ROOT / "tests" / "data" / "mindspore_and_pytorch.tar.xz"
_OF_TWINS = ("mix/mindspore_healthy/", "mix/mindspore_gelu/", "mix/pytorch_healthy/")
#: The training of a user that programs of pages take for granted.
TRAINING = """
import torch
from torch import nn
from train import DecoderLayer, Model, batches

torch.manual_seed(1)
model = Model()
optimizer = torch.optim.Adam(model.parameters())
loader = batches(3)
batch = loader[0]
"""


@dataclass(frozen=True)
class Page:
    """``files``: place in the folder -> name of an input, or a file of the repository; ``prelude`` and ``ending``: what
    stands before and behind each of its programs.
    """

    files: dict[str, str] = field(default_factory=dict)
    prelude: str = TRAINING
    ending: str = ""


_PAIR = {"new/dump": "recorded_new", "old/dump": "recorded"}
_ONE = {"dump": "recorded"}
_NEW = {"train_new.py": "train_new.py"}
_SCRIPTS = "examples/04_before_training"
_RECORDER = f"{TRAINING}\nfrom msprobe.pytorch import PrecisionDebugger\n"
_WATCHED = """
import torch
from torch import nn
from msprobe.pytorch import TrainerMon

model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
optimizer = torch.optim.Adam(model.parameters())
loss = model(torch.ones(2, 4)).sum()
"""
_TENSORS = "import torch\n\ntensor, a, b = torch.ones(3), torch.ones(2), torch.zeros(2)\n"
_SAVES = f"""{_TENSORS}
from msprobe.core import SingleSave

saver = SingleSave("run2", fmk="pytorch")
saver.save({{"response": tensor, "logits": [a, b]}})
saver.step()
"""
_LISTENERS = f"""{_RECORDER}
from msprobe.listeners import Cadence, Observer, Wants
from msprobe.pytorch import Listening

torch.save(torch.ones(1), "reference.pt")
"""
# Whatever the block defines has one step of the training.
_LISTENED = """
from msprobe.listeners import Changer

for one in [one for one in vars().copy().values() if isinstance(one, type) and issubclass(one, (Observer, Changer))]:
    if one.__module__ == __name__ and not isinstance(vars().get("debugger"), PrecisionDebugger):
        with Listening(one()) as listening, listening.step(model):
            model(batch).backward()
            optimizer.step()
"""

#: Of each page that runs anything, by its name.
PAGES: dict[str, Page] = {
    "check": Page(_ONE),
    "checkpoint": Page(
        {
            "a.pt": "weights",
            "b": "megatron",
            "npu.log": "verl_a",
            "bench.log": "verl_b",
            "wanted.yaml": "verl_wanted",
            "slime_npu.log": "slime_a",
            "slime_bench.log": "slime_b",
        }
    ),
    "code_mapping": Page({"dump": "graph_dump", "ir": "graph_text"}),
    "comparing": Page(_PAIR),
    "config_check": Page(
        {name: f"{_SCRIPTS}/{name}" for name in ("trusted.sh", "suspect.sh", "optimizer.yaml")},
        f"{TRAINING}\nfrom argparse import Namespace\n\nargs = Namespace(lr=0.001)\n",
    ),
    "dump": Page(_ONE),
    "find-the-step": Page(
        {
            "dump_bad": "recorded_new",
            "dump_good": "recorded",
            "train.py": "examples/05_find_the_step/train.py",
            "monitor.json": "examples/05_find_the_step/monitor.json",
        },
        _WATCHED,
    ),
    "free_benchmark": Page(prelude=_RECORDER),
    "grad_probe": Page({"npu/out": "gradients/npu/out", "gpu/out": "gradients/gpu/out"}),
    "graph": Page(_PAIR),
    "how-to-write-a-listener": Page({"config.json": "run_config"}, _LISTENERS, _LISTENED),
    "integrations": Page({"package/train.py": "train.py", "config.json": "run_config"}),
    "lockstep": Page(_NEW),
    "mappings": Page({"run2": "run2"}, _TENSORS),
    "mindspore": Page(
        {
            "mindspore": "mix/mindspore_healthy",
            "pytorch": "mix/pytorch_healthy",
            "mindspore_mistake": "mix/mindspore_gelu",
        }
    ),
    "mindstudio-probe": Page(
        {
            **_ONE,
            "compare.json": "steps.json",
            "TARGET": "apart/step1",
            "GOLDEN": "healthy/step1",
            "results": "sheets",
            "config.yaml": "merge_config",
            "train.sh": f"{_SCRIPTS}/trusted.sh",
            "cfg.yaml": f"{_SCRIPTS}/optimizer.yaml",
            "KERNEL_DUMP": "kernels",
            "GRAPHS": "graph_text",
            "KERNELS": "graph_dump",
        }
    ),
    "monitor": Page(),
    "nan_analyze": Page({"dump": "bad"}),
    "parse": Page({"kernels": "kernels"}),
    "prove-it": Page(
        {
            **_ONE,
            "OUT/verdict.json": "recorded_verdict",
            "config_op.json": "op_config",
            "NPU/accuracy_checking_details_T.csv": "npu_details",
            "GPU/accuracy_checking_details_T.csv": "gpu_details",
            "data": "empty",
        }
    ),
    "python": Page(_PAIR),
    "recording": Page(),
    "rollout": Page(
        {"engine.jsonl": "engine", "trainer.jsonl": "trainer", "rollout/step0": "roll", "checkpoint": "trainer_model"}
    ),
    "sheet": Page({**_PAIR, "compare.json": "compare_file"}),
    "tools": Page(
        {
            **_NEW,
            "OUT/verdict.json": "recorded_verdict",
            "REFERENCE": "recorded",
            "monitor.json": "examples/05_find_the_step/monitor.json",
        }
    ),
    "verdict": Page({**_PAIR, "healthy/dump": "recorded"}),
    "view": Page(_PAIR),
}


def record_pair(folder: Path) -> tuple[Path, Path]:
    """The training of pages, recorded below ``folder`` with a mistake in its second block and without: both dumps."""
    shutil.copytree(DATA, folder, dirs_exist_ok=True)
    healthy = (folder / "train.py").read_text(encoding="utf-8")
    (folder / "train_new.py").write_text(healthy.replace("default=0.25", "default=0.125"), encoding="utf-8")
    for name, script in (("recorded", "train.py"), ("recorded_new", "train_new.py")):
        command = ["run", "--config", "reference.json", "-o", name, "--", script]
        done = forked.run("-m", "msprobe", *command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
    return folder / "recorded_new", folder / "recorded"


def make(folder: Path) -> dict[str, Path]:
    """Make all inputs below ``folder``; where each is."""
    (folder / "options").mkdir()
    made = {name: Path(path) for name, path in make_inputs(folder / "options").items()}
    record_pair(folder)
    call("compare", folder / "recorded_new", folder / "recorded", "-o", folder / "recorded_verdict")
    (folder / "empty").mkdir()
    with tarfile.open(TWINS) as archive:
        archive.extractall(folder, filter="data", members=[one for one in archive if one.name.startswith(_OF_TWINS)])
    _checkpoints(folder)
    _log_probs(folder)
    _gradients(folder / "gradients")
    forked.run(str(_program(folder, _SAVES)), cwd=folder)
    own = {path.name: path for path in folder.iterdir()}
    own |= {f"mix/{path.name}": path for path in (folder / "mix").iterdir()}
    own["recorded_verdict"] /= "verdict.json"
    own |= {f"gradients/{side}/out": folder / "gradients" / side / "out" for side in ("npu", "gpu")}
    own |= {f"{name}/step1": made[name] / "step1" for name in ("apart", "healthy")}
    return made | own


def _program(folder: Path, text: str) -> Path:
    (folder / "program.py").write_text(text, encoding="utf-8")
    return folder / "program.py"


def _gradients(folder: Path) -> None:
    """Of three steps; in the last one, a tenth of one layer's have the other sign on the NPU."""
    import torch
    from support.probed import probing
    from torch import nn

    for side in ("npu", "gpu"):
        (folder / side).mkdir(parents=True)
        model = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 20))
        optimizer = torch.optim.SGD(model.parameters())
        torch.manual_seed(1)
        with probing(folder / side, model, grad_level="L1"):
            for number in range(3):
                for parameter in model.parameters():
                    parameter.grad = torch.randn(parameter.shape)
                if (side, number) == ("npu", 2):
                    model[1].weight.grad[:2] *= -1
                optimizer.step()


def _checkpoints(folder: Path) -> None:
    """The same weights from torch and from Megatron, but for two tensors."""
    import torch

    weights = dense()
    torch.save(weights, folder / "weights")
    qkv = "decoder.layers.1.self_attention.linear_qkv.weight"
    other = {**weights, qkv: weights[qkv].flip(0), "output_layer.weight": 0.5 * weights["output_layer.weight"]}
    save(folder / "megatron", other, tp=2, pp=2)


def _log_probs(folder: Path) -> None:
    """Of an engine that samples from fewer tokens than the trainer's model has."""
    drawn = rollouts_made.made(responses=24, top_p=0.8)
    sides = (("engine", drawn.log_probs(top_p=0.8), {"top_p": 0.8}), ("trainer", drawn.log_probs(), {}))
    for name, log_probs, further in sides:
        lines = [json.dumps(row) for row in rollouts_made.rows(drawn, log_probs, **further)]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _link(source: str, target: str) -> None:
    """A second name of a file; a copy where that is on a different file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def put(page: Page, made: dict[str, Path], folder: Path) -> None:
    """Put the inputs of a page into a folder, without a copy of what they hold: no block writes to its inputs."""
    for place, name in {"train.py": "train.py", **page.files}.items():
        source = made.get(name, ROOT / name)
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, folder / place, copy_function=_link, dirs_exist_ok=True)
        elif not (folder / place).exists():
            shutil.copy(source, folder / place)
