"""Who runs a call, in words: ``cpu+threads=1``, ``cuda:0+inject:nan@0`` or ``plugin:package.module:function``.

They are read into a plan. Nothing is run here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from msprobe.messages import said

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}
DTYPES |= {"fp64": "float64", "double": "float64"}
DTYPES |= {name: name for name in ("bfloat16", "float16", "float32", "float64")}
FAULTS = "tf32, scale=1e-3, swap, nan@0, inf@0, drop-tail"
WORDS = "threads=N, mkldnn=off, deterministic, dtype=bf16, autocast=bf16, compile, inject:FAULT"
_MOST_THREADS = 1024
_DEVICE = re.compile(r"([a-z][a-z0-9_]*)(:\d+)?")
_PLUGIN = re.compile(r"plugin:([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


@dataclass(frozen=True)
class Fault:
    """A fault that is put into a side: ``scale`` by ``amount``, ``nan`` at element ``place``, ..."""

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


class FaultError(ValueError):
    """A fault that nobody knows."""


def read_words(text: str) -> Executor:
    """The plan of these words; a device is not looked for. Raises ValueError with what is wrong with them."""
    if text.startswith("plugin:"):
        match = _PLUGIN.fullmatch(text)
        if match is None:
            raise ValueError(said("plugin-form"))
        return Executor(text, "cpu", plugin=(match[1], match[2]))
    first, *words = re.split(r"\+(?=[a-z])", text)
    if first.startswith("inject:"):
        first, words = "auto", [first, *words]
    first = f"auto:{first}" if first.isdecimal() else first
    if not _DEVICE.fullmatch(first):
        raise ValueError(said("no-device", first))
    plan = Executor(text, first)
    for word in words:
        plan = _with_word(plan, word)
    return plan


def _with_word(plan: Executor, word: str) -> Executor:
    name, _, value = word.partition("=")
    if word.startswith("inject:"):
        return replace(plan, fault=read_fault(word.removeprefix("inject:")))
    if name == "mkldnn" and value in ("on", "off"):
        return replace(plan, mkldnn=value == "on")
    if name == "threads" and value.isdecimal() and 1 <= int(value) <= _MOST_THREADS:
        return replace(plan, threads=int(value))
    if word == "deterministic":
        return replace(plan, deterministic=True)
    if name == "dtype" and value in DTYPES:
        return replace(plan, dtype=DTYPES[value])
    if name == "autocast" and DTYPES.get(value) in ("bfloat16", "float16"):
        return replace(plan, autocast=DTYPES[value])
    if word == "compile":
        return replace(plan, compiled=True)
    raise ValueError(said("executor-word-unknown", word))


def read_fault(word: str) -> Fault:
    """The fault that a word asks for. Raises FaultError."""
    kind, _, amount = word.replace("@", "=").partition("=")
    try:
        if kind == "scale" and math.isfinite(float(amount)) and float(amount):
            return Fault(kind, float(amount))
        if kind in ("nan", "inf") and int(amount or 0) >= 0:
            return Fault(kind, place=int(amount or 0))
    except ValueError:
        pass
    if word in ("tf32", "swap", "drop-tail", "abort", "hang"):
        return Fault(word)
    raise FaultError(said("fault-unknown", word, FAULTS))
