"""Small trainings in which a function of msprobe may fail: each returns all that it computed.

Run by ``tests/support/broken_functions.py``; ``recorded`` False runs the same without msprobe.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from support.broken_functions import arm
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from msprobe.capture.torch.listening import Listening
from msprobe.cli import main
from msprobe.core.config_check import ConfigChecker
from msprobe.listeners import Observer, Wants
from msprobe.monitor.torch.trainer import TrainerMon
from msprobe.pytorch import PrecisionDebugger

# What a training imports when it needs it: once, before the forks.
for name in (
    "torch._dynamo",
    "torch.distributed",
    "msprobe.capture.torch.collectives.collective_calls",
    "msprobe.capture.torch.operators.dispatch",
    "msprobe.capture.torch.optimizers.optimizer_hooks",
    "msprobe.launcher.runscript",
    "msprobe.capture.torch.calls.user_warnings",
    "msprobe.cli.run",
    "msprobe.grad_probe.torch",
    "msprobe.monitor.torch.watch",
    "msprobe.perturb.torch",
):
    importlib.import_module(name)

Work = Callable[[], None]
Around = Callable[[nn.Module, Any, Work], None]


class Doubled(torch.autograd.Function):
    """A function of the user's own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] * 2


class Net(nn.Module):
    """Something of all that is recorded in ways of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(inplace=True))
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.2)
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 3)
        self.tied = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor, scale: dict[str, float] | None = None) -> dict[str, torch.Tensor]:
        h = self.embed(x)
        h = checkpoint(self.body, h, use_reentrant=False)
        h = Doubled.apply(h)
        h, _ = self.rnn(h)
        h[:, 0] += 1
        h = self.drop(self.norm(h.mean(1))) * self.tied + (scale or {}).get("scale", 0.0)
        first, second = torch.stack([h, 2 + h]).unbind(0)
        return {"logits": self.head(first + second), "sum": functional.softmax(h, -1).sum()}


def train(steps: int = 2, around: Around | None = None, ready: Work = lambda: None) -> list[Any]:
    """Losses, gradients, weights, states of the optimizer and of the generator."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    found: list[Any] = []
    data = DataLoader(TensorDataset(torch.randint(0, 11, (4 * steps, 5)), torch.randint(0, 3, (4 * steps,))), 2)
    batches = iter(data)
    ready()

    def iteration() -> None:
        optimizer.zero_grad()
        for _ in range(2):
            x, y = next(batches)
            out = model(x, scale={"scale": 0.5})
            loss = functional.cross_entropy(out["logits"], y) + 0.1 * out["sum"]
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss + (out["logits"] @ out["logits"].T).float().mean()
            loss.backward()
            found.append(loss.detach().clone())
        found.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).detach().clone())
        found.extend(p.grad.clone() for p in model.parameters() if p.grad is not None)
        optimizer.step()
        schedule.step()

    for _ in range(steps):
        if around is None:
            iteration()
        else:
            around(model, optimizer, iteration)
        model.eval()
        with torch.no_grad():
            found.append(model(torch.zeros(2, 5, dtype=torch.long))["logits"])
        model.train()
    found += [p.detach().clone() for p in model.parameters()]
    found += [value.clone() for state in optimizer.state.values() for value in state.values()]
    return [*found, torch.get_rng_state()]


def plain(folder: Path) -> list[Any]:
    """Without msprobe."""
    return train()


def debugger(folder: Path, **settings: Any) -> list[Any]:
    """With start, stop and step in the program."""
    ours = PrecisionDebugger(dump_path=str(folder / "dump"), **settings)

    def around(model: nn.Module, optimizer: Any, iteration: Work) -> None:
        ours.start(model)
        iteration()
        ours.stop()
        ours.step()

    return train(2, around, arm)


_SCRIPT = """
import unlucky_trainings
from support import broken_functions
unlucky_trainings.found = unlucky_trainings.train(2, None, broken_functions.arm)
"""
found: list[Any] = []


def run(folder: Path, **settings: Any) -> list[Any]:
    """Under ``msprobe run``."""
    (folder / "script.py").write_text(_SCRIPT)
    (folder / "config.json").write_text(json.dumps({"dump_path": str(folder / "dump"), **settings}))
    status = main(["run", "--config", str(folder / "config.json"), "--", str(folder / "script.py")])
    return [*found] if status == 0 else [f"status {status}"]


def monitor(folder: Path) -> list[Any]:
    """Watched by a monitor of everything."""
    wanted = {"targets": {}, "xy_distribution": True, "wg_distribution": True, "param_distribution": True}
    wanted |= {"mv_distribution": True, "ops": ["norm", "max", "mean"], "format": "csv"}
    (folder / "monitor.json").write_text(json.dumps({**wanted, "output_dir": str(folder / "out")}))
    ours: list[Any] = []

    def around(model: nn.Module, optimizer: Any, iteration: Work) -> None:
        if not ours:
            ours.append(TrainerMon(str(folder / "monitor.json")))
            arm()
            ours[0].set_monitor(model, optimizer=optimizer, grad_acc_steps=2)
        iteration()
        ours[0].note(loss=1.0)

    result = train(2, around)
    ours[0].stop()
    return result


def gradient_probe(folder: Path) -> list[Any]:
    """Task grad_probe."""
    ours = PrecisionDebugger(task="grad_probe", dump_path=str(folder / "out"), grad_level="L2")
    begun: list[bool] = []

    def around(model: nn.Module, optimizer: Any, iteration: Work) -> None:
        if not begun:
            begun.append(True)
            ours.monitor(model)
        iteration()

    result = train(2, around, arm)
    ours.stop()
    return result


class Norms(Observer):
    """A listener of everything."""

    wants = Wants(kinds=frozenset(("call", "pass", "optimizer", "parameter_gradient", "accumulated_gradient")))

    def after(self, event: Any, result: Any) -> None:
        """Nothing is kept."""

    def gradient(self, event: Any) -> None:
        """Nothing is kept."""


def listeners(folder: Path) -> list[Any]:
    """A listener, and no dump."""
    ours = Listening(Norms())

    def around(model: nn.Module, optimizer: Any, iteration: Work) -> None:
        with ours.step(model):
            iteration()

    return train(2, around, arm)


def config_check(folder: Path) -> list[Any]:
    """A configuration check in the training."""
    begun: list[bool] = []

    def around(model: nn.Module, optimizer: Any, iteration: Work) -> None:
        if not begun:
            begun.append(True)
            ConfigChecker(model, None, str(folder / "pack.zip"), "pytorch")
        iteration()

    ConfigChecker.apply_patches("pytorch")
    return train(2, around, arm)
