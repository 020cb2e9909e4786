"""How MindSpore runs the program: step by step, or as a graph that was compiled before, and by which compiler."""

from __future__ import annotations

from typing import Any, Literal

import mindspore

Backend = Literal["dynamic", "kernels", "ge"]


def in_graph_mode() -> bool:
    """True if whole models are compiled (GRAPH_MODE)."""
    return bool(mindspore.get_context("mode") == mindspore.GRAPH_MODE)


def device() -> str:
    """What calculates: ``CPU``, ``GPU`` or ``Ascend``."""
    return str(mindspore.get_context("device_target"))


def calls_python() -> bool:
    """True if operators of a compiled graph can call Python."""
    return device() in ("CPU", "GPU")


def jit_level() -> str:
    """``O0``, ``O1``, ``O2``, or nothing if the program leaves it to MindSpore."""
    config: Any = mindspore.get_context("jit_config")
    return str(config.get("jit_level", "")) if isinstance(config, dict) else ""


def backend() -> Backend:
    """``dynamic``: PYNATIVE_MODE; ``ge``: a graph runs as a whole, which GE compiles on Ascend (``jit_level`` O2);
    ``kernels``: a graph runs kernel by kernel. GE is for Ascend: elsewhere O2 runs kernel by kernel, too.
    """
    if not in_graph_mode():
        return "dynamic"
    return "ge" if jit_level() == "O2" and device() == "Ascend" else "kernels"
