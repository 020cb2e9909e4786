"""Texts of findings, headlines and notes in Chinese, for the page.

The tables have the English templates as they stand in the program (:class:`msprobe.diagnose.wording.Wording`), and for
each the Chinese one; a test finds those that lack.
"""

from __future__ import annotations

from msprobe.diagnose.wording import said_in
from msprobe.report.chinese.advice import ADVICE
from msprobe.report.chinese.checks import CHECKS
from msprobe.report.chinese.labels import LABELS
from msprobe.report.chinese.layouts import LAYOUTS
from msprobe.report.chinese.notes import NOTES
from msprobe.report.chinese.origins import ORIGINS
from msprobe.report.chinese.page import PAGE

#: Lists of some values, and what stands in brackets.
_PUNCTUATION = {" ({})": "（{0}）", "{}: ": "{0}：", "({})": "（{0}）"} | {
    english.join(["{}"] * count): chinese.join(f"{{{number}}}" for number in range(count))
    for english, chinese in ((", ", "，"), ("; ", "；"))
    for count in range(2, 12)
}
PHRASES: dict[str, str] = {**_PUNCTUATION, **ADVICE, **CHECKS, **LABELS, **LAYOUTS, **NOTES, **ORIGINS, **PAGE}


#: A text in both languages; see :func:`in_both`.
Said = str | dict[str, str]


def in_both(text: str) -> Said:
    """A text as the page takes it: ``{"en": ..., "zh": ...}``, or the text alone where both are the same."""
    chinese = said_in(PHRASES, text)
    return str(text) if chinese == text else {"en": str(text), "zh": chinese}
