"""A training with averages, a norm with buffers, a tied head and padding. Mistakes of public threads that are there
from the first step are found in the first eight; the same computed otherwise has no bad step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from unit.monitor.test_trainings_of_threads import Kept

from msprobe.monitor.locate import first_bad_step
from msprobe.monitor.sketch import Sketch
from msprobe.pytorch import TrainerMon

CONFIG = {
    "targets": {},
    "wg_distribution": True,
    "param_distribution": True,
    "ur_distribution": True,
    "state_distribution": True,
    "ops": ["norm", "projection"],
    "format": "api",
}
STEPS, WORDS, WIDTH, IGNORED = 12, 30, 16, -100

Ways = Mapping[str, Any]


class Model(nn.Module):
    """Tokens, a layer between two norms, a head that is the table of tokens, and an average of all of it."""

    def __init__(self, ways: Ways) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS, WIDTH)
        nn.init.normal_(self.tokens.weight, std=0.3)
        self.one, self.two = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)
        self.batch = nn.BatchNorm1d(24, momentum=ways.get("momentum", 0.1), eps=ways.get("eps", 1e-5))
        self.last = nn.LayerNorm(WIDTH)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.tokens.weight
        self.factor = ways.get("factor", 1.0)
        if "untied" in ways:
            self.head.weight = nn.Parameter(self.tokens.weight.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) * self.factor
        between = F.gelu(self.batch(self.one(h).flatten(0, 1)))
        return self.head(self.last(h + self.drop(self.two(between)).view(h.shape)))  # type: ignore[no-any-return]


class Averaged(nn.Module):
    """The model, and its average."""

    def __init__(self, ways: Ways) -> None:
        super().__init__()
        self.net, self.ema = Model(ways), Model(ways)
        self.ema.load_state_dict(self.net.state_dict())
        self.ema.requires_grad_(False)
        if "from_zero" in ways:
            for one in self.ema.parameters():
                one.zero_()
        self.decay, self.ways = ways.get("decay", 0.9), ways

    @torch.no_grad()
    def average(self) -> None:
        pairs = list(zip(self.ema.parameters(), self.net.parameters(), strict=True))
        if "by_lerp" in self.ways:
            torch._foreach_lerp_([one for one, _ in pairs], [other for _, other in pairs], 1 - self.decay)
        else:
            for one, other in pairs:
                one.mul_(self.decay).add_(other, alpha=1 - self.decay)
        if "buffers_stay" not in self.ways:
            for one, other in zip(self.ema.buffers(), self.net.buffers(), strict=True):
                one.copy_(other)
        if "decay_decays" in self.ways:
            self.decay *= 0.95


def batch(step: int) -> torch.Tensor:
    """Rows of tokens, of which some end early."""
    draw = torch.Generator().manual_seed(step)
    rows = torch.randint(0, WORDS, (8, 9), generator=draw)
    for row, length in enumerate(torch.randint(4, 9, (8,), generator=draw).tolist()):
        rows[row, length:] = IGNORED
    return rows


def loss_of(result: torch.Tensor, labels: torch.Tensor, words: int, ways: Ways) -> torch.Tensor:
    """Of the words of all micro-batches together."""
    smoothing = ways.get("smoothing", 0.0)
    if "mean_of_part" in ways:
        return F.cross_entropy(result, labels, ignore_index=IGNORED, label_smoothing=smoothing) / 2
    if "padding_counts" in ways:
        return F.cross_entropy(result, labels.clamp(min=0), reduction="sum") / labels.numel() / 2
    if "by_hand" in ways:
        kept = labels != IGNORED
        return -result[kept].log_softmax(-1).gather(1, labels[kept][:, None]).sum() / words
    return F.cross_entropy(result, labels, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing) / words


def train(folder: Path, ways: Ways) -> list[Sketch]:
    """One training; its sketches."""
    torch.manual_seed(0)
    whole = Averaged(ways)
    net = whole.net
    parameters = [one for one in net.parameters() if not ("frozen" in ways and one is net.two.weight)]
    if "frozen" in ways:
        net.two.weight.requires_grad_(False)
    sort = ways.get("sort", torch.optim.AdamW)
    made = {"lr": 2e-3, "betas": (0.9, 0.99), "weight_decay": 0.05, **ways.get("optimizer", {})}
    if sort is torch.optim.SGD:
        made = {"lr": 0.05, "momentum": 0.9, **ways.get("optimizer", {})}
    optimizer = sort(parameters, **made)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, ways.get("schedule", lambda step: 0.95**step))
    (folder / "m.json").write_text(json.dumps(CONFIG))
    kept = Kept()
    monitor = TrainerMon(folder / "m.json", sinks=[kept])
    monitor.set_monitor(whole, optimizer=optimizer)
    if "evaluated" in ways:
        net.eval()
    for step in range(STEPS):
        rows = batch(step)
        words = int((rows[:, 1:] != IGNORED).sum())
        torch.manual_seed(step)
        order = (1, 0) if "other_order" in ways else (0, 1)
        parts = [rows] if "one_batch" in ways else [rows.chunk(2)[at] for at in order]
        for part in parts:
            with torch.autocast("cpu", torch.bfloat16, enabled=ways.get("type") == "autocast"):
                result = net(part[:, :-1].clamp(min=0)).flatten(0, 1)
            loss = loss_of(result.float(), part[:, 1:].flatten(), words, ways) * ways.get("times", 1.0)
            loss.backward()
        if "by_value" in ways:
            nn.utils.clip_grad_value_(parameters, 0.01)
        else:
            nn.utils.clip_grad_norm_(parameters, ways.get("limit", 0.5))
        monitor.note(loss=float(loss.detach()))
        if "schedule_first" in ways:
            schedule.step()
        if "average_first" in ways:
            whole.average()
        optimizer.step()
        if "coarse_weights" in ways:
            with torch.no_grad():
                for one in parameters:
                    one.copy_(one.bfloat16())
        if "average_first" not in ways:
            whole.average()
        if "schedule_first" not in ways:
            for _ in range(ways.get("ranks", 1)):
                schedule.step()
        optimizer.zero_grad()
    monitor.stop()
    return kept.found


@cache
def right(folder: Path, sort: Any, type_: str) -> list[Sketch]:
    return train(folder, {"sort": sort, "type": type_})


def found_in(folder: Path, ways: Ways, type_: str) -> Any:
    return first_bad_step(
        right(folder, ways.get("sort", torch.optim.AdamW), type_), train(folder, {**ways, "type": type_}), {}, 0.0
    )


SGD = torch.optim.SGD
#: What is done otherwise, and a word that what was found first has, where one tensor or one number is wrong.
WRONG: dict[str, tuple[Ways, str]] = {
    # https://github.com/huggingface/diffusers/issues/1864: the decay that is in use is decayed
    "a decay that decays": ({"decay_decays": True}, "ema"),
    # https://github.com/huggingface/pytorch-image-models/issues/1182: averages that begin with zeros
    "averages from zero": ({"from_zero": True}, "ema"),
    # https://github.com/huggingface/pytorch-image-models/issues/1182: another decay
    "another decay": ({"decay": 0.95}, "ema"),
    # https://github.com/lucidrains/ema-pytorch/issues/8, CuriousAI/mean-teacher/issues/9, FlyreelAI/sesemi/issues/36
    "buffers are not averaged": ({"buffers_stay": True}, "ema"),
    # averaged before the optimizer has stepped: one step behind
    "averaged too early": ({"average_first": True}, "ema"),
    # https://github.com/Cadene/pretrained-models.pytorch/issues/44, https://github.com/huggingface/transformers/pull/19454
    "another momentum": ({"momentum": 0.01}, "batch"),
    # https://github.com/huggingface/lerobot/issues/3668: a norm that does not follow its batches
    "never in training mode": ({"evaluated": True}, ""),
    # https://github.com/huggingface/transformers/issues/37197: the loss of micro-batches is not divided
    "not divided": ({"times": 2.0, "sort": SGD, "limit": 1e9}, ""),
    # https://github.com/huggingface/transformers/pull/34191: a mean over each micro-batch in place of all words
    "a mean of means": ({"mean_of_part": True}, ""),
    # https://github.com/OpenNMT/OpenNMT-py/pull/526: padding counts
    "padding counts": ({"padding_counts": True}, ""),
    # https://github.com/huggingface/accelerate/issues/2926, huggingface/diffusers/issues/3954
    "a schedule per rank": ({"ranks": 2}, "update"),
    # https://github.com/facebookresearch/ParlAI/issues/2042: the schedule steps before its optimizer
    "the schedule first": ({"schedule_first": True}, "update"),
    # https://github.com/ildoonet/pytorch-gradual-warmup-lr/pull/11: a warm-up with another rate
    "a warm-up": ({"schedule": lambda step: min(1.0, (step + 1) / 5) * 0.95**step}, "update"),
    # https://github.com/NVIDIA/Megatron-LM/issues/656: a head that is no longer tied
    "untied": ({"untied": True}, "tokens"),
    # many: a layer that is frozen
    "frozen": ({"frozen": True}, ""),
    # many: clipped by value in place of the norm
    "clipped by value": ({"by_value": True, "sort": SGD}, ""),
    # https://github.com/keras-team/keras/issues/19051: decay that is not decoupled
    "decay in the gradient": ({"sort": torch.optim.Adam}, ""),
    # https://github.com/pytorch/ao/pull/1124, Nerogar/OneTrainer/issues/996: updates too small for a type
    "coarse weights": ({"coarse_weights": True}, ""),
    # many: a smoothed loss on one side
    "smoothed": ({"smoothing": 0.1}, ""),
    # https://github.com/r9y9/tacotron_pytorch/issues/19: another epsilon of a batch norm
    "another epsilon": ({"eps": 1e-3}, ""),
    # another scale of the table of tokens; in gradients it must be more than a half type, or TF32, rounds
    "scaled tokens": ({"factor": 1.1}, ""),
    # many: another beta
    "another beta": ({"optimizer": {"betas": (0.9, 0.95)}}, ""),
}


@pytest.mark.parametrize("type_", ["float32", "autocast"])
@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_from_the_first_step_on_is_found_in_eight(folder: Path, name: str, type_: str) -> None:
    ways, word = WRONG[name]
    base = {**ways, "sort": SGD} if ways.get("sort") is SGD else {k: v for k, v in ways.items() if k != "sort"}
    one = right(folder, base.get("sort", torch.optim.AdamW), type_)
    found = first_bad_step(one, train(folder, {**ways, "type": type_}), {}, 0.0)
    assert found is not None
    assert found.step <= 8, (found.step, found.what[:3])
    assert any(word in str(one) for one in found.what), found.what[:4]


#: What is computed otherwise and is the same.
SAME: dict[str, Ways] = {
    "the same again": {},
    "averaged by lerp": {"by_lerp": True},
    "the loss by hand": {"by_hand": True},
    "a loop over parameters": {"optimizer": {"foreach": False}},
    "a fused optimizer": {"optimizer": {"fused": True}},
    "by hand, by lerp, fused": {"by_hand": True, "by_lerp": True, "optimizer": {"fused": True}},
    "the loss by hand, momentum": {"by_hand": True, "sort": SGD},
    "by lerp, momentum": {"by_lerp": True, "sort": SGD},
}


@pytest.mark.parametrize("type_", ["float32", "autocast"])
@pytest.mark.parametrize("name", SAME)
def test_what_is_computed_otherwise_has_no_bad_step(folder: Path, name: str, type_: str) -> None:
    found = found_in(folder, SAME[name], type_)
    assert found is None, (found.step, found.what[:3])


class Pictures(nn.Module):
    """Convolutions with kinks and norms, and an average of them."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            *[nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)],
            *[nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()],
            nn.Linear(16, 5),
        )
        self.ema = torch.optim.swa_utils.AveragedModel(
            self.net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
        )


def train_pictures(folder: Path, sort: Any, seed: int, kernels: bool, autocast: bool) -> list[Sketch]:
    torch.manual_seed(seed)
    whole = Pictures()
    optimizer = sort(whole.net.parameters(), lr=0.05 if sort is SGD else 2e-3)
    (folder / "p.json").write_text(json.dumps(CONFIG))
    kept = Kept()
    monitor = TrainerMon(folder / "p.json", sinks=[kept])
    monitor.set_monitor(whole, optimizer=optimizer)
    with torch.backends.mkldnn.flags(enabled=kernels):
        for step in range(STEPS):
            draw = torch.Generator().manual_seed(100 * seed + step)
            x, goals = torch.randn(8, 3, 12, 12, generator=draw), torch.randint(0, 5, (8,), generator=draw)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = F.cross_entropy(whole.net(x), goals)
            optimizer.zero_grad()
            loss.backward()
            monitor.note(loss=float(loss.detach()))
            optimizer.step()
            whole.ema.update_parameters(whole.net)
    monitor.stop()
    return kept.found


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("sort", [SGD, torch.optim.AdamW])
@pytest.mark.parametrize("seed", range(4))
def test_other_kernels_of_convolutions_are_no_bad_step_of_their_averages(
    folder: Path, sort: Any, seed: int, autocast: bool
) -> None:
    one, other = (train_pictures(folder, sort, seed, kernels, autocast) for kernels in (True, False))
    found = first_bad_step(one, other, {}, 0.0)
    assert found is None, (found.step, found.what[:3])
