"""The summary of a check as text, and as one page: it holds all that it shows and fetches nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from msprobe import coverage
from msprobe.foreign import html_page
from msprobe.foreign.html_page import text
from msprobe.messages import Wording, said
from msprobe.paths import write_atomically
from msprobe.precheck.ranking import Entry, Ranking
from msprobe.precheck.writer import CheckFiles

_MOST_CALLS = 100


def write_summary(files: CheckFiles, ranking: Ranking, title: str) -> tuple[Path, ...]:
    """Write the summary beside the other files of a check; gives the paths of the text, of the page, and
    of what was checked (JSON)."""
    summary = files.result.with_name(f"accuracy_checking_summary_{files.stamp}.txt")
    shown = summary.with_suffix(".html")
    write_atomically(summary, ("\n".join(ranking.lines(_MOST_CALLS)) + "\n").encode())
    write_atomically(shown, page(ranking, title, _MOST_CALLS))
    in_json = files.result.with_name(f"accuracy_checking_coverage_{files.stamp}.json")
    return summary, shown, coverage.write(ranking.coverage, in_json)


def page(ranking: Ranking, title: str, most: int) -> bytes:
    """The page, with the ``most`` worst calls that failed."""
    body = (
        f"<h1>{text(title)}</h1>",
        *_counts(ranking),
        *([f"<p>{text(ranking.allowance)}</p>"] if ranking.allowance else []),
        *_failed(ranking.entries(most), len(ranking.failed)),
        *_list("page-warnings", (Wording("{}: {}", warning.name, warning.why) for warning in ranking.warnings(most))),
        *_list(
            "page-pooled",
            (Wording("{}: {}", said(f"status-{pooled.status.lower()}"), pooled.text) for pooled in ranking.pooled),
        ),
        *_list("page-skipped", (Wording("{} × {}", count, reason) for reason, count in ranking.skipped.most_common())),
        *_list("page-notes", ranking.notes),
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
        yield f"<tr><th>{text(said(f'direction-{direction}'))}</th>{cells}</tr>"
    yield "</table>"


def _failed(entries: Sequence[Entry], count: int) -> Iterable[str]:
    if not entries:
        yield f"<p>{text(said('page-no-call-failed'))}</p>"
        return
    yield f"<h2>{text(said('page-failed-calls', len(entries), count))}</h2>"
    yield f"<table><tr><th></th><th>{text(said('page-result'))}</th><th>{text(said('page-what-is-wrong'))}</th></tr>"
    for number, entry in enumerate(entries, 1):
        where = f'<br><span class="dim">{text(said("called-in", entry.frame))}</span>' if entry.frame else ""
        yield (
            f'<tr><td class="number">{number}</td><td class="error">{escape(entry.name)}</td>'
            f"<td>{text(entry.why)}{where}<br><code>{escape(entry.command)}</code></td></tr>"
        )
    yield "</table>"


def _list(title: str, texts: Iterable[str]) -> Iterable[str]:
    items = [f"<li>{text(each)}</li>" for each in texts]
    if items:
        yield f"<h2>{text(said(title))}</h2><ul>{''.join(items)}</ul>"
