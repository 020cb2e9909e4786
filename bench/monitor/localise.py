"""How many faults `msprobe monitor diff` names the first step of exactly, from sketches of at most 1 kB per step.

    python bench/monitor/localise.py              # 50 runs of 500 steps with a fault each, 5 healthy ones
    python bench/monitor/localise.py --runs 8 --steps 120 --out /tmp/sketches
    python bench/monitor/localise.py --bfloat16   # the faulty runs compute in bfloat16, the reference in float32

A small transformer is trained on two data-parallel ranks, which one process plays: each rank has half of the batch,
and their gradients are averaged. Each run takes the samples of a rank in an order of its own, so that healthy rounding
noise is in every comparison, from the first step on. From step k on one thing is wrong. Sketches are made by msprobe of
the rows that a monitor measures (norm, and a projection on random signs); nothing else of a run is looked at. A run
counts as exact if the named step is k, neither before nor after; healthy runs count as exact if no step is named.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from model import Transformer

from msprobe.monitor.files import begin
from msprobe.monitor.locate import first_bad_step
from msprobe.monitor.measurements import MonitorRun, Row, StepMetrics
from msprobe.monitor.sketch import FILE_NAME, SketchSink, read_sketches

SAMPLES, LENGTH, VOCABULARY, RATE = 16, 16, 100, 1e-3
OPS = ("norm", "projection")


@dataclass
class Fault:
    """What is wrong from step ``at`` on. ``hidden``: the sketch is not told the learning rate and the batch."""

    kind: str
    at: int
    parameter: int = 0
    hidden: bool = False

    def since(self, step: int) -> int:
        """Steps since the fault began, itself the first; 0 before."""
        return max(0, step - self.at + 1)


KINDS = (
    "gradient drifts", "weights drift", "spike", "stale parameters", "learning rate", "skipped reduction", "data order",
    "update skipped",
)  # fmt: skip


class Training:
    """One run, step by step. ``order``: a seed for the order in which a rank takes its samples: another rounding."""

    def __init__(self, order: int, fault: Fault | None, steps: int, bfloat16: bool = False) -> None:
        self.bfloat16 = bfloat16
        torch.manual_seed(0)
        self.model = Transformer(width=32, layers=2, vocabulary=VOCABULARY, length=LENGTH)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE)
        self.order = torch.randperm(SAMPLES // 2, generator=torch.Generator().manual_seed(order))
        self.fault = fault or Fault("none", 1 << 60)
        self.steps = steps
        self.signs = {name: signs_of(name, p.numel()) for name, p in self.parameters.items()}
        self.before = {name: p.detach().clone() for name, p in self.parameters.items()}

    def metrics(self) -> Iterator[StepMetrics]:
        """The measurements of each step."""
        for step in range(self.steps):
            yield self.step(step)

    def step(self, step: int) -> StepMetrics:
        fault, since = self.fault, self.fault.since(step)
        rate = RATE * min(1.0, (step + 1) / 50) * (0.5 + 0.5 * math.cos(math.pi * step / self.steps))
        tokens = batch_of(step + (7 if fault.kind == "data order" and since else 0))
        loss, gradients = self.gradients(tokens, stale=fault.kind == "stale parameters" and since > 0)
        local = gradients[0]
        reduced = [(a + b) / 2 for a, b in zip(*gradients, strict=True)]
        if fault.kind == "skipped reduction" and since:
            reduced = [gradient.clone() for gradient in local]
        chosen = fault.parameter % len(reduced)
        if fault.kind == "gradient drifts":
            reduced[chosen] *= 1 + 0.005 * since
        if fault.kind == "spike" and since == 1:
            reduced[chosen] *= 20
        self.before = {name: p.detach().clone() for name, p in self.parameters.items()}
        for parameter, gradient in zip(self.parameters.values(), reduced, strict=True):
            parameter.grad = gradient
        used = rate * 1.2 if fault.kind == "learning rate" and since else rate
        self.optimizer.param_groups[0]["lr"] = used
        self.optimizer.step()
        with torch.no_grad():
            name = list(self.parameters)[chosen]
            if fault.kind == "weights drift" and since:
                self.parameters[name].mul_(1 + 2e-4)
            if fault.kind == "update skipped" and since == 1:
                self.parameters[name].copy_(self.before[name])
        rows = {
            "grad_unreduced": self.rows(local),
            "grad_reduced": self.rows(reduced),
            "update": self.rows([p.detach() - self.before[name] for name, p in self.parameters.items()]),
            "param_updated": self.rows([p.detach() for p in self.parameters.values()]),
        }
        batch = "" if fault.hidden else hashlib.blake2b(tokens.numpy().tobytes()).hexdigest()
        told = rate if fault.hidden else used
        return StepMetrics(step, OPS, rows, scalars={"loss": loss, "lr": told}, batch=batch)  # type: ignore[arg-type]

    def gradients(self, tokens: torch.Tensor, stale: bool) -> tuple[float, list[list[torch.Tensor]]]:
        """The loss and the gradients of both ranks; the second has ``stale`` weights if asked."""
        found, losses = [], []
        for rank, half in enumerate(tokens.chunk(2)):
            kept = {name: p.detach().clone() for name, p in self.parameters.items()}
            if stale and rank == 1:
                self.load(self.before)
            self.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
                loss = self.model(half[self.order])
            loss.backward()
            losses.append(float(loss.detach()))
            found.append([p.grad.detach().clone() for p in self.parameters.values() if p.grad is not None])
            if stale and rank == 1:
                self.load(kept)
        return sum(losses) / 2, found

    def load(self, values: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(values[name])

    def rows(self, tensors: list[torch.Tensor]) -> list[Row]:
        norms = torch.stack(torch._foreach_norm(tensors)).tolist()
        dots = torch.stack(
            [torch.dot(t.flatten(), s) for t, s in zip(tensors, self.signs.values(), strict=True)]
        ).tolist()
        numbers = zip(self.parameters, tensors, norms, dots, strict=True)
        return [Row(0, name, None, (norm, dot), tuple(t.shape), "torch.float32") for name, t, norm, dot in numbers]


def signs_of(name: str, count: int) -> torch.Tensor:
    """Random signs, the same for a name in every run."""
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")
    return torch.randint(0, 2, (count,), generator=torch.Generator().manual_seed(seed)).float() * 2 - 1


def batch_of(step: int) -> torch.Tensor:
    """Sequences that can be learnt: arithmetic progressions with a little noise."""
    made = torch.Generator().manual_seed(1000 + step)
    begin_at = torch.randint(0, VOCABULARY, (SAMPLES, 1), generator=made)
    stride = torch.randint(1, 5, (SAMPLES, 1), generator=made)
    noise = (torch.rand(SAMPLES, LENGTH, generator=made) < 0.05) * torch.randint(
        0, 9, (SAMPLES, LENGTH), generator=made
    )
    return (begin_at + stride * torch.arange(LENGTH) + noise) % VOCABULARY


def recorded(base: Path, training: Training) -> Path:
    """Train, and keep the sketches; their file."""
    run = begin(MonitorRun(str(base), 0, 1, time.time(), "pytorch", 1, None, {}))
    sink = SketchSink()
    sink.open(run)
    for metrics in training.metrics():
        sink.write(metrics)
    sink.close()
    return Path(run.folder, FILE_NAME)


def faults(count: int, steps: int) -> list[Fault]:
    """Kinds in turn, steps and parameters drawn, half of them hidden from the facts."""
    drawn = torch.Generator().manual_seed(7)
    draw: Callable[[int, int], int] = lambda low, high: int(torch.randint(low, high, (1,), generator=drawn))  # noqa: E731
    return [
        Fault(KINDS[at % len(KINDS)], draw(steps // 25, steps - steps // 25), draw(0, 1000), bool(at // len(KINDS) % 2))
        for at in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--healthy", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--bfloat16", action="store_true", help="much more noise: other runs compute in bfloat16")
    parser.add_argument("--out", help="keep the sketches here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    base = Path(args.out or tempfile.mkdtemp())
    reference = recorded(base / "reference", Training(0, None, args.steps))
    sketches = read_sketches(reference)
    size = reference.stat().st_size / len(sketches)
    print(f"{len(sketches)} steps, {size:.0f} bytes of file per step, {len(sketches[0].groups)} groups")
    exact: Counter[str] = Counter()
    of: Counter[str] = Counter()
    for number, fault in enumerate(faults(args.runs, args.steps)):
        found = first_bad_step(
            sketches,
            read_sketches(recorded(base / str(number), Training(number + 1, fault, args.steps, args.bfloat16))),
        )
        of[fault.kind] += 1
        exact[fault.kind] += found is not None and found.step == fault.at
        said = "nothing" if found is None else f"{found.step} ({found.what[0]})"
        mark = "exact" if found is not None and found.step == fault.at else "MISSED"
        print(
            f"{number:3d} {mark:6s} {fault.kind:18s}{' hidden' if fault.hidden else '':7s} at {fault.at}: {said}",
            flush=True,
        )
    quiet = 0
    for number in range(args.healthy):
        training = Training(1000 + number, None, args.steps, args.bfloat16)
        found = first_bad_step(sketches, read_sketches(recorded(base / f"healthy{number}", training)))
        quiet += found is None
        print(f"healthy {number}: {'nothing' if found is None else found}", flush=True)
    print("\n".join(f"{kind:20s} {exact[kind]} of {of[kind]}" for kind in KINDS))
    print(f"exact: {sum(exact.values())} of {args.runs}; healthy runs without a word: {quiet} of {args.healthy}")


if __name__ == "__main__":
    main()
