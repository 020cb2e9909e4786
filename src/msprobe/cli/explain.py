"""``msprobe explain``: what a message means, what usually causes it, and what to do."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from msprobe.cli import answers
from msprobe.cli.parser import UsageError, did_you_mean
from msprobe.foreign.console import say
from msprobe.messages import both, said
from msprobe.messages.lines import columns, lines

if TYPE_CHECKING:
    from msprobe.messages import Language, Message

_WIDTH = 88


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "code",
        nargs="*",
        metavar="CODE",
        help=both(
            "the code of a message (D204), or its name (argument-differs)",
            "消息的代码（D204）或名称（argument-differs）",
        ),
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help=both("list all codes", "列出全部代码"),
    )
    parser.epilog = both(
        "The language is that of the locale; MSPROBE_LANG=zh or MSPROBE_LANG=en overrides it.",
        "语言随 locale；也可用 MSPROBE_LANG=zh 或 MSPROBE_LANG=en 指定。",
    )


def execute(args: argparse.Namespace) -> int:
    """Explain messages, or list all; the exit status."""
    from msprobe.messages import MESSAGES, find, language

    asked = language()
    if args.list or not args.code:
        if args.code:
            raise UsageError(said("explain-list-and-codes"))
        answers.note(messages=[_facts(message, asked) for message in MESSAGES.values()])
        for message in MESSAGES.values():
            say(f"{message.code}  {message.name:<38}  {_shortened(message.text(asked))}".rstrip())
        return 0
    messages_found = [find(code) for code in args.code]
    unknown = [code for code, message in zip(args.code, messages_found, strict=True) if message is None]
    if unknown:
        known = [*MESSAGES, *(message.name for message in MESSAGES.values())]
        meant = did_you_mean(unknown[0], known) or said("explain-lists-codes")
        raise UsageError(said("message-unknown", ", ".join(map(repr, unknown)), meant))
    messages = [message for message in messages_found if message is not None]
    answers.note(messages=[_facts(message, asked) for message in messages])
    say("\n\n".join("\n".join(_lines(message, asked)) for message in messages))
    return 0


def _facts(message: Message, language: Language) -> dict[str, object]:
    topic = _topic(message, language)
    return {
        "code": message.code,
        "name": message.name,
        "severity": message.severity,
        "text": message.text(language),
        "arguments": list(message.names),
        **topic,
    }


def _topic(message: Message, language: Language) -> dict[str, str]:
    from msprobe.messages import TOPICS

    topic, place = TOPICS[message.topic], 1 if language == "zh" else 0
    return {"meaning": topic.meaning[place], "cause": topic.cause[place], "advice": topic.advice[place]}


def _lines(message: Message, language: Language) -> list[str]:
    from msprobe.messages import in_language

    topic = _topic(message, language)
    rows = {
        "text": message.text(language),
        "means": topic["meaning"],
        "usual cause": topic["cause"],
        "to do": topic["advice"],
    }
    printed = [f"{message.code} {message.name} ({in_language(message.severity, language)})"]
    for label, text in rows.items():
        first = f"  {in_language(label, language)}"
        printed += lines(text, _WIDTH, f"{first}{' ' * (15 - columns(first))}", " " * 15)
    return printed


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
