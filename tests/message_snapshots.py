"""The sentences of the catalogue, one file for each language: to be read as a text when one changes.

``python tests/message_snapshots.py`` writes them; a test holds that they are what it would write. No other test has a
sentence of the catalogue.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from msprobe.messages import ENTRIES, MESSAGES, TOPICS, Language
from msprobe.messages.words import WORDS

SNAPSHOTS = Path(__file__).parent / "unit" / "messages" / "snapshots"


def snapshot(language: Language) -> str:
    """All sentences of a language."""
    place = 1 if language == "zh" else 0
    lines = [f"{each.code} {each.name} ({each.severity})\n    {each.text(language)}" for each in MESSAGES.values()]
    lines += ["", "Topics"]
    for name, topic in TOPICS.items():
        lines += [name, *(f"    {text[place]}" for text in (topic.meaning, topic.cause, topic.advice))]
    lines += ["", "Pieces"]
    lines += [
        f"{each.name}\n    {each.text(language)}" for each in ENTRIES.values() if not each.code and " " not in each.name
    ]
    lines += ["", "Words"]
    lines += [f"    {chinese if place else english}" for english, chinese in WORDS.items() if english.strip("{}, ;")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for each in get_args(Language):
        (SNAPSHOTS / f"messages.{each}.txt").write_text(snapshot(each), "utf-8")
