"""`torch.compile`: the compiled region has to stay compiled, with as many graphs, breaks and calls as before.

All but the last do without a compiler: `counting` runs the captured graph as it is (like "eager") and counts,
`aot_eager` adds AOTAutograd, so that forward and backward are traced as in a full compilation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .attention import GPT
from .case import Region, Results, TrainingCase, architecture
from .generative import vectors
from .recurrent import predict_next, sequences


class Counting:
    """A back end that runs the graph unchanged and counts compilations and runs."""

    def __init__(self) -> None:
        self.graphs = 0
        self.runs = 0
        self.nodes: list[int] = []

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.graphs += 1
        self.nodes.append(len(graph.graph.nodes))

        def run(*args: Any) -> Any:
            self.runs += 1
            return graph.forward(*args)

        return run


def counters() -> dict[str, object]:
    from torch._dynamo.utils import counters as found

    return {"breaks": sum(found["graph_break"].values()), "graphs": found["stats"].get("unique_graphs", 0)}


@functools.cache
def warm_up() -> None:
    """The first compilation of a process patches `nn.Module.__init__` for good; let that happen before
    anything is compared."""
    with torch.random.fork_rng():
        torch.compile(nn.Linear(1, 1), backend="eager")(torch.zeros(1))


def fresh() -> None:
    import torch._dynamo
    from torch._dynamo.utils import counters as found

    warm_up()
    torch._dynamo.reset()
    found.clear()


@architecture()
def compiled_model() -> TrainingCase:
    """`torch.compile(model)` given to start: the wrapper module, with the plain model inside."""
    fresh()
    back_end = Counting()
    plain = GPT(layers=1)
    model = torch.compile(plain, backend=back_end)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        loss, results = predict_next(model, *sequences(i))
        loss.backward()
        optimizer.step()
        region.end()
        counts = [back_end.graphs, back_end.runs, back_end.nodes, counters()]
        return {"loss": loss, **results, "counts": counts}

    return TrainingCase(run_step, {"model": plain, "optimizer": optimizer}, close=fresh)


@architecture()
def compiled_parts() -> TrainingCase:
    """One sub-module compiled in place, one function compiled by decorator, the rest eager; AOTAutograd
    traces both."""
    fresh()

    @torch.compile(backend="aot_eager")
    def fused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.silu(x) * y + x.sin()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
            self.block = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
            self.block.compile(backend="aot_eager")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.first(x)
            return self.last(fused(h, self.block(h)))

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        out = model(*vectors(i))
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        region.end()
        return {"loss": loss, "out": out, "counts": counters()}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer}, close=fresh)


@architecture()
def compiled_with_graph_break() -> TrainingCase:
    """A break in the middle, a user hook, an eager part that dynamo leaves alone; one step compiled before
    start."""
    fresh()
    back_end = Counting()
    called: list[str] = []

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.first(x)
            torch._dynamo.graph_break()
            return self.last(h.relu())

    plain = Model()
    model = torch.compile(plain, backend=back_end)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    plain.last.register_forward_hook(lambda *_: called.append("hook"))
    model(*vectors(99))

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        loss = model(*vectors(i)).square().mean()
        loss.backward()
        region.end()
        optimizer.step()
        model(*vectors(i))
        return {"loss": loss, "counts": [back_end.graphs, back_end.runs, counters()], "called": len(called)}

    return TrainingCase(run_step, {"model": plain, "optimizer": optimizer}, close=fresh)


@architecture(slow=True)
def compiled_by_inductor() -> TrainingCase:
    """The default back end; it needs a C++ compiler."""
    fresh()
    plain = GPT(layers=1)
    model = torch.compile(plain)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        loss, results = predict_next(model, *sequences(i))
        loss.backward()
        region.end()
        optimizer.step()
        return {"loss": loss, **results, "counts": counters()}

    return TrainingCase(run_step, {"model": plain, "optimizer": optimizer}, close=fresh)
