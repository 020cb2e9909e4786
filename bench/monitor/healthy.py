"""How often `msprobe monitor diff` finds a bad step in two healthy runs, and whether it finds planted faults.

    python bench/monitor/healthy.py                    # all programs, 60 steps: healthy pairs and faults
    python bench/monitor/healthy.py --programs cnn_relu,moe --steps 120 --seeds 3
    python bench/monitor/healthy.py --followers        # averages and buffers, their rule and its limits

A healthy pair is the same training twice with one thing in how it is computed changed: oneDNN, threads, memory format,
the order of samples in a batch, the attention kernel; in float32 and under autocast. A fault begins at step 0 or at a
third of the steps. What is judged are the numbers that a monitor measures, as sketches. ``--followers`` takes the
mistakes and healthy pairs of tests/unit/monitor/test_averages_of_threads.py instead, in float32 and under autocast, and
says how many have a bad step in the first eight, all rules together and by that rule alone (msprobe.monitor.followers).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from msprobe.monitor import followers
from msprobe.monitor.locate import HALF, FirstBadStep, first_bad_step
from msprobe.monitor.measurements import StepMetrics
from msprobe.monitor.relations import rounding_of_first_step
from msprobe.monitor.sketch import Sketch, Sketcher
from msprobe.pytorch import TrainerMon

CONFIG = {
    "targets": {},
    "wg_distribution": True,
    "param_distribution": True,
    "ur_distribution": True,
    "ops": ["norm", "projection"],
    "format": "api",
}


class Cnn(nn.Module):
    """Three convolutions; ``kind``: relu, gelu, silu, or with max pooling or batch norm."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.c3, self.fc = nn.Conv2d(32, 32, 3, padding=1, stride=2), nn.Linear(512, 10)
        self.norm = nn.BatchNorm2d(16) if kind == "norm" else nn.Identity()
        self.act = {"gelu": F.gelu, "silu": F.silu}.get(kind, F.relu)
        self.pool: nn.Module = nn.MaxPool2d(3, 1, 1) if kind == "pool" else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.act(self.norm(self.c1(x))))
        return self.fc(self.act(self.c3(self.act(self.c2(x)))).flatten(1))  # type: ignore[no-any-return]


class Text(nn.Module):
    """Predicts the next token: a transformer, a recurrent net, or a layer of experts of which each token takes two."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.tokens = nn.Embedding(50, 32)
        if kind == "transformer":
            self.body: Any = nn.ModuleList(
                nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True) for _ in range(2)
            )
        elif kind == "lstm":
            self.body = nn.LSTM(32, 32, 2, batch_first=True, dropout=0.1)
        else:
            self.router = nn.Linear(32, 6)
            self.body = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)) for _ in range(6))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 50)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x)
        if self.kind == "transformer":
            for layer in self.body:
                h = layer(h)
        elif self.kind == "lstm":
            h = self.body(h)[0]
        else:
            weight, chosen = self.router(h).softmax(-1).topk(2, -1)
            h = h + sum(one(h) * (weight * (chosen == at)).sum(-1, keepdim=True) for at, one in enumerate(self.body))
        return self.head(self.norm(h))  # type: ignore[no-any-return]


PROGRAMS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    **{f"cnn_{kind}": ((lambda kind=kind: Cnn(kind)), True) for kind in ("relu", "gelu", "silu", "pool", "norm")},
    **{kind: ((lambda kind=kind: Text(kind)), False) for kind in ("transformer", "lstm", "moe")},
}
OPTIMIZERS = ("sgd", "adamw")
HEALTHY = ("onednn", "threads", "channels_last", "order", "kernel")
#: Name -> whether it is in one tensor, the steps from which it is there as a share of all, or both.
FAULTS = ("scaled", "backward", "beta", "decay", "half_weights", "rate", "frozen", "spike", "data", "drift")


@dataclass(frozen=True)
class How:
    """How one run is computed. ``change``: one of HEALTHY or FAULTS, from step ``at`` on."""

    change: str = ""
    at: int = 0
    autocast: bool = False


@contextmanager
def computed(how: How) -> Iterator[None]:
    """The switches of torch for a run."""
    torch.set_num_threads(2 if how.change == "threads" else 1)
    torch.backends.mkldnn.enabled = how.change != "onednn"  # type: ignore[assignment]
    kernel = torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH])
    with kernel if how.change == "kernel" else nullcontext():
        yield
    torch.backends.mkldnn.enabled = True  # type: ignore[assignment]
    torch.set_num_threads(1)


class _Kept:
    def __init__(self) -> None:
        self.sketcher, self.found = Sketcher(), list[Sketch]()

    def write(self, metrics: StepMetrics) -> None:
        self.found.append(self.sketcher.sketch(metrics))

    def open(self, run: Any) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def trained(program: str, optimizer: str, seed: int, steps: int, how: How) -> list[Sketch]:
    """One run; its sketches."""
    make, is_image = PROGRAMS[program]
    with computed(how), tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(seed)
        model = make()
        at_once = how.at == 0
        betas = (0.9, 0.99 if how.change == "beta" and at_once else 0.999)
        flat = [p for name, p in model.named_parameters() if p.dim() < 2]
        rest = [p for p in model.parameters() if p.dim() > 1]
        decay = 0.1 if how.change == "decay" and at_once else 0.0
        groups = [{"params": rest, "weight_decay": 0.1}, {"params": flat, "weight_decay": decay}]
        if optimizer == "sgd":
            groups = [{**one, "weight_decay": one["weight_decay"] / 20} for one in groups]  # type: ignore[operator]
            steps_of: torch.optim.Optimizer = torch.optim.SGD(groups, 0.02, momentum=0.9)
        else:
            steps_of = torch.optim.AdamW(groups, 1e-3, betas=betas)
        if how.change == "channels_last" and is_image:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        path = Path(folder, "m.json")
        path.write_text(json.dumps(CONFIG))
        kept = _Kept()
        monitor = TrainerMon(path, sinks=[kept])
        monitor.set_monitor(model, optimizer=steps_of)
        torch.manual_seed(seed + 1)
        chosen = rest[len(rest) // 2]
        if how.change == "backward":
            counted = [0]

            def scale(gradient: torch.Tensor) -> torch.Tensor:
                counted[0] += 1
                return gradient * 1.05 if counted[0] > how.at else gradient

            chosen.register_hook(scale)
        for step in range(steps):
            bad = step >= how.at
            x, y = batch(is_image, seed, step + (500 if how.change == "data" and step == how.at else 0))
            if how.change == "order":
                turned = torch.roll(torch.arange(len(x)), 5)
                x, y = x[turned], y[turned]
            if how.change == "channels_last" and is_image:
                x = x.contiguous(memory_format=torch.channels_last)
            if how.change == "half_weights" and bad:
                with torch.no_grad():
                    for one in model.parameters():
                        one.copy_(one.bfloat16())
            with torch.autocast("cpu", torch.bfloat16, enabled=how.autocast):
                out = model(x)
                loss = F.cross_entropy(out if is_image else out.flatten(0, 1), y.flatten())
            steps_of.zero_grad()
            loss.backward()
            assert chosen.grad is not None
            if how.change == "scaled" and bad:
                chosen.grad.mul_(1.05)
            if how.change == "drift" and bad:
                chosen.grad.mul_(1 + 0.005 * (step - how.at + 1))
            if how.change == "spike" and step == how.at:
                chosen.grad.mul_(20)
            if how.change == "rate" and step == how.at:
                for group in steps_of.param_groups:
                    group["lr"] *= 1.2
            if how.change == "beta" and step == how.at and optimizer == "adamw":
                for group in steps_of.param_groups:
                    group["betas"] = (0.9, 0.99)
            if how.change == "decay" and step == how.at:
                steps_of.param_groups[1]["weight_decay"] = steps_of.param_groups[0]["weight_decay"]
            before = chosen.detach().clone()
            monitor.note(loss=loss.item())
            steps_of.step()
            if how.change == "frozen" and bad:
                with torch.no_grad():
                    chosen.copy_(before)
        monitor.stop()
    return kept.found


def batch(is_image: bool, seed: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Data that can be learnt."""
    made = torch.Generator().manual_seed(seed * 1000 + step)
    if is_image:
        y = torch.randint(0, 10, (16,), generator=made)
        x = torch.randn(16, 3, 16, 16, generator=made)
        for at in range(16):
            x[at, y[at] % 3, y[at] : y[at] + 4] += 1.5
        return x, y
    begin, stride = torch.randint(0, 50, (16, 1), generator=made), torch.randint(1, 4, (16, 1), generator=made)
    rows = (begin + stride * torch.arange(13)) % 50
    return rows[:, :-1], rows[:, 1:]


#: By how much the limits of the rule of followers are multiplied, to see how far they are from both sides.
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def count_followers() -> None:
    """A line for each kind of pairs: how many have a bad step."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
    from unit.monitor import test_averages_of_threads as made

    sgd, adamw = torch.optim.SGD, torch.optim.AdamW
    kinds: dict[str, list[tuple[list[Sketch], list[Sketch]]]] = {"averages and buffers": [], "other mistakes": []}
    kinds |= {"the same otherwise": [], "other kernels": []}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for type_ in ("float32", "autocast"):
            for name, (ways, word) in made.WRONG.items():
                sort = sgd if ways.get("sort") is sgd else adamw
                pair = made.right(folder, sort, type_), made.train(folder, {**ways, "type": type_})
                kinds["averages and buffers" if word in ("ema", "batch") else "other mistakes"].append(pair)
                print(f"{type_:9s} {name}", flush=True)
            for ways in made.SAME.values():
                pair = made.right(folder, ways.get("sort", adamw), type_), made.train(folder, {**ways, "type": type_})
                kinds["the same otherwise"].append(pair)
            for sort in (sgd, adamw):
                for seed in range(4):
                    one, other = (
                        made.train_pictures(folder, sort, seed, on, type_ != "float32") for on in (True, False)
                    )
                    kinds["other kernels"].append((one, other))
    limits = {name: getattr(followers, name) for name in ("_TIMES", "_TIMES_ROUNDING", "_LEAST")}
    print(f"{'':24s} {'all rules':>12s} {'  '.join(f'rule x {factor:g}' for factor in _FACTORS)}")
    for kind, pairs in kinds.items():
        bad = sum((found := first_bad_step(*pair, {}, 0.0)) is not None and found.step <= 8 for pair in pairs)
        counts = []
        for factor in _FACTORS:
            for name, limit in limits.items():
                setattr(followers, name, limit * factor)
            both = [list(zip(*pair, strict=True)) for pair in pairs]
            counts.append(sum(bool(followers.follower_relations(one, rounding_of_first_step(one))) for one in both))
        for name, limit in limits.items():
            setattr(followers, name, limit)
        print(f"{kind:24s} {bad:5d} of {len(pairs):3d} {'  '.join(f'{one:8d}' for one in counts)}")


def main() -> None:
    """Count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep the sketches in this file, to judge them again")
    parser.add_argument("--followers", action="store_true", help="state that follows weights and activations")
    args = parser.parse_args()
    if args.followers:
        count_followers()
        return
    kept: list[Any] = []
    false, faults, right = Counter[str](), Counter[str](), Counter[str]()
    pairs = 0
    for program in args.programs.split(","):
        for optimizer in OPTIMIZERS:
            for seed in range(args.seeds):
                key = zlib.crc32(program.encode()) % 100 + seed
                for autocast in (False, True):
                    reference = trained(program, optimizer, key, args.steps, How(autocast=autocast))
                    rounding = HALF["bfloat16"] if autocast else 0.0
                    for change in HEALTHY:
                        is_meant = (PROGRAMS[program][1], change) not in ((False, "channels_last"), (True, "kernel"))
                        # Dropout draws by place: another order is another training.
                        if not is_meant or (change == "order" and program in ("transformer", "lstm")):
                            continue
                        other = trained(program, optimizer, key, args.steps, How(change, 0, autocast))
                        found = first_bad_step(reference, other, None, rounding)
                        pairs += 1
                        false[change] += found is not None
                        kept.append(((program, optimizer, seed, autocast, change, -1), reference, other, rounding))
                        _say(program, optimizer, seed, autocast, f"healthy {change}", found)
                    for change in FAULTS if seed == 0 else ():
                        for at in (0, args.steps // 3):
                            if (change == "beta" and optimizer == "sgd") or (at == 0 and change in ("spike", "rate")):
                                continue
                            other = trained(program, optimizer, key, args.steps, How(change, at, autocast))
                            # With rounding of another run on top of it: a fault alone would be seen at once.
                            noisy = trained(program, optimizer, key, args.steps, How("onednn", 0, autocast))
                            found = first_bad_step(noisy, other, None, rounding)
                            name = f"{change} from {'step 0' if at == 0 else 'a third'}{' autocast' * autocast}"
                            faults[name] += 1
                            right[name] += found is not None and at <= found.step <= at + 8
                            kept.append(((program, optimizer, seed, autocast, change, at), noisy, other, rounding))
                            _say(program, optimizer, seed, autocast, name, found)
    print(f"healthy pairs with a bad step: {sum(false.values())} of {pairs} {dict(+false)}")
    for name in sorted(faults):
        print(f"{name:34s} found within 8 steps: {right[name]} of {faults[name]}")
    print(f"all faults: {sum(right.values())} of {sum(faults.values())}")
    if args.keep:
        torch.save(kept, args.keep)


def _say(program: str, optimizer: str, seed: int, autocast: bool, name: str, found: FirstBadStep | None) -> None:
    said = "nothing" if found is None else f"{found.step}: {found.what[0]}"
    print(f"{program:12s} {optimizer:6s} {seed} {'bf16' if autocast else 'f32':5s} {name:28s} {said}", flush=True)


if __name__ == "__main__":
    main()
