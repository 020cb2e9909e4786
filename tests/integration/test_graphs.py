"""``"graphs": "record"``: graphs that a program captures on a (simulated) accelerator, and what replays record."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import forked

from msprobe.store.reader import open_dump

pytestmark = pytest.mark.usefixtures("simulated_device")

BEGINNING = """
import gc, os, sys
import torch, simdev
from torch import nn
import torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger
sim = simdev.load()
torch.manual_seed(0)
def debugger(**settings):
    given = {"dump_path": "dump", "task": "statistics", "level": "L1", "graphs": "record"}
    return PrecisionDebugger(**{**given, **settings})
def captured(work):
    graph = simdev.Graph()
    with graph.capture():
        result = work()
    return graph, result
"""

# Tensors that are copied and that are measured on the device, of several types, in a module and outside of one.
WORK = """
kind, level, offer = sys.argv[1:]
if offer == "kernel":
    sim.offer_rows(True)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(64, 512)
        self.thin = nn.Linear(512, 8)
    def forward(self, x):
        return self.thin(F.gelu(self.wide(x)))
model = Block().to("sim")
x = torch.zeros(256, 64, device="sim")
def work():
    y = model(x)
    z = torch.empty(256, 8, device="sim").copy_(y)
    half = model.wide(x).to(torch.bfloat16).square_()
    return (y > 0).sum(dim=1), z.add_(1), half
torch.sim.synchronize()
it = debugger(dump_path=kind, level=level)
it.start(model)
if kind == "graph":
    graph, results = captured(work)
for number in range(3):
    with torch.no_grad():
        x.copy_((torch.arange(256 * 64).view(256, 64) * (number + 1) % 97).float())
    if kind == "graph":
        graph.replay()
    else:
        results = work()
    torch.relu(results[1])
it.stop()
it.step()
"""

NUMBERS = ("Max", "Min", "Mean", "Norm", "nan", "inf", "zero")


def run(text: str, folder: Path, *arguments: str, native: str = "1") -> forked.Completed:
    (folder / "program.py").write_text(BEGINNING + text)
    places = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1", "MSPROBE_NATIVE": native}
    return forked.run("program.py", *arguments, cwd=folder, env=environment)


def run_well(text: str, folder: Path, *arguments: str, native: str = "1") -> str:
    done = run(text, folder, *arguments, native=native)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "could not be recorded" not in done.stdout + done.stderr
    assert not list(folder.rglob("dump_error_info.log"))
    return done.stdout + done.stderr


def data_of(folder: Path, step: int = 0, file: str = "dump.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"step{step}/rank/{file}").read_text())
    return found["data"] if file == "dump.json" else found


def forward_of(data: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in data.items() if "backward" not in name and "parameters_grad" not in name}


def tensors_of(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict) and "shape" in tree:
        yield tree
    elif isinstance(tree, (dict, list)):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors_of(value)


@pytest.mark.parametrize(
    ("level", "offer", "native"),
    [
        ("L0", "reductions", "1"),
        ("L1", "reductions", "0"),
        ("L1", "kernel", "1"),
        ("mix", "kernel", "0"),
        ("mix", "reductions", "1"),
    ],
)
def test_replays_record_what_an_eager_run_does(tmp_path: Path, level: str, offer: str, native: str) -> None:
    said = [run_well(WORK, tmp_path, kind, level, offer, native=native) for kind in ("graph", "eager")]
    assert len(re.findall("captures a graph", said[0])) == 1
    graph, eager = (forward_of(data_of(tmp_path / kind)) for kind in ("graph", "eager"))
    assert list(graph) == list(eager)
    for name, record in eager.items():
        assert graph[name].keys() == record.keys(), name
        assert graph[name]["msprobe"]["source"] == record["msprobe"]["source"]
        ours, theirs = list(tensors_of(graph[name])), list(tensors_of(record))
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert one.keys() == other.keys(), (name, one, other)
            assert (one["dtype"], one["shape"]) == (other["dtype"], other["shape"])
            for key in NUMBERS:
                found, wanted = one.get(key), other.get(key)
                is_close = found == wanted or found == pytest.approx(wanted or 0.0, rel=1e-6)
                assert is_close, (name, key, one, other)
    replays = [record["msprobe"].get("replay") for record in graph.values()]
    assert {number for number in replays if number is not None} == {0, 1, 2}
    orders = {name: record["msprobe"]["order"] for name, record in graph.items()}
    of_eager = {name: record["msprobe"]["order"] for name, record in eager.items()}
    assert sorted(orders, key=orders.__getitem__) == sorted(of_eager, key=of_eager.__getitem__)
    if level != "L1":
        hierarchies = [forward_of(data_of(tmp_path / kind, file="construct.json")) for kind in ("graph", "eager")]
        assert hierarchies[0] == hierarchies[1]


def test_rows_of_replays_are_those_of_an_eager_run(tmp_path: Path) -> None:
    for kind in ("graph", "eager"):
        run_well(WORK, tmp_path, kind, "L0", "reductions")
    rows = []
    for kind in ("graph", "eager"):
        data = forward_of(data_of(tmp_path / kind))
        part = open_dump(tmp_path / kind).part(0)
        numbers = [one["row"] for record in data.values() for one in tensors_of(record) if one.get("Norm") is not None]
        rows.append(part.rows.take(numbers))
        part.close()
    ours, theirs = rows
    for name in ("squares", "signed", "left_out", "zero"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_captured_training_step_comes_to_the_same(tmp_path: Path, level: str) -> None:
    text = f"""
from msprobe.pytorch import PrecisionDebugger
def train(it):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Dropout(0.5), nn.Linear(512, 4)).to("sim")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.zeros(128, 64, device="sim")
    def step():
        optimizer.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        optimizer.step()
    step()
    torch.sim.manual_seed(7)
    if it is not None:
        it.start(model)
    graph, _ = captured(step)
    for number in range(4):
        x.copy_(torch.randn(128, 64) + number)
        graph.replay()
        if number == 1 and it is not None:
            it.stop()
            it.step()
            it.start(model)
    if it is not None:
        it.stop()
        it.step()
    return [parameter.cpu() for parameter in model.parameters()]
without = train(None)
recorded = train(debugger(level="{level}"))
assert all(torch.equal(one, other) for one, other in zip(without, recorded, strict=True))
"""
    run_well(text, tmp_path)
    for step in range(2):
        data = data_of(tmp_path / "dump", step)
        steps = [name for name in data if name.startswith("Optimizer.SGD.")]
        assert steps == ["Optimizer.SGD.0.forward", "Optimizer.SGD.1.forward"]
        weights = [json.dumps(data[name]["output"]) for name in steps]
        assert weights[0] != weights[1]
        assert not any("backward" in name for name in data)
        assert [name for name in data if name.startswith("Module.0.Linear.forward")][1] == "Module.0.Linear.forward.1"


def test_several_graphs_and_streams(tmp_path: Path) -> None:
    text = """
x = torch.ones(20000, device="sim")
first, _ = captured(lambda: torch.relu(x))
it = debugger()
it.start()
graphs = [captured(lambda number=number: torch.neg(x * (number + 1)))[0] for number in range(3)]
streams = [torch.sim.Stream() for _ in range(2)]
for value in range(1, 9):
    stream = streams[value % 2]
    stream.wait_stream(torch.sim.current_stream())
    with torch.sim.stream(stream):
        x.fill_(value)
        graphs[value % 3].replay()
    torch.sim.current_stream().wait_stream(stream)
it.stop()
it.step()
"""
    run_well(text, tmp_path)
    data = data_of(tmp_path / "dump")
    found = [record["output"][0]["Max"] for name, record in data.items() if name.startswith("Torch.neg")]
    assert found == [-value * (value % 3 + 1.0) for value in range(1, 9)]


def test_a_replay_outside_of_recorded_steps_writes_nothing(tmp_path: Path) -> None:
    text = """
x = torch.ones(8, device="sim")
it = debugger(step=[0, 2])
for step in range(4):
    it.start()
    if step == 0:
        graph, _ = captured(lambda: torch.neg(x))
    x.fill_(step)
    graph.replay()
    it.stop()
    graph.replay()
    it.step()
x.fill_(9)
graph.replay()
"""
    run_well(text, tmp_path)
    assert sorted(path.name for path in (tmp_path / "dump").iterdir()) == ["step0", "step2"]
    for step in (0, 2):
        records = [one for name, one in data_of(tmp_path / "dump", step).items() if name.startswith("Torch.neg")]
        assert [record["output"][0]["Max"] for record in records] == [-float(step)]
        assert [record["msprobe"]["replay"] for record in records] == [{0: 0, 2: 1}[step]]


def test_a_graph_of_elsewhere_is_said_once(tmp_path: Path) -> None:
    text = """
x = torch.ones(8, device="sim")
graph, y = captured(lambda: torch.neg(x))
it = debugger()
it.start()
for _ in range(3):
    graph.replay()
    torch.relu(x)
it.stop()
it.step()
"""
    said = run_well(text, tmp_path)
    assert said.count("replays a graph") == 1
    assert list(data_of(tmp_path / "dump")) == [f"Torch.relu.{n}.forward" for n in range(3)]


@pytest.mark.parametrize("graphs", ["skip", "record"])
def test_results_of_a_graph_are_read_anew_behind_each_replay(tmp_path: Path, graphs: str) -> None:
    """Torch counts no write of a replay."""
    text = f"""
x = torch.ones(8, device="sim")
graph, y = captured(lambda: x * 2)
it = debugger(graphs="{graphs}")
it.start()
for number in range(1, 4):
    x.fill_(number)
    graph.replay()
    torch.neg(y)
it.stop()
it.step()
"""
    run_well(text, tmp_path)
    data = data_of(tmp_path / "dump")
    assert [data[f"Torch.neg.{n}.forward"]["input_args"][0]["Max"] for n in range(3)] == [2.0, 4.0, 6.0]


def test_a_killed_step_keeps_the_records_of_its_replays(tmp_path: Path) -> None:
    text = """
x = torch.ones(8, device="sim")
it = debugger()
it.start()
graph, _ = captured(lambda: torch.neg(torch.relu(x)))
for number in range(20):
    x.fill_(number)
    graph.replay()
    torch.sim.synchronize()
os.kill(os.getpid(), 9)
"""
    assert run(text, tmp_path).returncode == -signal.SIGKILL
    dump = open_dump(tmp_path / "dump")
    step = dump.steps[0]
    part = dump.part(step, dump.ranks(step)[0])
    names = [name for name in part.names() if name.startswith(("Torch.neg", "Torch.relu"))]
    assert len(names) == 40
    numbers = [part.record(name)["output"][0]["Max"] for name in names if name.startswith("Torch.neg")]
    assert numbers[:18] == [-float(number) for number in range(18)]


def test_many_replays_take_bounded_memory_and_no_waits(tmp_path: Path) -> None:
    text = """
from msprobe.capture.torch.devices import late_descriptions
x = torch.ones(30000, device="sim")
def work():
    y = x
    for _ in range(10):
        y = torch.tanh(y)
    return y.to(torch.int64)
it = debugger()
it.start()
captured(lambda: torch.neg(x))  # the first one waits
with simdev.no_waits():
    graph, _ = captured(work)
    for _ in range(10):
        graph.replay()
late_descriptions.MOST_CHUNKS = 2
sim.slow_down(20)
found = []
for number in range(200):
    graph.replay()
    if number % 50 == 49:
        gc.collect()
        found.append((sim.allocated(), sim.pinned_bytes()))
print(found)
assert all(one <= 2 * first for first, one in zip(found[0], found[-1])), found
it.stop()
it.step()
"""
    run_well(text, tmp_path)
    data = data_of(tmp_path / "dump")
    assert sum(name.startswith("Torch.tanh") for name in data) == 2100
    assert all(record["output"][0]["Max"] is not None for record in data.values())


@pytest.mark.parametrize("how", ["del graph", "graph.reset()"])
def test_what_is_measured_into_goes_with_the_graph(tmp_path: Path, how: str) -> None:
    text = f"""
x = torch.ones(4 << 20, dtype=torch.int64, device="sim")
it = debugger()
it.start()
captured(lambda: torch.neg(x[:10]))
gc.collect()
torch.sim.synchronize()
before = sim.allocated()
graph, y = captured(lambda: torch.neg(x))
graph.replay()
torch.sim.synchronize()
assert sim.allocated() - before >= 96 << 20
it.stop()
it.start()
del y
{how}
gc.collect()
torch.sim.synchronize()
assert sim.allocated() - before < 1 << 20, sim.allocated() - before
it.stop()
it.step()
"""
    run_well(text, tmp_path)


def test_tensors_that_have_no_room_say_so(tmp_path: Path) -> None:
    text = """
from msprobe.capture.torch.graphs import graph_slots
graph_slots.MOST_BYTES = 1 << 16
x = torch.ones(1 << 14, dtype=torch.int64, device="sim")
it = debugger()
it.start()
graph, _ = captured(lambda: torch.neg(x) + torch.neg(x[:8])[0])
graph.replay()
it.stop()
it.step()
"""
    run_well(text, tmp_path)
    data = data_of(tmp_path / "dump")
    whole, few = (data[f"Torch.neg.{n}.forward"]["output"][0] for n in range(2))
    assert whole["Max"] is None
    assert "unsupported" in whole
    assert few["Max"] == -1


@pytest.mark.parametrize("task", ["nan_check", "overflow_check"])
def test_checks_see_what_replays_compute(tmp_path: Path, task: str) -> None:
    text = f"""
x = torch.ones(8, device="sim")
it = debugger(task="{task}", overflow_nums=2)
it.start()
graph, _ = captured(lambda: torch.neg(torch.log(x)))
for value in (1.0, 2.0, 0.0, 3.0):
    x.fill_(value)
    graph.replay()
it.stop()
it.step()
"""
    said = run_well(text, tmp_path)
    assert list(data_of(tmp_path / "dump")) == ["Torch.log.2.forward", "Torch.neg.2.forward"]
    assert said.count("Overflow detected") == 2


def test_filters_know_the_names_of_replays(tmp_path: Path) -> None:
    text = """
x = torch.ones(8, device="sim")
def run(path, **settings):
    it = debugger(dump_path=path, **settings)
    it.start()
    graph, _ = captured(lambda: torch.neg(torch.relu(x)))
    for _ in range(3):
        graph.replay()
    it.stop()
    it.step()
    it.reset()
run("list", list=["Torch.relu.1", "neg"])
run("scope", scope=["Torch.neg.0.forward", "Torch.relu.2.forward"])
"""
    run_well(text, tmp_path)
    assert list(data_of(tmp_path / "list")) == [
        "Torch.neg.0.forward",
        "Torch.relu.1.forward",
        "Torch.neg.1.forward",
        "Torch.neg.2.forward",
    ]
    assert list(data_of(tmp_path / "scope")) == [
        "Torch.neg.0.forward",
        "Torch.relu.1.forward",
        "Torch.neg.1.forward",
        "Torch.relu.2.forward",
    ]


def test_a_capture_that_fails_is_the_programs_own(tmp_path: Path) -> None:
    text = """
x = torch.ones(8, device="sim")
it = debugger()
it.start()
try:
    captured(lambda: torch.neg(x).sum().item())
except RuntimeError as error:
    print("own error:", "capturing" in str(error) or "invalidated" in str(error))
torch.relu(x)
graph, _ = captured(lambda: torch.neg(x))
graph.replay()
it.stop()
it.step()
"""
    assert "own error: True" in run_well(text, tmp_path)
    data = forward_of(data_of(tmp_path / "dump"))
    assert data["Torch.relu.0.forward"]["output"][0]["Max"] == 1.0
    assert data["Torch.neg.0.forward"]["output"][0]["Max"] == -1.0


def test_nothing_stays_on_the_class_of_graphs(tmp_path: Path) -> None:
    text = """
names = ("capture_begin", "capture_end", "replay", "reset")
before = [getattr(simdev.Graph, name).__code__ for name in names]
it = debugger()
it.start()
assert [getattr(simdev.Graph, name).__code__ for name in names] != before
it.stop()
assert [getattr(simdev.Graph, name).__code__ for name in names] == before
"""
    run_well(text, tmp_path)


def test_a_step_that_ends_inside_of_a_capture(tmp_path: Path) -> None:
    text = """
x = torch.ones(8, device="sim")
it = debugger()
it.start()
graph = simdev.Graph()
with graph.capture():
    torch.neg(x)
    it.stop()
    it.step()
    torch.relu(x)
it.start()
graph.replay()
it.stop()
it.step()
"""
    run_well(text, tmp_path)
    assert list(data_of(tmp_path / "dump", 1)) == ["Torch.neg.0.forward"]


def test_tensors_of_the_host_in_a_graph_name_no_row_of_a_different_step(tmp_path: Path) -> None:
    text = """
x = torch.ones(8, device="sim")
host = torch.arange(8.0)
it = debugger()
for step in range(2):
    it.start()
    torch.relu(host)
    if step == 0:
        graph, _ = captured(lambda: (torch.neg(x), torch.neg(host)))
    torch.exp(host + step)
    graph.replay()
    it.stop()
    it.step()
"""
    run_well(text, tmp_path)
    for step in range(2):
        of_device, of_host = (data_of(tmp_path / "dump", step)[f"Torch.neg.{n}.forward"] for n in range(2))
        assert "row" in of_device["output"][0]
        assert of_host["output"][0]["Min"] == -7.0
        assert "row" not in of_host["output"][0]


def test_an_error_of_the_device_costs_the_numbers_of_its_replay(tmp_path: Path) -> None:
    text = """
x = torch.ones(20000, device="sim")
it = debugger()
it.start()
graph, _ = captured(lambda: torch.neg(x))
for number in range(3):
    x.fill_(number + 1)
    if number == 1:
        sim.break_next("copy to host")
    graph.replay()
it.stop()
it.step()
"""
    done = run(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    data = data_of(tmp_path / "dump")
    found = [data[f"Torch.neg.{n}.forward"]["output"][0] for n in range(3)]
    assert [one["Max"] for one in found] == [-1.0, None, -3.0]
    assert "device failed" in found[1]["unsupported"]


def test_signs_are_the_same_without_a_table(tmp_path: Path) -> None:
    """Of tensors larger than what there is a matrix of signs for."""
    text = """
kind = sys.argv[1]
x = torch.randn(5_000_000).to("sim")
it = debugger(dump_path=kind)
it.start()
if kind == "graph":
    graph, _ = captured(lambda: torch.neg(x))
    graph.replay()
else:
    torch.neg(x)
it.stop()
it.step()
"""
    rows = []
    for kind in ("graph", "eager"):
        run_well(text, tmp_path, kind)
        part = open_dump(tmp_path / kind).part(0)
        (output,) = part.record("Torch.neg.0.forward")["output"]
        rows.append(part.rows.take([output["row"]]))
        part.close()
    assert rows[0]["signed"] == pytest.approx(rows[1]["signed"], rel=1e-9, abs=1e-9)
