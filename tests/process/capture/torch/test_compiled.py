"""``torch.compile`` with compilers that start processes, or are imported late."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from support.torch_dumps import Dump, Recorder
from torch import nn
from torch._dynamo.utils import counters

from msprobe.pytorch import PrecisionDebugger

LEVELS = ["L0", "L1", "mix", "L2"]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.wide = nn.Linear(16, 32)
        self.narrow = nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.narrow(F.gelu(self.wide(self.norm(x))))
        return result


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.last = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.last(x)
        return result


Case = tuple[Net, nn.Module, Callable[[torch.Tensor], torch.Tensor]]


def case(kind: str, backend: Any) -> Case:
    """The plain model, what is given to start, and the loss of a batch."""
    torch.manual_seed(0)
    plain = Net()
    model: Any = plain
    given: nn.Module = plain
    if kind == "whole":
        given = model = torch.compile(plain, backend=backend)
    elif kind == "whole, plain model given":
        model = torch.compile(plain, backend=backend)
    elif kind == "parts":
        for i in range(2):
            plain.blocks[i] = torch.compile(plain.blocks[i], backend=backend)  # type: ignore[assignment]
    elif kind == "in place":
        plain.compile(backend=backend)
    elif kind == "parts in place":
        for block in plain.blocks:
            block.compile(backend=backend)
    elif kind == "dynamic":
        given = model = torch.compile(plain, backend=backend, dynamic=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(x).square().mean()
        return result

    if kind == "function":
        return plain, given, torch.compile(loss, backend=backend)
    return plain, given, loss


def train(built: Case, debugger: PrecisionDebugger | None, steps: int = 3) -> list[Any]:
    plain, given, loss_of = built
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    seen: list[Any] = []
    for i in range(steps):
        x = torch.randn(4 if i < 2 else 6, 8, generator=torch.Generator().manual_seed(i))
        if debugger:
            debugger.start(given)
        loss = loss_of(x)
        loss.backward()
        seen.append([loss.detach().clone(), *[p.grad.clone() for p in plain.parameters() if p.grad is not None]])
        optimizer.step()
        optimizer.zero_grad()
        if debugger:
            debugger.stop()
            debugger.step()
    seen.append([p.detach().clone() for p in plain.parameters()])
    seen.append({key: dict(value) for key, value in counters.items() if key in ("stats", "graph_break", "frames")})
    seen.append(torch.get_rng_state())
    return seen


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


KINDS = ["whole", "whole, plain model given", "parts", "in place", "parts in place", "function", "dynamic"]


@functools.cache
def bare(kind: str, backend: str = "aot_eager") -> list[Any]:
    """The same training without recording."""
    seen = train(case(kind, backend), None)
    torch._dynamo.reset()
    counters.clear()
    return seen


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_with_the_real_compiler(record: Recorder, kind: str, level: str) -> None:
    off = bare(kind, "inductor")
    on = train(case(kind, "inductor"), record(level=level))
    # The counters of the last place are not compared: the second run finds the first one's code in a cache.
    assert same(off[:-2], on[:-2])
    assert record.end().data(2)


def test_a_compiler_that_is_imported_while_recording(tmp_path: Path) -> None:
    """Importing torch does not import it; the first compiled call may come after start."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys, torch
            from torch import nn
            from msprobe.pytorch import PrecisionDebugger
            assert "torch._dynamo" not in sys.modules
            debugger = PrecisionDebugger(dump_path={str(tmp_path / "dump")!r}, level="mix")
            model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
            debugger.start(model)
            compiled = torch.compile(model, backend="aot_eager")
            compiled(torch.ones(2, 4)).sum().backward()
            debugger.stop()
            debugger.step()
            assert not any(type(finder).__module__.startswith("msprobe") for finder in sys.meta_path)
            loader = sys.modules["torch._dynamo.eval_frame"].__spec__.loader
            assert "exec_module" not in vars(loader)
            """
        )
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    names = Dump(tmp_path / "dump").names()
    assert "Module.root.Sequential.forward.0" in names
    assert "Module.root.Sequential.backward.0" in names
    assert not [n for n in names if "linear" in n]
