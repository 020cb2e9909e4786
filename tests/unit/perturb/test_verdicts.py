"""What is a risk, what rounding explains, and what nobody can tell: and the numbers beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.benchmarked import details, rows, run, summary, uniform
from support.coded_texts import mentions
from support.row_by_row import for_each

from msprobe.perturb import bench
from msprobe.perturb.torch import kernels, running
from msprobe.pytorch import PrecisionDebugger


class ForHalves:
    """Kernels that run in float16 alone."""

    calls = 0

    @staticmethod
    def square(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float16:
            raise TypeError("for float16")
        return x.square()

    @classmethod
    def unsteady(cls, x: torch.Tensor) -> torch.Tensor:
        found = cls.square(x)
        cls.calls += 1
        return found * 3 if cls.calls == 2 else found


def custom(folder: Path, holder: Any, name: str, *args: Any, with_backward: bool = False, **settings: Any) -> Any:
    """What a call of a kernel of the program's gave under the benchmark."""
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(folder), **settings)
    debugger.register_custom_api(holder, name)
    try:
        debugger.start()
        found = getattr(holder, name)(*args)
        if with_backward:
            found.sum().backward()
        debugger.stop()
    finally:
        PrecisionDebugger.reset()
    return found


def verdicts(folder: Path) -> set[str]:
    return {row["verdict"] for row in details(folder)}


@pytest.mark.parametrize("mode", ["bit_noise", "add_noise"])
def test_a_healthy_product_in_fp8_is_no_risk(tmp_path: Path, mode: str) -> None:
    a, b = (torch.randn(32, 64, generator=torch.Generator().manual_seed(n)).to(torch.float8_e4m3fn) for n in (1, 2))
    one = torch.tensor(1.5)

    def program() -> None:
        torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)

    try:
        program()
    except RuntimeError as error:
        pytest.skip(f"no product in fp8 on this CPU: {error}")
    # So much noise of the scale that many results in bfloat16 are rounded otherwise.
    run(tmp_path, program, pert_mode=mode, noise_scale=1 if mode == "bit_noise" else 1000)
    total = summary(tmp_path)["Torch._scaled_mm"]
    assert (total["checked"], total["risks"], total["not_judged"]) == ("1", "0", "0")
    assert verdicts(tmp_path) <= {"explained by rounding"}
    assert verdicts(tmp_path) or mode == "bit_noise"


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_a_kernel_for_halves_alone_is_judged_by_rounding_in_its_own_type(tmp_path: Path, stage: str) -> None:
    x = uniform(4, 32, dtype=torch.float16).requires_grad_(stage == "backward")
    custom(
        tmp_path,
        ForHalves,
        "square",
        x,
        with_backward=stage == "backward",
        pert_mode="add_noise",
        noise_scale=4,
        fuzz_stage=stage,
        list=["ForHalves"],
    )
    assert verdicts(tmp_path) == {"explained by rounding"}


def test_what_cannot_be_judged_is_counted_with_its_reason_and_is_no_risk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ForHalves.calls = 0
    custom(tmp_path, ForHalves, "unsteady", uniform(4, 32, dtype=torch.float16), pert_mode="bit_noise")
    (row,) = details(tmp_path)
    assert row["verdict"] == "not judged"
    assert len(rows(tmp_path)) == 1
    total = summary(tmp_path)["ForHalves.unsteady"]
    assert (total["deviations"], total["risks"], total["not_judged"]) == ("1", "0", "1")
    assert mentions(total["notes"], "no-wider-type", kind="TypeError")
    said = capsys.readouterr().out
    assert mentions(said, "benchmark-not-judged", count=1)
    assert "explained" not in said


@for_each(
    "dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_moved_elements_are_others_of_the_same_type_and_stay_finite(dtype: torch.dtype) -> None:
    greatest = torch.finfo(dtype).max
    own = torch.tensor([[1.0, -1.5, 3.0, 0.0], [0.75, 2.0, greatest, -greatest]], dtype=torch.float64).to(dtype).t()
    unit = {torch.float8_e4m3fn: 2.0**-3, torch.float8_e5m2: 2.0**-2}.get(dtype, torch.finfo(dtype).eps)
    found = kernels.moved(own, unit, 0)
    assert (found.dtype, found.stride()) == (own.dtype, own.stride())
    assert bool(found.double().isfinite().all())
    ordinary = (own.double() != 0) & (own.double().abs() < 4)
    assert bool((found.double() != own.double())[ordinary].all())
    assert bool(((found.double() - own.double()).abs() <= 2 * unit * own.double().abs()).all())
    assert not torch.equal(found.double(), kernels.moved(own, unit, 1).double())


# ---------------------------------------------------------------- numbers beside the verdict


def test_the_condition_distinguishes_cancellation_from_an_ordinary_product(tmp_path: Path) -> None:
    x = uniform(8, 64)
    y = x * (1 + 2.0**-12)
    a, b = uniform(8, 64, seed=1) - 1, uniform(64, 8, seed=2) - 1

    def program() -> None:
        torch.sub(x, y), torch.matmul(a, b)

    run(tmp_path, program, pert_mode="add_noise", noise_scale=1000)
    conditions = {row["api_name"]: float(row["condition"]) for row in details(tmp_path)}
    # Numbers that differ by 2 ** -12, relative, make 2 ** 12 of each change; sums of products change as their factors.
    assert 0.5 < conditions["Torch.sub.0.forward"] / 2.0**12 < 2
    assert 0.5 < conditions["Torch.matmul.0.forward"] < 2


class Unsteady:
    """Kernels of which the second call gives another result."""

    calls = 0

    @classmethod
    def is_second(cls) -> bool:
        cls.calls += 1
        return cls.calls == 2

    @classmethod
    def quarter(cls, x: torch.Tensor) -> torch.Tensor:
        found = x * 1
        if cls.is_second():
            found[: len(x) // 4] *= 1.5
        return found

    @classmethod
    def named(cls, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"first": x * 1, "second": x * (2 if cls.is_second() else 1)}

    @classmethod
    def imaginary(cls, x: torch.Tensor) -> torch.Tensor:
        return torch.complex(x * 1, x * (1.5 if cls.is_second() else 1))

    @classmethod
    def in_fp8(cls, x: torch.Tensor) -> torch.Tensor:
        return (x.float() * (2 if cls.is_second() else 1)).to(x.dtype)


def unsteady(folder: Path, name: str, *args: Any, **settings: Any) -> list[dict[str, str]]:
    """The rows of a kernel of the above in mode no_change."""
    Unsteady.calls = 0
    custom(folder, Unsteady, name, *args, pert_mode="no_change", list=["Unsteady"], **settings)
    return details(folder)


def test_how_much_is_off_on_average_and_in_how_many_elements(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = unsteady(tmp_path, "quarter", torch.ones(8))
    assert float(row["mean_rel"]) == pytest.approx(0.5 / 4)
    assert float(row["bad_ratio"]) == pytest.approx(1 / 4)
    assert float(row["max_rel"]) == pytest.approx(0.5)
    assert row["verdict"] == "risk"
    # No value was changed.
    assert row["condition"] == ""
    # The table on the console has the same.
    said = capsys.readouterr().out
    assert "Free benchmark: Unsteady.quarter: 1 risks in 1 checks of 1 calls, worst max_rel 0.5" in said
    assert "no precision risk" not in said


def test_the_table_on_the_console_begins_with_the_worst_and_names_twenty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels_of = type("Many", (), {f"k{n:02}": staticmethod(_grows(1 + n / 64)) for n in range(1, 23)})
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(tmp_path), pert_mode="no_change", list=["Many"])
    for n in range(1, 23):
        debugger.register_custom_api(kernels_of, f"k{n:02}")
    debugger.start()
    for n in range(1, 23):
        getattr(kernels_of, f"k{n:02}")(torch.ones(2))
    PrecisionDebugger.reset()
    said = capsys.readouterr().out
    assert re.findall(r"Many\.k(\d\d): 1 risks", said) == [f"{n:02}" for n in range(22, 2, -1)]
    assert mentions(said, "benchmark-more-risks", apis=2)


def _grows(factor: float) -> Any:
    state = [1.0]

    def kernel(x: torch.Tensor) -> torch.Tensor:
        found = x * state[0]
        state[0] *= factor
        return found

    return kernel


# ---------------------------------------------------------------- what is looked into


def test_results_in_a_dict_are_compared(tmp_path: Path) -> None:
    (row,) = unsteady(tmp_path, "named", torch.ones(3))
    assert row["output_index"] == "1"
    assert float(row["max_rel"]) == 1


def test_complex_results_are_compared_by_both_parts(tmp_path: Path) -> None:
    (row,) = unsteady(tmp_path, "imaginary", torch.ones(3))
    assert row["dtype"] == "torch.complex64"
    assert float(row["max_rel"]) == pytest.approx(0.5)
    assert float(row["bad_ratio"]) == pytest.approx(0.5)


def test_results_in_fp8_are_compared(tmp_path: Path) -> None:
    (row,) = unsteady(tmp_path, "in_fp8", torch.ones(3).to(torch.float8_e4m3fn))
    assert row["dtype"] == "torch.float8_e4m3fn"
    assert float(row["max_rel"]) == 1


@pytest.mark.parametrize("mode", ["bit_noise", "improve_precision"])
def test_tensors_in_keyword_arguments_are_changed(tmp_path: Path, mode: str) -> None:
    x, w = (uniform(4, 64, dtype=torch.bfloat16, seed=seed) - 1 for seed in (1, 2))
    run(tmp_path, lambda: torch.nn.functional.linear(input=x, weight=w), pert_mode=mode, report="all")
    assert summary(tmp_path)["Functional.linear"]["checked"] == "1"
    assert len(rows(tmp_path)) == (mode == "bit_noise")


@pytest.mark.parametrize("handler", ["check", "fix"])
def test_a_call_for_which_there_is_no_memory_is_left_out_with_a_note(
    tmp_path: Path, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_LITTLE", 1)
    monkeypatch.setattr(running, "free_memory", lambda device: 4 * 64 * 2 - 1)
    x = torch.ones(64, dtype=torch.bfloat16)

    def program() -> None:
        torch.relu(torch.ones(4, 64, dtype=torch.bfloat16)), torch.tanh(x)

    run(tmp_path, program, handler_type=handler)
    found = summary(tmp_path)
    assert found["Torch.relu"]["checked"] == "0"
    assert mentions(found["Torch.relu"]["notes"], "too-little-memory")
    assert found["Torch.tanh"]["checked"] == "1"
