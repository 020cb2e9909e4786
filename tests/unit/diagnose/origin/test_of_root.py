"""Two runs of an engine at level L0: what came into the whole model is named by its argument of the root."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from unit.diagnose.comparing import first, told
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.diagnose import compare_runs


def engine(folder: Path, positions: int, digests: bool = True) -> Path:
    """A layer whose rotary embedding has a module of its own, and a compiled function of the sampler behind it."""
    rec = Recording(digests=digests)
    tokens = Value(np.arange(5))
    places = Value(np.arange(5) + positions)
    table, wide = Value(drawn("table", 8, 4), True), drawn("wide", 5, 4)
    with rec.module("root", "LlamaForCausalLM", [tokens, places]) as end_root:
        with rec.module("embed", "Embedding", [tokens], {"weight": table}) as end:
            end(h := Value(table.array[tokens.array % 8], True))
        with rec.module("layer", "Layer", [places, h]) as end_layer:
            with rec.module("layer.rotary_emb", "RotaryEmbedding", [places, h]) as end_rotary:
                with rec.module("layer.rotary_emb.apply", "Apply", [h]) as end:
                    end(half := h.of(h.array * np.float32(0.5)))
                end_rotary(turned := h.of((half.array * np.cos(places.array[:, None])).astype(np.float32)))
            end_layer(done := turned.of(turned.array + np.float32(1)))
        end_root(done)
    rec.call("Compiled.counts", [Value(done.array @ wide.T, True)], Value(np.arange(5)))
    rec.write(folder / "step0" / "rank", level="L0")
    return folder


def test_a_difference_in_the_roots_arguments_is_named_there(tmp_path: Path) -> None:
    verdict = compare_runs(engine(tmp_path / "a", 1), engine(tmp_path / "b", 0))
    found = first(verdict)
    assert (found.kind, found.where) == ("data", "Module.root.LlamaForCausalLM.forward.0, input.1"), told(verdict)
