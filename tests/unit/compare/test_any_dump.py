"""Whatever stands in a dump, a comparison ends with a sheet or with an error that says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe.compare.comparison import RowComparison, compare_parts
from msprobe.compare.first_difference import first_differences
from msprobe.compare.measures_tensor import Form
from msprobe.compare.problems import TaskMismatchError
from msprobe.compare.table import table_of
from msprobe.errors import MsprobeError
from msprobe.report.advisor import advice_text
from msprobe.report.csv_table import write_csv
from msprobe.report.row_partners import records_as_verdict
from msprobe.report.workbook import Sheet, write_workbook
from msprobe.store.reader import open_dump

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
NUMBERS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["NaN", "-Infinity", 10**400])
)
NAMES = st.sampled_from(
    [
        "Torch.add.0.forward", "Torch.add.1.forward", "Torch.add.0.backward", "Module.f.Linear.forward.0",
        "Module.f.Linear.parameters_grad", "Distributed.all_reduce.0.forward", "x.0.debug", "", ".", "=1",
    ]
)  # fmt: skip
PARTS = ("input_args", "input_kwargs", "input", "output", "parameters")


def dumps(sound: bool) -> st.SearchStrategy[dict[str, Any]]:
    """The content of ``data``: of any form, or as a recorder could write it."""
    shapes = st.lists(st.integers(0, 10**12), max_size=3)
    numbers: st.SearchStrategy[Any] = NUMBERS
    if not sound:
        shapes |= st.sampled_from([None, "wide", [-1]])
        numbers |= st.sampled_from(["much", [], {}])
    tensors = st.fixed_dictionaries(
        {
            "type": st.just("torch.Tensor"),
            "dtype": st.sampled_from(["torch.float32", "torch.bfloat16", "torch.int64", "torch.bool", "Int8"]),
            "shape": shapes,
            **dict.fromkeys(("Max", "Min", "Mean", "Norm"), numbers),
        },
        optional={
            "requires_grad": st.sampled_from([None, True, False, "yes"]),
            "md5": st.one_of(st.none(), st.text(), st.integers()),
            "data_name": st.sampled_from([None, "a.pt", "../a.pt", "", "-1", 5]),
        },
    )
    kinds = ["int", "torch.Size", "slice", "ellipsis", "torch.ProcessGroup", "torch.device", "other"]
    values = st.fixed_dictionaries(
        {"type": st.sampled_from(kinds)},
        optional={"value": st.one_of(SCALARS, st.lists(SCALARS)), "group_ranks": SCALARS},
    )
    trees = st.recursive(
        st.one_of(SCALARS, tensors, tensors, values),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
        max_leaves=6,
    )
    records = st.fixed_dictionaries({}, optional=dict.fromkeys((*PARTS, "process_group"), trees))
    return st.dictionaries(NAMES, records if sound else st.one_of(records, trees), max_size=5)


def opened(folder: Path, task: str, *sides: dict[str, Any]) -> list[Any]:
    parts = []
    for number, data in enumerate(sides):
        (folder / str(number)).mkdir()
        (folder / str(number) / "dump.json").write_text(json.dumps({"task": task, "data": data}, indent=1))
        parts.append(open_dump(folder / str(number)).part())
    return parts


def render(found: RowComparison, folder: Path) -> None:
    """Everything that is made of a comparison."""
    assert advice_text(found).startswith("Line: ")
    first_differences({"rank0": found})
    forms: tuple[Form, Form] = ("8.1.1", "26.2")
    for form in forms:
        table = table_of(found, form, found.parts[0].stack)
        colours = found.colouring.colour.tolist()
        write_workbook(folder / "x.xlsx", [Sheet("Sheet", table.header, table.blocks(), table.rows, colours)])
        write_csv(folder / "x.csv", table.header, table.blocks())


TASKS = st.sampled_from(["tensor", "statistics"])


@settings(deadline=None)
@given(task=TASKS, ours=dumps(sound=True), theirs=dumps(sound=True), fuzzy=st.booleans())
def test_sound_dumps_make_a_sheet(
    task: str, ours: dict[str, Any], theirs: dict[str, Any], fuzzy: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    parts = opened(folder, task, ours, theirs)
    try:
        found = compare_parts(*parts, find_records=records_as_verdict if fuzzy else None)
    except TaskMismatchError:
        return  # one of them has digests
    render(found, folder)


@settings(deadline=None)
@given(task=TASKS, data=dumps(sound=True))
def test_a_sound_dump_agrees_with_itself(
    task: str, data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    parts = opened(tmp_path_factory.mktemp("any"), task, data, data)
    found = compare_parts(parts[0], parts[1])
    assert not found.failing.any()
    assert not found.colouring.colour.any()
    assert found.pairing.matched.all()


@settings(deadline=None)
@given(task=TASKS, ours=dumps(sound=False), theirs=dumps(sound=False), fuzzy=st.booleans())
def test_broken_dumps_make_a_sheet_or_an_error(
    task: str, ours: dict[str, Any], theirs: dict[str, Any], fuzzy: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    try:
        parts = opened(folder, task, ours, theirs)
        found = compare_parts(*parts, find_records=records_as_verdict if fuzzy else None)
    except MsprobeError:
        return
    render(found, folder)
