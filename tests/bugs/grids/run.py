"""Print the healthy trainings of a grid that are called different.

    python -m tests.bugs.grids.run [--count 60] [--seed 0] [--cell BLOCK,LOSS[,OPTIMIZER[,CONDITION]]]
        [--precision float32,bfloat16] [--level mix,L0,L1] [--variants tiles,fast]

Cells are drawn at random, the same ones for a seed. One cell in one precision takes about half a second of CPU time.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import torch

from ..kernels.variants import VARIANTS
from .training import PRECISIONS, Cell, cells, compare_with_device


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the healthy trainings of a grid that are called different.")
    parser.add_argument("--count", type=int, default=60, help="so many cells")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--cell", help="this one alone, by the names of its parts")
    parser.add_argument("--precision", default="float32", help="some of " + ", ".join(PRECISIONS))
    parser.add_argument("--level", default="mix", help="some of mix, L0, L1")
    parser.add_argument("--variants", default="tiles", help="some of " + ", ".join(VARIANTS))
    chosen = parser.parse_args()
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counted: Counter[tuple[str, str, str]] = Counter()
    for cell in [Cell(*chosen.cell.split(","))] if chosen.cell else cells(chosen.count, chosen.seed):
        for precision in chosen.precision.split(","):
            for level in chosen.level.split(","):
                for variant in chosen.variants.split(","):
                    answer = _answer(cell, precision, level, variant)
                    counted[precision, level, answer.partition(" ")[0]] += 1
                    if chosen.cell or not answer.startswith("agree"):
                        print(f"{','.join(cell)} {precision} {level} {variant}: {answer}", flush=True)
    for row, count in sorted(counted.items()):
        print(f"| {' | '.join(row)} | {count} |")


def _answer(cell: Cell, precision: str, level: str, variant: str) -> str:
    """The status, and what is named first."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            verdict = compare_with_device(Path(folder), cell, precision, level, variant)
        except (RuntimeError, ValueError) as error:  # a type that torch's kernel does not have
            return f"error {str(error).splitlines()[0]}"
    return f"{verdict.status} {verdict.findings[0].message}" if verdict.findings else str(verdict.status)


if __name__ == "__main__":
    sys.exit(main())
