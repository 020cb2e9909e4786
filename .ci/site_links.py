"""A hook of mkdocs: links that leave docs/ (to examples, benches, README) become text, as the site has no such page."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page."""
    folder = posixpath.dirname(page.file.src_uri)

    def inside(match: re.Match[str]) -> str:
        leaves = posixpath.normpath(posixpath.join(folder, match[2])).startswith("..")
        return match[1] if leaves else match[0]

    return _LINK.sub(inside, markdown)
