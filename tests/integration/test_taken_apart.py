"""Whoever takes a module apart finds the user's module: copies, files, scripts, traces, exports and graphs are those of
a program without msprobe, and what is compiled is compiled alike.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import pytest
from support import forked

PROGRAM = Path(__file__).with_name("taken_apart.py")


def digests(folder: Path, when: str, how: str, **env: str) -> dict[str, str]:
    done = forked.run(str(PROGRAM), when, how, "digests.json", cwd=folder, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    assert "[ERROR]" not in done.stdout
    found: dict[str, str] = json.loads((folder / "digests.json").read_text())
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    @functools.cache
    def found(when: str) -> dict[str, str]:
        return digests(tmp_path_factory.mktemp("alone"), when, "alone")

    return {when: found(when) for when in ("in-step", "after")}


@pytest.mark.parametrize(
    "how",
    ["mix", "L0", "L2", pytest.param("L1", marks=pytest.mark.slow), pytest.param("mix-tensor", marks=pytest.mark.slow)],
)
def test_inside_a_recorded_step(tmp_path: Path, alone: dict[str, dict[str, str]], how: str) -> None:
    assert digests(tmp_path, "in-step", how) == alone["in-step"]


def test_inside_a_recorded_step_without_the_extension(tmp_path: Path, alone: dict[str, dict[str, str]]) -> None:
    assert digests(tmp_path, "in-step", "mix", MSPROBE_NATIVE="0") == alone["in-step"]


def test_after_the_last_step(tmp_path: Path, alone: dict[str, dict[str, str]]) -> None:
    assert digests(tmp_path, "after", "mix") == alone["after"]


@pytest.mark.slow
def test_between_steps(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    assert digests(tmp_path, "between", "mix") == digests(tmp_path / "alone", "between", "alone")


AT_THE_END = """
import copy, io, sys, torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(3):
    loss = model(torch.randn(5, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("prediction", model(torch.ones(1, 4)).tolist())  # with gradients, as many programs do
learner = copy.deepcopy(model)
torch.jit.script(model).save("script.pt")
torch.jit.trace(model, torch.ones(1, 4)).save("trace.pt")
torch.save(model, "whole.pt")
print(torch.export.export(model, (torch.ones(1, 4),)).graph)
print(torch.fx.symbolic_trace(model).code)
print(torch.load("whole.pt", weights_only=False)(torch.ones(1, 4)).tolist(), learner(torch.ones(1, 4)).tolist())
print([len(m._forward_hooks) + len(m._forward_pre_hooks) for m in learner.modules()])
if "--raise" in sys.argv:
    raise ValueError("the user's own")
"""


@pytest.mark.parametrize("words", [(), ("--raise",)])
def test_the_usual_end_of_a_program_under_msprobe_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "train.py").write_text(AT_THE_END)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": "statistics", "level": "mix", "dump_path": str(tmp_path / "dump")}))
    (tmp_path / "alone").mkdir()
    (tmp_path / "recorded").mkdir()
    bare = forked.run("../train.py", *words, cwd=tmp_path / "alone")
    run = ("-m", "msprobe", "run", "--config", str(config), "--", "../train.py", *words)
    done = forked.run(*run, cwd=tmp_path / "recorded")
    assert done.returncode == bare.returncode
    assert [line for line in done.stdout.splitlines() if "[INFO]" not in line] == bare.stdout.splitlines()
    written = {path.name for path in (tmp_path / "alone").iterdir()}
    assert {path.name for path in (tmp_path / "recorded").iterdir()} == written
    assert len(written) == 3
    for name in written:
        assert b"msprobe" not in (tmp_path / "recorded" / name).read_bytes()
    assert len(list((tmp_path / "dump").glob("step*"))) >= 3


MODES = """
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        print("function", getattr(function, "__name__", function))
        return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        print("operator", function)
        return function(*args, **(kwargs or {}))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters()) if MADE else None
with Functions(), Operators():
    for _ in range(3):
        loss = model(torch.randn(5, 4)).pow(2).mean()
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        with torch.no_grad():
            for parameter in model.parameters():
                if optimizer is None:
                    parameter -= 0.1 * parameter.grad
                parameter.grad = None
            model(torch.ones(1, 4))
"""


@pytest.mark.parametrize("is_made", [True, False], ids=["optimizer", "updates by hand"])
def test_modes_of_the_program_see_what_it_calls_alone(tmp_path: Path, is_made: bool) -> None:
    (tmp_path / "train.py").write_text(MODES.replace("MADE", str(is_made)))
    bare = forked.run("train.py", cwd=tmp_path)
    done = forked.run("-m", "msprobe", "run", "--dump-path", str(tmp_path / "dump"), "--", "train.py", cwd=tmp_path)
    assert (bare.returncode, done.returncode) == (0, 0), done.stderr
    assert [line for line in done.stdout.splitlines() if "[INFO]" not in line] == bare.stdout.splitlines()
    assert len(list((tmp_path / "dump").glob("step*"))) == 3


SWAPS = """
import torch
from torch import nn

torch.__future__.set_swap_module_params_on_conversion(True)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
for _ in range(3):
    loss = model(torch.randn(5, 4)).pow(2).mean()
    loss.backward()
    print(loss.item())
    del loss
    model.to(torch.float64)
    model.to(torch.float32)
"""


def test_parameters_are_swapped_between_steps_as_alone(tmp_path: Path) -> None:
    """torch refuses to swap a tensor that somebody has a weak reference to."""
    (tmp_path / "train.py").write_text(SWAPS)
    bare = forked.run("train.py", cwd=tmp_path)
    done = forked.run("-m", "msprobe", "run", "--dump-path", str(tmp_path / "dump"), "--", "train.py", cwd=tmp_path)
    assert (bare.returncode, done.returncode) == (0, 0), done.stderr
    assert [line for line in done.stdout.splitlines() if "[INFO]" not in line] == bare.stdout.splitlines()
