"""What a frame may say: one form for each kind, checked in this one place before anything of it is used.

A header is JSON of bounded size. Its numbers have 64 bits and are finite, its fields are those of the form, and what
it says of the data must be so: the elements of a tensor, or the text of a record.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from msprobe.messages import both, said
from msprobe.store.dtypes import ELEMENT_TYPES

#: A header says little: more is no header of ours.
MOST_HEADER_BYTES = 4 << 20
#: The text of one record.
MOST_RECORD_BYTES = 16 << 20
#: One tensor; a receiver takes no more than this into its memory.
MOST_DATA_BYTES = 16 << 30
#: Lists and objects inside of each other, in a header and in a record.
MOST_DEPTH = 100
MOST_NAME_LENGTH = 4096
_MOST_TEXT_LENGTH = 1 << 20
_MOST_DIMENSIONS = 64
_MOST_SENDER_LENGTH = 64
#: Numbers of steps and stacks, and those of frames, are below this.
NUMBER_END = 1 << 63
#: Numbers of ranks.
RANK_END = 1 << 31

Check = Callable[[Any], bool]


class _Field(NamedTuple):
    check: Check
    allowed: str
    is_required: bool = True


def _is_number(value: Any, end: int = NUMBER_END) -> bool:
    return type(value) is int and 0 <= value < end


def _is_text(value: Any, most: int = _MOST_TEXT_LENGTH) -> bool:
    return isinstance(value, str) and len(value) <= most


def _is_name(value: Any) -> bool:
    """Also one that a file in UTF-8 can hold."""
    if not _is_text(value, MOST_NAME_LENGTH) or not value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_parent(value: Any) -> bool:
    """The name of a record, that with a micro-step, None at the top, or False for none."""
    if isinstance(value, list):
        return len(value) == 2 and (value[0] is None or _is_name(value[0])) and _is_number(value[1])
    return value is None or value is False or _is_name(value)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_DIMENSIONS and all(map(_is_number, value))


_NAME = _Field(_is_name, "a name")
_FILE_NAME = _Field(lambda value: _is_name(value) and value.endswith(".pt"), "a name of a file of values (.pt)")
_FLAG = _Field(lambda value: isinstance(value, bool), "true or false")
_OBJECT = _Field(lambda value: isinstance(value, dict), "an object")
_TEXT = _Field(_is_text, "a text")
_PARENT = _Field(_is_parent, "a name, [name, micro-step], null or false")
_NUMBER = _Field(_is_number, "a whole number of 64 bits")

#: What every frame says.
_FIXED = {
    "step": _NUMBER,
    "rank": _Field(lambda value: _is_number(value, RANK_END), "a whole number of 31 bits"),
    "sequence": _NUMBER,
    "sender": _Field(
        lambda value: _is_text(value, _MOST_SENDER_LENGTH) and value.isascii() and value.isalnum(),
        both("up to {} letters and digits", "最多 {} 个字母和数字", _MOST_SENDER_LENGTH),
        is_required=False,
    ),
}
#: Kind of a frame -> what else it says.
FORMS: Mapping[str, Mapping[str, _Field]] = {
    "begin": {
        "header": _OBJECT,
        "extra": _OBJECT,
        "kind": _Field(lambda value: value in ("dump", "debug"), '"dump" or "debug"'),
        "with_stacks": _FLAG,
        "with_construct": _FLAG,
        "with_tensors": _FLAG,
        "has_rank": _FLAG._replace(is_required=False),
    },
    "record": {
        "name": _NAME,
        "stack": _Field(lambda value: value is None or _is_number(value), "a whole number of 64 bits, or null"),
        "parent": _PARENT,
    },
    "stack": {
        "stack": _NUMBER,
        "frames": _Field(lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of texts"),
    },
    "parent": {"name": _NAME, "parent": _PARENT},
    "reserve": {"name": _NAME},
    "error": {"text": _TEXT},
    "tensor": {
        "name": _FILE_NAME,
        "dtype": _Field(lambda value: isinstance(value, str) and value in ELEMENT_TYPES, "an element type"),
        "shape": _Field(_is_shape, both("a list of at most {} lengths", "最多 {} 个长度的列表", _MOST_DIMENSIONS)),
    },
    "link": {"name": _FILE_NAME, "existing": _FILE_NAME},
    "end": {"is_complete": _FLAG, "is_wanted": _FLAG._replace(is_required=False)},
}


def header_of(text: bytes) -> dict[str, Any]:
    """The header of a frame. Raises ValueError, with a sentence, for what is none of any kind."""
    try:
        fields = _DECODER.decode(str(text, "utf-8"))
    except RecursionError:
        raise ValueError(said("header-too-deep", MOST_DEPTH)) from None
    except ValueError as error:
        raise ValueError(said("header-is-no-json", error)) from None
    if not isinstance(fields, dict):
        raise ValueError(said("header-is-no-object"))
    _check_depth(text, fields, said("header-of-frame"))
    form = FORMS.get(fields["what"]) if isinstance(fields.get("what"), str) else None
    if form is None:
        raise ValueError(said("frame-kind-unknown", _shown(fields.get("what"))))
    _check_fields(fields, form)
    return fields


def _check_fields(fields: Mapping[str, Any], form: Mapping[str, _Field]) -> None:
    what = fields["what"]
    for name, field in (*_FIXED.items(), *form.items()):
        if name not in fields:
            if field.is_required:
                raise ValueError(said("frame-lacks-field", what, name))
        elif not field.check(fields[name]):
            raise ValueError(said("frame-field-wrong", name, what, _shown(fields[name]), field.allowed))
    unknown = [name for name in fields if name != "what" and name not in _FIXED and name not in form]
    if unknown:
        raise ValueError(said("frame-field-unknown", what, _shown(unknown[0])))


def check_length(content: Mapping[str, Any], length: int) -> None:
    """Compare ``length``, in bytes, with what a header says of its data. Raises ValueError where it cannot be."""
    what = content["what"]
    if what == "tensor":
        wanted = math.prod(content["shape"]) * np.dtype(ELEMENT_TYPES[content["dtype"]].stored).itemsize
        if wanted != length:
            raise ValueError(said("frame-bytes-do-not-fit", length, content["dtype"], content["shape"]))
    elif what == "record":
        if not 0 < length <= MOST_RECORD_BYTES:
            raise ValueError(said("frame-record-length", length, MOST_RECORD_BYTES))
    elif length:
        raise ValueError(said("frame-data-not-allowed", what, length))


def check_record(text: bytes) -> None:
    """Raises ValueError where the data of a record is no JSON object or list, in UTF-8 and of bounded depth."""
    try:
        record = json.loads(str(text, "utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError(said("sent-record-too-deep", MOST_DEPTH)) from None
    except ValueError as error:
        raise ValueError(said("sent-record-is-no-json", error)) from None
    if not isinstance(record, (dict, list)):
        raise ValueError(said("sent-record-is-no-object"))
    _check_depth(text, record, "a record")


def _check_depth(text: bytes, content: Any, what: str) -> None:
    if text.count(b"[") + text.count(b"{") <= MOST_DEPTH:
        return
    level: list[Any] = [content]
    for _ in range(MOST_DEPTH + 1):
        level = [inner for element in level for inner in _inside(element)]
        if not level:
            return
    raise ValueError(said("sent-nested-too-deep", what, MOST_DEPTH))


def _inside(container: Any) -> Iterable[Any]:
    inner = container.values() if isinstance(container, dict) else container
    return (each for each in inner if isinstance(each, (dict, list)))


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:40]}...{text[-10:]}"


def _whole(text: str) -> int:
    number = int(text) if len(text) <= 20 else NUMBER_END
    if not -NUMBER_END <= number < NUMBER_END:
        raise ValueError(said("number-too-long", text[:24]))
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(said("number-not-finite", text[:24]))
    return number


def _not_finite(name: str) -> float:
    raise ValueError(said("number-not-finite", name))


_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=_finite, parse_constant=_not_finite)
