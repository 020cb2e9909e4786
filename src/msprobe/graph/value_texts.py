"""Values of a dump as the texts that graph files hold: mindstudio-probe 8.1.1 rounds them, 26.2.0 does not."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import orjson

from msprobe.compare.rank_runs import group_text
from msprobe.statistics_table import USUAL_KEYS

Form = Literal["8.1.1", "26.2"]

NULL = "null"
_DROPPED_OF_OLD = frozenset(("requires_grad", "full_op_name"))
_OF_EXCHANGES = frozenset(("op", "peer", "tag", "group_id"))
_KEEP_THEIR_WORD = frozenset(("torch.Size", "slice", "ellipsis", "torch.ProcessGroup"))


def text_of(value: Any, form: Form) -> str:
    """A value as text.

    >>> text_of(0.12345678, "8.1.1"), text_of(1e-5, "8.1.1"), text_of(0.12345678, "26.2"), text_of(None, "26.2")
    ('0.123457', '1.000000e-05', '0.12345678', 'null')
    """
    if type(value) is float:
        if form == "26.2":
            return repr(value)
        text = repr(value)
        return f"{value:.6e}" if "e" in text else text if len(text) < 8 else repr(round(value, 6))
    if value is None:
        return NULL
    if type(value) is str:
        return value.replace("'", "") if value.strip() else NULL
    return str(value).replace("'", "")


def texts_of(values: Sequence[float], form: Form) -> list[str]:
    """The same of several floats at once, in a third of the time.

    >>> texts_of((0.12345678, 1e-5, 2.0), "8.1.1"), texts_of((0.12345678, 1e-5, float("nan")), "26.2")
    (['0.123457', '1.000000e-05', '2.0'], ['0.12345678', '1e-05', 'nan'])
    """
    if form == "8.1.1":
        return [_rounded(value) for value in values]
    text = orjson.dumps(values).decode()
    # Where Python writes an exponent, or no number stands in JSON, it is not the same text.
    if "e" in text or "0.0000" in text or "n" in text:
        return [repr(value) for value in values]
    return text[1:-1].split(",")


def _rounded(value: float) -> str:
    size = abs(value)
    if not (1e-4 <= size < 1e9 or size == 0):
        return text_of(value, "8.1.1")
    # What repr makes of a number rounded to six decimals, as long as all its digits are among the fifteen that count.
    text = f"{value:.6f}".rstrip("0")
    return f"{text}0" if text[-1] == "." else text


def fields_of(leaf: Any, form: Form, with_md5: bool, exchange: bool = False) -> dict[str, str]:
    """What a file says of one argument or result.

    ``with_md5``: digests are compared, so they are shown. ``exchange``: it belongs to a ``batch_isend_irecv``.
    """
    if type(leaf) is not dict:
        if leaf is None:
            return {"value": NULL}
        leaf = {"type": type(leaf).__name__, "value": leaf}
    if "dtype" not in leaf:
        leaf = _as_value(leaf, form, with_md5)
    if leaf.get("Max") is None:
        return {"value": NULL}
    old = form == "8.1.1"
    fields: dict[str, str] = {}
    for key, value in leaf.items():
        if old and (key in _DROPPED_OF_OLD or (exchange and key in _OF_EXCHANGES)):
            continue
        if key == "md5" and not with_md5:
            continue
        fields[key] = text_of(value, form)
    if "data_name" not in fields:
        fields["data_name"] = "-1"
    return fields


def _as_value(leaf: Mapping[str, Any], form: Form, with_md5: bool) -> dict[str, Any]:
    """An argument that is no tensor, with its value in place of the statistics."""
    kind = str(leaf.get("type"))
    value = leaf.get("value")
    shown = dict(leaf)
    shown["data_name"] = "-1"
    if with_md5:
        shown["md5"] = digest_of(leaf)
    if form == "26.2":
        shown["requires_grad"] = None
    if kind == "torch.ProcessGroup":
        value = group_text(leaf.get("group_ranks"))  # beside which stand all of them, once
    dtype = kind if kind in _KEEP_THEIR_WORD else f"<class {type(value).__name__}>"
    for statistic in USUAL_KEYS:
        shown[statistic] = value
    shown["dtype"] = dtype
    shown["shape"] = str(value) if kind == "torch.Size" else "[]"
    return shown


def digest_of(leaf: Any) -> str | None:
    """What is compared of an argument when digests are: of a plain value the CRC-32 of its text."""
    if type(leaf) is dict:
        if "dtype" in leaf:
            digest = leaf.get("md5")
            return None if digest is None else str(digest)
        leaf = leaf.get("value")
    return f"{zlib.crc32(str(leaf).encode(errors='replace')):08x}"
