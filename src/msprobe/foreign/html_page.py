"""Result pages: one shell for all of them, so that each looks alike, light or dark, and none runs what a text says.

A page is one file that holds its data and fetches nothing. Its policy names its one style and its one script by their
digests: what a name of a tensor, a path or a log may smuggle in is text, and would not run if it were more.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --back: #fbfbfa; --text: #1c1e21; --dim: #62676d; --edge: #d8dde6; --card: #fff;
  --bad: #c62828; --warning: #a86200; --good: #2b8a3e; }
@media (prefers-color-scheme: dark) { :root { --back: #16181b; --text: #e6e8ea; --dim: #9aa1a9; --edge: #333a45;
  --card: #1e2125; --bad: #ff6b6b; --warning: #ffc46b; --good: #69db7c; } }
* { box-sizing: border-box; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 24px; background: var(--back); color: var(--text); }
h1 { font-size: 18px; margin: 0 0 4px; } h2 { font-size: 15px; margin: 20px 0 6px; }
table { border-collapse: collapse; }
td, th { padding: 4px 10px; text-align: left; vertical-align: top; border-bottom: 1px solid var(--edge); }
td.number { text-align: right; } .scroll { overflow-x: auto; } .dim { color: var(--dim); }
.error, .bad { color: var(--bad); } .warning { color: var(--warning); } .pass, .good { color: var(--good); }
code { font: 12px ui-monospace, monospace; overflow-wrap: anywhere; }
"""


def page(title: str, body: Iterable[str], *, style: str = "", script: str = "", data: Any = None) -> Iterator[str]:
    """The pieces of a page. ``body`` is html, whose texts are escaped; ``style`` comes behind that of all pages;
    ``data``: what the script finds in the element of this name, as JSON.
    """
    whole = _STYLE + style
    policy = f"default-src 'none'; style-src {digest(whole)}; img-src data:; base-uri 'none'; form-action 'none'"
    policy += f"; script-src {digest(script)}" if script else ""
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title><style>{whole}</style></head><body>\n"
    )
    yield from body
    if script:
        # A text may hold anything; "<" begins no element where it is written so.
        text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        yield f'<script type="application/json" id="data">{text}</script>\n<script>{script}</script>\n'
    yield "</body></html>\n"


def digest(text: str) -> str:
    """The digest by which a policy names a style or a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
