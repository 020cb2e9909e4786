"""The settings of the free benchmark that trainings are tried with, and its tables."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

SETTINGS: dict[str, dict[str, Any]] = {
    "forward": {"pert_mode": ["no_change", "add_noise"]},
    "backward": {"pert_mode": ["no_change", "bit_noise"], "fuzz_stage": "backward"},
    "precision": {"pert_mode": ["improve_precision", "change_value"]},
    "cpu": {"pert_mode": "to_cpu", "fuzz_device": "cpu"},
    "preheat": {"pert_mode": "bit_noise", "if_preheat": True, "preheat_step": 2},
}


def table(folder: Path, file: str) -> list[dict[str, str]]:
    """The rows of all tables of this name below a folder."""
    found = []
    for path in sorted(folder.rglob(file)):
        with open(path, newline="", encoding="utf-8") as lines:
            found += csv.DictReader(lines)
    return found
