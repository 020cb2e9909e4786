"""Mapping files: what they mean, and what is said about those that cannot be meant."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.coded_texts import mentions, raising

from msprobe.compare import mapping_files
from msprobe.compare.mapping import write_data_mapping
from msprobe.compare.mapping_files import (
    ApiPair,
    load_api_mapping,
    load_cell_mapping,
    load_data_mapping,
    load_layer_mapping,
)
from msprobe.config.yaml_source import parse_yaml
from msprobe.errors import InvalidInputError
from msprobe.messages import said

LOADERS: dict[str, Callable[[Any], Any]] = {
    "data": load_data_mapping,
    "cell": load_cell_mapping,
    "api": load_api_mapping,
    "layer": load_layer_mapping,
}


def written(folder: Path, text: str) -> Path:
    path = folder / "m.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["cell", "api", "layer"])
def test_a_flag_without_file_is_an_empty_mapping(kind: str) -> None:
    found = LOADERS[kind](True)
    assert not any(vars(found).values())


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "~"])
def test_an_empty_file_is_refused(tmp_path: Path, kind: str, text: str) -> None:
    with raising(InvalidInputError, "config-mistake", file=f"the {kind} mapping"):
        LOADERS[kind](written(tmp_path, text))


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("given", [3, 1.5, None, b"x"])
def test_a_mapping_of_another_type_is_refused(kind: str, given: object) -> None:
    with raising(InvalidInputError, "mapping-argument-wrong"):
        LOADERS[kind](given)


MISTAKES = [
    ("data", "a:\nb: []\nc: d\ne: {f: g}", ['m.yaml:1: field "a"', 'm.yaml:2: field "b"', 'm.yaml:4: field "e"']),
    ("cell", "x.Dense: \ny.Dense: [z]", ['m.yaml:1: field "x.Dense"', 'm.yaml:2: field "y.Dense"']),
    ("layer", "Net: fc\nBlk:\n  fc: [a]\n  ok: b", ['m.yaml:1: field "Net"', 'm.yaml:3: field "Blk.fc"']),
    ("api", "- ms_api: a", ['field "[0].pt_api": is missing']),
    ("api", "[]", ["the api mapping is an empty list"]),
    ("api", "- text", ['field "[0]"', "is a text; expected an object"]),
    ("api", "ms_api: a\npt_api: b\nms_args: 0\npt_args: [x]", ['"ms_args": must be a list', '"pt_args[0]": must be']),
    ("api", "ms_api: a\npt_api: b\nms_args: [-1]\npt_args: [1.5]", ['"ms_args[0]"', '"pt_args[0]"']),
    ("api", "ms_api: a\npt_api: b\nms_outputs: [0]", ['"ms_outputs": needs pt_output beside it']),
    (
        "api",
        "ms_api: a\npt_api: b\nms_output: [0]\nms_outputs: [0]\npt_output: [0]",
        ['"ms_outputs": ' + said("says-again", "ms_output")],
    ),
    ("api", "ms_api: a\npt_api: b\nms_args: [0, 0]\npt_args: [0, 1]", ['"ms_args": names one of them twice']),
    ("api", "ms_apy: a\npt_api: b", ['did you mean "ms_api"', '"ms_api": is missing']),
    (
        "api",
        "ms_api: [a]\npt_api: 1\nms_parameters: x\npt_parameters: [[y]]",
        ['"ms_api"', '"ms_parameters"', '"pt_parameters[0]"'],
    ),
]


@pytest.mark.parametrize(("kind", "text", "told"), MISTAKES)
def test_all_mistakes_are_reported_at_once(tmp_path: Path, kind: str, text: str, told: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        LOADERS[kind](written(tmp_path, text))
    for part in told:
        assert part in caught.value.message


def test_a_data_mapping_names_partners_and_those_without(tmp_path: Path) -> None:
    found = load_data_mapping(written(tmp_path, "a.input.0: b.input.0\nc: N/A\n"))
    assert found.pairs == {"a.input.0": "b.input.0", "c": None}


def test_a_data_mapping_may_be_a_dict() -> None:
    assert load_data_mapping({"a": "b"}).pairs == {"a": "b"}
    with pytest.raises(InvalidInputError, match=r'data_mapping: field "a": .* int'):
        load_data_mapping({"a": 1})


def test_a_doubled_name_is_warned_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load_data_mapping(written(tmp_path, "a: b\na: c\n")).pairs == {"a": "c"}
    assert mentions(capsys.readouterr().out, "field-also-in-line", name="m.yaml", line=2, field="a", first=1)


def test_paths_of_cells_may_have_their_kind() -> None:
    found = load_cell_mapping({"Cell.net.fc.Dense": "Module.net.fc.Linear", "a.B": "c.D"})
    assert found.paths == {"net.fc.Dense": "net.fc.Linear", "a.B": "c.D"}


def test_layers_lose_what_is_in_brackets_and_cell_means_the_top() -> None:
    found = load_layer_mapping({"Cell": {"network": "module (Float16Module)"}, "Net": {"a.b": "x"}})
    assert found.classes == {"TopLayer": {"network": "module"}, "Net": {"a.b": "x"}}


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("plural", ["", "s"])
def test_an_api_mapping_is_one_object_or_a_list_with_either_spelling(
    tmp_path: Path, wrapped: bool, plural: str
) -> None:
    entry = {"ms_api": "Functional.a", "pt_api": "Torch.b", "ms_args": [0, 10], "pt_args": [1, 0]}
    entry |= {f"ms_output{plural}": [0], f"pt_output{plural}": [1]}
    path = written(tmp_path, yaml.safe_dump([entry] if wrapped else entry))
    expected = ApiPair("Functional.a", "Torch.b", inputs={"0": "1", "10": "0"}, outputs={"0": "1"})
    assert load_api_mapping(path).pairs == (expected,)


def test_an_entry_with_lists_of_different_length_is_left_out_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "- {ms_api: a, pt_api: b, ms_args: [0, 1], pt_args: [0]}\n- {ms_api: c, pt_api: d}\n"
    assert load_api_mapping(written(tmp_path, text)).pairs == (ApiPair("c", "d"),)
    assert 'm.yaml:1: field "[0].ms_args" has 2 values and [0].pt_args has 1' in capsys.readouterr().out


_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,20}", fullmatch=True).filter(lambda name: name.strip())


@given(st.dictionaries(_NAMES, _NAMES | st.just(mapping_files.NO_PARTNER), min_size=1, max_size=8))
def test_any_data_mapping_survives_writing(pairs: dict[str, str]) -> None:
    given = load_data_mapping(pairs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data_mapping.yaml"
        write_data_mapping(path, given)
        assert dict(load_data_mapping(path).pairs) == dict(given.pairs)
        assert yaml.safe_load(path.read_text()).keys() == pairs.keys() or any(
            yaml.safe_load(name) != name for name in [*pairs, *pairs.values()]
        )


_ANYTHING = st.recursive(
    st.none() | st.text(max_size=5) | st.integers() | st.booleans() | st.just("ms_api"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["ms_api", "pt_api", "ms_args", "pt_args", "Cell", "x"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(st.sampled_from(sorted(LOADERS)), _ANYTHING)
def test_whatever_stands_in_a_file_is_read_or_refused(kind: str, value: object) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    content = parse_yaml(text).document.value
    if isinstance(content, (dict, list)):
        with contextlib.suppress(InvalidInputError):
            LOADERS[kind](content)
