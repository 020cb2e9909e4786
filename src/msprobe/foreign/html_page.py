"""Result pages: one shell for all of them, so that each looks alike, light or dark, and none runs what a text says.

A page is one file that holds its data and fetches nothing. Its policy names its one style and its one script by their
digests: what a name of a tensor, a path or a log may smuggle in is text, and would not run if it were more.

A page has English and Chinese. It begins in the language of the browser, as the page of ``msprobe view`` does; where no
script runs, in the language that was asked for when it was written.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from msprobe.foreign.console import harmless
from msprobe.messages import in_both, in_language, language, translated

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
.language { float: right; } .language label { padding: 2px 8px; cursor: pointer; color: var(--dim); }
.language input { position: absolute; opacity: 0; }
.language label:has(:focus-visible) { outline: 2px solid var(--dim); }
.language label:has(:checked) { color: var(--text); font-weight: 600; }
html:has(#in-zh:checked) .en, html:has(#in-en:checked) .zh { display: none; }
code { font: 12px ui-monospace, monospace; overflow-wrap: anywhere; }
"""


#: What each page runs: it chooses the language of the browser, and names the page in the language that is chosen.
_LANGUAGE = """
const language = () => (document.getElementById("in-zh").checked ? "zh" : "en");
document.getElementById(navigator.language.toLowerCase().startsWith("zh") ? "in-zh" : "in-en").checked = true;
const name = () => {
  document.documentElement.lang = language();
  document.title = document.querySelector("title").dataset[language()];
};
for (const choice of document.querySelectorAll(".language input")) choice.addEventListener("change", name);
name();
"""
#: What each further script finds: the data, and texts in the language that is chosen. A script calls ``inBoth(show)``
#: to show its texts, now and whenever the language is changed.
_PRELUDE = """
const data = JSON.parse(document.getElementById("data").textContent);
const said = (text) => (text !== null && typeof text === "object" ? text[language()] : text);
const t = (name, values = {}) =>
  said(data.texts[name]).replace(/\\{(\\w+)\\}/g, (whole, key) => (key in values ? values[key] : whole));
function inBoth(show) {
  for (const choice of document.querySelectorAll(".language input")) choice.addEventListener("change", show);
  show();
}
"""


def page(
    title: str,
    body: Iterable[str],
    *,
    style: str = "",
    script: str = "",
    data: Mapping[str, Any] | None = None,
    texts: Iterable[str] = (),
) -> Iterator[str]:
    """The pieces of a page, with a switch between English and Chinese. ``body`` is html, whose
    texts are made by :func:`text`; ``style`` comes behind that of all pages. ``data``: what the script has as ``data``;
    ``texts``: names of what it says from the catalogue, ``t("name", {value: 1})``.
    """
    whole, asked = _STYLE + style, language()
    code = _LANGUAGE + (_PRELUDE + script if script else "")
    policy = f"default-src 'none'; style-src {digest(whole)}; img-src data:; base-uri 'none'; form-action 'none'"
    policy += f"; script-src {digest(code)}"
    yield (
        f'<!doctype html>\n<html lang="{asked}"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title data-en="{escape(str(title))}" data-zh="{escape(in_language(title, "zh"))}">'
        f"{escape(translated(title))}</title><style>{whole}</style></head><body>\n"
        '<div class="language" role="radiogroup" aria-label="English / 中文">'
    )
    for name, label in (("en", "English"), ("zh", "中文")):
        checked = " checked" if name == asked else ""
        yield f'<label lang="{name}"><input type="radio" name="language" id="in-{name}"{checked}>{label}</label>'
    yield "</div>\n"
    yield from body
    if script:
        given = {**(data or {}), "texts": {name: _templates(name) for name in texts}}
        # A text may hold anything; "<" begins no element where it is written so.
        data_text = json.dumps(given, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        yield f'<script type="application/json" id="data">{data_text}</script>\n'
    yield f"<script>{code}</script>\n</body></html>\n"


def text(words: object) -> str:
    """A text as html: in both languages, of which the page shows one. What drives a terminal is not in it."""
    both = in_both(words if isinstance(words, str) else str(words))
    if isinstance(both, str):
        return escape(harmless(both))
    sides = ("en", both["en"]), ("zh", both["zh"])
    return "".join(f'<span class="{name}" lang="{name}">{escape(harmless(each))}</span>' for name, each in sides)


def _templates(name: str) -> dict[str, str]:
    from msprobe.messages import ENTRIES

    return {"en": ENTRIES[name].text("en"), "zh": ENTRIES[name].text("zh")}


def digest(text: str) -> str:
    """The digest by which a policy names a style or a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
