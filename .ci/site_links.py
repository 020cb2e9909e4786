"""A hook of mkdocs: what links become on the site, which has the files of docs/ alone and each language for itself.

- Links that leave docs/ (to examples, benches, README) become text.
- The line that leads to the same page in the other language goes: the site has a switch for that.
- A link of a Chinese page to an English one that is there in both leads to the English site.
- A page that is shown in English between Chinese ones names their headings in English: its link leads to the page.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^):#\s]+)(#[^)]*)?\)")
_OTHER_LANGUAGE = re.compile(r"^\[(?:中文|English)\]\([\w.-]+\.md\)\n+", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Called by mkdocs for each page of each language."""
    folder = posixpath.dirname(page.file.src_uri)
    docs = Path(config["docs_dir"])
    is_chinese = page.file.src_uri.endswith(".zh.md")
    is_fallback = config["theme"]["language"] == "zh" and not is_chinese

    def on_the_site(match: re.Match[str]) -> str:
        text, link, heading = match[1], match[2], match[3] or ""
        target = posixpath.normpath(posixpath.join(folder, link))
        if target.startswith(".."):
            return text
        if not target.endswith(".md") or not (docs / f"{target[:-3]}.zh.md").exists():
            return match[0]
        if is_chinese:
            english = posixpath.relpath(f"{target[:-3]}.html", posixpath.dirname(page.url))
            return f'<a href="{english}{heading}">{text}</a>'
        return f"[{text}]({link})" if is_fallback else match[0]

    return _LINK.sub(on_the_site, _OTHER_LANGUAGE.sub("", markdown, count=1))
