"""What must not happen while gradients of a PyTorch training are watched: lost rows, a changed training, silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.coded_texts import mentions, raising  # noqa: E402
from support.command_line import call  # noqa: E402
from support.probed import Weights, configured, files, probe_one, probing, read, step  # noqa: E402
from torch import nn  # noqa: E402

from msprobe.errors import InvalidInputError, PathError  # noqa: E402
from msprobe.pytorch import PrecisionDebugger  # noqa: E402


@pytest.fixture(autouse=True)
def _no_debugger_stays() -> Any:
    yield
    PrecisionDebugger.reset()


# ---------------------------------------------------------------- unusual gradients


def test_unusual_gradients_leave_the_others_intact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = nn.Parameter(torch.ones(2))
            self.register_parameter("a b", nn.Parameter(torch.ones(2)))
            self.empty = nn.Parameter(torch.ones(0, 3))
            self.turned = nn.Parameter(torch.ones(2, dtype=torch.complex64))
            self.table = nn.Embedding(6, 2, sparse=True)
            self.behind = nn.Parameter(torch.ones(2))

        def forward(self) -> torch.Tensor:
            odd = getattr(self, "a b").sum() + self.empty.sum() + (self.turned * (1 + 2j)).real.sum()
            return self.before.sum() + odd + self.table(torch.tensor([1, 4, 1])).sum() + self.behind.sum()

    model = Model()
    # SGD takes all of these.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probing(tmp_path, model, grad_level="L2") as rank:
        for _ in range(2):
            optimizer.zero_grad()
            model().backward()
            optimizer.step()
    for number in (0, 1):
        rows = {row["param_name"]: row for row in read(rank / f"grad_summary_{number}.csv")}
        assert list(rows) == ["before", "a b", "empty", "turned", "behind", "table.weight"]
        for name in ("before", "a b", "behind"):
            assert (rows[name]["max"], rows[name]["(0, 1]"], rows[name]["local_shape"]) == ("1.0", "1.0", "")
        assert rows["empty"]["max"] == rows["empty"]["=0"] == "nan"
        assert (rows["turned"]["min"], rows["turned"]["local_shape"]) == ("-2.0", "[2, 2]")
        sparse = rows["table.weight"]
        assert (sparse["max"], sparse["min"], sparse["shape"], sparse["local_shape"]) == (
            "2.0",
            "1.0",
            "[6, 2]",
            "[2, 2]",
        )
    assert np.load(rank / "step0" / "a%20b.npy").tolist() == [True, True]
    assert np.load(rank / "step0" / "empty.npy").shape == (0, 3)
    told = capsys.readouterr().out
    for word in ("complex", "sparse", "no elements"):
        assert told.count(word) == 1


def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    from msprobe.grad_probe.layout import direction_name

    for name in ("../../up", "/etc/passwd", "a/b", "a\\b", "\0", "x" * 1000, "ü" * 300, "\udc80", ".", ".."):
        file = direction_name(name)
        assert "/" not in file
        assert "\\" not in file
        assert "\0" not in file
        assert len(file.encode()) <= 255
        assert file.endswith(".npy")
    assert direction_name("x" * 1000) != direction_name("x" * 999)
    assert direction_name("layers.0.attn.q_proj-1.weight") == "layers.0.attn.q_proj-1.weight.npy"


def test_a_gradient_that_cannot_be_read_has_a_row_without_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from msprobe.grad_probe import torch as probe

    real = probe.measure

    def measure(gradient: Any, fields: Any) -> Any:
        if gradient.name == "a":
            raise RuntimeError("no luck")
        return real(gradient, fields)

    monkeypatch.setattr(probe, "measure", measure)
    model = Weights(a=(2,), b=(2,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with probing(tmp_path, model, grad_level="L2") as rank:
        step(optimizer, p0=[1.0, 1.0], p1=[1.0, 1.0])
    rows = read(rank / "grad_summary_0.csv")
    assert [row["max"] for row in rows] == ["nan", "1.0"]
    assert "no luck" in capsys.readouterr().out


def test_a_disk_that_takes_nothing_is_reported_once_and_the_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    model = Weights(w=(1,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with probing(tmp_path, model):
        (tmp_path / "out" / "rank0").write_text("in the way")
        for _ in range(3):
            step(optimizer, p0=[1.0])
    assert model.w.item() == -3.0
    assert mentions(capsys.readouterr().out, "gradients-not-written") == 1


# ---------------------------------------------------------------- the program is not changed


def _train(folder: Path | None, level: str = "L2") -> tuple[list[torch.Tensor], list[float], torch.Tensor]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    losses = []

    def run() -> None:
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(torch.randn(6, 8)).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())

    if folder is None:
        run()
    else:
        with probing(folder, model, grad_level=level):
            run()
    states = [value for state in optimizer.state.values() for value in state.values()]
    weights = [one.detach().clone() for one in model.parameters()]
    gradients = [one.grad.clone() for one in model.parameters() if one.grad is not None]
    return [*weights, *gradients, *states], losses, torch.get_rng_state()


@pytest.mark.parametrize("level", ["L0", "L1", "L2"])
def test_the_training_is_bit_for_bit_the_same(tmp_path: Path, level: str) -> None:
    tensors, losses, generator = _train(None)
    with_probe, losses_with, generator_with = _train(tmp_path, level)
    assert losses == losses_with
    assert torch.equal(generator, generator_with)
    for one, other in zip(tensors, with_probe, strict=True):
        assert torch.equal(one, other)


def test_without_the_c_extension_the_files_are_the_same(tmp_path: Path) -> None:
    code = (
        "import sys, os, pathlib; sys.path[:0] = sys.argv[1].split(os.pathsep);"
        "from test_probed_programs import _train;"
        "[_train(pathlib.Path(sys.argv[2]) / level, level) for level in ('L0', 'L2')]"
    )
    found = []
    for native in ("0", "1"):
        for level in ("L0", "L2"):
            (tmp_path / native / level).mkdir(parents=True)
        environment = {**os.environ, "MSPROBE_NATIVE": native, "OMP_NUM_THREADS": "1"}
        here = os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[2])))
        subprocess.run([sys.executable, "-c", code, here, str(tmp_path / native)], env=environment, check=True)
        ranks = {level: tmp_path / native / level / "out" / "rank0" for level in ("L0", "L2")}
        found.append(
            {
                f"{level}/{name}": (rank / name).read_bytes()
                for level, rank in ranks.items()
                for name in sorted(files(rank))
            }
        )
    assert found[0] == found[1]
    assert {name.partition("/")[0] for name in found[0]} == {"L0", "L2"}


# ---------------------------------------------------------------- wrong use


def test_other_tasks_say_that_nothing_is_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    debugger = PrecisionDebugger(task="statistics", dump_path=str(tmp_path / "out"))
    assert debugger.monitor(Weights(w=(1,))) is None
    assert mentions(capsys.readouterr().out, "monitor-without-effect", task="statistics") == 1


def test_monitor_without_a_debugger_and_with_what_is_no_model(tmp_path: Path) -> None:
    with raising(InvalidInputError, "debugger-not-created"):
        PrecisionDebugger.monitor(Weights(w=(1,)))
    debugger = PrecisionDebugger(configured(tmp_path))
    with pytest.raises(InvalidInputError, match=r"torch\.nn\.Module"):
        debugger.monitor("a model")
    with raising(InvalidInputError, "gradient-model-wrong", type="SGD"):
        debugger.monitor(torch.optim.SGD(Weights(w=(1,)).parameters(), lr=0.0))


def test_a_second_model_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Weights(w=(1,))
    with probing(tmp_path, model):
        PrecisionDebugger.monitor(model)
        assert "already" in capsys.readouterr().out


def test_a_start_without_monitor_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    debugger = PrecisionDebugger(configured(tmp_path))
    debugger.start()
    debugger.stop()
    assert mentions(capsys.readouterr().out, "start-without-monitor") == 1


def test_a_script_that_is_recorded_from_outside_cannot_be_probed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(3)")
    ended = call("run", "--config", configured(tmp_path), "--", tmp_path / "train.py")
    assert ended.returncode == 2
    assert mentions(ended.stderr, "grad-probe-by-run")


def test_steps_of_an_earlier_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rank = probe_one(tmp_path, *[[1.0]] * 3)
    (rank / "step2" / "mine.txt").write_text("stays")
    with raising(PathError, "gradients-of-earlier-run"):
        probe_one(tmp_path, [2.0], top={"existing": "refuse"})
    probe_one(tmp_path, [2.0], top={"existing": "overwrite"})
    assert [read(rank / f"grad_summary_{n}.csv")[0]["max"] for n in range(3)] == ["2.0", "1.0", "1.0"]
    assert mentions(capsys.readouterr().out, "earlier-gradients-replaced", count=3)
    probe_one(tmp_path, [3.0])
    assert files(rank) == {"grad_summary_0.csv", "step0/w.npy", "step2/mine.txt"}
    assert mentions(capsys.readouterr().out, "earlier-gradients-removed", count="3")
