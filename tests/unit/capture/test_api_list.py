"""The list of functions that are recorded as calls, and one of the user's in its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.coded_texts import mentions, raising

from msprobe.capture.api_list import api_list, shipped_list
from msprobe.errors import InvalidInputError, PathError

PACKAGE = "msprobe.capture.mindspore"


def known(group: str) -> object:
    return None if group == "mint.distributed" else lambda name: name in ("tanh", "my_own")


def test_without_a_file_it_is_the_shipped_one() -> None:
    groups = api_list(PACKAGE, None, known)  # type: ignore[arg-type]
    assert groups is shipped_list(PACKAGE)
    assert "tanh" in groups["ops"]
    assert "__add__" in groups["tensor"]


def test_a_file_takes_its_place(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("ops: [tanh, my_own, acosh]\nmint.distributed: [whatever]\ntensor:\n")
    groups = api_list(PACKAGE, str(file), known)  # type: ignore[arg-type]
    assert groups == {"ops": ("tanh", "my_own", "acosh"), "mint.distributed": ("whatever",), "tensor": ()}


def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("ops:\n- tanhh\n- tanh\nop: [add]\ntensor: add\nmint.ops:\n- [x]\n")
    with pytest.raises(InvalidInputError) as raised:
        api_list(PACKAGE, str(file), known)  # type: ignore[arg-type]
    lines = raised.value.message.splitlines()
    assert len(lines) == 5
    assert 'mine.yaml:2: field "ops[0]"' in lines[1]
    assert mentions(lines[1], "api-name-unknown", found='"tanhh"', group="ops")
    assert '"tanh"' in lines[1]
    assert 'mine.yaml:4: field "op"' in lines[2]
    assert mentions(lines[2], "api-group-unknown", groups=", ".join(shipped_list(PACKAGE)))
    assert 'mine.yaml:5: field "tensor"' in lines[3]
    assert mentions(lines[3], "api-names-wrong", found='"add"')
    assert "mint.ops[0]" in lines[4]


def test_a_file_that_holds_no_groups_or_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("- tanh\n")
    with raising(InvalidInputError, "config-mistake"):
        api_list(PACKAGE, str(file), known)  # type: ignore[arg-type]
    with pytest.raises(PathError, match="api_list_file"):
        api_list(PACKAGE, str(tmp_path / "none.yaml"), known)  # type: ignore[arg-type]
