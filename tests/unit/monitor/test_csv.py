"""csv files: their text to the byte, what is read back, and what happens when the disk or the process fails."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.coded_texts import raising
from unit.monitor.runs import at, begun, gradients, metrics, row, write_run

from msprobe.errors import PathError
from msprobe.foreign.csv_cells import plain_text
from msprobe.monitor import csv_files
from msprobe.monitor.csv_files import file_name, parse_file_name, quantities_of, read_table, whole_length
from msprobe.monitor.csv_text import RowText, header
from msprobe.monitor.files import find_runs
from msprobe.monitor.measurements import Row
from msprobe.monitor.trend_reading import read_quantity

NAN, INF = math.nan, math.inf


def text_of(folder: Path, name: str) -> str:
    return (folder / name).read_bytes().decode()


def test_the_bytes_are_those_of_the_reference(tmp_path: Path) -> None:
    """With `ndigits` 12, as mindstudio-probe 8.1.1 wrote them for the first step of its documented model."""
    ops = ("min", "max", "norm", "nans", "zeros")
    values = (-0.07564757019281387, 0.12795598804950714, 0.18697842717512, 0, 0.25)
    one = metrics(0, {"grad_reduced": [row("fc1.weight", *values)]}, ops)
    folder = write_run(begun(tmp_path, digits=12), [one])
    assert text_of(folder, "grad_reduced_0-0.csv") == (
        "vpp_stage,name,step,min,max,norm,nans,zeros,shape,dtype\n"
        '0,fc1.weight,0,-0.075647570193,0.12795598805,0.186978427175,0,0.25,"[8, 4]",torch.float32\n'
    )
    assert (folder / "grad_reduced_0-0.csv").stat().st_mode & 0o777 == 0o640


def test_activations_say_their_micro_step_and_what_is_missing_is_nan(tmp_path: Path) -> None:
    rows = [
        row("fc1.input", 2.401538, micro=0),
        row("fc1.input", 4.955195, micro=1),
        Row(0, ".input", 0, (None,), None, None),
    ]
    folder = write_run(begun(tmp_path, digits=6), [metrics(0, {"actv_grad": rows})])
    assert text_of(folder, "actv_grad_0-0.csv") == (
        "vpp_stage,name,step,micro_step,norm,shape,dtype\n"
        '0,fc1.input,0,0,2.401538,"[3, 4]",torch.float32\n'
        '0,fc1.input,0,1,4.955195,"[3, 4]",torch.float32\n'
        "0,.input,0,0,nan,nan,nan\n"
    )


def test_small_numbers_stay_what_they_are_unless_decimals_are_asked_for() -> None:
    values = (1.23456789e-9, NAN, INF, -INF, 3, True, None, 123456.789)
    one = [Row(1, "w", None, values, (), "torch.float32")]
    assert (
        RowText(None, False).lines(7, one)
        == "1,w,7,1.23456789e-09,nan,inf,-inf,3,True,nan,123456.789,[],torch.float32\n"
    )
    assert RowText(3, False).lines(7, one) == "1,w,7,0.0,nan,inf,-inf,3,True,nan,123456.789,[],torch.float32\n"


@given(st.floats(-1e6, 1e6), st.integers(0, 20))
def test_decimals_are_written_as_python_writes_a_rounded_number(value: float, digits: int) -> None:
    line = RowText(digits, False).lines(0, [Row(0, "w", None, (value, 1), (), "f")])
    cell = line.split(",")[3]
    assert float(cell) == round(value, digits)
    if digits <= 6 and digits and abs(value) >= 1e-4:
        assert cell == repr(round(value, digits))


def test_numbers_of_numpy_are_numbers() -> None:
    values: tuple[Any, ...] = (np.float32(0.5), np.int64(2), np.bool_(True), np.float64(0.25))
    one = [Row(0, "w", None, values, (), "float32")]
    text = RowText(None, False)
    for _ in range(2):
        assert text.lines(0, one) == "0,w,0,0.5,2,True,0.25,[],float32\n"


def test_spans_are_aligned_to_step_zero(tmp_path: Path) -> None:
    folder = write_run(begun(tmp_path, steps_per_file=5), map(gradients, range(7)))
    assert sorted(path.name for path in folder.glob("*.csv")) == ["grad_reduced_0-4.csv", "grad_reduced_5-9.csv"]
    assert len(text_of(folder, "grad_reduced_0-4.csv").splitlines()) == 1 + 5 * 4
    later = write_run(begun(tmp_path, steps_per_file=4), map(gradients, (10, 11)))
    assert [path.name for path in later.glob("*.csv")] == ["grad_reduced_8-11.csv"]


def test_changed_operators_begin_a_file_of_their_own(tmp_path: Path) -> None:
    """And no column is shifted, in whatever order they change."""
    changes = {0: ("norm",), 1: ("min", "norm"), 2: ("min", "norm"), 3: ("norm",), 4: ("max",), 5: ("norm",)}
    steps = [
        metrics(step, {"grad_reduced": [row("w", *[step + len(op) / 10 for op in ops])]}, ops)
        for step, ops in changes.items()
    ]
    folder = write_run(begun(tmp_path, steps_per_file=10), steps)
    assert sorted(path.name for path in folder.glob("*.csv")) == [
        "grad_reduced_0-9.csv",
        "grad_reduced_1-9.csv",
        "grad_reduced_4-9.csv",
    ]
    table = read_quantity(find_runs(tmp_path), "grad_reduced")
    assert table is not None
    found = {}
    for at_row, step in enumerate(table.steps.tolist()):
        found[step] = {
            op: value for op, value in zip(table.ops, table.values[at_row].tolist(), strict=True) if value == value
        }
    assert found == {step: {op: step + len(op) / 10 for op in ops} for step, ops in changes.items()}


def test_operators_that_change_at_the_first_step_of_a_span_do_too(tmp_path: Path) -> None:
    run = begun(tmp_path, steps_per_file=5)
    write_run(run, [gradients(5)])
    folder = write_run(run, [gradients(5, ops=("min", "max"))])
    assert sorted(path.name for path in folder.glob("*.csv")) == ["grad_reduced_5-9.2.csv", "grad_reduced_5-9.csv"]


def test_scalars_of_a_step_have_a_file(tmp_path: Path) -> None:
    folder = write_run(begun(tmp_path), [gradients(3, scalars={"loss": 2.5, "lr": 1e-4})])
    assert text_of(folder, "scalars_3-3.csv") == (
        "vpp_stage,name,step,value,shape,dtype\n0,loss,3,2.5,[],float64\n0,lr,3,0.0001,[],float64\n"
    )


@pytest.mark.parametrize("torn", ["0,fc1.we", '0,fc1.weight,9,0.5,"[8, ', '0,"a\n', "0"])
def test_a_torn_line_is_passed_over_and_cut_when_the_run_goes_on(tmp_path: Path, torn: str) -> None:
    run = begun(tmp_path, steps_per_file=10)
    folder = write_run(run, [gradients(0), gradients(1)])
    file = folder / "grad_reduced_0-9.csv"
    whole = file.read_bytes()
    file.write_bytes(whole + torn.encode())
    assert len(read_table(file)) == 8
    write_run(at(run), [gradients(2)])
    table = read_table(file)
    assert table.steps.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert file.read_bytes().startswith(whole)


def test_a_torn_header_is_written_anew(tmp_path: Path) -> None:
    run = begun(tmp_path)
    Path(run.folder, "grad_reduced_0-0.csv").write_text("vpp_stage,na")
    assert len(read_table(Path(run.folder, "grad_reduced_0-0.csv"))) == 0
    folder = write_run(run, [gradients(0)])
    assert len(read_table(folder / "grad_reduced_0-0.csv")) == 4


def test_of_steps_that_a_resumed_run_repeats_the_last_counts(tmp_path: Path) -> None:
    run = begun(tmp_path, steps_per_file=10)
    write_run(run, [gradients(0, 1, 1, 1, 1), gradients(1, 2, 2, 2, 2)])
    write_run(run, [gradients(1, 7, 7, 7, 7)])
    table = read_quantity(find_runs(tmp_path), "grad_reduced")
    assert table is not None
    assert table.values[:, 0].tolist() == [1.0] * 4 + [7.0] * 4


names = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12)
numbers = st.one_of(st.floats(width=32), st.integers(-(10**6), 10**6), st.booleans(), st.none())


@given(
    st.lists(st.tuples(names, st.integers(0, 5), numbers, numbers), max_size=8),
    st.integers(0, 10**9),
    st.booleans(),
    st.lists(st.integers(0, 10**6), max_size=4),
)
def test_what_is_written_is_read_back(
    given_rows: list[tuple[str, int, Any, Any]], step: int, micro: bool, shape: list[int]
) -> None:
    rows = [
        Row(1, name, at_micro if micro else None, (a, b), tuple(shape), "torch.float32")
        for name, at_micro, a, b in given_rows
    ]
    text = header(("norm", "min"), micro) + RowText(None, micro).lines(step, rows)
    lines = list(csv.reader(io.StringIO(text, newline="")))
    assert {len(line) for line in lines} == {8 if micro else 7}
    assert whole_length(text.encode()) == len(text.encode())
    for found, wanted in zip(lines[1:], rows, strict=True):
        assert [found[0], plain_text(found[1]), found[2]] == ["1", wanted.name, str(step)]
        assert found[-2:] == [str(shape), "torch.float32"]
        for cell, value in zip(found[-4:-2], wanted.values, strict=True):
            if isinstance(value, bool):
                assert cell == str(value)
            elif value is None or value != value:
                assert cell == "nan"
            else:
                assert np.float32(float(cell)) == np.float32(value)


@given(
    st.from_regex(r"[a-z]+(_[a-z0-9]+)?", fullmatch=True),
    st.integers(0, 10**9),
    st.integers(0, 10**6),
    st.integers(1, 99),
)
def test_a_file_name_is_read_as_it_was_written(quantity: str, first: int, more: int, part: int) -> None:
    found = parse_file_name(file_name(quantity, first, first + more, part))
    assert found == csv_files.FileName(quantity, first, first + more, part)


@given(
    st.lists(st.sampled_from(['0,a,1,"[2, 3]",x\n', '0,"a\nb",1,[],x\n', '0,"a""",2,[],x\n', "h,i\n"]), max_size=5),
    st.data(),
)
def test_what_is_cut_off_is_never_more_than_one_line(lines: list[str], data: st.DataObject) -> None:
    text = "".join(lines).encode()
    end = data.draw(st.integers(0, len(text)))
    whole, sum_of = 0, 0
    for line in lines:
        sum_of += len(line.encode())
        whole = sum_of if sum_of <= end else whole
    assert whole_length(text[:end]) == whole


def test_files_of_the_reference_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "Nov24_00-37-06-rank0-7bd17023"
    folder.mkdir()
    (folder / "actv_0-4.csv").write_text(
        "vpp_stage,name,step,micro_step,norm,min,shape,dtype\n"
        '0,fc1.input,0,0,2.401538,-1.522768,"[3, 4]",torch.float32\n'
        "0,.input,0,1,nan,nan,nan,nan\n"
    )
    (folder / "stack_info.csv").write_text("module_name,stack_info\nfc1,x\n")
    assert list(quantities_of(folder)) == ["actv"]
    table = read_quantity(find_runs(tmp_path), "actv")
    assert table is not None
    assert table.ops == ("norm", "min")
    assert table.keys() == [(0, "fc1.input", 0, 0), (0, ".input", 0, 1)]
    assert table.shapes == ["[3, 4]", "nan"]
    assert table.values[0].tolist() == [2.401538, -1.522768]
    assert np.isnan(table.values[1]).all()


def test_damaged_lines_are_counted_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "grad_reduced_0-0.csv"
    path.write_text("vpp_stage,name,step,norm,shape,dtype\n0,a,0,1.5,[],f\nall_reduce,a,0,1.5,[],f\n0,b,0,1,2,3,4\n")
    assert read_table(path).names == ["a"]
    assert "2 damaged lines" in capsys.readouterr().out


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "grad_reduced_0-0.csv"
    path.write_text("a,b\n1,2\n")
    with raising(PathError, "monitor-csv-column-missing", missing="vpp_stage, name, step"):
        read_table(path)
