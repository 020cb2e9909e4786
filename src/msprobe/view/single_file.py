"""The page with its data in one file: opens without a server and asks nobody for anything."""

from __future__ import annotations

import base64
import gzip
import math
from collections.abc import Iterator
from typing import Any

import orjson

from msprobe.errors import MsprobeError, NotAvailableError
from msprobe.foreign.html_page import digest
from msprobe.messages import in_both, said
from msprobe.view.page_files import Page
from msprobe.view.protocol import Embedded, LinesAnswer, NodeAnswer, Overview, PlaceAnswer, RanksAnswer
from msprobe.view.source import PageSource

#: The rows whose details are in the file: the worst of all places.
MOST_DETAILS = 2000
#: Rows of places that are in the file in all; the places of findings go first, and at least one is.
MOST_ROWS = 400_000
MOST_PLACES = 40
_PLAIN_UP_TO = 1 << 16
_STYLE = '<link rel="stylesheet" href="app.css">'
_SCRIPT = '<script src="app.js"></script>'
_CHARSET = '<meta charset="utf-8">'
#: How bad each status is, from nothing to see to what a person looks for.
_WEIGHT = (0, 1, 2, 3, 7, 5, 4, 6)


def single_file(source: PageSource, page: Page | None = None) -> bytes:
    """The file. Raises MsprobeError if the page, or what it shows, cannot be read."""
    page = page or Page()
    source.wait()
    return with_data(page, embedded(source))


def embedded(source: PageSource) -> Embedded:
    """The answers that the file holds."""
    overview = source.overview()
    overview = overview.copy()
    overview["can"] = {"picture": False, "match": False}
    places: dict[str, PlaceAnswer] = {}
    rows, left_out = 0, 0
    for number in _by_importance(overview):
        if len(places) >= MOST_PLACES or (places and rows >= MOST_ROWS):
            left_out += 1
            continue
        try:
            place = source.place(number)
        except MsprobeError:
            left_out += 1
            continue
        if places and rows + len(place["names"]) > MOST_ROWS:
            left_out += 1
            continue
        rows += len(place["names"])
        places[str(number)] = place
    if left_out:
        text = said("one-step-not-in-file") if left_out == 1 else said("steps-not-in-file", left_out)
        overview["notes"] = [*overview["notes"], in_both(text)]
    wanted: dict[str, list[int]] = {}
    for place_number, row in _worst(places):
        wanted.setdefault(place_number, []).append(row)
    # One place after the other: not all of them may be in memory at once.
    details: dict[str, dict[str, NodeAnswer]] = {}
    lines: dict[str, LinesAnswer] = {}
    for key in places:
        details[key] = {str(row): source.node(int(key), row) for row in wanted.get(key, ())}
        lines[key] = source.lines(int(key))
    nodes = {key: details[key] for key in wanted}
    ranks = _ranks(source, places)
    return {"overview": overview, "places": places, "nodes": nodes, "pictures": {}, "lines": lines, "ranks": ranks}


def _ranks(source: PageSource, places: dict[str, PlaceAnswer]) -> dict[str, RanksAnswer]:
    """The grids of the steps of which all ranks are in the file: of others, ranks would have to be judged for them."""
    heads = source.overview()["places"]
    steps = dict.fromkeys(head["step"] for head in heads)
    whole = [
        step
        for step in steps
        if all(str(number) in places for number, head in enumerate(heads) if head["step"] == step)
    ]
    return {"null" if step is None else str(step): source.ranks(step) for step in whole}


def with_data(page: Page, data: Embedded) -> bytes:
    """The page with its style, its script and its data inside; nothing else may run, and nothing be fetched."""
    html = page.read("index.html").decode("utf-8")
    if html.count(_STYLE) != 1 or html.count(_SCRIPT) != 1 or html.count(_CHARSET) != 1:
        raise NotAvailableError(said("view-page-wrong"))
    style, script = page.read("app.css").decode("utf-8"), page.read("app.js").decode("utf-8")
    if "</style" in style.lower() or "</script" in script.lower() or "<!--" in script:
        raise NotAvailableError(said("view-page-wrong"))
    policy = (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = f'{_CHARSET}\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    # Of the parts that are put in, none is searched for the places of the others.
    before, _, rest = html.partition(_CHARSET)
    middle, _, rest = rest.partition(_STYLE)
    body, _, after = rest.partition(_SCRIPT)
    text = f"{before}{head}{middle}<style>{style}</style>{body}{_data_element(data)}<script>{script}</script>{after}"
    return text.encode("utf-8", "backslashreplace")


def _data_element(data: Embedded) -> str:
    raw = orjson.dumps(data, default=str, option=orjson.OPT_NON_STR_KEYS)
    if len(raw) <= _PLAIN_UP_TO:
        # No name from a dump can end the element, or begin a comment.
        text = raw.decode("utf-8").replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        return f'<script type="application/json" id="msprobe-data">{text}</script>\n'
    packed = base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode("ascii")
    return f'<script type="application/gzip" id="msprobe-data">{packed}</script>\n'


def _by_importance(overview: Overview) -> Iterator[int]:
    """The numbers of the places: those of findings first, then those that differ, then the others in order."""
    findings = overview["verdict"]["findings"] if overview["verdict"] is not None else []
    named = [finding["place"] for finding in findings if finding["place"] is not None]
    differ = [number for number, place in enumerate(overview["places"]) if place["status"] not in ("agree", "clean")]
    yield from dict.fromkeys([*named, *differ, *range(len(overview["places"]))])


def _worst(places: dict[str, PlaceAnswer]) -> list[tuple[str, int]]:
    """The rows whose details are kept: those of findings, then the worst; of a single run the first that are large."""
    rows: list[tuple[tuple[Any, ...], str, int]] = []
    for number, place in places.items():
        named = {culprit["row"] for culprit in place["culprits"]} | {place["first"]}
        columns = zip(
            place["status"], place["output_difference"], place["allowed"], place["flags"], place["orders"], strict=True
        )
        for row, (status, difference, allowed, flags, order) in enumerate(columns):
            excess = (difference or 0.0) / allowed if allowed else (math.inf if difference else 0.0)
            rows.append(
                ((row not in named, not flags & 2, -_WEIGHT[status], not flags & 1, -excess, order), number, row)
            )
    rows.sort()
    return [(number, row) for _, number, row in rows[:MOST_DETAILS]]
