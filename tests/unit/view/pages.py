"""Small runs for tests of the page, and looking at its answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from unit.diagnose.training import Plan, train

from msprobe.view.dumps import Dumps
from msprobe.view.opening import WantedComparison, open_source
from msprobe.view.page_files import Page

LARGER = {"blocks.0.tanh": lambda x: x * np.float32(1.5)}


def pair(folder: Path, candidate: Any = None, reference: Any = None) -> tuple[Path, Path]:
    """Two runs; by default the candidate has a tanh that gives one and a half of what it should."""
    candidate = Plan(results=LARGER) if candidate is None else candidate
    reference = Plan() if reference is None else reference
    return _run(folder / "candidate", candidate), _run(folder / "reference", reference)


def _run(folder: Path, plans: Any) -> Path:
    return train(folder, *(plans if isinstance(plans, (list, tuple)) else [plans]))


def english(text: Any) -> str:
    """A text of the server in English."""
    return str(text["en"] if isinstance(text, dict) else text)


@contextmanager
def opened(*paths: Path, matches: Path | None = None) -> Iterator[Dumps]:
    """What ``msprobe view`` would show of these paths."""
    source = open_source(paths, wanted=WantedComparison(matches=matches or paths[0].parent))
    assert isinstance(source, Dumps)
    try:
        yield source
    finally:
        source.close()


def page(folder: Path, script: str = "start()", style: str = "body { margin: 0 }") -> Page:
    """A page that is nothing but its form."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(
        '<!doctype html>\n<html><head><meta charset="utf-8">\n<link rel="stylesheet" href="app.css">\n</head>'
        '<body><div id="msprobe"></div>\n<script src="app.js"></script>\n</body></html>'
    )
    (folder / "app.js").write_text(script)
    (folder / "app.css").write_text(style)
    return Page(folder)


def row(place: dict[str, Any], name: str) -> int:
    """The row of a name: of the candidate's record, or of the reference's where it is alone."""
    found = [number for number, one in enumerate(place["names"]) if one == name]
    return min(found, key=lambda number: place["sides"][number] == 2)
