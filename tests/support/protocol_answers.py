"""Holds answers of the page's server against their declarations, :mod:`msprobe.view.protocol`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import orjson

from msprobe.view import protocol

_NUMBERS = (int, float)


def misfits(answer: Any, kind: Any, where: str = "answer") -> Iterator[str]:
    """Where an answer, as JSON has it, is not of a declared type: keys that are missing or undeclared, other values."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        if not isinstance(answer, dict) or answer.keys() != hints.keys():
            keys = sorted(answer.keys() ^ hints.keys()) if isinstance(answer, dict) else answer
            yield f"{where}: {keys!r} for a {kind.__name__}"
            return
        for key, hint in hints.items():
            yield from misfits(answer[key], hint, f"{where}.{key}")
    elif origin in (Union, UnionType):
        if all(any(misfits(answer, part)) for part in parts):
            yield f"{where}: {answer!r} is no {kind}"
    elif origin is list and isinstance(answer, list):
        for number, entry in enumerate(answer):
            yield from misfits(entry, parts[0], f"{where}[{number}]")
    elif origin is dict and isinstance(answer, dict):
        for key, entry in answer.items():
            yield from misfits(key, parts[0], f"a key of {where}")
            yield from misfits(entry, parts[1], f"{where}[{key!r}]")
    elif origin is tuple and isinstance(answer, list) and len(answer) == len(parts):
        for number, part in enumerate(parts):
            yield from misfits(answer[number], part, f"{where}[{number}]")
    elif not (
        any(answer == each and type(answer) is type(each) for each in parts)
        if origin is Literal
        else type(answer) in _NUMBERS
        if kind is float
        else type(answer) is kind
    ):
        yield f"{where}: {answer!r} is no {kind}"


def all_misfits(ask: Callable[..., Any]) -> list[str]:
    """All questions of a page are asked: of each place and row, and of all that has a picture; what does not fit.

    ``ask``: called with the question, and with what it asks for by name.
    """
    return [
        misfit
        for question, answer, kind in _answers(ask)
        for misfit in misfits(orjson.loads(orjson.dumps(answer)), kind, question)
    ]


def _answers(ask: Callable[..., Any]) -> Iterator[tuple[str, Any, Any]]:
    overview = ask("overview")
    yield "overview", overview, protocol.Overview
    for step in dict.fromkeys(head["step"] for head in overview["places"]):
        yield f"ranks of step {step}", ask("ranks", step=step), protocol.RanksAnswer
    for index in range(len(overview["places"])):
        place = ask("place", index=index)
        yield f"place {index}", place, protocol.PlaceAnswer
        yield f"lines {index}", ask("lines", index=index), protocol.LinesAnswer
        yield f"matches {index}", ask("matches", index=index), protocol.MatchesAnswer
        for row, name in enumerate(place["names"]):
            node = ask("node", index=index, row=row)
            yield f"node {name}", node, protocol.NodeAnswer
            for tensor in node["tensors"] if overview["can"]["picture"] else ():
                sides = tensor["candidate"], tensor["reference"]
                if all(side and side["file"] for side in sides) and sides[0]["shape"] == sides[1]["shape"]:
                    picture = ask("picture", index=index, row=row, slot=tensor["slot"])
                    yield f"picture {name} {tensor['slot']}", picture, protocol.Picture
