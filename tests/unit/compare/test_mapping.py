"""Which row of the reference a row of the candidate wants, under each mapping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.coded_texts import mentions
from support.hand_made import TOY, backward, call, tensor, write_part

from msprobe.compare.frameworks import dtype_family
from msprobe.compare.mapping import (
    Mappings,
    apply_mappings,
    load_mappings,
    renamed_module,
    wanted_names,
    write_data_mapping,
)
from msprobe.compare.mapping_files import (
    CellMapping,
    load_api_mapping,
    load_cell_mapping,
    load_data_mapping,
)
from msprobe.compare.name_table import name_table, torch_name
from msprobe.compare.rows import Rows, read_rows
from msprobe.store.reader import open_dump


def rows(folder: Path, data: dict[str, Any], framework: str = "mindspore") -> Rows:
    return read_rows(write_part(folder, data, framework=framework))


def wanted(mine: Rows, theirs: Rows, **mappings: Any) -> dict[str, str | None]:
    return dict(zip(mine.name, wanted_names(Mappings(**mappings), mine, theirs), strict=True))


# Row 17 of the acceptance checks: what mindspore against pytorch of mindstudio-probe 8.1.1 matches.
@pytest.mark.parametrize(
    ("given", "reference_matches", "ours"),
    [
        ({}, 18, 18),
        ({"api": True}, 28, 28),
        ({"api": TOY / "api_mapping.yaml"}, 30, 30),
        ({"cell": True}, 30, 41),
        ({"cell": TOY / "cell_mapping.yaml"}, 45, 49),
        ({"data": TOY / "data_mapping.yaml"}, 23, 23),
        ({"layer": TOY / "layer_mapping.yaml"}, 61, 82),
        ({"layer": True}, 53, 74),
    ],
)
def test_the_toy_model_matches_at_least_as_the_reference_does(
    given: dict[str, Any], reference_matches: int, ours: int
) -> None:
    parts = [open_dump(TOY / side / "dump.json").part() for side in ("target", "bench")]
    mine, theirs = map(read_rows, parts)
    assert len(mine) == 123
    names = apply_mappings(load_mappings(**given), mine, theirs, *parts).names
    places = {name: row for row, name in enumerate(theirs.name)}
    matched = 0
    for row, name in enumerate(mine.name):
        partner = places.get(names.target(name) or "")
        if partner is None:
            continue
        here = mine.shapes[mine.shape[row]], dtype_family(mine.dtypes[mine.dtype[row]])
        there = theirs.shapes[theirs.shape[partner]], dtype_family(theirs.dtypes[theirs.dtype[partner]])
        # Data and layer mappings go by name alone.
        matched += "data" in given or "layer" in given or here == there
    assert matched >= reference_matches
    assert matched == ours


def test_layers_are_written_as_a_data_mapping_that_gives_the_same(tmp_path: Path) -> None:
    parts = [open_dump(TOY / side / "dump.json").part() for side in ("target", "bench")]
    mine, theirs = map(read_rows, parts)
    applied = apply_mappings(load_mappings(layer=TOY / "layer_mapping.yaml"), mine, theirs, *parts)
    assert applied.generated is not None
    assert list(applied.generated.pairs) == mine.name
    path = tmp_path / "data_mapping_20200101000000.yaml"
    write_data_mapping(path, applied.generated)
    lines = path.read_text().splitlines()
    assert "Cell.blk.fc1.Dense.forward.0.parameters.weight: Module.blk.fc1.Linear.forward.0.parameters.weight" in lines
    assert "Primitive.matmul.MatMul.0.forward.input.0: N/A" in lines
    again = apply_mappings(load_mappings(data=path), mine, theirs)
    assert [again.names.target(name) for name in mine.name] == [applied.names.target(name) for name in mine.name]


def test_nothing_asked_for_maps_nothing() -> None:
    assert not load_mappings()
    assert not load_mappings(data="", api=None, cell=False, layer=None)
    assert load_mappings(api=True)


def test_the_shipped_table_has_all_names_and_the_mint_interface_needs_none() -> None:
    table = name_table()
    assert len(table) == 399
    assert sum(name.rpartition(".")[2] != other.rpartition(".")[2] for name, other in table.items()) == 10
    assert torch_name("Functional.dense") == "Functional.linear"
    assert torch_name("Tensor.asnumpy") == "Tensor.numpy"
    assert torch_name("Mint.mul") == "Torch.mul"
    assert torch_name("Primitive.mul.Mul") == "Primitive.mul.Mul"


def test_an_api_mapping_renames_all_calls_and_both_directions(tmp_path: Path) -> None:
    mine = rows(tmp_path / "a", {f"Mint.mul.{n}.forward": call() for n in (0, 7)} | {"Mint.mul.7.backward": backward()})
    found = wanted(mine, mine, api=load_api_mapping(True))
    assert found["Mint.mul.7.forward.input.0"] == "Torch.mul.7.forward.input.0"
    assert found["Mint.mul.7.backward.output.0"] == "Torch.mul.7.backward.output.0"


ENTRY = {
    "ms_api": "Functional.a",
    "pt_api": "Torch.b",
    "ms_args": [0, 1],
    "pt_args": [1, 0],
    "ms_output": [0],
    "pt_output": [2],
}


def test_arguments_go_where_the_lists_say_and_others_nowhere(tmp_path: Path) -> None:
    data = {"Functional.a.0.forward": call(*[tensor(2)] * 11, [tensor(2)], axis=tensor(1))}
    mine = rows(tmp_path / "a", data)
    theirs = rows(tmp_path / "b", {"Torch.b.0.forward": call()}, "pytorch")
    found = wanted(mine, theirs, api=load_api_mapping(ENTRY))
    assert found["Functional.a.0.forward.input.0"] == "Torch.b.0.forward.input.1"
    assert found["Functional.a.0.forward.input.1"] == "Torch.b.0.forward.input.0"
    assert found["Functional.a.0.forward.input.10"] is None  # mindstudio-probe takes 10 for 1
    assert found["Functional.a.0.forward.input.11.0"] is None
    assert found["Functional.a.0.forward.input.axis"] == "Torch.b.0.forward.input.axis"
    assert found["Functional.a.0.forward.output.0"] == "Torch.b.0.forward.output.2"


def test_gradients_follow_the_arguments_they_are_of(tmp_path: Path) -> None:
    data = {"Functional.a.0.forward": call(), "Functional.a.0.backward": backward(tensor(2), tensor(2), tensor(2))}
    theirs = rows(tmp_path / "b", {"Torch.b.0.forward": call()}, "pytorch")
    found = wanted(rows(tmp_path / "a", data), theirs, api=load_api_mapping(ENTRY))
    assert found["Functional.a.0.backward.input.0"] == "Torch.b.0.backward.input.2"
    assert found["Functional.a.0.backward.output.1"] == "Torch.b.0.backward.output.0"
    assert found["Functional.a.0.backward.output.2"] is None


@pytest.mark.parametrize("missing", ["candidate", "reference"])
def test_an_entry_that_does_not_occur_is_said_and_does_nothing(
    tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = rows(tmp_path / "a", {f"Functional.{'x' if missing == 'candidate' else 'a'}.0.forward": call()})
    theirs = rows(tmp_path / "b", {f"Torch.{'x' if missing == 'reference' else 'b'}.0.forward": call()}, "pytorch")
    found = wanted(mine, theirs, api=load_api_mapping(ENTRY))
    assert list(found.values()) == mine.name
    assert mentions(capsys.readouterr().out, f"api-mapping-not-in-{missing}")


def test_primitives_may_be_named_without_their_class(tmp_path: Path) -> None:
    mine = rows(tmp_path / "a", {"Primitive.mul.Mul.0.forward": call()})
    theirs = rows(tmp_path / "b", {"Torch.mul.0.forward": call()}, "pytorch")
    for name in ("Primitive.mul", "Primitive.mul.Mul"):
        found = wanted(mine, theirs, api=load_api_mapping({"ms_api": name, "pt_api": "Torch.mul"}))
        assert found["Primitive.mul.Mul.0.forward.output.0"] == "Torch.mul.0.forward.output.0"


def test_modules_change_their_kind_path_and_class(tmp_path: Path) -> None:
    data = {
        "Cell.a.fc.Dense.forward.0": {**call(), "parameters": {"weight": tensor(2)}},
        "Cell.a.fc.Dense.backward.0": backward(),
        "Cell.a.fc.Dense.parameters_grad": {"weight": [tensor(2)]},
        "Cell.b.Net.forward.0": call(),
        "Functional.x.0.forward": call(),
    }
    mine = rows(tmp_path / "a", data)
    found = wanted(mine, mine, cell=load_cell_mapping({"a.fc.Dense": "a.linear.Linear"}))
    assert found["Cell.a.fc.Dense.forward.0.parameters.weight"] == "Module.a.linear.Linear.forward.0.parameters.weight"
    assert found["Cell.a.fc.Dense.backward.0.input.0"] == "Module.a.linear.Linear.backward.0.input.0"
    assert found["Cell.a.fc.Dense.parameters_grad.weight"] == "Module.a.linear.Linear.parameters_grad.weight"
    assert found["Cell.b.Net.forward.0.input.0"] == "Module.b.Net.forward.0.input.0"
    assert found["Functional.x.0.forward.input.0"] == "Functional.x.0.forward.input.0"


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ({"fc": "linear"}, "Module.net.blk.linear.Dense"),
        ({"blk.fc": "block", "fc": "linear"}, "Module.net.block.Dense"),
        ({"net": "blk", "blk": "net"}, "Module.blk.net.fc.Dense"),
        ({"bl": "x", "f": "y", "ens": "z"}, "Module.net.blk.fc.Dense"),
    ],
)
def test_a_key_may_be_a_part_of_a_path_in_whole_words(tmp_path: Path, paths: dict[str, str], expected: str) -> None:
    mine = rows(tmp_path / "a", {"Module.net.blk.fc.Dense.forward.0": call()}, "pytorch")
    found = wanted(mine, mine, cell=load_cell_mapping(paths))
    assert found["Module.net.blk.fc.Dense.forward.0.input.0"] == f"{expected}.forward.0.input.0"


def test_parameters_are_found_under_the_name_that_pytorch_gives_them(tmp_path: Path) -> None:
    mine = rows(tmp_path / "a", {"Cell.ln.LayerNorm.parameters_grad": {"gamma": [tensor(2)], "beta": [tensor(2)]}})
    theirs = rows(tmp_path / "b", {"Module.ln.LayerNorm.parameters_grad": {"weight": [tensor(2)]}}, "pytorch")
    found = wanted(mine, theirs, cell=load_cell_mapping(True))
    assert found["Cell.ln.LayerNorm.parameters_grad.gamma"] == "Module.ln.LayerNorm.parameters_grad.weight"
    # What is not there is looked for under its own name, so that the sheet names it.
    assert found["Cell.ln.LayerNorm.parameters_grad.beta"] == "Module.ln.LayerNorm.parameters_grad.beta"


def test_a_pair_of_tensors_is_the_last_word(tmp_path: Path) -> None:
    mine = rows(tmp_path / "a", {"Mint.mul.0.forward": call(tensor(2), tensor(2))})
    theirs = rows(tmp_path / "b", {"Torch.mul.0.forward": call(tensor(2), tensor(2))}, "pytorch")
    data = {"Mint.mul.0.forward.input.0": "Torch.mul.0.forward.input.1", "Mint.mul.0.forward.output.0": "N/A"}
    found = wanted(mine, theirs, api=load_api_mapping(True), data=load_data_mapping(data))
    assert list(found.values()) == ["Torch.mul.0.forward.input.1", "Torch.mul.0.forward.input.1", None]


def test_unknown_names_of_a_data_mapping_are_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = rows(tmp_path / "a", {"Torch.mul.0.forward": call()})
    data = {"x": "Torch.mul.0.forward.input.0", "Torch.mul.0.forward.input.0": "y", "z": "u"}
    wanted(mine, mine, data=load_data_mapping(data))
    lines = capsys.readouterr().out
    assert mentions(lines, "data-mapping-unknown", side="candidate", unknown="x", more=" and 1 more")
    assert mentions(lines, "data-mapping-unknown", side="reference", unknown="y", more=" and 1 more")


_WORD = st.sampled_from(["a", "b", "fc", "Dense", "forward", "Cell", "0"])
_PATHS = st.lists(_WORD, min_size=1, max_size=4).map(".".join)


@given(path=_PATHS, paths=st.dictionaries(_PATHS, _PATHS, min_size=1, max_size=4))
def test_a_cell_mapping_changes_nothing_but_the_path(path: str, paths: dict[str, str]) -> None:
    for end in (".Net.forward.3", ".Net.backward.0", ".Net.parameters_grad"):
        found = renamed_module(f"Cell.{path}{end}", CellMapping(paths))
        assert found.startswith("Module.")
        tail = end.split(".", 2)[2]
        assert found.endswith(tail)
        if f"{path}.Net" in paths:
            assert found == f"Module.{paths[f'{path}.Net']}.{tail}"
        if not any(f".{key}." in f".{path}.Net." for key in paths):
            assert found == f"Module.{path}{end}"


def test_without_a_file_layers_answer_to_those_that_pytorch_calls_otherwise() -> None:
    parts = [open_dump(TOY / side / "dump.json").part() for side in ("target", "bench")]
    mine, theirs = map(read_rows, parts)
    wanted = dict(zip(mine.name, wanted_names(load_mappings(cell=True), mine, theirs), strict=True))
    name = "Cell.blk.fc1.Dense.forward.0.output.0"
    assert wanted[name] == "Module.blk.fc1.Linear.forward.0.output.0"
    assert wanted[name] in theirs.name
