"""The page itself: one html file with its style, its script and its numbers in it."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

from msprobe import __version__
from msprobe.coverage import Coverage
from msprobe.foreign import html_page
from msprobe.messages import said
from msprobe.messages.pages import MONITOR
from msprobe.monitor.report.data import coverage_of, page_data, read_run
from msprobe.paths import StrPath, check_output_file, write_atomically


def write_report(first: StrPath, second: StrPath | None, output: StrPath) -> tuple[Path, Coverage]:
    """Write the page of a run, or of two, where the second is held against the first; its path, and what it shows.

    Raises PathError and InvalidInputError; an existing file is replaced.
    """
    path = check_output_file(output)
    runs = read_run(first), None if second is None else read_run(second)
    write_atomically(path, render(page_data(*runs)).encode("utf-8", "replace"), fsync=False)
    return path, coverage_of(*runs)


def render(data: dict[str, Any]) -> str:
    """The page as text. Whatever the files say stays data: it can end no element."""
    folder = resources.files(__package__ or "msprobe.monitor.report")
    body, style, script = ((folder / f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    words = {"footer": html_page.text(f"msprobe {__version__}")}
    shown = re.sub(r"\{\{([a-z-]+)\}\}", lambda name: words.get(name[1]) or html_page.text(said(name[1])), body)
    texts = [piece.name for piece in MONITOR]
    pieces = html_page.page(said("monitor-title"), [shown], style=style, script=script, data=data, texts=texts)
    return "".join(pieces)
