"""The callbacks of other packages' trainers, with a monitor: what it measures, and that the training is the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import forked

from msprobe.monitor import files

pytestmark = pytest.mark.trainers

# Every number that is not what it was raises an alert, in the second step.
RULE = {"rule_name": "AnomalyTurbulence", "args": {"threshold": 1e-9, "warm_up": 1}}
CONFIG = {
    "targets": {},
    "wg_distribution": True,
    "xy_distribution": True,
    "mv_distribution": True,
    "alert": {"rules": [RULE], "record": {"level": "L0"}},
}

HUGGING_FACE = """
import os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from msprobe.integrations.huggingface import MsprobeCallback

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        words = torch.randint(0, 32, (8,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": words, "labels": words}

losses = []

class Watched(Trainer):
    def training_step(self, *args, **more):
        loss = super().training_step(*args, **more)
        losses.append(float(loss))
        return loss

def train(callbacks):
    set_seed(3)
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=8))
    arguments = TrainingArguments("out", max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                                  report_to=[], use_cpu=True, disable_tqdm=True, seed=3, save_strategy="no")
    Watched(model, arguments, train_dataset=Rows(), callbacks=callbacks).train()
    return [parameter.detach() for parameter in model.parameters()]

plain = train([])
losses.clear()
watched = train([MsprobeCallback(monitor=sys.argv[1])])
print("losses", [sum(losses[at:at + 2]) for at in range(0, 6, 2)])
assert all(torch.equal(one, other) for one, other in zip(plain, watched))
"""

LIGHTNING = """
import sys
import torch
from torch import nn
import lightning.pytorch as pl
from msprobe.integrations.lightning import MsprobeCallback

losses = []

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    def training_step(self, batch, index):
        loss = self.net(batch).square().mean()
        losses.append(float(loss) / 2)
        return loss
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)

def train(callbacks):
    pl.seed_everything(3)
    model = Net()
    data = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=2)
    pl.Trainer(max_steps=3, accumulate_grad_batches=2, callbacks=callbacks, logger=False, enable_progress_bar=False,
               enable_checkpointing=False, accelerator="cpu").fit(model, data)
    return [parameter.detach() for parameter in model.parameters()]

plain = train([])
losses.clear()
watched = train([MsprobeCallback(monitor=sys.argv[1])])
print("losses", [sum(losses[at:at + 2]) for at in range(0, 6, 2)])
assert all(torch.equal(one, other) for one, other in zip(plain, watched))
"""


@pytest.mark.parametrize(
    ("program", "parameter"),
    [(HUGGING_FACE, "transformer.h.0.attn.c_attn.weight"), (LIGHTNING, "net.2.weight")],
    ids=["Hugging Face", "Lightning"],
)
def test_steps_and_micro_steps_of_a_trainer(
    tmp_path: Path, program: str, parameter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "monitor"))
    config = tmp_path / "monitor.json"
    config.write_text(json.dumps({**CONFIG, "squash_name": False}))
    (tmp_path / "train.py").write_text(program)
    run = forked.run("train.py", str(config), cwd=tmp_path, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    (folder,) = files.find_runs(tmp_path / "monitor")
    text = {path.name: path.read_text() for path in Path(folder.path).glob("*.csv")}
    assert {f"grad_reduced_{step}-{step}.csv" for step in range(3)} <= text.keys()
    assert "exp_avg_0-0.csv" not in text
    assert "exp_avg_1-1.csv" in text
    assert f"0,{parameter},2," in text["grad_reduced_2-2.csv"]
    micro_steps = {line.split(",")[3] for line in text["actv_1-1.csv"].splitlines()[1:]}
    assert micro_steps == {"0", "1"}
    noted = [float(text[f"scalars_{step}-{step}.csv"].splitlines()[1].split(",")[3]) for step in range(3)]
    expected = json.loads(next(line for line in run.stdout.splitlines() if line.startswith("losses"))[7:])
    assert noted == pytest.approx(expected, rel=1e-5)
    dumps = sorted(Path(folder.path).glob("behind_alert/*/*/dump.json"))
    assert [dump.parent.parent.name for dump in dumps] == ["step1", "step2"]
    for dump in dumps:
        records = json.loads(dump.read_text())["data"]
        passes = [name for name in records if name.endswith((".forward.0", ".forward.1", ".forward.2"))]
        assert {name[-1] for name in passes} == {"0", "1"}, "two micro steps"
