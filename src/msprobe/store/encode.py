"""A tree of values as JSON text, one value at a time: a file can then be put together from pieces.

This is the plain Python form; the recorder hands the writer a native function of the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from json.encoder import encode_basestring as _quoted

from msprobe.messages import said

DEEPEST = 200
#: Items stand on lines of their own down to so many blanks: in a record each argument and each result. What is in
#: them is one line.
LINES = 4
_INFINITY = float("inf")

# A string, or a token that strict JSON does not know. Strings come first: no token inside one is touched.
_STRING_OR_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?Infinity|NaN', re.DOTALL)


def encode(tree: object, depth: int) -> bytes:
    """The JSON text of a tree placed at ``depth``: that of ``json.dumps(tree, indent=1, ensure_ascii=False)`` with
    ``depth`` more blanks before every line but the first, and without line breaks and blanks in what stands deeper
    than ``LINES``.

    A tree is made of dict, list, tuple, str, int, float, bool and None (and their subclasses, which count as their
    base), and of finished pieces: ``bytes``, or any object whose attribute ``text`` is ``bytes``, which hold JSON text
    in one line. Keys that are not strings become ``str(key)``. NaN and the infinities are written bare; lone
    surrogates as ``\\udXXX``. What stands inside ``DEEPEST`` containers, or inside itself, becomes
    ``{"unsupported": reason}``.

    Raises TypeError for any other type, and ValueError for a depth beyond 0 to 1000.
    """
    if not 0 <= depth <= 1000:
        raise ValueError(f"depth must be 0 to 1000, found {depth}")
    out: list[bytes] = []
    _write(tree, b"\n" + b" " * min(depth, LINES), [], out.append)
    return b"".join(out)


def quote(text: str) -> bytes:
    """The JSON string of ``text``, in UTF-8, with its quotation marks."""
    quoted = _quoted(text)
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
    token = match.group()
    return token if token.startswith(b'"') else b'"' + token + b'"'


def _write(tree: object, line: bytes, around: list[object], append: Callable[[bytes], None]) -> None:
    """Append the pieces of ``tree``.

    ``line`` is the newline and the blanks of the line that the tree stands on, ``around`` the containers it
    is in.
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
        try:
            append(int.__repr__(tree).encode())
        except ValueError:  # more digits than sys.get_int_max_str_digits() allows
            append(_unsupported("integer with too many digits"))
    elif isinstance(tree, float):
        append(_number(tree))
    elif isinstance(tree, bytes):
        append(tree)
    elif isinstance(tree, (dict, list, tuple)):
        if len(around) >= DEEPEST:
            append(_unsupported(f"nested deeper than {DEEPEST}"))
        elif any(container is tree for container in around):
            append(_unsupported("contains itself"))
        elif not tree:
            append(b"{}" if isinstance(tree, dict) else b"[]")
        else:
            around.append(tree)
            _write_items(tree, line, around, append)
            around.pop()
    else:
        text = getattr(tree, "text", None)
        if not isinstance(text, bytes):
            raise TypeError(said("value-not-recordable", type(tree).__name__))
        append(text)


def _write_items(
    tree: dict[object, object] | list[object] | tuple[object, ...],
    line: bytes,
    around: list[object],
    append: Callable[[bytes], None],
) -> None:
    # The newline and the blanks of this line are as many bytes as the blanks of the next.
    has_lines = len(line) <= LINES
    inner = line + b" " if has_lines else line
    start, end, colon = (inner, line, b": ") if has_lines else (b"", b"", b":")
    between = b"," + start
    if isinstance(tree, dict):
        before = b"{" + start
        for key, value in tree.items():
            append(before + quote(key if isinstance(key, str) else str(key)) + colon)
            _write(value, inner, around, append)
            before = between
        append(end + b"}")
    else:
        before = b"[" + start
        for value in tree:
            append(before)
            _write(value, inner, around, append)
            before = between
        append(end + b"]")


def _number(value: float) -> bytes:
    if value != value:
        return b"NaN"
    if value in (_INFINITY, -_INFINITY):
        return b"Infinity" if value > 0 else b"-Infinity"
    return float.__repr__(value).encode()


def _unsupported(reason: str) -> bytes:
    return b'{"unsupported":"%s"}' % reason.encode()
