"""``PrecisionChecker``: modules of a training, eager beside compiled."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from support.coded_texts import mentions, pieces_of, raising
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe.errors import InvalidInputError
from msprobe.messages import arguments_of, code_of
from msprobe.precheck.compile_report import CompileResult
from msprobe.pytorch.compile_accuracy_checker import PrecisionChecker as Short
from msprobe.pytorch.compile_accuracy_checker.precision_checker import PrecisionChecker


class Block(nn.Module):
    def __init__(self, recomputed: bool = False) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.2)
        self.recomputed = recomputed

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> tuple[torch.Tensor, None, dict[str, torch.Tensor]]:
        h = checkpoint(self.inner, x, use_reentrant=False) if self.recomputed else self.inner(x)
        return x + self.drop(self.norm(h)) * scale, None, {"half": h / 2}


class Model(nn.Module):
    def __init__(self, recomputed: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(recomputed), Block()])
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x, _, more = block(x, scale=0.5)
            x = x + more["half"]
        return self.head(x)


def model(**further: Any) -> Model:
    torch.manual_seed(3)
    return Model(**further)


def step(one: nn.Module, autocast: bool = False) -> torch.Tensor:
    torch.manual_seed(4)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = nn.functional.cross_entropy(one(torch.randn(6, 8)), torch.arange(6) % 3)
    loss.backward()
    return loss.detach()


def state(one: nn.Module) -> list[torch.Tensor]:
    gradients = [parameter.grad for parameter in one.parameters() if parameter.grad is not None]
    return [*one.state_dict().values(), *gradients, torch.get_rng_state()]


def wrong_by(factor: float) -> Callable[..., Any]:
    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            return [one * factor if isinstance(one, torch.Tensor) else one for one in graph(*args)]

        return run

    return backend


def checked(one: nn.Module, checker: PrecisionChecker, **further: Any) -> CompileResult:
    checker.install(one)
    return checker.collect(step(one, **further))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("recomputed", [False, True])
def test_the_training_stays_the_same_bit_for_bit(autocast: bool, recomputed: bool) -> None:
    plain = model(recomputed=recomputed)
    loss = step(plain, autocast)
    expected = state(plain)
    watched = model(recomputed=recomputed)
    checker = PrecisionChecker(backend="eager")
    checker.wrap_by_policy(watched, (Block, nn.Linear))
    result = checked(watched, checker, autocast=autocast)
    assert result.all_pass, result.lines()
    assert result.loss_eager == float(loss)
    found = state(watched)
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in watched.modules())


def test_a_compiler_that_is_wrong_is_reported_for_the_module_alone_forward_and_backward() -> None:
    one = model()
    checker = PrecisionChecker(backend=wrong_by(1.01))
    checker.wrap(one.blocks[1])
    result = checked(one, checker)
    assert not result.all_pass
    bad = {(row.module_name, row.check_type) for row in result.rows if row.status == "FAIL"}
    assert bad == {("blocks.1", "fwd_output"), ("blocks.1", "grad_input"), ("blocks.1", "grad_param")}
    assert mentions("\n".join(result.lines()), "compiled-beyond-rounding")


def test_another_rounding_of_half_types_is_no_error_and_is_noted() -> None:
    one = model().bfloat16()

    def backend(graph: Any, inputs: Any) -> Any:
        # As compilers that keep single precision between two operators do.
        return lambda *args: [
            value.to(torch.bfloat16) if isinstance(value, torch.Tensor) else value
            for value in graph.float()(*(arg.float() if arg.is_floating_point() else arg for arg in args))
        ]

    checker = PrecisionChecker(backend=backend)
    checker.wrap(one.head)
    checker.install(one)
    torch.manual_seed(4)
    one(torch.randn(6, 8).bfloat16()).square().sum().backward()
    result = checker.collect()
    assert result.all_pass, result.lines()
    assert [row.status for row in result.rows if row.check_type == "loss"] == ["SKIP"]


def test_what_cannot_be_compared_is_a_skip_with_the_reason_and_the_training_goes_on() -> None:
    one = model()
    checker = PrecisionChecker(backend="eager")
    checker.wrap_all_children(one)  # head, and blocks, which is never called itself
    checker.install(one)
    torch.manual_seed(4)
    loss = one(torch.randn(6, 8)).sum()
    with torch.no_grad():
        one.head.bias.add_(1)
    loss.backward()
    rows = {row.module_name: row for row in checker.collect(loss).rows if row.check_type == "note"}
    assert code_of(rows["blocks"].note)[1] == "module-not-called"
    head = rows["head"]
    assert (head.status, code_of(head.note)[1]) == ("SKIP", "parameters-changed-before-gradient")

    def refuse(graph: Any, inputs: Any) -> Any:
        raise NotImplementedError("no such operator")

    other = model()
    checker = PrecisionChecker(backend=refuse)
    checker.wrap(other.head)
    result = checked(other, checker)
    (row,) = [row for row in result.rows if row.check_type == "note"]
    assert row.status == "FAIL"
    assert code_of(row.note)[1] == "compiled-raised"
    assert "no such operator" in row.note
    assert not result.all_pass
    assert other.head.weight.grad is not None


def test_passes_without_a_backward_are_compared_forward() -> None:
    one = model().eval()
    checker = PrecisionChecker(backend=wrong_by(2.0), capture_input=False)
    checker.wrap(one.head)
    checker.install(one)
    with torch.no_grad():
        one(torch.randn(6, 8))
    one(torch.randn(6, 8))  # whose backward never comes
    rows = checker.collect().rows
    found = [(row.check_type, row.status) for row in rows]
    assert found == [("loss", "SKIP"), ("fwd_output", "FAIL"), ("fwd_output", "FAIL"), ("note", "SKIP")]
    assert rows[2].note.startswith("pass 2: ")
    assert (code_of(rows[3].note)[1], arguments_of(rows[3].note)["number"]) == ("no-gradient-to-results", 2)
    with raising(InvalidInputError, "nothing-installed"):
        checker.collect()


def wrong_backward(graph: Any, inputs: Any) -> Any:
    """Right results, and gradients that are wrong by half."""

    def run(*args: Any) -> Any:
        results = graph(*args)
        for one in results:
            if isinstance(one, torch.Tensor) and one.requires_grad:
                one.register_hook(lambda gradient: gradient * 1.5)
        return results

    return run


class WritesItsInput(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(1.5)
        return super().forward(x)


@dataclass
class Results:
    first: torch.Tensor
    size: int


class GivesDataclass(nn.Linear):
    def forward(self, x: torch.Tensor) -> Any:
        return Results(super().forward(x), 3)


@pytest.mark.parametrize("kind", [nn.Linear, WritesItsInput, GivesDataclass])
def test_the_backward_of_a_module_is_compared_whatever_it_writes_and_gives(kind: type[nn.Linear]) -> None:
    one = kind(4, 4)
    checker = PrecisionChecker(backend=wrong_backward, capture_input=False)
    checker.wrap(one)
    checker.install(one)
    result = one(torch.randn(3, 4, requires_grad=True) * 2)
    getattr(result, "first", result).square().sum().backward()
    found = {row.check_type: row.status for row in checker.collect().rows}
    assert found == {"loss": "SKIP", "fwd_output": "PASS", "grad_input": "FAIL", "grad_param": "FAIL"}


def test_a_result_that_is_written_in_place_has_a_skip_for_its_backward() -> None:
    one = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    checker = PrecisionChecker(backend=wrong_backward)
    checker.wrap(one[0])
    checker.install(one)
    one(torch.randn(2, 3, 4)).square().sum().backward()  # of three dimensions: the result is a view
    (note,) = [row for row in checker.collect().rows if row.check_type == "note"]
    assert mentions(note.note, "no-gradient-to-results")


@dataclass
class Memory:
    """What a program hands from module to module, which they write to."""

    kept: list[torch.Tensor]
    total: torch.Tensor


class Remembers(nn.Linear):
    def forward(self, x: torch.Tensor, memory: Memory) -> torch.Tensor:
        x = super().forward(x)
        memory.total.add_(x.detach().sum())
        memory.kept.append(x)
        return x + memory.kept[0] * len(memory.kept)


class Draws(nn.Linear):
    def forward(self, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return super().forward(x) + torch.rand(x.shape, generator=generator)


class Counts(nn.Linear):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x) * self.calls


class Grows(nn.Linear):
    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(1)
        return super().forward(x) * len(self.seen)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.one(x), self.two(x)


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class TakesPair(nn.Linear):
    def forward(self, pair: Pair) -> torch.Tensor:
        return super().forward(pair.first) + pair.second


def ran(module: nn.Module, arguments: Callable[[], tuple[Any, ...]], checker: PrecisionChecker | None) -> Any:
    """What three passes of a module leave: results, gradients, what was handed in, and random numbers."""
    torch.manual_seed(7)
    given = arguments()
    if checker is not None:
        checker.wrap(module)
        checker.install(module)
    found = []
    for _ in range(3):
        result = module(torch.randn(3, 4), *given)
        result = result[0] if isinstance(result, tuple) else result
        found.append(result.detach().clone())
        result.square().sum().backward(retain_graph=True)
    found += [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    for one in given:
        if isinstance(one, Memory):
            found += [one.total, torch.tensor(len(one.kept))]
        if isinstance(one, torch.Generator):
            found.append(one.get_state())
    return [*found, torch.get_rng_state()]


def nothing() -> tuple[Any, ...]:
    return ()


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Remembers, lambda: (Memory([], torch.zeros(())),)),
        (Draws, lambda: (torch.Generator().manual_seed(1),)),
        (Counts, nothing),
        (Grows, nothing),
        (TwoHeads, nothing),
    ],
)
def test_what_modules_keep_and_write_to_stays_the_training_s_own(
    kind: Callable[..., nn.Module], arguments: Callable[[], tuple[Any, ...]]
) -> None:
    def made() -> nn.Module:
        torch.manual_seed(3)
        return kind() if kind is TwoHeads else kind(4, 4)

    expected = ran(made(), arguments, None)
    checker = PrecisionChecker(backend="aot_eager")
    found = ran(made(), arguments, checker)
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))
    result = checker.collect(1.0)
    assert {row.status for row in result.rows[1:]} == {"PASS"}, result.lines()


def test_named_tuples_are_taken_and_compiled_parts_run_as_they_are_on_the_eager_side() -> None:
    one = nn.Sequential(TakesPair(4, 4), torch.compile(nn.Linear(4, 4), backend="eager"))
    checker = PrecisionChecker(backend="eager")
    checker.wrap_all_children(one)
    checker.wrap(one)
    checker.install(one)
    one(Pair(torch.randn(3, 4), torch.randn(3, 4))).sum().backward()
    result = checker.collect(1.0)
    assert {row.status for row in result.rows} == {"PASS"}, result.lines()


def test_gradients_that_are_all_small_are_compared_by_their_own_size() -> None:
    one = nn.Linear(4, 4)
    checker = PrecisionChecker(backend=wrong_backward)
    checker.wrap(one)
    checker.install(one)
    (one(torch.randn(3, 4, requires_grad=True) * 2).square().sum() * 1e-7).backward()
    statuses = {row.check_type: row.status for row in checker.collect(1.0).rows}
    assert (statuses["fwd_output"], statuses["grad_input"], statuses["grad_param"]) == ("PASS", "FAIL", "FAIL")


def test_a_buffer_that_is_exchanged_is_put_back() -> None:
    class Averages(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = 0.5 * self.mean + x.detach().mean(0)
            return super().forward(x) + self.mean

    torch.manual_seed(2)
    one, x = Averages(), torch.randn(3, 4)
    checker = PrecisionChecker(backend="eager", single_pass=False)
    checker.wrap(one)

    def run() -> torch.Tensor:
        loss = one(x).square().mean()
        loss.backward()
        return loss

    result = checker.compare(run, one)
    assert result.loss_diff < 1e-6, result.lines()
    torch.testing.assert_close(one.mean, x.mean(0), rtol=0, atol=0)


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        torch._dynamo.graph_break()
        return x * random.random()


def test_all_of_several_equal_modules_with_graph_breaks_are_compared() -> None:
    one = nn.Sequential(*(Broken() for _ in range(12)))
    checker = PrecisionChecker(backend="eager")
    checker.wrap_all_children(one)
    checker.install(one)
    one(torch.randn(3, 4)).sum().backward()
    result = checker.collect()
    assert {row.status for row in result.rows[1:]} == {"PASS"}, result.lines()
    assert len(result.diffs) == 12


@pytest.mark.parametrize("takes_model", [False, True])
def test_a_step_is_run_twice_and_leaves_what_the_first_run_left(takes_model: bool) -> None:
    expected = model()
    loss = step(expected)
    wanted = state(expected)
    one = model()
    checker = PrecisionChecker(backend=wrong_by(1.1), single_pass=False)
    checker.wrap(one.head)
    result = checker.compare((lambda it: step(it)) if takes_model else (lambda: step(one)), one)
    assert result.loss_eager == float(loss)
    assert result.loss_diff == pytest.approx(abs(result.loss_compiled - result.loss_eager))
    assert result.loss_diff > 1e-3
    assert (result.rows[0].module_name, result.rows[0].status) == ("LOSS", "FAIL")
    assert all(map(torch.equal, state(one), wanted))
    assert "forward" not in one.head.__dict__


def test_a_step_that_draws_numbers_of_python_and_numpy_draws_them_again() -> None:
    one = model()

    def run() -> torch.Tensor:
        x = torch.full((6, 8), random.random() + float(np.random.rand()))
        loss = one(x).square().mean()
        loss.backward()
        return loss

    checker = PrecisionChecker(backend="eager", single_pass=False)
    checker.wrap(one.head)
    random.seed(5)
    np.random.seed(5)
    result = checker.compare(run, one)
    assert result.loss_diff == 0.0
    found = random.random(), np.random.rand()
    random.seed(5)
    np.random.seed(5)
    run()
    assert found == (random.random(), np.random.rand())


def test_a_step_that_raises_compiled_is_reported_and_the_model_is_as_after_the_first() -> None:
    one = model()

    def refuse(graph: Any, inputs: Any) -> Any:
        raise NotImplementedError("no such operator")

    checker = PrecisionChecker(backend=refuse, single_pass=False)
    checker.wrap(one.head)
    result = checker.compare(step, one)
    assert not result.all_pass
    assert "compiled-step-raised" in [code_of(row.note)[1] for row in result.rows]
    expected = model()
    step(expected)
    assert all(map(torch.equal, state(one), state(expected)))


def test_the_report_has_the_columns_of_26_2_and_the_graphs_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = model()
    checker = Short(backend="aot_eager", dump_graphs=True, graph_dir=tmp_path / "graphs", cast_dtype=torch.float64)
    checker.wrap_all_children(one, depth=2)
    checker.ignore(one.blocks[0])
    result = checked(one, checker)
    assert result.cast_dtype is torch.float64
    checker.report(result, tmp_path / "new" / "report.csv")
    header, *rows = list(csv.reader((tmp_path / "new" / "report.csv").open(newline="")))
    assert ",".join(header) == (
        "module_name,check_type,tensor_index,status,max_abs_diff,mean_abs_diff,max_rel_diff,shape,note"
    )
    assert rows[0][:5] == ["LOSS", "loss", "0", "PASS", "N/A"]
    first, second = result.diffs
    assert (first.name, second.name) == ("blocks.1", "head")
    assert first.fwd_output is not None
    assert [(one.allclose, one.shape) for one in first.fwd_output] == [(True, "(6, 8)"), (True, "(6, 8)")]
    assert math.isnan(result.loss_compiled)
    assert rows[0][-1] == "single_pass mode"
    assert {row[0] for row in rows} == {"LOSS", "blocks.1", "head"}
    assert {row[1] for row in rows} == {"loss", "fwd_input", "fwd_output", "grad_input", "grad_output", "grad_param"}
    assert "eager and compiled, 2 modules: " in capsys.readouterr().out
    assert any("linear" in path.read_text() for path in (tmp_path / "graphs").iterdir())


def test_mistakes_are_reported_at_once() -> None:
    with raising(InvalidInputError, "precision-checker-wrong") as refused:
        PrecisionChecker(backend="nosuch", threshold=-1, cast_dtype=torch.int32)
    assert pieces_of(refused.value.message) >= {"backend-unknown", "threshold-wrong", "cast-dtype-wrong"}
    one = model()
    with raising(InvalidInputError, "no-module-wrapped"):
        PrecisionChecker().install(one)
    with raising(InvalidInputError, "compare-runs-twice"):
        PrecisionChecker().compare(lambda: None, one)
    with raising(InvalidInputError, "install-is-for-single-pass"):
        PrecisionChecker(single_pass=False).install(one)
    with raising(InvalidInputError, "wrap-wants-module"):
        PrecisionChecker().wrap("head")  # type: ignore[arg-type]
    with raising(InvalidInputError, "types-are-no-modules"):
        PrecisionChecker().wrap_by_policy(one, ())
