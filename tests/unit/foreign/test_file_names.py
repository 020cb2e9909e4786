"""Names of files that are made of any text, and names in files that lead to a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.coded_texts import raising
from support.row_by_row import for_each

from msprobe.errors import InvalidInputError
from msprobe.foreign.file_names import FileNames, file_name, inside, is_inside

ANY = st.text(st.characters(exclude_categories=()), max_size=600)


@given(ANY)
def test_any_text_becomes_the_name_of_a_file(text: str) -> None:
    name = file_name(text)
    assert 1 <= len(os.fsencode(name)) <= 255
    assert not set(name) & set("/\\\0\n\x1b")
    assert not name.startswith(".")
    assert not name.endswith((".", " "))
    assert name.isprintable()
    assert file_name(name) == name


@given(ANY, ANY)
def test_two_texts_have_two_names(one: str, two: str) -> None:
    assert (file_name(one) == file_name(two)) == (one == two) or "~" in one + two


@pytest.mark.parametrize("name", ["Torch.stack.0.forward.input.0.1.pt", "é ü+,@.pt", "a~b", "console.pt", "nullable"])
def test_the_name_of_a_file_stays_as_it_is(name: str) -> None:
    assert file_name(name) == name


@for_each("name", ["con", "CON.pt", "nul", "Aux.x.bin", "com1", "LPT9.txt", "prn .x"])
def test_names_of_devices_are_changed(name: str) -> None:
    assert file_name(name) != name
    assert file_name(name).startswith("_")


def test_the_ending_stays(tmp_path: Path) -> None:
    assert file_name("x/../../y.bin").endswith(".bin")
    assert file_name("k" * 3000 + ".pt").endswith(".pt")
    (tmp_path / file_name("a/b\0c" * 200 + ".py")).write_text("")


def test_names_of_one_folder_stay_apart_without_regard_to_case() -> None:
    names = FileNames()
    made = [names.of(text) for text in ("x.bin", "X.bin", "x.BIN", "a/b", "a_b", "a\\b")]
    assert len({name.casefold() for name in made}) == 6
    assert names.of("X.bin") == made[1]
    assert made[0] == "x.bin"


NAMES = (
    *("../x", "a/../../x", "/etc/passwd", "", None, 7, "a\0b", "a\\b", "c:x"),
    *("x" * 300, "a\nb", "\ud800", "link", "l/x"),
)


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: object) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "x").write_text("")
    (folder / "link").symlink_to(tmp_path / "x")
    (folder / "l").symlink_to(tmp_path)
    with pytest.raises(InvalidInputError) as caught:
        inside(folder, name, folder / "index.json")
    assert "index.json" in caught.value.message
    assert caught.value.message.isprintable()


def test_a_name_that_stays_inside_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for name in ("a/x", "link/x", "not_there", "a/./x", "..x"):
        assert inside(tmp_path, name, "index.json") == os.path.join(tmp_path, name)


def test_links_may_lead_into_folders_that_are_allowed(tmp_path: Path) -> None:
    for name in ("folder", "blobs"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder" / "x").symlink_to("../blobs/x")
    assert inside(tmp_path / "folder", "x", "index.json", [tmp_path / "blobs"])
    with raising(InvalidInputError, "file-outside-folder", named_by="index.json", name="x"):
        inside(tmp_path / "folder", "x", "index.json")


def test_what_cannot_be_followed_is_not_inside(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert not is_inside(tmp_path, "a\0b")
    assert is_inside(tmp_path, tmp_path / "loop" / "x")  # nothing is there, and nothing outside is
