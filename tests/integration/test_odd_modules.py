"""Programs whose modules override what nn.Module offers, or are of a kind of their own: they train as they do alone,
and are recorded.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import forked
from support.torch_dumps import Dump

PROGRAM = """
import sys, torch
from torch import nn

torch.manual_seed(0)
no = lambda self, *args, **kwargs: (_ for _ in ()).throw(RuntimeError("not to be called"))
parameters = lambda model: list(nn.Module.parameters(model))


class Base(nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.a, self.b = inner or nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Net(Base):
    pass


OVERRIDES = dict(
    plain={},
    parameters=dict(parameters=parameters),
    raising_parameters=dict(parameters=no),
    modules=dict(modules=no, children=no, named_children=no),
    buffers=dict(buffers=lambda self: [], named_buffers=no),
    train=dict(train=no),
    training=dict(training=property(no, lambda self, value: None)),
    length=dict(__len__=lambda self: 0),
    truth=dict(__bool__=no),
    equal=dict(__eq__=no, __hash__=nn.Module.__hash__),
    equal_to_all=dict(__eq__=lambda self, other: True, __hash__=lambda self: 1),
    text=dict(__repr__=no, __str__=no, extra_repr=no),
    state=dict(__getstate__=no, __reduce_ex__=no, state_dict=no),
    call=dict(__call__=lambda self, x: nn.Module.__call__(self, x)),
    name=dict(_get_name=no),
    hooks=dict(register_forward_hook=no, register_forward_pre_hook=no),
    missing=dict(__getattr__=lambda self, name: self.__dict__["_modules"].get(name) or (lambda *args: None)),
)
kind = sys.argv[1]
if kind in OVERRIDES:
    for name, value in OVERRIDES[kind].items():
        setattr(Net, name, value)
    model = Net()
elif kind == "scripted inside":
    model = Net(torch.jit.script(nn.Linear(4, 8)))
elif kind == "traced inside":
    with torch.no_grad():
        model = Net(torch.jit.trace(nn.Linear(4, 8), torch.ones(2, 4)))
elif kind == "scripted":
    model = torch.jit.script(Net())
elif kind == "fx":
    model = torch.fx.symbolic_trace(Net())
elif kind == "parametrized":
    model = Net()
    nn.utils.parametrizations.weight_norm(model.b)
elif kind == "odd optimizer":
    model = Net()
weights = [p for p in nn.Module.parameters(model) if p.requires_grad]


class Optimizer(torch.optim.SGD):
    pass


if kind == "odd optimizer":
    Optimizer.__eq__, Optimizer.__hash__, Optimizer.__bool__, Optimizer.__repr__ = no, None, no, no
optimizer = Optimizer(weights, lr=0.1)
for _ in range(3):
    loss = model(torch.randn(5, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
print([p.double().sum().item().hex() for p in weights])
"""
KINDS = (
    *("plain", "parameters", "raising_parameters", "modules", "buffers", "train", "training", "length", "truth"),
    *("equal", "equal_to_all", "text", "state", "call", "name", "hooks", "missing"),
    *("scripted inside", "traced inside", "scripted", "fx", "parametrized", "odd optimizer"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_with_such_a_module_trains_as_alone_and_is_recorded(tmp_path: Path, kind: str) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    config = {"task": "statistics", "level": "mix", "dump_path": str(tmp_path / "dump")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    alone = forked.run("train.py", kind, cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    recorded = forked.run("-m", "msprobe", "run", "--config", "config.json", "--", "train.py", kind, cwd=tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    lines = recorded.stdout.splitlines()
    said = [line for line in lines if "[INFO]" in line or "[WARNING]" in line or "[ERROR]" in line]
    assert [line for line in lines if line not in said] == alone.stdout.splitlines()
    if kind != "hooks":
        # A module that refuses hooks is the one that cannot be watched, which one line says.
        assert not [line for line in said if "[ERROR]" in line]
    dump = Dump(tmp_path / "dump")
    assert dump.steps() == ["step0", "step1", "step2"]
    names = dump.names(1)
    assert any(name.startswith("Module.") for name in names)
    assert any(name.startswith("Optimizer.Optimizer") for name in names)
