"""What a command is, to all that is made of it: help, completion, the pages of the reference."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass
from typing import Protocol, cast

from msprobe.messages import both, in_language


class CommandModule(Protocol):
    """What a command's module provides.

    One that runs a program of the user also has ``split(words) -> (own, program)``, see ``run``.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def execute(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit status."""


@dataclass(frozen=True)
class Command:
    """One command, as all that is made of it needs it.

    ``name``: as it is typed; of two words for a command of a family (``monitor diff``). ``module``: below
    ``msprobe.cli``; imported when the command is called. ``reads`` and ``writes``: inputs and outputs in words, for the
    table of the reference. ``clean``, ``on_findings``, ``could_not``: what exit status 0, 1 and 2 say; without
    ``on_findings`` it never answers with 1; ``could_not`` is what there is beside wrong usage and bad input.
    ``aliases``: further names. ``published``: its command line is that of mindstudio-probe, so its single
    letters mean what they mean there.
    """

    name: str
    module: str
    group: str
    purpose: str
    reads: str
    writes: str = ""
    clean: str = both("done", "已完成")
    on_findings: str = ""
    could_not: str = ""
    aliases: tuple[str, ...] = ()
    published: bool = False

    def load(self) -> CommandModule:
        """Its module, imported now."""
        return cast(CommandModule, importlib.import_module(f"msprobe.cli.{self.module}"))

    @property
    def sentence(self) -> str:
        """What it is for."""
        english = in_language(self.purpose, "en")
        return both(f"{english[0].upper()}{english[1:]}.", f"{in_language(self.purpose, 'zh')}。")

    @property
    def statuses(self) -> str:
        """What its exit statuses say, in a sentence."""
        wrong = both("wrong usage or bad input", "用法错误或输入有误")
        two = both("{}, or {}", "{}，或{}", wrong, self.could_not) if self.could_not else wrong
        status_text = both("1 {}; ", "1 {}；", self.on_findings) if self.on_findings else ""
        return both("Exit status: 0 {}; {}2 {}.", "退出码：0 {}；{}2 {}。", self.clean, status_text, two)
