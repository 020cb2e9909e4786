"""Records tiny engines for the tests that have none: ``python -m rollout.store FOLDER`` (from ``tests/``).

Two requests of three tokens each in float32: ``engine.zip`` of a dense model, ``experts.zip``, ``adapter.zip``, and
``cached.zip``, whose keys of a first block were cached before the recording, by older weights in ``stale``.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import torch

from . import engines
from .mismatches import _changed

_SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
_SMALL |= {"num_key_value_heads": 1, "vocab_size": 64, "max_position_embeddings": 128}
_LEFT_OUT = ("stack.json", "construct.json")


def pack(target: Path, folders: dict[str, Path]) -> None:
    """Put folders into an archive; weights that were recorded with each call are left out."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, folder in folders.items():
            for file in sorted(folder.rglob("*")):
                is_weight = ".parameters." in file.name and file.suffix == ".pt"
                # What a compiled function of the sampler was given, and what only holds others.
                is_spare = file.name.startswith("Compiled.") or "DecoderLayer" in file.name
                if file.is_file() and not is_weight and not is_spare and file.name not in _LEFT_OUT:
                    archive.write(file, Path(name) / file.relative_to(folder))


def main(target: Path, work: Path) -> None:
    """Write the archives."""
    engines.MODEL.update(_SMALL)
    engines.EXPERTS.update({"num_experts": 4, "num_experts_per_tok": 2})
    given, settings = engines.prompts(2), engines.sampling(3)
    for kind, name in (("dense", "engine"), ("experts", "experts"), ("adapter", "adapter")):
        one = engines.Engine(kind, "float32", work / kind)
        folders = {"roll": one.record("healthy", settings, given=given)}
        # The model of all dense ones is the same.
        folders |= {"adapter": one.adapter} if kind == "adapter" else {"model": one.model}
        pack(target / f"{name}.zip", folders)
        del one
    one = engines.Engine("cached", "float32", work / "cached")
    long = [{"prompt_token_ids": [*range(3, 35), 40 + place]} for place in range(2)]
    one.generate(long, engines.sampling(1))
    roll = one.record("healthy", settings, given=long)
    norm = one.modules()["model.layers.0.input_layernorm"]
    with _changed(norm.weight, norm.weight.data * 1.25):
        stale = one.record("stale", settings, given=long)
    pack(target / "cached.zip", {"roll": roll, "stale": stale})


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
