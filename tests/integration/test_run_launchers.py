"""``msprobe run`` of programs with several ranks, however these are started."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
from support import forked
from support.coded_texts import mentions
from support.command_line import call
from support.torch_dumps import Dump

TRAIN = """
import os, sys
import torch, torch.distributed as dist
from torch import nn

class Rows(torch.utils.data.Dataset):
    '''A worker calls a module, too.'''
    torch.manual_seed(1)
    scale = nn.Linear(2, 2)
    def __len__(self):
        return 4
    def __getitem__(self, i):
        with torch.no_grad():
            return self.scale(torch.full((2,), float(i)))

def train(rank=None, *about):
    if rank is not None:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(2, 2)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=1):
        model(x + dist.get_rank()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("weights", dist.get_rank(), [p.sum().item().hex() for p in model.parameters()], flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    if "spawn" in sys.argv or "fork" in sys.argv:
        import torch.multiprocessing as mp
        mp.start_processes(train, (), nprocs=2, start_method=sys.argv[2])
    elif "shell" in sys.argv:
        # Nobody can see what a shell starts.
        other = f"RANK=1 {sys.executable} {sys.argv[0]} {sys.argv[1]}"
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], WORLD_SIZE="2", RANK="0")
        child = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", other)
        train()
        os.waitpid(child, 0)
    else:
        train()
"""
RUN = ["-m", "msprobe", "run", "--level", "mix", "--dump-path", "dump", "--"]


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def run(folder: Path, *words: str) -> list[str]:
    """What a program prints in the end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONUNBUFFERED", None)  # with it a line is several writes, between which ranks mix
    ended = forked.run(*words, cwd=folder, env=environment, timeout=280)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout.splitlines()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What both ranks print without msprobe."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "train.py").write_text(TRAIN)
    return sorted(run(folder, "train.py", free_port(), "fork"))


def words_of(way: str) -> list[str]:
    if way in ("spawn", "fork", "shell"):
        return ["train.py", free_port(), way]
    return ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port(), "train.py"]


@pytest.mark.parametrize("way", ["torchrun", "spawn", "fork"])
def test_all_ranks_are_recorded_and_train_as_they_would(tmp_path: Path, weights: list[str], way: str) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    said = run(tmp_path, *RUN, *words_of(way))
    assert sorted(line for line in said if line.startswith("weights")) == weights
    lines = [re.sub(r".*\(\d+\) ", "", line) for line in said if not line.startswith("weights")]
    assert sorted(line.split(" [INFO] ")[0] for line in lines) == ["[rank 0]", "[rank 1]"]
    assert all("2 steps (0, 1)" in line for line in lines)
    dump = Dump(tmp_path / "dump")
    assert dump.steps() == ["step0", "step1"]
    for step in range(2):
        names = [list(dump.data(step, rank=f"rank{rank}")) for rank in (0, 1)]
        assert names[0] == names[1]
        assert "Module.module.0.Linear.forward.0" in names[0]
        assert "Optimizer.SGD.0.forward" in names[0]
        assert sorted(path.name for path in (tmp_path / "dump" / f"step{step}").iterdir()) == ["rank0", "rank1"]
        assert dump.file(step, rank="rank1")["msprobe"]["complete"] is True


def test_ranks_that_were_not_recorded_are_reported(tmp_path: Path, weights: list[str]) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    said = run(tmp_path, *RUN, *words_of("shell"))
    assert sorted(line for line in said if line.startswith("weights")) == weights
    (line,) = [line for line in said if "[WARNING]" in line]
    assert mentions(line, "ranks-without-files", world=2, ranks="rank 1")
    assert [path.name for path in (tmp_path / "dump" / "step1").iterdir()] == ["rank0"]


PIPELINE = """
import os, sys
import torch, torch.distributed as dist
from torch import nn

def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    torch.manual_seed(rank)
    stage = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    optimizer = torch.optim.SGD(stage.parameters(), 0.1)
    for step in range(3):
        if rank == 0:
            hidden = stage(torch.randn(5, 4))
            dist.send(hidden.detach(), 1)
            gradient = torch.empty(5, 4)
            dist.recv(gradient, 1)
            hidden.backward(gradient)
        else:
            hidden = torch.empty(5, 4)
            work = [dist.recv(hidden, 0)] if step < 2 else dist.batch_isend_irecv([dist.P2POp(dist.irecv, hidden, 0)])
            work[0].wait() if step == 2 else None
            stage(hidden.requires_grad_()).sum().backward()
            dist.send(hidden.grad, 0)
        optimizer.step()
        optimizer.zero_grad()
    # Behind the last step: the weights of one are sent to the other, and both evaluate.
    weights = torch.cat([p.detach().flatten() for p in stage.parameters()])
    dist.send(weights, 0) if rank else dist.recv(torch.empty_like(weights), 1)
    print("weights", rank, weights.sum().item().hex(), stage(torch.ones(1, 4)).sum().item().hex(), flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    import torch.multiprocessing as mp
    mp.start_processes(train, (sys.argv[1],), nprocs=2, start_method=sys.argv[2])
"""


def test_what_a_stage_receives_first_is_in_its_step(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    bare = sorted(run(tmp_path, "pipeline.py", free_port(), "fork"))
    said = run(tmp_path, *RUN, "pipeline.py", free_port(), "fork")
    assert sorted(line for line in said if line.startswith("weights")) == bare
    dump = Dump(tmp_path / "dump")
    assert dump.steps() == ["step0", "step1", "step2"]
    for step in range(3):
        firsts = [next(iter(dump.data(step, rank=f"rank{rank}"))) for rank in (0, 1)]
        assert firsts[0].startswith("Functional.linear")
        assert firsts[1].startswith("Distributed.")
        assert all(dump.file(step, rank=f"rank{rank}")["msprobe"]["complete"] for rank in (0, 1))
    found = call("check", dump.folder)
    assert found.returncode == 0
    assert "no answer" not in found.stdout


HOGWILD = """
import subprocess, sys
import torch
from torch import nn

def train(rank, model, words):
    torch.manual_seed(rank)
    if "optimizer" in words:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model.zero_grad()
        model(torch.randn(5, 4)).sum().backward()
        if "optimizer" in words:
            optimizer.step()

if __name__ == "__main__":
    if "script" in sys.argv:
        print(subprocess.run([sys.executable, "other.py"]).returncode)
        sys.exit()
    import torch.multiprocessing as mp
    model = nn.Linear(4, 2)
    workers = [mp.get_context(sys.argv[1]).Process(target=train, args=(rank, model, sys.argv)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print([worker.exitcode for worker in workers])
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_are_no_ranks_are_recorded_into_folders_of_their_own(tmp_path: Path, method: str) -> None:
    (tmp_path / "workers.py").write_text(HOGWILD)
    said = run(tmp_path, *RUN, "workers.py", method, "optimizer")
    assert "[0, 0]" in said
    assert not [line for line in said if "[WARNING]" in line and "single Linear" not in line]
    folders = sorted((tmp_path / "dump").iterdir())
    assert [folder.name for folder in folders] == [f"{method.title()}Process-{number}" for number in (1, 2)]
    for folder in folders:
        assert Dump(folder).steps() == ["step0", "step1"]
        assert Dump(folder).file(1)["msprobe"]["complete"] is True
        assert call("check", folder).returncode == 0


def test_workers_without_an_optimizer_are_named(tmp_path: Path) -> None:
    (tmp_path / "workers.py").write_text(HOGWILD)
    said = run(tmp_path, *RUN, "workers.py", "fork")
    assert "[0, 0]" in said
    assert mentions("\n".join(said), "process-is-no-rank") == 2


def test_scripts_that_the_program_starts_are_named(tmp_path: Path) -> None:
    (tmp_path / "workers.py").write_text(HOGWILD)
    (tmp_path / "other.py").write_text("print('other')")
    said = run(tmp_path, *RUN, "workers.py", "script")
    assert "other" in said
    (line,) = [line for line in said if "other.py" in line]
    assert mentions(line, "scripts-not-recorded", scripts="1 Python script", names="other.py")
