"""A step in a kilobyte, and the first bad step of a run."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.coded_texts import mentions, pieces_of, raising
from support.command_line import call
from unit.monitor.runs import PARAMETERS, begun, gradients, metrics, row, run_of, write_run

from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.monitor.diff import diff
from msprobe.monitor.locate import first_bad_step
from msprobe.monitor.measurements import Row, StepMetrics
from msprobe.monitor.sinks.csv import CsvSink
from msprobe.monitor.sketch import FILE_NAME, MOST_BYTES, Sketch, Sketcher, SketchSink, read_sketches

STEPS = 120


def wide(step: int, tensors: int) -> StepMetrics:
    rows = [row(f"layer.{at}.weight", 1.0 + at, 0.5 * at) for at in range(tensors)]
    scalars = {"loss": 2.5, "lr": 1e-4}
    ops = ("norm", "projection")
    return metrics(step, {"grad_reduced": rows, "param_updated": rows, "actv": rows}, ops, scalars=scalars, batch="abc")


@pytest.mark.parametrize("tensors", [1, 3, 40, 5000])
def test_a_step_takes_at_most_a_kilobyte(tmp_path: Path, tensors: int) -> None:
    folder = write_run(begun(tmp_path), [wide(0, tensors)], SketchSink())
    first = (folder / FILE_NAME).stat().st_size
    more = write_run(begun(tmp_path), [wide(step, tensors) for step in range(11)], SketchSink())
    assert ((more / FILE_NAME).stat().st_size - first) / 10 <= MOST_BYTES


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = write_run(begun(tmp_path), [wide(step, 4) for step in range(3)], SketchSink())
    found = read_sketches(folder / FILE_NAME)
    assert [sketch.step for sketch in found] == [0, 1, 2]
    assert (found[0].loss, found[0].rate) == (2.5, 1e-4)
    assert found[0].norm == pytest.approx(math.sqrt(1 + 4 + 9 + 16))
    assert found[0].batch != bytes(8)
    names = [(group.quantity, group.first, group.count) for group in found[0].groups]
    assert names[:2] == [("actv", "layer.0.weight", 1), ("actv", "layer.1.weight", 1)]
    assert [sketch.numbers.tolist() for sketch in found] == [found[0].numbers.tolist()] * 3
    assert (folder / FILE_NAME).stat().st_mode & 0o777 == 0o640


def test_the_layout_may_change_when_moments_come(tmp_path: Path) -> None:
    rows = [row("w", 1.0)]
    steps = [metrics(0, {"grad_reduced": rows}), metrics(1, {"grad_reduced": rows, "exp_avg": rows}), gradients(2)]
    found = read_sketches(write_run(begun(tmp_path), steps, SketchSink()) / FILE_NAME)
    assert [len(sketch.groups) for sketch in found] == [1, 2, 4]


@given(st.integers(1, 3000))
def test_a_torn_end_costs_one_step_at_most(cut: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        run = begun(Path(place))
        path = write_run(run, [wide(step, 3) for step in range(5)], SketchSink()) / FILE_NAME
        data = path.read_bytes()
        path.write_bytes(data[: max(0, len(data) - cut)])
        left = [sketch.step for sketch in read_sketches(path)]
        assert left == list(range(len(left)))
        write_run(run, [wide(7, 3)], SketchSink())
        assert [sketch.step for sketch in read_sketches(path)] == [*left, 7]


def test_a_resumed_run_repeats_steps_and_the_last_counts(tmp_path: Path) -> None:
    run = begun(tmp_path)
    write_run(run, [gradients(0, 1, 1, 1, 1), gradients(1, 1, 1, 1, 1)], SketchSink())
    folder = write_run(run, [gradients(1, 9, 9, 9, 9)], SketchSink())
    assert [sketch.norm for sketch in read_sketches(folder / FILE_NAME)] == [2.0, 18.0]


def test_a_ring_is_written_when_it_is_asked_for(tmp_path: Path) -> None:
    run = begun(tmp_path)
    sink = SketchSink(last=4)
    sink.open(run)
    for step in range(10):
        sink.write(gradients(step))
    assert not Path(run.folder, FILE_NAME).exists()
    assert [sketch.step for sketch in read_sketches(sink.write_ring(9))] == [6, 7, 8, 9]
    sink.close()


def test_another_file_is_refused_or_empty(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"hello, this is no file of sketches")
    assert read_sketches(tmp_path / "x") == []
    run = begun(tmp_path)
    folder = write_run(run, [gradients(0)], SketchSink())
    data = (folder / FILE_NAME).read_bytes()
    end = data.index(b"S", data.index(b"]]"))
    (folder / FILE_NAME).write_bytes(data[end:])
    with raising(InvalidInputError, "no-sketches-file"):
        read_sketches(folder / FILE_NAME)


# ---------------------------------------------------------------- the first bad step

Fault = Callable[[int, dict[str, Any]], None]


def training(noise: int, fault: Fault | None = None, growth: float = 1e-7) -> list[StepMetrics]:
    """Numbers that wander alike in all runs; what differs between two runs grows with the steps, as rounding does."""
    alike, own = np.random.default_rng(0), np.random.default_rng(noise)
    made = []
    for step in range(STEPS):
        size = growth * math.exp(step / 12)
        values = {
            "gradients": np.exp(0.2 * alike.standard_normal(12)) * (1 + size * own.standard_normal(12)),
            "weights": (10 + 0.01 * step) * (1 + 1e-3 * size * own.standard_normal(12)),
            "lr": 1e-3 * (1 - step / STEPS),
            "batch": f"batch {step}",
            "loss": 3 * math.exp(-step / 50) * (1 + size * own.standard_normal()),
        }
        if fault is not None:
            fault(step, values)
        rows = {
            quantity: [row(f"w{at}", float(x), float(x) * (-1) ** at) for at, x in enumerate(values[name])]
            for quantity, name in (("grad_reduced", "gradients"), ("param_updated", "weights"))
        }
        scalars = {"loss": values["loss"], "lr": values["lr"]}
        made.append(metrics(step, rows, ("norm", "projection"), scalars=scalars, batch=values["batch"]))  # type: ignore[arg-type]
    return made


@functools.cache
def sketches(noise: int, fault: Fault | None = None, growth: float = 1e-7) -> list[Sketch]:
    """Those of all steps of a training."""
    sketcher = Sketcher()
    return [sketcher.sketch(step) for step in training(noise, fault, growth)]


def spike(step: int, values: dict[str, Any]) -> None:
    if step == 70:
        values["gradients"][3] *= 5


def drift(step: int, values: dict[str, Any]) -> None:
    if step >= 70:
        values["gradients"][3] *= 1 + 0.005 * (step - 69)


def weights(step: int, values: dict[str, Any]) -> None:
    if step >= 70:
        values["weights"][5] *= 1 + 1e-5 * (step - 69)


def rate(step: int, values: dict[str, Any]) -> None:
    if step >= 70:
        values["lr"] *= 1.0001


def batch(step: int, values: dict[str, Any]) -> None:
    if step >= 70:
        values["batch"] = f"batch {step + 1}"


def lost(step: int, values: dict[str, Any]) -> None:
    if step >= 70:
        values["gradients"][3] = math.nan


@pytest.mark.parametrize(
    ("fault", "said", "certain"),
    [
        (spike, "grad_reduced w3", False),
        (drift, "grad_reduced w3", False),
        (weights, "param_updated w5", False),
        (rate, "learning rate", True),
        (batch, "batch", True),
        (lost, "grad_reduced w3: differs by inf", False),
    ],
)
def test_the_first_bad_step_is_named_exactly(fault: Fault, said: str, certain: bool) -> None:
    found = first_bad_step(sketches(1), sketches(2, fault))
    assert found is not None
    assert found.step == 70
    assert any(said in reason for reason in map(str, found.what))
    assert found.certain is certain


def test_what_begins_below_the_noise_is_named_a_few_steps_late() -> None:
    def creeps(step: int, values: dict[str, Any]) -> None:
        values["gradients"][3] *= 1 + 1e-3 * max(0, step - 59)

    found = first_bad_step(sketches(1, growth=1e-6), sketches(2, creeps, growth=1e-6))
    assert found is not None
    assert 60 <= found.step <= 63
    assert "grad_reduced w3" in found.what[0]


@pytest.mark.parametrize("noise", range(2, 12))
@pytest.mark.parametrize("growth", [1e-8, 1e-7, 3e-6])
def test_noise_that_grows_is_no_fault(noise: int, growth: float) -> None:
    assert first_bad_step(sketches(1, growth=growth), sketches(noise, growth=growth)) is None


def test_the_command_names_the_step(tmp_path: Path) -> None:
    for name, fault in (("a", None), ("b", None), ("c", spike)):
        for rank in (0, 1):
            steps = training(ord(name) + rank, fault if rank else None)
            write_run(begun(tmp_path / name, rank), steps, SketchSink())
    healthy = call("monitor", "diff", tmp_path / "b", tmp_path / "a")
    assert (healthy.returncode, healthy.stdout[:11]) == (0, "no bad step")
    done = call("monitor", "diff", tmp_path / "c", tmp_path / "a", "--top", 1)
    assert done.returncode == 1
    assert done.stdout.startswith("first bad step: 70 (rank 1; compared 120 steps of 2 ranks)\n  ")
    assert "w3" in done.stdout
    assert call("monitor", "diff", tmp_path / "nothing", tmp_path / "a").returncode == 2
    begun(tmp_path / "d")
    refused = call("monitor", "diff", tmp_path / "d", tmp_path / "a").stderr
    assert mentions(refused, "monitor-runs-without-common-step", first=tmp_path / "a", second=tmp_path / "d")


def test_csv_files_do_where_there_are_no_sketches(tmp_path: Path) -> None:
    for name, fault in (("a", None), ("b", spike), ("c", lost)):
        write_run(begun(tmp_path / name, steps_per_file=50), training(ord(name), fault), CsvSink())
    for name in "bc":
        done = call("monitor", "diff", tmp_path / name, tmp_path / "a")
        assert done.stdout.startswith("first bad step: 70 ")
        assert mentions(done.stdout, "read-from-csv")


def test_a_ring_needs_no_file(tmp_path: Path) -> None:
    sink = SketchSink(last=2)
    sink.open(run_of(tmp_path))
    sink.write(gradients(0))
    sink.flush()
    sink.close()


def _csv_run(folder: Path, steps: int, ops: tuple[str, ...], dtype: str, bad: float = 0.0, noise: float = 0.0) -> Path:
    """Gradients of four parameters, off by ``noise``, relatively; from step 12 on one of them by ``bad``."""

    def rows(step: int) -> list[Row]:
        numbers = {"norm": 0.51234567 + 0.01234567 * (step % 3), "mean": 0.12345678, "max": 2.12345678}
        return [
            Row(
                0,
                name,
                None,
                tuple(numbers[op] * (1 + noise + bad * (step >= 12 and at == 0)) for op in ops),
                (8, 4),
                dtype,
            )
            for at, name in enumerate(PARAMETERS)
        ]

    run = begun(folder)
    write_run(run, [metrics(step, {"grad_reduced": rows(step)}, ops) for step in range(steps)])
    return folder


def test_runs_with_other_operators_are_compared_by_those_that_both_have(tmp_path: Path) -> None:
    first = _csv_run(tmp_path / "a", 20, ("norm",), "torch.float32")
    assert diff(first, _csv_run(tmp_path / "b", 20, ("norm", "mean", "max"), "torch.float32")).first_bad is None
    bad = diff(first, _csv_run(tmp_path / "c", 20, ("max", "norm"), "torch.float32", bad=0.5)).first_bad
    assert bad is not None
    assert bad.step == 12


def test_what_a_half_type_cannot_distinguish_is_no_bad_step(tmp_path: Path) -> None:
    for dtype, expected in (("torch.float32", 12), ("torch.bfloat16", None)):
        first = _csv_run(tmp_path / dtype / "a", 20, ("norm",), dtype)
        found = diff(first, _csv_run(tmp_path / dtype / "b", 20, ("norm",), dtype, bad=0.01, noise=1e-4)).first_bad
        assert (found.step if found else None) == expected


def test_runs_that_were_equal_part_where_they_first_differ_in_half_types_too(tmp_path: Path) -> None:
    first = _csv_run(tmp_path / "a", 20, ("norm",), "torch.bfloat16")
    assert diff(first, _csv_run(tmp_path / "b", 20, ("norm",), "torch.bfloat16")).first_bad is None
    found = diff(first, _csv_run(tmp_path / "c", 20, ("norm",), "torch.bfloat16", bad=1e-3)).first_bad
    assert found is not None
    assert found.step == 12
    assert all("before-equal" in pieces_of(reason) for reason in found.what)


def test_a_run_that_ends_early_is_reported(tmp_path: Path) -> None:
    first = _csv_run(tmp_path / "a", 20, ("norm",), "torch.float32")
    second = _csv_run(tmp_path / "b", 7, ("norm",), "torch.float32")
    assert diff(first, second).ends == (19, 6)
    told = call("monitor", "diff", str(second), str(first))
    assert told.returncode == 0
    assert mentions(told.stdout, "runs-end-at-different-steps", reference=19, candidate=6)


def test_a_tensor_that_is_missing_from_a_step_on_is_reported(tmp_path: Path) -> None:
    def run(name: str, gone: bool) -> Path:
        def step(number: int) -> StepMetrics:
            names = PARAMETERS[1:] if gone and number >= 9 else PARAMETERS
            return metrics(number, {"grad_reduced": [row(one, 0.5) for one in names]})

        write_run(begun(tmp_path / name), [step(number) for number in range(15)])
        return tmp_path / name

    found = diff(run("a", False), run("b", True)).first_bad
    assert found is not None
    assert (found.step, found.what[0]) == (9, said("tensors-vanish", "grad_reduced", 1))
    assert diff(run("c", False), run("d", False)).first_bad is None
