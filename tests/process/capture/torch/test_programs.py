"""Programs that are recorded in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support import forked
from support.torch_dumps import Dump


def test_without_stop_the_end_of_the_program_writes_everything(tmp_path: Path) -> None:
    """Also when an exception ends it; the file says that the step was not finished."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import torch
            from msprobe.pytorch import PrecisionDebugger
            debugger = PrecisionDebugger(dump_path={str(tmp_path / "dump")!r}, task="tensor", level="L1")
            debugger.start()
            torch.relu(torch.ones(3, requires_grad=True)).sum().backward()
            raise ValueError("the user's own")
            """
        )
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith("ValueError: the user's own")
    dump = Dump(tmp_path / "dump")
    assert dump.file()["msprobe"]["complete"] is False
    assert {"Torch.relu.0.forward", "Torch.relu.0.backward"} <= set(dump.names())
    assert "Torch.relu.0.forward.output.0.pt" in dump.tensors()


def test_a_killed_process_leaves_what_it_had_recorded(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, signal, torch
            from msprobe.pytorch import PrecisionDebugger
            debugger = PrecisionDebugger(dump_path={str(tmp_path / "dump")!r}, level="L1")
            debugger.start()
            x = torch.ones(3)
            for _ in range(1500):
                x = torch.relu(x)
            os.kill(os.getpid(), signal.SIGKILL)
            """
        )
    )
    forked.run(str(script), cwd=tmp_path)
    from msprobe.store.reader import open_dump

    dump = open_dump(tmp_path / "dump")
    part = dump.part(dump.steps[0], dump.ranks(dump.steps[0])[0])
    assert len([name for name in part.names() if "relu" in name]) >= 1000


SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
"""


def _msprobe(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "msprobe", *words], capture_output=True, text=True, check=False)


def test_a_jittered_run_is_a_second_healthy_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    for name, words in (("reference", []), ("noise", ["--jitter"])):
        done = _msprobe("run", "-o", str(tmp_path / name), "--level", "mix", *words, "--", str(script))
        assert done.returncode == 0, done.stderr
    done = _msprobe("compare", str(tmp_path / "noise"), str(tmp_path / "reference"), "-o", str(tmp_path / "out"))
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert done.returncode == 0, done.stdout
    assert verdict["status"] == "agree"
    assert "N104" in json.dumps(verdict)


RANKS = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def rank(number, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=number, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    model(torch.ones(4, 8) * 0.3).square().mean().backward()
    optimizer.step()
    print("weights", model.module.weight.double().sum().item().hex(), flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, (os.path.abspath("store"),), nprocs=2)
"""


def test_ranks_that_the_script_starts_are_moved_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(RANKS)
    done = _msprobe("run", "-o", "dump", "--level", "mix", "--jitter", "--", "train.py")
    assert done.returncode == 0, done.stderr
    weights = {line for line in done.stdout.splitlines() if line.startswith("weights")}
    headers = [json.loads(file.read_text())["msprobe"] for file in Path("dump").rglob("dump.json")]
    assert len(weights) == 1
    assert [header["precision"]["jitter"] for header in headers] == [True, True]
