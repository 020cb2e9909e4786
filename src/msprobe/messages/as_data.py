"""Wordings as plain data, names and values, for a process or a file that is read in any language."""

from __future__ import annotations

from typing import Any

from msprobe.messages.wording import Shown, Wording, both, said


def packed(value: Any) -> Any:
    """A value of lists and wordings as what JSON takes. A dictionary in it is a wording, or the form of a value."""
    if isinstance(value, Wording):
        values = [packed(element) for element in value.values]
        if value.entry is None:
            return {"template": value.template, "values": values}
        if not value.entry.name:
            return {"both": [value.entry.english, value.entry.chinese], "values": values}
        return {"said": value.entry.name, "values": values}
    if isinstance(value, Shown):
        return {"text": str(value), "form": value.form}
    if isinstance(value, list | tuple):
        return [packed(element) for element in value]
    # numpy's numbers are none of JSON.
    return value.item() if hasattr(value, "item") else value


def unpacked(value: Any) -> Any:
    """What :func:`packed` was given, with lists for tuples."""
    if isinstance(value, list):
        return [unpacked(element) for element in value]
    if not isinstance(value, dict):
        return value
    if "form" in value:
        return Shown(value["text"], value["form"])
    values = unpacked(value["values"])
    if "said" in value:
        return said(value["said"], *values)
    if "both" in value:
        return _in_two(value["both"][0], value["both"][1], values)
    return Wording(value["template"], *values)


def kept(value: Any, text: str) -> str:
    """The wording that a file has as data, which may be a stranger's; ``text`` where it is none of the catalogue."""
    try:
        message: str = _catalogue_text(value)
    except (TypeError, ValueError, LookupError, RecursionError):
        return text
    return message


def _catalogue_text(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "form" in value:
        return Shown(str(value["text"]), str(value["form"]))
    return said(value["said"], *map(_catalogue_text, value["values"]))


def _in_two(english: str, chinese: str, values: list[Any]) -> Wording:
    """A text that was declared in both languages: templates, also where no value is in them."""
    return both(english, chinese, *values) if values else both(english.format(), chinese.format())
