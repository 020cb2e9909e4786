"""Who runs a call: the words of ``-d``, ``--candidate`` and ``--control``, read into a plan. Nothing is run here.

``cpu``, ``cuda:0``, ``npu:1``, ``xpu``, ``mps``; behind it, each with a ``+``: ``mkldnn=off``, ``threads=N``,
``deterministic``, ``dtype=bf16``, ``autocast=bf16``, ``compile``, ``inject:FAULT``. A fault alone runs on the best
device there is. ``plugin:pkg.mod:function`` is given ``(function, args, kwargs)`` and returns the result.
``python:PATH`` runs calls with the torch of another environment. ``recorded`` runs nothing: the results that the dump
has are judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.precheck.side.words import Executor, FaultError, read_words

DEVICES = ("cpu", "cuda", "npu", "xpu", "mps", "auto")
#: The candidate whose results are those of the dump.
RECORDED = "recorded"


def is_details_file(text: str) -> bool:
    """True for what names the details file of a check elsewhere, in the place of an executor."""
    return text.endswith(".csv")


def executor_of(text: str, option: str = "--candidate") -> Executor:
    """Read one executor. Raises InvalidInputError."""
    if text == RECORDED and option == "--candidate":
        return Executor(text, "cpu")
    if text.startswith("python:"):
        return Executor(text, "cpu", python=text.removeprefix("python:"))
    try:
        plan = read_words(text)
        if plan.device.partition(":")[0] not in DEVICES:
            raise ValueError(said("no-device", plan.device))
    except FaultError as problem:
        raise InvalidInputError(said("executor-fault-wrong", option, text, problem)) from None
    except ValueError as problem:
        raise InvalidInputError(said("executor-wrong", option, text, problem, _allowed(option))) from None
    return plan


def _allowed(option: str) -> str:
    """What an option takes. ``--device`` is that of a script, ``--control`` runs calls."""
    further = {"--device": "plugin", "candidate": "plugin", "--control": "control"}.get(option, "all")
    return said("executor-allowed", said(f"executor-allowed-{further}"))


@dataclass(frozen=True)
class ScriptWords:
    """What a script is given of who runs its call: the device with what is switched there, a fault, and the type of
    float arguments.
    """

    device: str = ""
    fault: str = ""
    dtype: str = ""


def script_words(text: str, option: str = "--device") -> ScriptWords:
    """The words of an executor for a script. Raises InvalidInputError for one that no script can be."""
    if not text:
        return ScriptWords()
    if text.startswith("python:"):
        raise InvalidInputError(said("script-has-one-python", option, text, text.removeprefix("python:")))
    plan = executor_of(text, option)
    if plan.plugin is not None:
        return ScriptWords(text)
    fault = plan.fault
    if fault is not None and fault.kind in ("abort", "hang"):
        raise InvalidInputError(said("fault-ends-worker", option, text, fault.kind))
    words = [word for word in text.split("+")[1:] if not word.startswith(("inject:", "dtype="))]
    device = "" if plan.device == "auto" and not words else "+".join([plan.device, *words])
    return ScriptWords(device, "" if fault is None else fault.text, plan.dtype or "")
