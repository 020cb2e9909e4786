"""The summary of a check as text, and as one page: it holds all that it shows, runs no script and fetches nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from msprobe import coverage
from msprobe.foreign import html_page
from msprobe.paths import write_atomically
from msprobe.precheck.ranking import Entry, Ranking
from msprobe.precheck.writer import CheckFiles

_MOST_CALLS = 100


def write_summary(files: CheckFiles, ranking: Ranking, title: str) -> tuple[Path, ...]:
    """Write the summary beside the other files of a check; gives the paths of the text, of the page, and
    of what was checked (JSON)."""
    text = files.result.with_name(f"accuracy_checking_summary_{files.stamp}.txt")
    shown = text.with_suffix(".html")
    write_atomically(text, ("\n".join(ranking.lines(_MOST_CALLS)) + "\n").encode())
    write_atomically(shown, page(ranking, title, _MOST_CALLS))
    in_json = files.result.with_name(f"accuracy_checking_coverage_{files.stamp}.json")
    return text, shown, coverage.write(ranking.coverage, in_json)


def page(ranking: Ranking, title: str, most: int) -> bytes:
    """The page, with the ``most`` worst calls that failed."""
    body = (
        f"<h1>{escape(title)}</h1>",
        *_counts(ranking),
        *([f"<p>{escape(ranking.allowance)}</p>"] if ranking.allowance else []),
        *_failed(ranking.entries(most), len(ranking.failed)),
        *_list("Warnings, the worst first", (f"{one.name}: {one.why}" for one in ranking.warnings(most))),
        *_list("All calls of an API together", (f"{one.status}: {one.text}" for one in ranking.pooled)),
        *_list("Skipped", (f"{count} × {reason}" for reason, count in ranking.skipped.most_common())),
        *_list("Notes", ranking.notes),
    )
    return "".join(html_page.page(title, (f"{piece}\n" for piece in body))).encode()


def _counts(ranking: Ranking) -> Iterable[str]:
    words = ("pass", "warning", "error", "skip")
    yield "<table><tr><th></th>" + "".join(f"<th>{word}</th>" for word in words) + "</tr>"
    for direction, counts in ranking.counts.items():
        cells = "".join(
            f'<td class="number{" error" if word == "error" and counts[word] else ""}">{counts[word]}</td>'
            for word in words
        )
        yield f"<tr><th>{direction}</th>{cells}</tr>"
    yield "</table>"


def _failed(entries: Sequence[Entry], count: int) -> Iterable[str]:
    if not entries:
        yield "<p>No call failed.</p>"
        return
    yield f"<h2>Calls with errors, the worst first ({len(entries)} of {count})</h2>"
    yield "<table><tr><th></th><th>result</th><th>what is wrong, where it is called, how to reproduce it</th></tr>"
    for number, entry in enumerate(entries, 1):
        where = f'<br><span class="dim">called in {escape(entry.frame)}</span>' if entry.frame else ""
        yield (
            f'<tr><td class="number">{number}</td><td class="error">{escape(entry.name)}</td>'
            f"<td>{escape(entry.why)}{where}<br><code>{escape(entry.command)}</code></td></tr>"
        )
    yield "</table>"


def _list(title: str, texts: Iterable[str]) -> Iterable[str]:
    found = [f"<li>{escape(text)}</li>" for text in texts]
    if found:
        yield f"<h2>{title}</h2><ul>{''.join(found)}</ul>"
