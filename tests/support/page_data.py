"""What a page in one file shows: the answers that it holds."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

_DATA = re.compile(r'<script type="([^"]*)" id="msprobe-data">(.*?)</script>', re.S)


def page_data(file: Path) -> Any:
    """The answers: :class:`msprobe.view.protocol.Embedded`."""
    found = _DATA.search(file.read_text())
    assert found is not None, f"{file} holds no data"
    kind, content = found.groups()
    return json.loads(content if kind == "application/json" else gzip.decompress(base64.b64decode(content)))


def page_words(file: Path) -> str:
    """All the words that the page says of the comparison, and all names in it."""
    return json.dumps(page_data(file), ensure_ascii=False)
