"""What is allowed in mapping files; :mod:`msprobe.compare.mapping_files` says what it means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, create_model

from msprobe.compare.mapping_files import NO_PARTNER
from msprobe.config.declared import (
    Declared,
    as_found,
    asks,
    demand,
    is_filled_object,
    is_list,
    is_text,
    is_whole,
    sort_of,
)
from msprobe.messages import Wording, said

# The words of an api mapping for what a call has -> the accepted spellings, the first as 8.1.1 reads it.
API_LISTS = {
    "args": ("args", "arg"),
    "output": ("output", "outputs"),
    "parameters": ("parameters", "parameter"),
    "parameters_grad": ("parameters_grad", "parameter_grad", "parameters_grads"),
}


def _without_kind(path: str) -> str:
    """A path as people copy it from a dump may begin with what it is a path of."""
    for kind in ("Cell.", "Module."):
        path = path.removeprefix(kind)
    return path


def _expecting(expected: str) -> Callable[[Any], str]:
    """The message of a value that is no object with members."""

    def message(value: Any) -> str:
        if value is None or value in ({}, []):
            return said("is-empty-expected", expected)
        return said("is-of-sort-expected", sort_of(value), expected)

    return message


def _sort(value: Any) -> str:
    kind = as_found(value)
    return kind if kind == "nothing" else Wording("{} ({})", sort_of(value), kind)


def _object(members: str) -> Any:
    return demand((is_filled_object, _expecting(f"{{{members}}}")))


def _named(what: str) -> Any:
    return demand((is_text, lambda value: said("expected-found", what, _sort(value))))


def _is_index(value: Any) -> bool:
    return (is_whole(value) and value >= 0) or (isinstance(value, str) and value.isascii() and value.isdigit())


_Key = Annotated[str, demand((is_text, asks("name-must-be-text")))]
_Partner = Annotated[
    str | None,
    AfterValidator(lambda name: None if name == NO_PARTNER else name),
    _named("the name of a reference tensor (or N/A)"),
]
_CellPath = Annotated[_Key, AfterValidator(_without_kind)]
_ModulePath = Annotated[str, AfterValidator(_without_kind), _named("the path of a module")]
_Layer = Annotated[str, AfterValidator(lambda name: name.split("(", 1)[0].strip()), _named("the name of a layer")]
_Layers = Annotated[dict[_Key, _Layer], _object("candidate layer: reference layer")]

DATA = Annotated[dict[_Key, _Partner], _object("candidate tensor: reference tensor")]
CELLS = Annotated[dict[_CellPath, _ModulePath], _object("cell path.Class: module path.Class")]
LAYERS = Annotated[dict[_Key, _Layers], _object("Class: {candidate layer: reference layer}")]

_Api = Annotated[str, _named("the name of an API, as in Functional.tanh")]
_Index = Annotated[
    str,
    BeforeValidator(lambda index: str(int(index))),
    demand((_is_index, "a whole number from 0")),
]
_Indices = Annotated[list[_Index] | None, demand((is_list, "a list of whole numbers from 0"))]
_Names = Annotated[list[Annotated[str, _named("a name")]] | None, demand((is_list, "a list of names"))]
# Spelling in the file -> the side and what of the call it lists.
API_FIELDS = {
    f"{side}_{spelling}": (side, word)
    for side in ("ms", "pt")
    for word, spellings in API_LISTS.items()
    for spelling in spellings
}
_LISTS: dict[str, Any] = {
    name: (_Indices if word in ("args", "output") else _Names, None) for name, (_, word) in API_FIELDS.items()
}
# That both names are there is asked beside what the lists must be to each other, so that all is reported at once.
_Entry: Any = create_model("_Entry", __base__=Declared, ms_api=(_Api, None), pt_api=(_Api, None), **_LISTS)
API_ENTRY: Any = Annotated[_Entry, demand((is_filled_object, _expecting("an object with ms_api and pt_api")))]
