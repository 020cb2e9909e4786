"""A tree of values as JSON text, one value at a time, so that a file can be put together from finished
pieces.

This is the plain Python form; the recorder hands the writer a compiled function of the same name and result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from json.encoder import encode_basestring as _quote_plain

DEEPEST = 200
_INFINITY = float("inf")
_TOO_DEEP = b'{\n "unsupported": "nested deeper than 200"\n}'

_int_text = int.__repr__
_float_text = float.__repr__

# A string, or a token that strict JSON does not know. Strings come first so that no token inside one is
# touched.
_STRING_OR_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?Infinity|NaN', re.DOTALL)


def encode(tree: object, depth: int) -> bytes:
    """Give the text that ``json.dumps(tree, indent=1, ensure_ascii=False)`` has where the tree stands at
    ``depth``.

    Every line but the first begins with ``depth`` more blanks. A tree is made of dict, list, tuple, str, int,
    float, bool and None (and their subclasses, which count as their base), and of finished pieces: ``bytes``,
    or any object whose attribute ``text`` is ``bytes``, which hold JSON text written for depth 0. Keys that
    are not strings become ``str(key)``. NaN and the infinities are written bare; lone surrogates as
    ``\\udXXX``.

    A dict, list or tuple inside ``DEEPEST`` others is replaced by a mark, which also ends cycles.
    Raises TypeError for any other type.
    """
    out: list[bytes] = []
    _write(tree, b"\n" + b" " * depth, 0, out.append)
    return b"".join(out)


def quote(text: str) -> bytes:
    """The JSON string of ``text``, in UTF-8, with its quotation marks."""
    quoted = _quote_plain(text)
    try:
        return quoted.encode()
    except UnicodeEncodeError:
        return quoted.encode("utf-8", "backslashreplace")


def strict(text: bytes) -> bytes:
    """The same JSON text with NaN, Infinity and -Infinity turned into strings of that spelling."""
    if b"NaN" not in text and b"Infinity" not in text:
        return text
    return _STRING_OR_TOKEN.sub(_strict_token, text)


def _strict_token(match: re.Match[bytes]) -> bytes:
    found = match.group()
    return found if found.startswith(b'"') else b'"' + found + b'"'


def _write(tree: object, line: bytes, level: int, append: Callable[[bytes], None]) -> None:
    """Append the pieces of ``tree``; ``line`` is the newline and the blanks of the line that the tree stands
    on.
    """
    if tree is None:
        append(b"null")
    elif tree is True:
        append(b"true")
    elif tree is False:
        append(b"false")
    elif isinstance(tree, str):
        append(quote(tree))
    elif isinstance(tree, int):
        append(_int_text(tree).encode())
    elif isinstance(tree, float):
        append(_number(tree))
    elif isinstance(tree, bytes):
        append(tree if line == b"\n" else tree.replace(b"\n", line))
    elif isinstance(tree, dict):
        if level >= DEEPEST:
            append(_TOO_DEEP.replace(b"\n", line))
        elif not tree:
            append(b"{}")
        else:
            inner = line + b" "
            before = b"{" + inner
            for key, value in tree.items():
                append(before + quote(key if isinstance(key, str) else str(key)) + b": ")
                _write(value, inner, level + 1, append)
                before = b"," + inner
            append(line + b"}")
    elif isinstance(tree, (list, tuple)):
        if level >= DEEPEST:
            append(_TOO_DEEP.replace(b"\n", line))
        elif not tree:
            append(b"[]")
        else:
            inner = line + b" "
            before = b"[" + inner
            for value in tree:
                append(before)
                _write(value, inner, level + 1, append)
                before = b"," + inner
            append(line + b"]")
    else:
        text = getattr(tree, "text", None)
        if not isinstance(text, bytes):
            raise TypeError(f"a record cannot hold a value of type {type(tree).__name__}.")
        append(text if line == b"\n" else text.replace(b"\n", line))


def _number(value: float) -> bytes:
    if value != value:
        return b"NaN"
    if value in (_INFINITY, -_INFINITY):
        return b"Infinity" if value > 0 else b"-Infinity"
    return _float_text(value).encode()
