"""How results look in a notebook: a few lines of HTML, without script, that fetch nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from msprobe.messages import said, translated
from msprobe.report.phrases import clean, number

#: Longer texts are cut in a cell; the value itself stays whole.
_MOST_TEXT = 120
_TONES = {"bad": "#b3261e", "warn": "#8a5a00", "good": "#1b7a3d"}


def table_html(
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    below: str = "",
    title: str = "",
    meanings: Mapping[str, str] | None = None,
) -> str:
    """A table; ``below``: what to say of what is not shown of it, ``meanings``: what columns hold, for the pointer."""
    titles = meanings or {}
    head = "".join(
        f'<th title="{escape(translated(titles[name]))}">{text(name)}</th>'
        if name in titles
        else f"<th>{text(name)}</th>"
        for name in names
    )
    body = "".join(f"<tr>{''.join(f'<td>{cell(value)}</td>' for value in row)}</tr>" for row in rows)
    under = f"<p>{text(below)}</p>" if below else ""
    above = f"<p><b>{text(title)}</b></p>" if title else ""
    return f"<div>{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{under}</div>"


def more_rows(shown_rows: int, count: int) -> str:
    """What to say of rows that are not shown; nothing if all are."""
    left = count - shown_rows
    if left <= 0:
        return ""
    return translated(said("one-more-row") if left == 1 else said("more-rows", left))


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
    content = shown(value)
    return escape(content if len(content) <= _MOST_TEXT else f"{content[:_MOST_TEXT]}...")


def shown(value: Any) -> str:
    """A value as a table shows it, in one line."""
    return number(value) if isinstance(value, float) else "" if value is None else clean(value)


def text(value: object) -> str:
    """A text of a dump, which is no markup."""
    return escape(clean(value))
