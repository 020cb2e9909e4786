"""torch.compile: compiled code stays compiled, its training the same, and is recorded from outside."""

from __future__ import annotations

import copy
import functools
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from support.coded_texts import mentions
from support.row_by_row import in_turn
from support.torch_dumps import Dump, Recorder, record
from torch import nn
from torch._dynamo import eval_frame
from torch._dynamo.utils import counters
from torch.autograd.function import BackwardCFunction

from msprobe import log
from msprobe.pytorch import PrecisionDebugger

__all__ = ["record"]

LEVELS = ["L0", "L1", "mix", "L2"]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.wide = nn.Linear(16, 32)
        self.narrow = nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.narrow(F.gelu(self.wide(self.norm(x))))
        return result


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.last = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.last(x)
        return result


Case = tuple[Net, nn.Module, Callable[[torch.Tensor], torch.Tensor]]


def case(kind: str, backend: Any) -> Case:
    """The plain model, what is given to start, and the loss of a batch."""
    torch.manual_seed(0)
    plain = Net()
    model: Any = plain
    given: nn.Module = plain
    if kind == "whole":
        given = model = torch.compile(plain, backend=backend)
    elif kind == "whole, plain model given":
        model = torch.compile(plain, backend=backend)
    elif kind == "parts":
        for i in range(2):
            plain.blocks[i] = torch.compile(plain.blocks[i], backend=backend)  # type: ignore[assignment]
    elif kind == "in place":
        plain.compile(backend=backend)
    elif kind == "parts in place":
        for block in plain.blocks:
            block.compile(backend=backend)
    elif kind == "dynamic":
        given = model = torch.compile(plain, backend=backend, dynamic=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(x).square().mean()
        return result

    if kind == "function":
        return plain, given, torch.compile(loss, backend=backend)
    return plain, given, loss


def train(built: Case, debugger: PrecisionDebugger | None, steps: int = 3) -> list[Any]:
    plain, given, loss_of = built
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    seen: list[Any] = []
    for i in range(steps):
        x = torch.randn(4 if i < 2 else 6, 8, generator=torch.Generator().manual_seed(i))
        if debugger:
            debugger.start(given)
        loss = loss_of(x)
        loss.backward()
        seen.append([loss.detach().clone(), *[p.grad.clone() for p in plain.parameters() if p.grad is not None]])
        optimizer.step()
        optimizer.zero_grad()
        if debugger:
            debugger.stop()
            debugger.step()
    seen.append([p.detach().clone() for p in plain.parameters()])
    seen.append({key: dict(value) for key, value in counters.items() if key in ("stats", "graph_break", "frames")})
    seen.append(torch.get_rng_state())
    return seen


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


KINDS = ["whole", "whole, plain model given", "parts", "in place", "parts in place", "function", "dynamic"]
#: Trained also with a compiler that makes one autograd function of each region; the real one does so of all kinds.
WITH_COMPILED_BACKWARD = ["whole", "parts", "function"]


@functools.cache
def bare(kind: str, backend: str = "aot_eager") -> list[Any]:
    """The same training without recording."""
    seen = train(case(kind, backend), None)
    torch._dynamo.reset()
    counters.clear()
    return seen


@pytest.mark.parametrize(("kind", "level"), in_turn(KINDS, ["L0", "L1", "L2"], always="mix"))
def test_training_and_compilations_are_the_same(record: Recorder, kind: str, level: str) -> None:
    backend = "aot_eager" if level == "mix" and kind in WITH_COMPILED_BACKWARD else "eager"
    off = bare(kind, backend)
    assert same(off, train(case(kind, backend), record(level=level)))
    dump = record.end()
    assert dump.steps() == ["step0", "step1", "step2"]
    assert not dump.errors()


@pytest.mark.parametrize("recorded_step", [0, 1, 2])
def test_it_does_not_matter_when_recording_begins(record: Recorder, recorded_step: int) -> None:
    """Before anything was compiled, after, and in the step in which it is compiled again."""
    off = bare("parts")
    assert same(off, train(case("parts", "aot_eager"), record(level="mix", step=[recorded_step])))
    assert record.end().steps() == [f"step{recorded_step}"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_with_the_real_compiler(record: Recorder, kind: str, level: str) -> None:
    off = bare(kind, "inductor")
    on = train(case(kind, "inductor"), record(level=level))
    # The counters of the last place are not compared: the second run finds the first one's code in a cache.
    assert same(off[:-2], on[:-2])
    assert record.end().data(2)


# ------------------------------------------------------------------ what is recorded


def recorded(record: Recorder, kind: str, level: str) -> Dump:
    train(case(kind, "aot_eager" if level == "mix" else "eager"), record(level=level), steps=1)
    return record.end()


@pytest.mark.parametrize(
    ("kind", "level"),
    in_turn(["whole", "whole, plain model given", "in place", "dynamic"], ["L0", "L1", "L2"], always="mix"),
)
def test_a_compiled_model_is_one_entry(record: Recorder, kind: str, level: str) -> None:
    dump = recorded(record, kind, level)
    data = dump.data()
    assert [n for n in data if n.startswith("Module") and "parameters" not in n] == [
        "Module.root.Net.forward.0",
        "Module.root.Net.backward.0",
    ]
    assert data["Module.root.Net.forward.0"]["input_args"][0]["shape"] == [4, 8]
    assert data["Module.root.Net.forward.0"]["output"][0]["shape"] == [4, 3]
    assert data["Module.root.Net.backward.0"]["input"][0]["shape"] == [4, 3]
    assert not [n for n in data if "linear" in n or "CompiledFunction" in n]
    gradients = [n for n in data if n.endswith("parameters_grad")]
    if level in ("L0", "mix"):
        # Under the names that they have when nothing is compiled.
        assert "Module.blocks.1.wide.Linear.parameters_grad" in gradients
        assert len(gradients) == 8
    else:
        assert gradients == []


def test_what_lies_outside_is_recorded_as_ever(record: Recorder) -> None:
    dump = recorded(record, "parts", "mix")
    data, parents = dump.data(), dump.file(0, "construct.json")
    assert data["Module.blocks.0.Block.forward.0"]["output"][0]["shape"] == [4, 16]
    assert data["Module.blocks.1.Block.backward.0"]["output"][0]["shape"] == [4, 16]
    assert parents["Functional.linear.0.forward"] == "Module.first.Linear.forward.0"
    assert parents["Functional.linear.1.forward"] == "Module.last.Linear.forward.0"
    assert "Functional.linear.1.backward" in data
    assert "Functional.linear.2.forward" not in data


# Older compilers keep the result of a compiled function to themselves.
RESULT_IS_KNOWN = "result" in torch.compile(lambda: 0, backend="eager").__code__.co_varnames
knows_results = pytest.mark.skipif(not RESULT_IS_KNOWN, reason="this torch hides results of compiled functions")


@knows_results
def test_a_compiled_function_is_one_entry(record: Recorder) -> None:
    dump = recorded(record, "function", "mix")
    data = dump.data()
    assert data["Compiled.loss.0.forward"]["input_args"][0]["shape"] == [4, 8]
    assert data["Compiled.loss.0.forward"]["output"][0]["shape"] == []
    assert data["Compiled.loss.0.backward"]["input"][0]["Max"] == 1.0
    assert len([n for n in data if n.endswith("parameters_grad")]) == 8


def test_one_line_says(record: Recorder, capsys: Any) -> None:
    log.forget_once()
    recorded(record, "parts", "mix")
    assert mentions(capsys.readouterr().out, "compiled-from-outside") == 1


def test_values_agree_with_those_of_the_uncompiled_model(record: Recorder) -> None:
    compiled = recorded(record, "parts", "L0").data()
    plain = recorded(record, "none", "L0").data()
    shared = [n for n in compiled if not n.startswith("Optimizer")]
    assert set(shared) <= set(plain)
    for name in shared:
        for key in ("output", "weight", "bias"):
            for a, b in zip(compiled[name].get(key) or [], plain[name].get(key) or [], strict=True):
                assert a is b is None or a["Max"] == pytest.approx(b["Max"], rel=1e-5)


@pytest.mark.parametrize("kind", ["whole", "in place", "parts", "parts in place", "function"])
def test_eager_shows_the_inside_under_the_usual_names(record: Recorder, kind: str) -> None:
    def names(kind: str) -> list[str]:
        train(case(kind, "eager"), record(level="mix", compile="eager"), steps=1)
        return record.end().names()

    assert names(kind) == names("none")
    assert counters["stats"].get("unique_graphs", 0) == 0


def test_after_eager_recording_it_is_compiled(record: Recorder) -> None:
    built = case("whole", "aot_eager")
    train(built, record(level="mix", compile="eager", step=[0]), steps=2)
    assert counters["stats"]["unique_graphs"] > 0


# ------------------------------------------------------------------ odd ways


def test_an_exception_inside_leaves_the_region(record: Recorder) -> None:
    def bad(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        raise ValueError("inside")

    compiled = torch.compile(bad, backend="eager")
    debugger = record(level="L1")
    debugger.start()
    with pytest.raises(ValueError, match="inside"):
        compiled(torch.ones(2))
    torch.relu(torch.ones(2))
    debugger.stop()
    data = record.end().data()
    assert data["Compiled.bad.0.forward"]["error"] == "ValueError: inside"
    assert "Torch.relu.0.forward" in data


@knows_results
def test_regions_in_regions(record: Recorder) -> None:
    inner = torch.compile(lambda x: x.sin(), backend="aot_eager")

    def outer(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        result: torch.Tensor = inner(x).cos()
        return result

    compiled = torch.compile(outer, backend="aot_eager")
    debugger = record(level="L1")
    x = torch.ones(3, requires_grad=True)
    debugger.start()
    compiled(x).sum().backward()
    torch.relu(x)
    debugger.stop()
    names = record.end().names()
    assert [n for n in names if n.startswith("Compiled")] == [
        "Compiled.outer.0.forward",
        "Compiled.outer.0.backward",
    ]
    assert not [n for n in names if ".sin." in n or ".cos." in n]
    assert "Torch.relu.0.forward" in names


def test_functions_that_only_switch_the_compiler_off_are_no_regions(record: Recorder) -> None:
    plain = torch._dynamo.disable(lambda x: x.sin())
    debugger = record(level="L1")
    debugger.start()
    plain(torch.ones(2))
    debugger.stop()
    assert record.end().names(part="sin")


def test_start_and_stop_inside_compiled_code(record: Recorder) -> None:
    debugger = record(level="L1")
    model = Net()

    def step(x: torch.Tensor) -> torch.Tensor:
        debugger.start(model)
        loss: torch.Tensor = model(x).sum()
        debugger.stop()
        return loss

    compiled = torch.compile(step, backend="aot_eager")
    for _ in range(2):
        compiled(torch.ones(2, 8)).backward()
        debugger.step()
    torch.relu(torch.ones(2))
    assert torch.overrides._get_current_function_mode_stack() == []
    dump = record.end()
    assert dump.steps() == ["step0", "step1"]
    assert not [name for number in range(2) for name in dump.names(number, "relu")], "recorded after stop"


def test_backward_inside_compiled_code(record: Recorder) -> None:
    def run(debugger: PrecisionDebugger | None) -> Any:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Net()

        @torch.compile(backend="aot_eager")
        def backward(loss: torch.Tensor) -> None:
            loss.backward()

        if debugger:
            debugger.start(model)
        backward(model(torch.ones(2, 8)).sum())
        if debugger:
            debugger.stop()
        return [p.grad for p in model.parameters()]

    bare = run(None)
    assert same(bare, run(record(level="mix")))
    dump = record.end()
    assert "Functional.linear.0.backward" in dump.names()
    assert not dump.errors()


def test_compiled_autograd(record: Recorder) -> None:
    from torch._dynamo import compiled_autograd

    def run(debugger: PrecisionDebugger | None) -> Any:
        torch._dynamo.reset()
        counters.clear()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3))
        seen: list[Any] = []
        for i in range(2):
            if debugger:
                debugger.start(model)
            loss = model(torch.full((2, 8), float(i))).sum()
            with (getattr(compiled_autograd, "_enable", None) or compiled_autograd.enable)(
                torch.compile(backend="eager")
            ):
                loss.backward()
            if debugger:
                debugger.stop()
                debugger.step()
            seen += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return [*seen, dict(counters["compiled_autograd"]), dict(counters["stats"])]

    bare = run(None)
    assert bare[-2]["captures"] > 0
    assert same(bare, run(record(level="mix")))
    assert "Functional.linear.0.forward" in record.end().names()


def test_copies_made_while_recording(record: Recorder) -> None:
    plain, given, _ = case("in place", "aot_eager")
    debugger = record(level="L0")
    debugger.start(given)
    twin = copy.deepcopy(plain)
    twin(torch.ones(2, 8))
    debugger.stop()
    assert record.dump.names() == []


def compiler_state() -> list[Any]:
    names = ("set_eval_frame", "_maybe_set_eval_frame", "_stance")
    return [
        *(getattr(eval_frame, name, None) for name in names),
        eval_frame.OptimizedModule.__call__,
        BackwardCFunction.apply,
        torch._C._dynamo.compiled_autograd.set_autograd_compiler,
        list(sys.meta_path),
    ]


@pytest.mark.parametrize("level", ["mix", "L2"])
@pytest.mark.parametrize("kind", ["whole", "parts in place"])
def test_nothing_is_left_behind(record: Recorder, kind: str, level: str) -> None:
    before = compiler_state()
    built = case(kind, "eager")
    kept = [m.__dict__.get("_compiled_call_impl") for m in built[0].modules()]
    train(built, record(level=level), steps=1)
    assert compiler_state() == before
    assert kept == [m.__dict__.get("_compiled_call_impl") for m in built[0].modules()]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in built[0].modules())
    assert torch.overrides._get_current_function_mode_stack() == []


def test_a_compiler_that_is_imported_while_recording(tmp_path: Path) -> None:
    """Importing torch does not import it; the first compiled call may come after start."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys, torch
            from torch import nn
            from msprobe.pytorch import PrecisionDebugger
            assert "torch._dynamo" not in sys.modules
            debugger = PrecisionDebugger(dump_path={str(tmp_path / "dump")!r}, level="mix")
            model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
            debugger.start(model)
            compiled = torch.compile(model, backend="aot_eager")
            compiled(torch.ones(2, 4)).sum().backward()
            debugger.stop()
            debugger.step()
            assert not any(type(finder).__module__.startswith("msprobe") for finder in sys.meta_path)
            loader = sys.modules["torch._dynamo.eval_frame"].__spec__.loader
            assert "exec_module" not in vars(loader)
            """
        )
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    names = Dump(tmp_path / "dump").names()
    assert "Module.root.Sequential.forward.0" in names
    assert "Module.root.Sequential.backward.0" in names
    assert not [n for n in names if "linear" in n]
