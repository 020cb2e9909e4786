"""Records a tiny engine for the tests that have none: ``python -m rollout.store FILE.zip`` (from ``tests/``)."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

import torch

from . import bench

_SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
_SMALL |= {"num_key_value_heads": 1, "vocab_size": 64, "max_position_embeddings": 128}


def main(target: Path) -> None:
    """Two requests of three tokens each, in float32; weights that were recorded with each call are left out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench.MODEL.update(_SMALL)
        bench.PROMPTS[:] = bench.PROMPTS[:2]
        bench.GREEDY.max_tokens = 3
        bench.GREEDY.min_tokens = 3
        one = bench.Bench("float32", folder)
        roll = Path(one.record("greedy", bench.GREEDY))
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted([*roll.rglob("*"), *one.model.rglob("*")]):
                is_weight = ".parameters." in file.name and file.suffix == ".pt"
                if file.is_file() and not is_weight and file.name not in ("stack.json", "construct.json"):
                    place = Path("roll") / file.relative_to(roll) if roll in file.parents else Path("model") / file.name
                    archive.write(file, place)


if __name__ == "__main__":
    torch.manual_seed(0)
    main(Path(sys.argv[1]))
