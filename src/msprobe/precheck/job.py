"""What a worker is given of its check, and what it answers: plain data, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from msprobe.messages import Wording, said
from msprobe.messages.as_data import packed, unpacked
from msprobe.precheck.executors import is_details_file
from msprobe.precheck.standards import PROFILES

#: The first line of a worker that can run its task; any other one is a text, in JSON, that says why it cannot.
READY = "ready"
#: Of mindstudio-probe 8.1.1, whose documentation has another one.
MINDSPORE_ATOL = 0.001


@dataclass(frozen=True)
class Task:
    """One check: the dump, and how its calls are run and judged. Paths are absolute."""

    #: "": they are named later, one after the other.
    dump: str
    standard: str = "strict"
    candidate: str = "auto"
    #: An executor, or the details file of a check elsewhere.
    control: str = ""
    seed: int = 1234
    decimals: int = 14
    error_folder: str = ""
    repeat: int = 1
    formula: bool = False
    backward: bool = True
    jit_compile: bool = False
    #: Passes of leaf modules are checked as well.
    modules: bool = False
    #: ``FILE.py:FUNCTION`` that results go through before they are compared.
    cleaning: str = ""
    #: Operators that torch does not have: name, ``FILE.py:FUNCTION`` that computes the same, and that of its gradients.
    operators: tuple[tuple[str, str, str], ...] = ()
    #: What has the kernels and classes of ``Ops`` and ``Function`` calls: a ``.py``, a ``.so``, or a module.
    load: str = ""
    kind: str = "torch"
    #: In what types the reference computes: ``fp64``, ``legacy`` (as 8.1.1 promotes arguments); "": the standard's own.
    reference: str = ""
    #: Below which largest difference a result of MindSpore passes.
    ms_atol: float = MINDSPORE_ATOL

    @property
    def has_double_reference(self) -> bool:
        """True if the reference computes in double precision."""
        if self.reference:
            return self.reference == "fp64"
        return PROFILES[self.standard].double_reference

    @property
    def control_name(self) -> str:
        """What the files call the control: its executor, or the name of its details file."""
        return Path(self.control).name if is_details_file(self.control) else self.control

    @property
    def judged_by(self) -> str:
        """The standard as the files name it, with the reference where that is not the standard's own."""
        if self.has_double_reference == PROFILES[self.standard].double_reference:
            return self.standard
        return f"{self.standard}, reference {self.reference}"

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Read what :meth:`to_json` wrote."""
        content = json.loads(text)
        return cls(**{**content, "operators": tuple(map(tuple, content["operators"]))})


@dataclass
class Answer:
    """What became of one call: the two lines of the files, and what the summary needs."""

    key: str
    result: list[str]
    details: list[list[str]] = field(default_factory=list)
    #: Rows of the control, in the form of ``details``; empty without one.
    control: list[list[str]] = field(default_factory=list)
    worst: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """True if a direction is an error."""
        return "error" in self.result[1:3]

    def to_json(self) -> str:
        """One line of JSON, with messages as their names and values."""
        return json.dumps({column.name: packed(getattr(self, column.name)) for column in fields(self)})


def answer_of(content: dict[str, Any]) -> Answer:
    """Read what a worker wrote."""
    return Answer(**{name: unpacked(value) for name, value in content.items()})


def skipped(
    key: str, message: str, has_backward: bool, decimals: int = 14, further: tuple[Any, ...] = ("", "", "", "")
) -> Answer:
    """The answer for a call that was not checked."""
    from msprobe.precheck.columns import BLANK, JudgedResult

    if not isinstance(message, Wording):
        message = " ".join(message.split()) or said("no-reason-given")
    directions = ["forward", *(["backward"] if has_backward else [])]
    rows = [JudgedResult(f"{key}.{direction}.output.0", "SKIP", message) for direction in directions]
    result = [key, "SKIP", "SKIP" if has_backward else BLANK, message]
    return Answer(key, result, [row.cells(decimals, *further) for row in rows])
