"""JSON that a stranger may have written, read within a budget: the one place that parses the JSON of a file.

Beyond strict JSON it takes what Python writes: bare NaN and infinities, lone surrogates, a byte order mark, UTF-16 and
UTF-32. Of names that stand twice in an object the last one counts. Whatever else a text holds ends in a sentence that
names its file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from msprobe.errors import InvalidInputError
from msprobe.foreign.budget import Budget, Limits
from msprobe.foreign.opening import file_bytes
from msprobe.messages import said
from msprobe.paths import StrPath

_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_TEXT = re.compile(rb'"[^"]*"')
_LONG_NUMBER = re.compile(r"\d{19}")
_LARGEST = 1 << 64


#: What JSON calls the types that Python makes of its values.
_KINDS = {
    bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object", type(None): "null",
}  # fmt: skip


def kind_of(value: object) -> str:
    """What kind of JSON a value is, for messages: ``null``, ``number``, ``list``, ..."""
    return _KINDS.get(type(value), type(value).__name__)


def read_json(
    path: StrPath,
    budget: Budget | None = None,
    *,
    follow_links: bool = True,
    most_bytes: int | None = None,
    exact: bool = False,
) -> Any:
    """What the JSON file at ``path`` says.

    ``most_bytes``: a limit of the caller's own, for files that are always small. The rest as :func:`parse_json` and
    :func:`msprobe.foreign.opening.open_regular`.

    Raises PathError where the file is missing, no regular file or cannot be read, InvalidInputError for no JSON,
    BudgetError for what costs too much.
    """
    if budget is None:
        limits = Limits()
        budget = Budget(path, limits if most_bytes is None else Limits(bytes=min(most_bytes, limits.bytes)))
    return parse_json(file_bytes(path, budget, follow_links=follow_links), path, budget, exact=exact, spent=True)


def parse_json(
    text: str | bytes,
    source: object,
    budget: Budget | None = None,
    *,
    exact: bool = False,
    spent: bool = False,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """What a JSON text says; ``source`` names it in messages, as a path or as what the text belongs to.

    ``exact``: whole numbers outside of 64 bits stay whole numbers; else they are floats, as most readers of JSON have
    it. ``spent``: the bytes of the text are off the budget already. ``pairs`` makes each object of its names and
    values. Raises InvalidInputError and BudgetError.
    """
    budget = Budget(source) if budget is None else budget
    if not spent:
        budget.spend_bytes(len(text))
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        text = text.removeprefix("\ufeff")
        budget.spend_items(text.count(",") + text.count("[") + text.count("{"))
        _check_depth(text, budget)
        return json.loads(text, parse_int=long_numbers(text, budget, exact), object_pairs_hook=pairs)
    except json.JSONDecodeError as problem:
        words = problem.msg.lower().removesuffix(" at")
        reason = said("json-at-line", words, problem.lineno, problem.colno)
    except UnicodeDecodeError as problem:
        reason = said("json-byte-of-encoding", problem.start, problem.encoding.upper())
    except RecursionError:
        reason = said("nested-too-deeply")
    except MemoryError:
        reason = said("does-not-fit-memory")
    raise InvalidInputError(said("json-unreadable", source, reason))


def long_numbers(text: str, budget: Budget | None = None, exact: bool = False) -> Callable[[str], int | float] | None:
    """What ``json.loads`` is given as ``parse_int`` for this text; None, which is faster, where no number is long."""
    if _LONG_NUMBER.search(text) is None:
        return None

    def number(digits: str) -> int | float:
        if budget is not None:
            budget.check_digits(len(digits))
        elif len(digits) > Limits.digits:
            raise ValueError(said("json-number-too-long", len(digits), Limits.digits))
        value = int(digits)
        return value if exact or -_LARGEST < value < _LARGEST else float(digits)

    return number


def _check_depth(text: str, budget: Budget) -> None:
    """Raise BudgetError if brackets of a JSON text are nested deeper than allowed."""
    # The innermost brackets are taken away, level by level: each level costs what is left of the text.
    most = budget.limits.depth
    if text.count("[") + text.count("{") <= most:
        return
    data = text.encode("utf-8", "surrogatepass").replace(b"\\\\", b"").replace(b'\\"', b"")
    left = _TEXT.sub(b"", data.translate(None, _NO_BRACKETS))
    for _ in range(most):
        inner = left.replace(b"[]", b"").replace(b"{}", b"")
        if len(inner) == len(left):
            return  # all is gone, or the rest has no partner, which the parser finds
        left = inner
    if left:
        budget.check_depth(most + 1)
