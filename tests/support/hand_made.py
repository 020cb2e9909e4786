"""Dumps written by hand, as any version of the recorder might have left them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe.store.part import DumpPart
from msprobe.store.reader import open_dump

TOY = Path(__file__).parents[1] / "data" / "compare_ms_toy"


def tensor(*shape: int, dtype: str = "torch.float32", value: float = 1.0, **more: Any) -> dict[str, Any]:
    """The description of a tensor that has ``value`` everywhere."""
    kind = "torch.Tensor" if dtype.startswith("torch") else "mindspore.Tensor"
    statistics = {"Max": value, "Min": value, "Mean": value, "Norm": value}
    return {"type": kind, "dtype": dtype, "shape": list(shape), **statistics, **more}


def call(*inputs: Any, out: Any = None, **keywords: Any) -> dict[str, Any]:
    """The record of a forward call."""
    return {
        "input_args": list(inputs) or [tensor(2)],
        "input_kwargs": keywords,
        "output": [tensor(2) if out is None else out],
    }


def backward(*gradients: Any) -> dict[str, Any]:
    """The record of a backward call with gradients for its arguments."""
    return {"input": [tensor(2)], "output": list(gradients) or [tensor(2)]}


def write_part(
    folder: Path,
    data: Any,
    *,
    task: str = "statistics",
    framework: str | None = "pytorch",
    construct: Mapping[str, Any] | None = None,
    stacks: Mapping[str, list[str]] | None = None,
    kind: str = "dump",
) -> DumpPart:
    """Write ``dump.json`` (and what else is given) into ``folder`` and open it."""
    folder.mkdir(parents=True, exist_ok=True)
    header = {"task": task, "level": "mix", "framework": framework, "dump_data_dir": None}
    (folder / f"{kind}.json").write_text(json.dumps({**header, "data": data}))
    if construct is not None:
        (folder / "construct.json").write_text(json.dumps(construct))
    if stacks is not None:
        numbered = {str(number): [[name], lines] for number, (name, lines) in enumerate(stacks.items())}
        (folder / "stack.json").write_text(json.dumps(numbered))
    return open_dump(folder / f"{kind}.json").part()
