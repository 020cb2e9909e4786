"""What the user says ends a step of a script: ``--step-on backward | optimizer:NAME | call:FUNCTION``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from msprobe.errors import InvalidInputError
from msprobe.messages import said

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
FORMS = "backward, optimizer:NAME or call:FUNCTION"


@dataclass(frozen=True)
class StepOn:
    """``kind`` ends a step; ``name``: which optimizer, or the qualified name of a function."""

    kind: Literal["backward", "optimizer", "call"]
    name: str = ""

    @staticmethod
    def parse(text: str) -> StepOn:
        """Read the value of the option; InvalidInputError says what is wrong with it."""
        kind, colon, name = text.partition(":")
        if kind == "backward" and not colon:
            return StepOn("backward")
        if kind == "optimizer" and (name.isdecimal() or _NAME.fullmatch(name)):
            return StepOn("optimizer", name)
        if kind == "call" and _NAME.fullmatch(name):
            return StepOn("call", name)
        raise InvalidInputError(said("step-on-wrong", text, FORMS))

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind
