"""What `run_ut` understands, runs and says of a result, the script that it writes does, too: one row, both ways."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.row_by_row import for_each

from msprobe.errors import InvalidInputError
from msprobe.precheck.executors import executor_of
from msprobe.precheck.scripts import call, main
from msprobe.precheck.scripts.text import text_of
from msprobe.precheck.side.places import units_taken_over
from msprobe.precheck.side.strict import judge_exact, judge_floats
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.machine import Machine

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
EIGHT = torch.float8_e4m3fn
INFINITY, NAN = float("inf"), float("nan")


def _normal(dtype: torch.dtype, count: int = 256) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype).double()


#: By name: the type, the reference, the candidate, how far disturbed inputs move, and what both say.
ROWS: dict[str, tuple[torch.dtype, Any, Any, Any, str]] = {
    "the same": (SINGLE, [1.0, 2.0], [1.0, 2.0], None, "pass"),
    "infinite at the edge of the type": (HALF, [65503.0, 1.0], [INFINITY, 1.0], None, "pass"),
    "infinite far from it": (HALF, [6.0, 1.0], [INFINITY, 1.0], None, "error"),
    "infinite of another sign": (HALF, [65503.0, 1.0], [-INFINITY, 1.0], None, "error"),
    "infinite as the reference": (HALF, [70000.0, 1.0], [INFINITY, 1.0], None, "pass"),
    "the largest number for infinity": (HALF, [70000.0, 1.0], [65504.0, 1.0], None, "pass"),
    "infinite where the inputs move it": (SINGLE, [3.3e38, 1.0], [INFINITY, 1.0], [1e36, 0.0], "pass"),
    "NaN on one side": (SINGLE, [1.0, 2.0], [1.0, NAN], None, "error"),
    "NaN on both": (SINGLE, [1.0, NAN], [1.0, NAN], None, "pass"),
    "an element of others": (BRAIN, [1.0, 2.0, 3.0], [1.0, 2.0, 300.0], None, "error"),
    "a number too small to be normal": (SINGLE, [1e-40, 1.0], [0.0, 1.0], None, "pass"),
    "eight bits": (EIGHT, [1.0, 2.0], [1.0, 2.25], None, "pass"),
    "eight bits far off": (EIGHT, [1.0, 2.0], [1.0, 4.0], None, "error"),
    "whole numbers": (torch.int64, [1, 2], [1, 3], None, "error"),
    "whole numbers that rounding chooses": (torch.int64, [1, 2, 3], [1, 2, 2], [0.0, 0.0, 1.0], "pass"),
    "a choice out of range": (torch.int64, [1, 2, 3], [1, 2, 9], [0.0, 0.0, 1.0], "error"),
}


@for_each("name", ROWS)
def test_a_result_has_one_verdict_both_ways(name: str) -> None:
    dtype, reference, candidate, moved, status = ROWS[name]
    wide = torch.float64 if dtype.is_floating_point else dtype
    bench, device = torch.tensor(reference, dtype=wide), torch.tensor(candidate, dtype=wide).to(dtype)
    movement = None if moved is None else torch.tensor(moved, dtype=torch.float64)

    assert call.judge(device, bench, movement)[0] == status
    array = None if movement is None else movement.numpy()
    if dtype.is_floating_point:
        word, rounded = str(dtype).removeprefix("torch."), bench.to(dtype).double().numpy()
        assert judge_floats(bench.numpy(), rounded, device.double().numpy(), word, array).status == status
    else:
        moves = None if array is None else array > 0
        assert judge_exact(bench.numpy(), device.numpy(), moves).status == status


@for_each("elementwise", [False, True])
@for_each("dtype", [SINGLE, HALF, BRAIN])
@for_each("units", [1.0, 6.0, 40.0, 400.0])
def test_an_error_of_some_units_has_one_verdict(dtype: torch.dtype, units: float, elementwise: bool) -> None:
    bench = _normal(dtype)
    device = bench.clone()
    device[7] += units * torch.finfo(dtype).eps * bench[7].abs()
    device = device.to(dtype)

    own = call.judge(device, bench, None, elementwise)
    other = judge_floats(
        bench.numpy(),
        bench.to(dtype).double().numpy(),
        device.double().numpy(),
        str(dtype).removeprefix("torch."),
        None,
        elementwise,
    )
    assert own[0] == other.status
    assert own[1] == pytest.approx(other.scaled)


@for_each("units", [0.0, 1.0, 3.0])
@for_each("dtype", [SINGLE, HALF])
def test_numbers_that_are_taken_over_have_one_verdict(dtype: torch.dtype, units: float) -> None:
    bench = torch.ones(40, dtype=torch.float64)
    device = (bench + units * torch.finfo(dtype).eps).to(dtype)
    everywhere = torch.ones(40, dtype=torch.bool)

    own = call.judge(device, bench, None, False, everywhere)[0]
    allowed = units_taken_over(dtype, False)
    other = judge_floats(
        bench.numpy(),
        bench.numpy(),
        device.double().numpy(),
        str(dtype).removeprefix("torch."),
        None,
        False,
        everywhere.numpy(),
        allowed,
    )
    assert own == other.status


WORDS = [
    *(
        "",
        "cpu",
        "0",
        "auto",
        "auto:0",
        "cpu+threads=1+mkldnn=off",
        "cpu+deterministic",
        "cpu+dtype=fp16",
        "cpu+compile",
    ),
    *("cpu+autocast=half", "inject:scale=1e+3", "cpu+inject:scale=1e+3", "inject:nan@5", "inject:inf", "inject:swap"),
    *("cpu+threads=0", "cpu+threads=2000", "cpu+fast", "cpu+dtype=int8", "cpu+autocast=fp32", "inject:scale=nan"),
    *(
        "inject:scale",
        "inject:scale=0",
        "inject:nan@-1",
        "inject:nosuch",
        "plugin:os",
        "plugin:os.path:join",
        "CPU",
        "auto:0",
    ),
    *("cpu+", "cpu++compile", "cpu:0", "cpu:x", "cpu+threads=²", "auto:0"),
]


@for_each("text", WORDS)
def test_words_of_an_executor_mean_the_same_both_ways(text: str) -> None:
    found: list[object] = []
    for read in (executor_of, lambda text: main.side_of(text).plan):
        try:
            found.append(replace(read(text or "auto"), text=""))
        except (InvalidInputError, ValueError):
            found.append("refused")
    assert found[0] == found[1]


@pytest.mark.parametrize("fault", ["scale=1e-1", "nan@3", "inf@0", "drop-tail", "tf32", "swap"])
@pytest.mark.parametrize("propagation", ["forward", "backward"])
def test_a_fault_is_put_in_the_same_both_ways(fault: str, propagation: str, tmp_path: Path) -> None:
    def described(seed: int) -> dict[str, Any]:
        info = {"dtype": "float32", "shape": [4, 4], "low": -1, "high": 1, "requires_grad": True, "seed": seed}
        return {"tensor": info}

    content = {"args": [described(0), described(1)], "kwargs": {}, "seed": 1, "propagation": propagation}
    made = call.Call({**content, "gradients": [described(2)]}, tmp_path)
    side = main.side_of("cpu", fault)
    own = [value for _, value in call.run(made, lambda tensor: tensor, side.calling(torch.matmul), side)]
    inputs = Inputs([one.detach() for one in made.args], {}, made.gradients, ["0", "1"])
    outcome = Machine(executor_of(f"cpu+inject:{fault}")).run(torch.matmul, inputs, propagation == "backward")
    other = list(outcome.gradients.values()) if propagation == "backward" else outcome.outputs
    assert len(own) == len(other) > 0
    for one, two in zip(own, other, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("framework", ["pytorch", "mindspore"])
def test_no_name_of_a_script_is_given_twice(framework: str) -> None:
    names: list[str] = []
    for node in ast.parse(text_of({"type": "NPU", "api": "NPU.x.0"}, framework)).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [one.id for one in ast.walk(ast.Tuple(targets)) if isinstance(one, ast.Name)]
    assert [name for name, count in Counter(names).items() if count > 1] == []


@pytest.mark.parametrize("framework", ["pytorch", "mindspore"])
def test_a_script_has_all_sentences_that_it_says(framework: str) -> None:
    text = text_of({"type": "NPU", "api": "NPU.x.0"}, framework)
    spoken = {
        node.args[0].value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "said" and isinstance(node.args[0], ast.Constant)
    }
    (given,) = (
        node.args[0] for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and is_of_sentences(node)
    )
    assert len(spoken) > 5
    assert spoken <= set(ast.literal_eval(given))


def is_of_sentences(node: ast.Call) -> bool:
    return ast.unparse(node.func) == "SENTENCES.update"
