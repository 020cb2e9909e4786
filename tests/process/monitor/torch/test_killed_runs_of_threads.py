"""What a run that was ended left behind is read, in every format: whatever ended it, as public threads tell."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.command_line import call

from msprobe.monitor.files import find_runs
from msprobe.monitor.whole_runs import recorded_steps

PROGRAM = """
import os, signal, sys, threading, time
import torch
from torch import nn
from msprobe.pytorch import TrainerMon

how, out, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.environ["MONITOR_OUTPUT_DIR"] = out
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
monitor = TrainerMon("monitor.json")
monitor.set_monitor(model, optimizer=optimizer)


def ends(step):
    if how == "interrupted":
        raise KeyboardInterrupt
    if how == "raised":
        raise RuntimeError("out of memory")
    if how == "too deep":
        ends(step)
    if how == "exited":
        sys.exit(3)
    if how == "left":
        os._exit(1)
    if how == "from a thread":
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGKILL)).start()
        time.sleep(9)
    if how == "twice":
        signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        os.kill(os.getpid(), signal.SIGTERM)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored
    signals = {"term": signal.SIGTERM, "abort": signal.SIGABRT, "hup": signal.SIGHUP}
    os.kill(os.getpid(), signals.get(how, signal.SIGKILL))


class Ends(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ends(0)


for step in range(last if how == "whole" else last + 1):
    if step == last and how == "forked":
        if os.fork() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.wait()
    x = model(torch.randn(6, 4, generator=torch.Generator().manual_seed(step)))
    if step == last and how == "in backward":
        x = Ends.apply(x)
    optimizer.zero_grad()
    x.square().mean().backward()
    if step == last and how == "before the step":
        ends(step)
    optimizer.step()
    if how == "slow" and step == last - 3:
        time.sleep(6)
    if step == last and how != "forked":
        ends(step)
"""

CONFIG: dict[str, Any] = {"targets": {}, "wg_distribution": True, "param_distribution": True, "ops": ["norm", "mean"]}
#: How a run ends. https://github.com/MonetDB/MonetDB/issues/7339, nanocoai/nanoclaw/issues/2516: killed with an open
#: journal; gizmodata/gizmosql/issues/53: out of memory in a container; tensorflow/tensorboard/issues/6782: preempted.
WAYS = {
    "killed": -signal.SIGKILL,
    "term": -signal.SIGTERM,
    "abort": -signal.SIGABRT,
    "hup": -signal.SIGHUP,
    "left": 1,
    "interrupted": None,
    "raised": 1,
    "too deep": 1,
    "exited": 3,
    "from a thread": -signal.SIGKILL,
    "twice": -signal.SIGKILL,
    "in backward": -signal.SIGKILL,
    "before the step": -signal.SIGKILL,
    "forked": 0,
}
#: What ends without a word leaves out what was still on its way.
UNSEEN = ("killed", "abort", "left", "from a thread", "twice", "in backward", "before the step", "hup", "term")
#: Each way in one format; sketches are beside csv files.
FORMATS = ("csv", "sqlite", "sketch")
LAST = 12


def run(folder: Path, how: str, out: str, form: str, last: int = LAST) -> int:
    config = {**CONFIG, "format": "sqlite" if form == "sqlite" else "csv", "sketch": form == "sketch"}
    (folder / "monitor.json").write_text(json.dumps({**config, "step_count_per_record": 1000}))
    (folder / "train.py").write_text(PROGRAM)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return forked.run("train.py", how, out, str(last), cwd=folder, env=environment).returncode


@pytest.mark.parametrize(("how", "form"), [(how, FORMATS[at % 3]) for at, how in enumerate(WAYS)])
def test_what_an_ended_run_left_is_read(tmp_path: Path, how: str, form: str) -> None:
    assert run(tmp_path, "whole", "whole", form) == 0
    status = run(tmp_path, how, "ended", form)
    assert status == WAYS[how] or (WAYS[how] is None and status != 0), status
    (left,) = find_runs(tmp_path / "ended")
    found = recorded_steps(left)
    if how not in UNSEEN:
        # The interpreter has come to its end: nothing is lost.
        assert found is not None
        assert found[1] >= LAST - 1
    for words in (
        ("monitor", "diff", tmp_path / "whole", tmp_path / "ended"),
        ("monitor", "report", tmp_path / "ended", "-o", tmp_path / "page.html"),
        ("monitor", "watch", tmp_path / "ended", "--once"),
        ("monitor", "to-db", "--data", tmp_path / "ended", "--db", tmp_path / "db"),
    ):
        done = call(*words)
        # Read, whole or in part; or nothing was written yet, which is said in a sentence. Never called bad.
        assert done.returncode in (0, 2), (words, done.stdout + done.stderr)
        assert "Traceback" not in done.stderr
        assert "readonly" not in done.stdout + done.stderr
        if found is not None and words[1] == "diff":
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("form", FORMATS)
def test_what_was_flushed_before_a_kill_is_read(tmp_path: Path, form: str) -> None:
    """Every five seconds all formats are on the disk; here behind the tenth step."""
    assert run(tmp_path, "whole", "whole", form) == 0
    assert run(tmp_path, "slow", "ended", form) == -signal.SIGKILL
    (left,) = find_runs(tmp_path / "ended")
    first, last = recorded_steps(left) or (-1, -1)
    assert (first, last >= LAST - 3) == (0, True)
    done = call("monitor", "diff", tmp_path / "ended", tmp_path / "whole", "--json", "-")
    assert done.returncode == 0, done.stdout + done.stderr
