"""What is a risk, what rounding explains, and what nobody can tell: and the numbers beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarked import details, rows, run, summary, uniform

from msprobe.perturb.torch import kernels
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
    assert "it does not run in a wider type to judge its deviations by (TypeError)" in total["notes"]
    said = capsys.readouterr().out
    assert "1 could not be judged: see free_benchmark_summary.csv." in said
    assert "explained" not in said


@pytest.mark.parametrize(
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
