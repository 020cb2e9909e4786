"""``result.html``: one file that needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from msprobe.environment.configuration.comparison import ConfigurationComparison
from msprobe.environment.configuration.differences import DifferenceSheet
from msprobe.foreign import html_page
from msprobe.messages import said
from msprobe.paths import StrPath, write_atomically
from msprobe.report.configuration.text import headline
from msprobe.report.configuration.workbook import FINDINGS, note_of

_MOST_ROWS = 2000
_STYLE = """
body { max-width: 1200px; margin: 24px auto; padding: 0 16px; } table { width: 100%; }
td { white-space: pre-wrap; overflow-wrap: break-word; max-width: 28rem; } .error, .warning { font-weight: 600; }
details { margin: 12px 0; border: 1px solid var(--edge); border-radius: 6px; padding: 6px 12px; }
summary { cursor: pointer; }
"""


def write_page(path: StrPath, result: ConfigurationComparison) -> None:
    """Write the page. Raises PathError."""
    pieces = html_page.page(said("configuration-check-title"), _body(result), style=_STYLE)
    write_atomically(path, (piece.encode("utf-8", "replace") for piece in pieces), fsync=False)


def _body(result: ConfigurationComparison) -> Iterator[str]:
    yield (
        f"<h1>{_text(said('configuration-check-title'))}</h1>\n"
        f"<p>bench <code>{_text(result.bench)}</code><br>cmp <code>{_text(result.cmp)}</code></p>\n"
        f'<p class="{result.level}" role="status">{_text(headline(result))}</p>\n'
    )
    yield _table(("part", "result", ""), [(part.name, part.level, note_of(part)) for part in result.parts], 1)
    ranked = [
        (number, finding.level, finding.part, finding.name, finding.bench, finding.cmp, finding.why)
        for number, finding in enumerate(result.findings, 1)
    ]
    if ranked:
        yield f"<h2>{_text(said('most-likely-cause'))}</h2>\n" + _table(FINDINGS, ranked, 1)
    if result.notes:
        yield (
            f"<h2>{_text('Notes')}</h2>\n<ul>" + "".join(f"<li>{_text(note)}</li>" for note in result.notes) + "</ul>\n"
        )
    if any(part.rows for part in result.parts):
        yield f"<h2>{_text(said('all-rows'))}</h2>\n"
    for part in result.parts:
        if part.rows:
            yield _details(part)


def _details(part: DifferenceSheet) -> str:
    rows = part.rows
    if part.header[-1] != "level":  # sheets with a row for everything: what differs comes first
        column = 6 if part.name == "random" else 3
        rows = sorted(rows, key=lambda row: row[column] is True)
    left = len(rows) - _MOST_ROWS
    more = f"<p>{_text(said('more-in-result', left))}</p>" if left > 0 else ""
    level = part.header.index("level") if "level" in part.header else None
    count = _text(said("one-row") if len(rows) == 1 else said("so-many-rows", len(rows)))
    head = f'<summary>{_text(part.name)}: <span class="{part.level}">{part.level}</span>, {count}</summary>'
    return f"<details>{head}{_table(part.header, rows[:_MOST_ROWS], level)}{more}</details>\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]], level: int | None) -> str:
    head = "".join(f'<th scope="col">{_text(title)}</th>' for title in header)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{escape(str(cell))}">{_text(cell)}</td>' if column == level else f"<td>{_text(cell)}</td>"
            for column, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n'


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return html_page.text("" if value is None else value)
