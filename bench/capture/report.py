"""Outcomes of bench/capture as a Markdown table and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import torch
from measure import Outcome

HEADINGS = (
    "model", "level", "task", "tool", "off ms", "on ms", "on/off", "on/off of fwd+bwd", "idle/off",
    "after stop/off", "records", "µs/record", "MB/step", "wall on/off",
)  # fmt: skip


def row(outcome: Outcome) -> tuple[str, ...]:
    case = outcome.case
    return (
        case.size,
        case.level,
        case.task,
        case.tool,
        f"{outcome.off:.2f}",
        f"{outcome.on:.2f}",
        f"{outcome.ratio:.2f}",
        f"{outcome.ratio_recorded:.2f}",
        f"{outcome.idle / outcome.off_twin:.2f}",
        f"{outcome.off_same / outcome.off_twin:.2f}",
        str(outcome.records),
        f"{outcome.micros_per_record:.0f}",
        f"{outcome.bytes / 1e6:.2f}",
        f"{outcome.on_wall / outcome.off_wall:.2f}",
    )


def markdown(outcomes: Iterable[Outcome]) -> str:
    """The table; numbers are medians."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'|'.join('---' for _ in HEADINGS)}|"]
    lines += [f"| {' | '.join(row(outcome))} |" for outcome in outcomes]
    return "\n".join(lines) + "\n"


def as_json(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Everything measured, with the machine it was measured on."""
    return {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "outcomes": [
            {
                **asdict(outcome),
                "ratio": outcome.ratio,
                "ratio_recorded": outcome.ratio_recorded,
                "micros_per_record": outcome.micros_per_record,
            }
            for outcome in outcomes
        ],
    }
