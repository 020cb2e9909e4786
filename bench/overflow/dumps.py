"""Dumps of many ranks for the search of the first bad value: one rank goes bad, and a collective spreads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def leaf(value: float) -> dict[str, Any]:
    """What a record says of a tensor of ``value``."""
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [2, 4],
        "Max": value,
        "Min": value,
        "Mean": value,
        "Norm": value * 2.8284271247461903,
        "requires_grad": False,
    }


def write(folder: Path, ranks: int, calls: int, bad_rank: int, bad_call: int) -> str:
    """Write ``{folder}/step0/rank{R}``: every 50th call is an all_reduce of all ranks, and ``bad_call`` of ``bad_rank``
    makes a NaN. Returns the name of that call.
    """
    reached = (bad_call // 50 + 1) * 50
    name = f"Torch.log.{bad_call}.forward"
    for rank in range(ranks):
        data: dict[str, Any] = {}
        parents: dict[str, Any] = {}
        stacks: dict[str, Any] = {}
        value = 1.5
        for number in range(calls):
            if number and number % 50 == 0:
                after = float("nan") if number >= reached else value
                key = f"Distributed.all_reduce.{number // 50 - 1}.forward"
                data[key] = {"input_args": [leaf(value)], "input_kwargs": {}, "output": [leaf(after)]}
                data[key]["is_recompute"] = False
            else:
                bad = rank == bad_rank and number == bad_call
                after = float("nan") if bad else value
                key = name if bad else f"Functional.linear.{number}.forward"
                arguments = [leaf(value), leaf(0.25), leaf(0.5)]
                data[key] = {"input_args": arguments, "input_kwargs": {}, "output": [leaf(after)]}
            parents[key] = f"Module.layers.{number // 50}.Block.forward.0"
            value = after
        for number, keys in enumerate([list(data)[start : start + 10] for start in range(0, calls, 10)]):
            stacks[str(number)] = [keys, ["File /train.py, line 15, in <module>, \n h = torch.log(h)"]]
        place = folder / "step0" / f"rank{rank}"
        place.mkdir(parents=True)
        header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}
        (place / "dump.json").write_text(json.dumps(header, indent=1))
        (place / "construct.json").write_text(json.dumps(parents, indent=1))
        (place / "stack.json").write_text(json.dumps(stacks, indent=1))
    return name
