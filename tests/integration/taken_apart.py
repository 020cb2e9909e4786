"""A training that copies, saves, scripts, traces, exports and rebuilds its model, and writes what came of each.

    taken_apart.py WHEN HOW DIGESTS     WHEN: in-step | between | after; HOW: alone | a level

Each operation gives bytes, texts or numbers. Their digests are written as JSON to DIGESTS, in the working directory the
files that the operations wrote.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import pickle
import sys
import warnings
import weakref
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

WHEN, HOW, DIGESTS = sys.argv[1:4]


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.attend = Attention(8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        return self.head(self.norm(h + self.attend(h)))


class Hooked(nn.Module):
    """Has hooks of the user on every module, also ones that change arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
        self.a.register_forward_pre_hook(double)
        self.b.register_forward_hook(halve)
        self.register_full_backward_hook(look)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


def double(module: nn.Module, args: Any) -> Any:
    return (args[0] * 2,)


def halve(module: nn.Module, args: Any, result: Any) -> Any:
    return result / 2


def look(module: nn.Module, into: Any, out: Any) -> None:
    return None


def digest(value: Any) -> str:
    found = hashlib.sha256()
    for piece in pieces(value):
        found.update(piece)
    return found.hexdigest()[:16]


def pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype}{tuple(value.shape)}{value.stride()}".encode()
        yield value.detach().contiguous().view(torch.uint8).numpy().tobytes() if value.numel() else b""
    elif isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield str(key).encode()
            yield from pieces(one)
    elif isinstance(value, (list, tuple)):
        yield str(len(value)).encode()
        for one in value:
            yield from pieces(one)
    else:
        yield repr(value).encode()


def entries(data: bytes) -> Any:
    """What an archive holds; an entry that differs in each run, a mark of the writing, is left out."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [
            (name.partition("/")[2], archive.read(name))
            for name in archive.namelist()
            if "serialization_id" not in name
        ]


def saved(value: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return entries(buffer.getvalue())


class _Pickler(pickle.Pickler):
    """Keeps tensors out: plain pickles of them differ from run to run."""

    def persistent_id(self, value: Any) -> Any:
        return digest(value) if isinstance(value, torch.Tensor) else None


def pickled(value: Any, protocol: int | None = None) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol).dump(value)
    return buffer.getvalue()


def hooks_of(model: nn.Module) -> Any:
    return [
        (name, key, [getattr(hook, "__name__", type(hook).__name__) for hook in hooks.values()])
        for name, module in model.named_modules()
        for key, hooks in sorted(vars(module).items())
        if key.endswith("hooks")
    ]


def walked(model: nn.Module) -> Any:
    """What a comparer of modules sees: every attribute of every module, and the classes of the values."""
    return [
        (name, key, type(value).__name__, len(value) if hasattr(value, "__len__") else 0)
        for name, module in model.named_modules()
        for key, value in sorted(vars(module).items())
    ]


def lowrank(model: nn.Module, x: torch.Tensor) -> Any:
    """Puts adapters beside linear layers, as LoRA does, trains a pass, and merges them."""

    class Adapted(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base = base
            self.down = nn.Linear(base.in_features, 2, bias=False)
            self.up = nn.Linear(2, base.out_features, bias=False)
            nn.init.constant_(self.down.weight, 0.1)
            nn.init.constant_(self.up.weight, 0.2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + self.up(self.down(x))

    changed = copy.deepcopy(model)
    for module in list(changed.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(module, Adapted):
                setattr(module, name, Adapted(child))
    result = changed(x)
    result.sum().backward()
    return result, hooks_of(changed), [p.grad for p in changed.parameters()]


def averaged(model: nn.Module, x: torch.Tensor) -> Any:
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    torch.optim.swa_utils.update_bn([x], average)
    return saved(average), average(x), hooks_of(average)


def strict_export(model: nn.Module, x: torch.Tensor, strict: bool) -> Any:
    program = torch.export.export(model, (x,), strict=strict)
    return str(program.graph), program.module()(x), str(program.graph_signature)


def compiled(model: nn.Module, x: torch.Tensor) -> Any:
    graphs: list[str] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(str(graph.graph))
        return graph.forward

    torch._dynamo.reset()
    made = torch.compile(model, backend=backend)
    result = made(x), made(x)
    in_place = copy.deepcopy(model)
    in_place.compile(backend=backend)
    result = *result, in_place(x)
    return len(graphs), graphs, result


def made_graph(model: nn.Module, x: torch.Tensor) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda given: model(given))(x)
    return graph.code, graph(x)


def symbolic(model: nn.Module, x: torch.Tensor) -> Any:
    graph = torch.fx.symbolic_trace(model)
    return graph.code, graph(x), hooks_of(graph)


def scripted(model: nn.Module, x: torch.Tensor) -> Any:
    script = torch.jit.script(model)
    return script.code, script(x), {name: part.code for name, part in script.named_modules() if hasattr(part, "code")}


def traced(model: nn.Module, x: torch.Tensor) -> Any:
    trace = torch.jit.trace(model, x)
    return trace.code, str(trace.inlined_graph), trace(x)


def functional(model: nn.Module, x: torch.Tensor) -> Any:
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(given: Any, sample: Any) -> Any:
        return torch.func.functional_call(model, given, (sample.unsqueeze(0),)).pow(2).sum()

    one = torch.func.grad(loss)(parameters, x[0])
    many = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    value, tangent = torch.func.jvp(lambda given: model(given), (x,), (torch.ones_like(x),))
    stacked, buffers = torch.func.stack_module_state([model, copy.deepcopy(model)])
    return one, many, value, tangent, stacked, buffers, torch.func.jacrev(lambda given: model(given))(x)


def kept_in_a_set(model: nn.Module, x: torch.Tensor) -> Any:
    return len(set(model.modules())), len(weakref.WeakSet(model.modules())), model == model


OPERATIONS: dict[str, Callable[[nn.Module, torch.Tensor], Any]] = {
    "walk": lambda model, x: walked(model),
    "hooks": lambda model, x: hooks_of(model),
    "repr": lambda model, x: repr(model),
    "state": lambda model, x: (model.state_dict(), saved(model.state_dict())),
    "save": lambda model, x: saved(model),
    "save and load": lambda model, x: torch.load(
        io.BytesIO((lambda b: (torch.save(model, b), b.getvalue())[1])(io.BytesIO())), weights_only=False
    )(x),
    "pickle": lambda model, x: pickled(model),
    "pickle 5": lambda model, x: pickled(model, 5),
    "deepcopy": lambda model, x: (pickled(copy.deepcopy(model)), copy.deepcopy(model)(x)),
    "copy": lambda model, x: (walked(copy.copy(model)), copy.copy(model)(x)),
    "copy of a part": lambda model, x: pickled([copy.deepcopy(part) for part in model.children()]),
    "average": averaged,
    "low rank": lowrank,
    "functional": functional,
    "set": kept_in_a_set,
    "symbolic": symbolic,
    "make_fx": made_graph,
    "script": scripted,
    "trace": traced,
    "export": lambda model, x: strict_export(model, x, False),
    "export strictly": lambda model, x: strict_export(model, x, True),
    "compile": compiled,
}
NOT_FOR_HOOKED = {"symbolic", "script", "export strictly"}


def take_apart(model: nn.Module, hooked: nn.Module, x: torch.Tensor) -> dict[str, str]:
    found = {}
    for name, operation in OPERATIONS.items():
        for which, subject in (("", model), (" (hooks of the user)", hooked)):
            if which and name in NOT_FOR_HOOKED:
                continue
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    found[name + which] = digest(operation(subject, x))
                except Exception as error:
                    found[name + which] = f"{type(error).__name__}: {str(error)[:300]}"
            found[name + which] += f" {sorted({str(one.message)[:80] for one in said})}" if said else ""
    return found


def main() -> None:
    torch.manual_seed(0)
    model, hooked = Net(), Hooked()
    optimizer = torch.optim.SGD([*model.parameters(), *hooked.parameters()], lr=0.1)
    debugger = None
    if HOW != "alone":
        from msprobe.pytorch import PrecisionDebugger

        level, _, task = HOW.partition("-")
        debugger = PrecisionDebugger(dump_path="dump", task=task or "statistics", level=level)
    found: dict[str, str] = {}
    data = torch.randn(3, 4)
    for step in range(3):
        if debugger:
            debugger.start([model, hooked])
        loss = model(data).pow(2).mean() + hooked(data).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        if WHEN == "in-step" and step == 1:
            found = take_apart(model, hooked, data)
        optimizer.step()
        if debugger:
            debugger.stop()
            debugger.step()
        if WHEN == "between" and step == 1:
            found = take_apart(model, hooked, data)
    if WHEN == "after":
        found = take_apart(model, hooked, data)
    found["weights"] = digest([*model.parameters(), *hooked.parameters()])
    found["gradients"] = digest([p.grad for p in [*model.parameters(), *hooked.parameters()]])
    found["random state"] = digest(torch.get_rng_state())
    Path(DIGESTS).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
