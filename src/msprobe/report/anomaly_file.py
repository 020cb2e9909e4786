"""The file of ``msprobe nan_analyze``: that of mindstudio-probe 8.1.1, with more fields, which its readers ignore.

Under ``rank_{R}`` stand the calls of that rank where bad values come from; the last key, ``_propagation``, says how
they spread, and which dump it was.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from msprobe.diagnose.check.bad_values import GrowthLimits
from msprobe.diagnose.check.first_overflow import Asked, FirstNode, OverflowAnswer


def file_name(time_ns: int) -> str:
    """The name of the file, from the time in nanoseconds."""
    return f"anomaly_analyze_{time_ns}.json"


def anomaly_bytes(answer: OverflowAnswer) -> bytes:
    """The content of the file. Numbers that are not finite are bare ``NaN`` and ``Infinity``, as in dumps."""
    by_rank: dict[str, Any] = {}
    for node in answer.nodes:
        by_rank.setdefault(_rank_key(node.rank), []).append(_entry(node))
    by_rank["_propagation"] = _propagation(answer)
    return (json.dumps(by_rank, indent=2) + "\n").encode()


def asked_for(propagation: dict[str, Any]) -> Asked:
    """What was asked for when a file was written, by its ``_propagation``; as usual where it does not say."""
    question = propagation.get("asked")
    question = question if isinstance(question, dict) else {}
    limits = question.get("limits")
    limits = limits if isinstance(limits, dict) else {}
    numbers = {key: limits[key] for key in ("largest", "growth") if type(limits.get(key)) in (int, float)}
    return Asked(
        GrowthLimits(every_infinity=limits.get("every_infinity") is True, **numbers),
        all_steps=question.get("all_steps") is True,
        partial=question.get("partial") is True,
    )


def _rank_key(rank: int | str) -> str:
    # The only process of a run counts as rank 0.
    return f"rank_{rank if isinstance(rank, int) else 0}"


def _entry(node: FirstNode) -> dict[str, Any]:
    backward = node.finding.direction == "backward"
    keys = ("input", "output") if backward else ("input_args", "input_kwargs", "output")
    return {
        "op_name": node.name,
        "data_info": {key: node.record.get(key, {} if key == "input_kwargs" else []) for key in keys},
        "construct_info": list(node.construct),
        "stack_info": list(node.stack) or {},
        "kind": node.how,
        "layer": node.layer,
        "step": node.step,
        "first_bad_value": node.value,
        "dtype_max_ratio": node.input_share,
        "harmless": node.finding.harmless,
        "hint": str(node.finding.message),
    }


def _propagation(answer: OverflowAnswer) -> dict[str, Any]:
    return {
        "dump": answer.dump,
        "asked": asdict(answer.asked),
        "from": [
            {
                "rank": _rank_key(node.rank),
                "op_name": node.name,
                "step": node.step,
                "to": {
                    _rank_key(arrival.rank): {"arrived_through": arrival.through, "first_bad": arrival.first_bad}
                    for arrival in node.arrivals
                },
            }
            for node in answer.nodes
        ],
        "unmatched_comm": [{"rank": _rank_key(rank), "op_name": name} for rank, name in answer.unmatched],
        "comm_mismatch": answer.mismatch,
        "coverage": answer.coverage.as_json(),
        "notes": [*answer.unread, *answer.notes],
    }
