"""SGLang, by a stand-in with the fields of its ``ForwardBatch`` (0.5): the real one needs a GPU and was not tried."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from msprobe.integrations.sglang import recording, rows_of  # noqa: E402


def batch(names: list[str] | None, lengths: list[int] | None) -> Any:
    extended = None if lengths is None else torch.tensor(lengths)
    return SimpleNamespace(forward_mode=1, rids=names, req_pool_indices=torch.tensor([7, 3]), extend_seq_lens=extended)


@pytest.mark.parametrize(
    ("names", "lengths", "expected"),
    [
        (["a", "b"], [3, 2], (["a", "b"], {"a": 3, "b": 2})),
        (["a", "b"], None, (["a", "b"], {"a": 1, "b": 1})),
        (None, [3, 2], (["7", "3"], {"7": 3, "3": 2})),
    ],
)
def test_whose_rows_a_batch_has(names: Any, lengths: Any, expected: Any) -> None:
    assert rows_of(batch(names, lengths)) == expected


class Policy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(16, 8)

    def forward(self, input_ids: Any, positions: Any, forward_batch: Any) -> Any:
        return self.embed(input_ids)


def test_a_block_is_a_step_with_the_rows_of_each_pass(tmp_path: Path) -> None:
    model = Policy()
    with recording(model, dump_path=str(tmp_path), task="tensor", level="L0", record_root=True):
        model(torch.arange(5), torch.arange(5), batch(["a", "b"], [3, 2]))
        model(torch.arange(2), torch.arange(2), forward_batch=batch(["a", "b"], None))
    model(torch.arange(2), torch.arange(2), batch(["a", "b"], None))
    engine = json.loads((tmp_path / "step0" / "engine.json").read_text())
    assert [one["rows"] for one in engine["steps"]] == [[["a", 3], ["b", 2]], [["a", 1], ["b", 1]]]
    assert set(engine["modules"]) == {"embed"}
