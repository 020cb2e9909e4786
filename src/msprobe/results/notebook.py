"""How results look in a notebook: a few lines of HTML, without script, that fetch nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from msprobe.report.phrases import clean, number

#: Longer texts are cut in a cell; the value itself stays whole.
_MOST_TEXT = 120
_TONES = {"bad": "#b3261e", "warn": "#8a5a00", "good": "#1b7a3d"}


def table_html(names: Sequence[str], rows: Sequence[Sequence[Any]], count: int, title: str = "") -> str:
    """A table with its first rows; ``count``: how many it has."""
    head = "".join(f"<th>{text(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell(value)}</td>' for value in row)}</tr>" for row in rows)
    more = f"<p>and {count - len(rows)} more rows</p>" if count > len(rows) else ""
    above = f"<p><b>{text(title)}</b></p>" if title else ""
    return f"<div>{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>"


def result_html(headline: str, tone: str, about: Sequence[str], findings: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A headline, what it is about, and findings: the first in full, the others to be opened."""
    parts = [f'<p><b style="color:{_TONES[tone]}">{text(headline)}</b></p>']
    parts += [f'<p style="margin:0;opacity:.75">{text(line)}</p>' for line in about]
    for place, (title, lines) in enumerate(findings):
        shown = f"<pre>{escape(chr(10).join(map(clean, lines)))}</pre>"
        opened = " open" if place == 0 else ""
        parts.append(f"<details{opened}><summary>{text(title)}</summary>{shown}</details>")
    return f"<div>{''.join(parts)}</div>"


def cell(value: Any) -> str:
    """A value in a cell."""
    found = number(value) if isinstance(value, float) else "" if value is None else clean(value)
    return escape(found if len(found) <= _MOST_TEXT else f"{found[:_MOST_TEXT]}...")


def text(value: object) -> str:
    """A text of a dump, which is no markup."""
    return escape(clean(value))
