"""Unusual values and unusual modules: rare number formats, lazy shapes, one-shot iterators, models that
change shape.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised
from .generative import vectors

Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Parcel:
    tensor: torch.Tensor
    note: str


class Grumpy:
    """An object of the user that refuses whatever one may ask of it, and notes what was asked."""

    asked: list[str] = []

    def __eq__(self, other: object) -> bool:
        self.asked.append("eq")
        raise TypeError("not to be compared")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        self.asked.append("bool")
        raise TypeError("neither true nor false")

    def __len__(self) -> int:
        self.asked.append("len")
        raise TypeError("without length")

    def __repr__(self) -> str:
        self.asked.append("repr")
        raise TypeError("without words")

    def __iter__(self) -> Iterator[object]:
        self.asked.append("iter")
        raise TypeError("not to be walked")

    def __getattr__(self, name: str) -> object:
        if not name.startswith("__"):
            self.asked.append(name)
        raise AttributeError(name)


class LazyRows:
    """A sequence whose items are computed, and counted, when asked for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.asked = tensor, 0

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.asked += 1
        return self.tensor[index]


@architecture()
def strange_containers() -> TrainingCase:
    """Generators, cycles, default dicts, deep nests and hostile objects travel through modules and come out
    untouched.
    """

    class Rows(nn.Module):
        def forward(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
            return (row * 2 for row in x)

    class Gather(nn.Module):
        def forward(self, rows: Iterator[torch.Tensor]) -> torch.Tensor:
            return torch.stack(list(rows))

    class Echo(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return (args, kwargs) if kwargs or len(args) != 1 else args[0]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.rows, self.gather = nn.Linear(8, 8), Rows(), Gather()
            self.echo, self.last = Echo(), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[object]]:
            h = self.gather(self.rows(self.first(x)))
            cycle: list[object] = [h]
            cycle.append(cycle)
            deep: object = h
            for _ in range(200):
                deep = [deep]
            missing: defaultdict[str, list[int]] = defaultdict(list)
            lazy, grumpy, counting = LazyRows(h), Grumpy(), iter(range(3))
            Grumpy.asked = []
            queue, ordered = deque([h, 1], maxlen=2), OrderedDict(b=h, a=2)
            self.echo(cycle, deep, missing, keys={1: h, None: 2, (1, 2): [h], Pair: 3, "a.b/c": h})
            self.echo({h}, frozenset([1]), slice(1, None), ..., range(3), b"x", memoryview(b"x"), lambda: 1)
            self.echo(float("nan"), -0.0, 10**400, 1j, "\ud800", "\n", torch.float32, Pair, print)
            self.echo(lazy, torch.device("cpu"), key=counting)
            kept = [
                self.echo(queue) is queue and list(queue)[1:] == [1],
                self.echo(ordered) is ordered and list(ordered) == ["b", "a"],
                self.echo(missing) is missing and len(missing) == 0,
                self.echo(grumpy) is grumpy,
                self.echo(cycle) is cycle and cycle[1] is cycle,
                self.echo(lazy) is lazy and lazy.asked,
                self.echo(counting) is counting and list(counting),
                isinstance(self.echo(Pair(h, 1)), Pair),
                self.echo(Parcel(h, "x")).tensor is h,
                self.echo(None) is None,
                [name for name in Grumpy.asked if not name.startswith("_")],
            ]
            return self.last(h), kept

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        out, kept = net(x)
        return out.square().mean(), {"out": out, "kept": kept}

    return supervised(Model(), vectors, loss_of)


@architecture()
def unusual_dtypes() -> TrainingCase:
    """Every number format, empty and 0-dim tensors, overlapping memory, extreme values."""
    names = "float16 bfloat16 float64 float8_e4m3fn float8_e5m2 int8 uint8 int16 int32 int64"
    names += " uint16 uint32 uint64 bool complex32 complex64 complex128"
    dtypes = [getattr(torch, name) for name in names.split()]

    class Through(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.through = nn.Linear(8, 8), Through()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
            h = self.linear(x)
            found = [self.through(h.detach().abs().to(dtype).clone()) for dtype in dtypes]
            extremes = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e38, -1e-45, 0.0, -0.0])
            found += [
                self.through(extremes),
                self.through(extremes.double() * 1e200),
                torch.tensor([2**62 + 1, -(2**63)]) + 1,
                self.through(torch.empty(0, 3)).sum(0),
                self.through(torch.tensor(5)) * 2,
                self.through(torch.zeros(1).expand(3, 4)) + 1,
                self.through(torch.arange(10.0).as_strided((4, 4), (2, 1))),
                self.through(torch.arange(6).view(2, 3).t()).cumsum(0),
                self.through(torch.randn(4, dtype=torch.cfloat).conj()).imag,
                self.through(torch.randn(2, 3, dtype=torch.cfloat)._neg_view()),
                torch.ones(3, dtype=torch.bool).logical_not(),
                torch.quantize_per_channel(h.detach(), torch.ones(8) * 0.1, torch.zeros(8), 1, torch.qint8),
                torch.zeros(2, 2).to_sparse(),
                torch.tensor([], dtype=torch.long),
            ]
            mixed = self.through(h.half()).float() + self.through(h.bfloat16()).float() + h.double().float()
            return mixed + self.through(h.to(torch.cfloat)).abs(), found

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        out, found = net(x)
        return out.square().mean(), {"out": out, "found": found}

    return supervised(Model(), vectors, loss_of)


@architecture()
def lazy_modules() -> TrainingCase:
    """Parameters without shape until the first forward, which lies inside the first region."""
    model = nn.Sequential(nn.LazyConv1d(4, 3), nn.LazyBatchNorm1d(), nn.Flatten(), nn.LazyLinear(4))
    optimizers: list[torch.optim.Optimizer] = []

    def run_step(i: int, region: Region) -> Results:
        model.zero_grad()
        region.begin(model)
        loss = model(vectors(i)[0].unsqueeze(1)).square().mean()
        loss.backward()
        region.end()
        if not optimizers:
            optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        optimizers[0].step()
        return {"loss": loss, "classes": [type(m).__name__ for m in model]}

    return TrainingCase(run_step, {"model": model})


@architecture()
def model_changes_while_recording() -> TrainingCase:
    """Modules are added, replaced, removed, frozen, renamed, their forward exchanged: between calls of one
    region.
    """
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    spare = nn.Linear(8, 8)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        model.zero_grad()
        region.begin(model)
        loss = model(x).square().mean()
        model[1] = nn.GELU() if i % 2 else nn.Sigmoid()
        model[0].requires_grad_(i != 1)
        loss = loss + model(x).square().mean()
        model.insert(1, spare)
        loss = loss + model(x).square().mean()
        last = model[3]
        plain = last.forward
        last.forward = lambda t: plain(t) * 2
        loss = loss + model(x).square().mean()
        del last.forward
        last.weight = nn.Parameter(last.weight.detach() * 0.9)
        loss = loss + model(x).square().mean()
        loss.backward()
        region.end()
        del model[1]
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(0.1 * parameter.grad)
        return {"loss": loss, "names": [name for name, _ in model.named_modules()]}

    return TrainingCase(run_step, {"model": model, "spare": spare})


@architecture()
def nested_jagged() -> TrainingCase:
    """Jagged nested tensors: a subclass whose sizes are symbols."""
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        nested = torch.nested.nested_tensor([x[:1], x[1:4], x[4:]], layout=torch.jagged)
        out = net(nested)
        return out.values().square().mean() + nested.sum(), {"values": out.values(), "offsets": out.offsets()}

    return supervised(model, vectors, loss_of)


@architecture()
def batched_gradients() -> TrainingCase:
    """Backward under vmap: gradient hooks meet batched tensors."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        x.requires_grad_()
        out = net(x)
        basis = torch.eye(3).unsqueeze(1).expand(3, 6, 3)
        (rows,) = torch.autograd.grad(out, x, basis, retain_graph=True, is_grads_batched=True)
        jacobian = torch.autograd.functional.jacobian(net, x.detach()[:2], vectorize=True)
        return out.square().mean(), {"rows": rows, "jacobian": jacobian}

    return supervised(model, vectors, loss_of)


@architecture()
def tracing_inside_the_region() -> TrainingCase:
    """fx, make_fx, jit.trace and fake tensors look at the model while it is recorded: they must not see the
    recorder.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        symbolic = torch.fx.symbolic_trace(net)
        traced = torch.jit.trace(net, x, check_trace=False)
        weights = dict(net.named_parameters())
        operators = make_fx(lambda w, t: torch.func.functional_call(net, w, (t,)))(weights, x)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = net(mode.from_tensor(x))
        results: Results = {
            "code": symbolic.code,
            "graph": [node.kind() for node in traced.inlined_graph.nodes()],
            "operators": operators.code,
            "fake": [str(fake.shape), type(fake).__name__],
            "runs": symbolic(x) + traced(x),
        }
        return net(x).square().mean(), results

    return supervised(model, vectors, loss_of)


@architecture()
def data_loader_worker() -> TrainingCase:
    """A loader with a forked worker is iterated in the region; shuffling draws from the global generator."""
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(12, 8), torch.randint(3, (12,)))
    loader = DataLoader(data, batch_size=6, shuffle=True, num_workers=1)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        losses = []
        region.begin(model)
        for x, y in loader:
            optimizer.zero_grad()
            losses.append(F.cross_entropy(model(x), y))
            losses[-1].backward()
            optimizer.step()
        region.end()
        return {"losses": losses}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer}, steps=3)
