"""Settings files as declarations: what is legal is read, and all that is not is told with its place."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field
from support.coded_texts import mentions, raising

from msprobe.config.declared import Declared, demand, is_list, is_object, is_text, is_whole, read_declared, wrong
from msprobe.config.mistakes import raise_mistakes
from msprobe.config.yaml_source import parse_yaml
from msprobe.errors import InvalidInputError
from msprobe.messages import said

Name = Annotated[str, demand((is_text, "a name"))]
Size = Annotated[int, demand((is_whole, "a whole number"))]


class Inner(Declared):
    """An object in the object."""

    sizes: Annotated[list[Size] | None, demand((is_list, "a list of sizes"))] = None
    names: dict[Name, Name] = Field({})


class Outer(Declared):
    """The file."""

    path: Annotated[str, demand((is_text, lambda _: "is empty"), kind="path")] = Field(description="give a path")
    inner: Annotated[Inner | None, demand((is_object, "an object"))] = None


File = Annotated[Outer, demand((is_object, "an object"))]


def read(text: str, unknown: Any = "refused") -> tuple[Any, list[str]]:
    """The value, and the mistakes as they are told."""
    found = read_declared(File, parse_yaml(text, "f.yaml", typed=True), "the file", unknown=unknown)
    return found.value, [str(mistake) for mistake in found.mistakes]


def test_what_is_legal_is_read() -> None:
    value, told = read("path: a\ninner: {sizes: [1, 2], names: {x: y}}")
    assert (value.path, value.inner.sizes, value.inner.names, told) == ("a", [1, 2], {"x": "y"}, [])


def test_all_mistakes_are_reported_with_line_and_field() -> None:
    _, told = read("path: ''\ninner:\n  sizes: [1, x, 2.5]\n  names:\n    '': [z]\n  mores: 1\n")
    assert told == [
        f'f.yaml:{line}: field "{field}": {text}'
        for line, field, text in [
            (1, "path", "is empty"),
            (3, "inner.sizes[1]", said("must-be", "a whole number", '"x"')),
            (3, "inner.sizes[2]", said("must-be", "a whole number", 2.5)),
            (5, "inner.names.", said("must-be", "a name", "nothing")),
            (5, "inner.names.", said("must-be", "a name", '["z"]')),
            (6, "inner.mores", said("field-not-known", said("did-you-mean", "names"))),
        ]
    ]


def test_what_is_legal_beside_a_mistake_can_be_looked_at_further() -> None:
    value, told = read("path: a\ninner: {sizes: [1, x], names: {a: b, c: []}}")
    assert (value.inner.sizes, value.inner.names) == (None, {"a": "b"}), "a list with a broken element goes as a whole"
    assert len(told) == 2


def test_a_missing_field_says_what_to_give_and_is_of_its_kind() -> None:
    found = read_declared(File, parse_yaml("inner: {}", "f.yaml"), "the file")
    assert found.value is None
    (mistake,) = found.mistakes
    assert (str(mistake), mistake.kind) == (f'f.yaml: field "path": {said("field-missing", "give a path")}', "path")


@pytest.mark.parametrize(("text", "sort"), [("", "nothing"), ("[1]", "[1]"), ("x", '"x"')])
def test_a_mistake_of_the_whole_file_names_the_file(text: str, sort: str) -> None:
    assert read(text) == (None, [f"f.yaml: {said('whole-file', 'the file', said('must-be', 'an object', sort))}"])


def test_unknown_fields_that_are_ignored_are_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    value, told = read("path: a\npaht: b\ninner: {zzz: 1}", "ignored")
    assert (value.path, value.inner, told) == ("a", Inner(), [])
    warned = capsys.readouterr().out
    assert mentions(warned, "setting-left-out", field='f.yaml:2: field "paht"') == 1
    assert mentions(warned, "field-not-known", hint=said("did-you-mean", "path")) == 1
    assert mentions(warned, "setting-left-out", field='f.yaml:3: field "inner.zzz"') == 1
    assert mentions(warned, "field-not-known", hint=said("known-are", "sizes, names")) == 1


def test_names_that_cannot_be_printed_are_reported_in_one_line() -> None:
    (told,) = read('path: a\ninner: {names: {"\\x1e": []}}')[1][1:] or read('path: a\n"a\\nb": 1')[1]
    assert "\n" not in told
    assert told.isprintable()


def test_a_name_that_is_no_text_is_reported_as_that() -> None:
    source = parse_yaml("path: a", "argument")
    source.document.value[3] = 1
    assert [str(mistake) for mistake in read_declared(File, source, "the file").mistakes] == [
        f'argument: field "3": {said("name-must-be-text", 3)}'
    ]


def test_the_error_may_be_given() -> None:
    class OwnError(InvalidInputError):
        code = 77

    found = read_declared(File, parse_yaml("a: 1", "f.yaml"), "the file")
    with raising(OwnError, "config-has-mistakes", count=2):
        raise_mistakes(found.mistakes, "f.yaml", OwnError)


def test_braces_in_what_a_validator_says_stay() -> None:
    assert wrong("found {found}").message() == "found {found}"
