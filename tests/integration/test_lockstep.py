"""`msprobe lockstep` and `msprobe confirm` as their user runs them: scripts, two gloo ranks, mistakes of input."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.coded_texts import mentions

from msprobe.messages import said

SCRIPT = """
import os
import signal
import sys
import torch
from torch import nn

bugs = sys.argv[1:]
torch.manual_seed(0)
# Two models without one around them, and passes in the closure of the optimizer, as Lightning trains.
body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(0.2))
head = nn.Sequential(nn.Linear(8, 2))
optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], 1e-2)

def passes():
    y = head(body(torch.randn(6, 4)))
    y = nn.functional.softplus(y, beta=2 if "softplus" in bugs else 1)
    loss = nn.functional.smooth_l1_loss(y, torch.ones_like(y), beta=0.5 if "loss" in bugs else 1.0)
    if "raise" in bugs:
        raise RuntimeError("no more")
    if "die" in bugs and optimizer.state:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    loss.backward()
    return loss

for _ in range(2):
    optimizer.step(passes)
"""

RANKS = """
import os
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard


def train(rank, kind, bugs, port):
    if port is not None:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    wrong = "gelu" in bugs and rank == 1
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(approximate="tanh" if wrong else "none"), nn.Linear(8, 2))
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        for part in model:
            if isinstance(part, nn.Linear):
                fully_shard(part)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-2 if "lr" in bugs else 1e-2)
    torch.manual_seed(rank)
    for _ in range(2):
        y = model(torch.randn(6, 4))
        if "scale" in bugs and rank == 0:
            y = y * 1.05
        y.square().mean().backward()
        for parameter in model.parameters() if kind == "ddp" else ():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.MAX if "max" in bugs else dist.ReduceOp.SUM)
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    kind, *bugs = sys.argv[1:]
    if "RANK" in os.environ:
        train(None, kind, bugs, None)
    else:
        mp.start_processes(train, (kind, bugs, os.environ["PORT_OF_RANKS"]), nprocs=2, start_method="fork")
"""


def msprobe(folder: Path, *words: str) -> forked.Completed:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "COLUMNS": "100"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment["PORT_OF_RANKS"] = str(free.getsockname()[1])
    return forked.run("-m", "msprobe", *words, cwd=folder, env=environment, timeout=240)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script and its reference."""
    folder = tmp_path_factory.mktemp("lockstep")
    (folder / "train.py").write_text(SCRIPT)
    config = {"task": "tensor", "level": "mix", "optimizer": True, "dump_path": "reference"}
    (folder / "reference.json").write_text(json.dumps(config))
    done = msprobe(folder, "run", "--config", "reference.json", "--", "train.py")
    assert done.returncode == 0, done.stderr
    return folder


def findings(folder: Path) -> list[dict[str, Any]]:
    content = json.loads((folder / "verdict.json").read_text())
    return [one for one in content["findings"] if not one["harmless"]]


def test_one_run_names_all_bugs_and_confirm_says_whether_one_of_them_is_all(place: Path) -> None:
    healthy = msprobe(place, "lockstep", "reference", "-o", "healthy", "--", "train.py")
    assert healthy.returncode == 0, healthy.stderr
    assert f"AGREE: {said('nothing-differs', 'recorded')}" in healthy.stdout

    wrong = msprobe(place, "lockstep", "reference", "-o", "wrong", "--", "train.py", "softplus", "loss")
    assert wrong.returncode == 1, wrong.stderr
    assert {one["entry"] for one in findings(place / "wrong")} == {
        "Functional.softplus.0.forward",
        "Functional.smooth_l1_loss.0.forward",
    }
    assert said("further-stand-alone") in wrong.stdout

    of_two = msprobe(place, "confirm", "wrong/verdict.json", "-o", "one", "--", "train.py", "softplus", "loss")
    assert of_two.returncode == 1, of_two.stderr
    assert mentions(of_two.stdout, "put-right-still-differ")
    assert "Functional.smooth_l1_loss.0.forward" in of_two.stdout
    both = msprobe(place, "confirm", "wrong", "--finding", "1,2", "-o", "one", "--", "train.py", "softplus", "loss")
    assert both.returncode == 0, both.stdout + both.stderr
    calls = "Functional.softplus.0.forward and Functional.smooth_l1_loss.0.forward"
    assert said("put-right-agree", calls) in both.stdout
    of_one = msprobe(place, "confirm", "wrong", "-o", "one", "--", "train.py", "softplus")
    assert of_one.returncode == 0, of_one.stderr
    assert said("put-right-agree", "Functional.softplus.0.forward") in of_one.stdout


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_ranks_are_each_put_right_and_judged(kind: str, tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    config = {"task": "tensor", "level": "mix", "optimizer": True, "dump_path": "reference"}
    (tmp_path / "reference.json").write_text(json.dumps(config))
    # Interpreters that torchrun starts import torch anew, seconds each: the ranks of one command are its, the others'
    # are forked.
    script = ["--", "ranks.py", kind]
    launched = ["--", "torchrun", "--nproc-per-node", "2", "ranks.py", kind] if kind == "ddp" else script
    recorded = msprobe(tmp_path, "run", "--config", "reference.json", *script)
    assert recorded.returncode == 0, recorded.stderr

    healthy = msprobe(tmp_path, "lockstep", "reference", "-o", "healthy", *script)
    bugs = ["gelu", "scale", "lr", *(["max"] if kind == "ddp" else [])]
    wrong = msprobe(tmp_path, "lockstep", "reference", "-o", "wrong", *launched, *bugs)

    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    assert wrong.returncode == 1, wrong.stderr
    assert {(one["rank"], one["entry"]) for one in findings(tmp_path / "wrong")} == {
        (0, "Tensor.__mul__.0.forward"),
        (1, "Functional.gelu.0.forward"),
        (0, "Optimizer.AdamW.0.forward"),
        (1, "Optimizer.AdamW.0.forward"),
        *([(0, "Distributed.all_reduce.0.forward"), (1, "Distributed.all_reduce.0.forward")] if kind == "ddp" else []),
    }
    if kind == "ddp":
        # What a collective leaves is put right where it was called.
        every = json.loads((tmp_path / "wrong" / "verdict.json").read_text())["findings"]
        place = next(n for n, one in enumerate(every, 1) if one["entry"] == "Distributed.all_reduce.0.forward")
        words = ["confirm", "wrong", "--finding", str(place), "--every-call", "-o", "own"]
        found = msprobe(tmp_path, *words, *script, "max")
        assert found.returncode == 0, found.stdout + found.stderr
        # A rank that the reference does not have is not put right, and does not take what another one has.
        for folder in (tmp_path / "reference").glob("step*/rank0"):
            shutil.rmtree(folder)
        alone = msprobe(tmp_path, "lockstep", "reference", "-o", "alone", *script)
        assert alone.returncode == 2, alone.stdout + alone.stderr
        assert said("parameters-not-in-reference", "") in " ".join(alone.stdout.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lockstep", "nowhere", "-o", "out", "--", "train.py"], '"{}/nowhere" does not exist'),
        (["lockstep", "reference", "-o", "reference", "--", "train.py"], "where the reference is; choose another"),
        (["lockstep", "reference", "-o", "out", "--", "nowhere.py"], 'the script "nowhere.py" does not exist'),
        (["lockstep", "reference", "-o", "out"], "no script to run"),
        (["confirm", "nowhere.json", "--", "train.py"], 'file "nowhere.json" does not exist'),
        (["confirm", "train.py", "--", "train.py"], '"train.py" is no readable JSON'),
        (["confirm", "wrong", "--finding", "1,0", "--", "train.py"], "'0' is no finding; give a whole number from 1"),
    ],
)
def test_a_mistake_of_input_is_one_sentence(place: Path, words: list[str], sentence: str) -> None:
    done = msprobe(place, *words)
    assert done.returncode == 2
    assert sentence.replace("{}", str(place.resolve())) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_reference_that_cannot_be_run_against_says_all_that_is_wrong(place: Path) -> None:
    done = msprobe(place, "run", "--level", "L0", "--dump-path", "modules", "--", "train.py")
    assert done.returncode == 0
    found = msprobe(place, "lockstep", "modules", "-o", "out", "--", "train.py")
    assert found.returncode == 2
    assert mentions(found.stderr, "reference-of-level", level="L0")
    assert mentions(found.stderr, "reference-without-tensors")
    (place / "steps.json").write_text(json.dumps({"task": "tensor", "step": [0, 7], "rank": [3], "dump_path": "x"}))
    found = msprobe(place, "lockstep", "reference", "-o", "out", "--config", "steps.json", "--", "train.py")
    assert found.returncode == 2
    assert mentions(found.stderr, "not-in-reference", word="step", missing="7", there="0, 1")
    assert mentions(found.stderr, "not-in-reference", word="rank", missing="3")


def test_a_script_that_fails_is_judged_as_far_as_it_went(place: Path) -> None:
    done = msprobe(place, "lockstep", "reference", "-o", "failed", "--", "train.py", "softplus", "raise")
    assert done.returncode == 1, done.stderr
    assert "RuntimeError: no more" in done.stderr
    assert mentions(done.stderr, "lockstep-script-failed")
    assert findings(place / "failed")[0]["entry"] == "Functional.softplus.0.forward"


def test_a_reference_that_was_killed_is_run_against_as_far_as_it_went(place: Path) -> None:
    (place / "killed.json").write_text((place / "reference.json").read_text().replace('"reference"', '"killed"'))
    assert msprobe(place, "run", "--config", "killed.json", "--", "train.py", "die").returncode == -9

    done = msprobe(place, "lockstep", "killed", "-o", "of_killed", "--", "train.py")
    wrong = msprobe(place, "lockstep", "killed", "-o", "of_killed", "--", "train.py", "softplus")

    assert done.returncode == 0, done.stderr
    assert said("agree-as-far", "AGREE", "") in done.stdout
    assert mentions(" ".join(done.stdout.split()), "interrupted-in-step", side="reference")
    assert wrong.returncode == 1
    assert findings(place / "of_killed")[0]["evidence"]["steps"] == [0, 1]


@pytest.mark.slow  # two trainings of a Llama in processes of their own: 15 s
def test_the_llama_of_the_readme_names_its_three_bugs_in_one_run(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    bench = Path(__file__).parents[2] / "bench" / "lockstep"
    script = str(bench / "llama.py")
    recorded = msprobe(tmp_path, "run", "--config", str(bench / "llama.json"), "--", script)
    assert recorded.returncode == 0, recorded.stderr

    done = msprobe(tmp_path, "lockstep", "dump", "-o", "out", "--", script, "norm", "rope", "decay")

    assert done.returncode == 1, done.stderr
    found = findings(tmp_path / "out")
    assert [(one["kind"], one["module"]) for one in found] == [
        ("initial_weights", "model.rotary_emb"),
        ("argument", "model.layers.1.post_attention_layernorm"),
        ("optimizer", None),
    ]
    assert "weight_decay" in found[2]["message"]
