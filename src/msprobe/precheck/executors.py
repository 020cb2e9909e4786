"""Who runs a call: the words of ``-d``, ``--candidate`` and ``--control``, read into a plan. Nothing is run here.

``cpu``, ``cuda:0``, ``npu:1``, ``xpu``, ``mps``; behind it, each with a ``+``: ``mkldnn=off``, ``threads=N``,
``deterministic``, ``dtype=bf16``, ``autocast=bf16``, ``compile``, ``inject:FAULT``. A fault alone runs on the best
device there is. ``plugin:pkg.mod:function`` is given ``(function, args, kwargs)`` and returns the result.
``python:PATH`` runs calls with the torch of another environment. ``recorded`` runs nothing: the results that the dump
has are judged.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from msprobe.errors import InvalidInputError

DEVICES = ("cpu", "cuda", "npu", "xpu", "mps", "auto")
DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float32": "float32",
    "float": "float32",
    "fp64": "float64",
    "float64": "float64",
    "double": "float64",
}
#: The candidate whose results are those of the dump.
RECORDED = "recorded"
_FAULTS = ("tf32", "scale", "swap", "nan", "inf", "drop-tail", "abort", "hang")
_DEVICE = re.compile(rf"({'|'.join(DEVICES)})(?::(\d+))?")
_PLUGIN = re.compile(r"plugin:([A-Za-z_][\w.]*):([A-Za-z_]\w*)")
_ALLOWED = (
    "allowed: cpu, cuda:0, npu:0, xpu, mps or auto, with +mkldnn=off, +threads=N, +deterministic, +dtype=bf16, "
    "+autocast=bf16, +compile or +inject:FAULT behind it"
)
_ALLOWED_ELSEWHERE = "; plugin:package.module:function; python:PATH; recorded"


@dataclass(frozen=True)
class Fault:
    """A fault that is put into the candidate: ``scale`` by ``amount``, ``nan`` at element ``place``, ..."""

    kind: str
    amount: float = 0.0
    place: int = 0

    @property
    def text(self) -> str:
        """As it is asked for, without ``inject:``."""
        if self.kind == "scale":
            return f"scale={self.amount!r}"
        return f"{self.kind}@{self.place}" if self.kind in ("nan", "inf") else self.kind


@dataclass(frozen=True)
class Executor:
    """A device and what is switched while it runs a call; ``text`` is how it was asked for."""

    text: str
    device: str = "auto"
    mkldnn: bool = True
    threads: int | None = None
    deterministic: bool = False
    dtype: str | None = None
    autocast: str | None = None
    compiled: bool = False
    fault: Fault | None = None
    plugin: tuple[str, str] | None = None
    python: str | None = None


def is_details_file(text: str) -> bool:
    """True for what names the details file of a check elsewhere, in the place of an executor."""
    return text.endswith(".csv")


def executor_of(text: str, option: str = "--candidate") -> Executor:
    """Read one executor. Raises InvalidInputError."""
    if text.startswith("plugin:"):
        match = _PLUGIN.fullmatch(text)
        if match is None:
            raise InvalidInputError(f"{option} {text!r}: a plugin is plugin:package.module:function.")
        return Executor(text, "cpu", plugin=(match[1], match[2]))
    if text == RECORDED and option == "--candidate":
        return Executor(text, "cpu")
    if text.startswith("python:"):
        return Executor(text, "cpu", python=text.removeprefix("python:"))
    first, *words = re.split(r"\+(?=[a-z])", text)
    if first.startswith("inject:"):
        words.insert(0, first)
        first = "auto"
    if first.isdigit():
        first = f"auto:{first}"
    if not _DEVICE.fullmatch(first):
        raise InvalidInputError(f"{option} {text!r}: {first!r} is no device; {_allowed(option)}.")
    plan = Executor(text, first)
    for word in words:
        plan = _with(plan, word, option)
    return plan


def _allowed(option: str) -> str:
    """What an option takes. ``--device`` is that of a script, ``--control`` runs calls."""
    plugin = "; plugin:package.module:function"
    others = _ALLOWED_ELSEWHERE.removesuffix("; recorded") + "; or an accuracy_checking_details_*.csv"
    more = {"--device": plugin, "candidate": plugin, "--control": others}
    return _ALLOWED + more.get(option, _ALLOWED_ELSEWHERE)


@dataclass(frozen=True)
class ScriptWords:
    """What a script is told of who runs its call: the device with what is switched there, a fault, and the type of
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
        raise InvalidInputError(
            f"{option} {text!r}: a script runs in the Python that it is started with; leave {option} out and start "
            f"the script with {text.removeprefix('python:')}."
        )
    plan = executor_of(text, option)
    if plan.plugin is not None:
        return ScriptWords(text)
    fault = plan.fault
    if fault is not None and fault.kind in ("abort", "hang"):
        raise InvalidInputError(
            f"{option} {text!r}: {fault.kind} ends a worker of run_ut, and is no fault of a script."
        )
    words = [word for word in text.split("+")[1:] if not word.startswith(("inject:", "dtype="))]
    device = "" if plan.device == "auto" and not words else "+".join([plan.device, *words])
    return ScriptWords(device, "" if fault is None else fault.text, plan.dtype or "")


def _with(plan: Executor, word: str, option: str) -> Executor:
    name, _, value = word.partition("=")
    if word.startswith("inject:"):
        return replace(plan, fault=_fault_of(word.removeprefix("inject:"), plan.text, option))
    if name == "mkldnn" and value in ("on", "off"):
        return replace(plan, mkldnn=value == "on")
    if name == "threads" and value.isdigit() and 1 <= int(value) <= 1024:
        return replace(plan, threads=int(value))
    if word == "deterministic":
        return replace(plan, deterministic=True)
    if name == "dtype" and value in DTYPES:
        return replace(plan, dtype=DTYPES[value])
    if name == "autocast" and DTYPES.get(value) in ("bfloat16", "float16"):
        return replace(plan, autocast=DTYPES[value])
    if word == "compile":
        return replace(plan, compiled=True)
    raise InvalidInputError(f"{option} {plan.text!r}: {word!r} is not known; {_allowed(option)}.")


def _fault_of(word: str, text: str, option: str) -> Fault:
    kind = re.split(r"[=@]", word)[0]
    try:
        if kind == "scale":
            amount = float(word.partition("=")[2])
            if not math.isfinite(amount) or amount == 0:
                raise ValueError
            return Fault(kind, amount)
        if kind in ("nan", "inf"):
            place = int(word.partition("@")[2] or 0)
            if place < 0:
                raise ValueError
            return Fault(kind, place=place)
        if word in ("tf32", "swap", "drop-tail", "abort", "hang"):
            return Fault(word)
    except ValueError:
        pass
    raise InvalidInputError(
        f"{option} {text!r}: the fault {word!r} is not known; allowed: inject:tf32, inject:scale=1e-3, inject:swap, "
        "inject:nan@0, inject:inf@0, inject:drop-tail."
    )
