"""What healthy pairs leave: the figures that the limits of ``measuring`` were chosen by.

``python -m rollout.limits FOLDER`` (from ``tests/``). Its seeds, sizes and prompts are none of those that the bench
scores. For each type and kind of module: the largest deviation of a row in units, over what the trainer's own operator
leaves; for norms how far rows are scaled as a whole, healthy and with a variance in bfloat16.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import torch

from msprobe.rollout.torch import comparing

from .engines import Engine, prompts, sampling
from .mismatches import half_variance

SIZES = ({"hidden_size": 192, "intermediate_size": 320, "num_attention_heads": 6}, {"hidden_size": 256})


def main(folder: Path) -> None:
    """Print a table."""
    kept: list[Any] = []
    count = comparing._count
    comparing._count = lambda done, one: (kept.append(one), count(done, one))[1]
    for dtype in ("float32", "bfloat16"):
        for seed, sizes in enumerate(SIZES, 21):
            engine = Engine("dense", dtype, folder / f"{dtype}{seed}", seed, **sizes)
            for name, planted in (("healthy", None), ("half variance", half_variance)):
                roll = engine.record(name, sampling(10, temperature=0.9), planted, prompts(6, 9, seed))
                kept.clear()
                found = comparing.compare_engine(str(roll), engine.trained)
                table: dict[str, list[Any]] = {}
                for one in kept:
                    table.setdefault(one.path.rpartition(".")[2], []).append(one)
                for kind, those in table.items():
                    units = max(one.engine.units for one in those)
                    over = max(one.engine.units / max(one.trainer.units, 1e-9) for one in those)
                    scaled = [line.scaled for path, line in found.operators.items() if path.endswith(kind)]
                    print(
                        f"{dtype} {sizes['hidden_size']} {name}: {kind} {units:.3g} units, {over:.2g} times the "
                        f"trainer's, scaled {min(scaled):.2g} to {max(scaled):.2g}",
                        flush=True,
                    )
            del engine
            gc.collect()


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main(Path(sys.argv[1]))
