"""Files of log-probs as engines and trainers write them, and as strangers may."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import command_line
from support.rollouts_made import made, rows

from msprobe.errors import MsprobeError
from msprobe.rollout.contract import hold
from msprobe.rollout.responses import Response, read_responses


def written(path: Path, tree: Any) -> str:
    path.write_text(json.dumps(tree))
    return str(path)


def the_same(found: Response, policy: Any, place: int, log_probs: Any) -> bool:
    assert found.tokens is not None
    return np.array_equal(found.tokens, policy.tokens[place]) and np.array_equal(found.log_probs, log_probs[place])


def test_json_lines_with_a_row_for_each_response(tmp_path: Path) -> None:
    policy = made(responses=3)
    log_probs = policy.log_probs()
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows(policy, log_probs)) + "\n\n")
    found = read_responses(str(path), "engine")
    assert [one.name for one in found.rows] == ["r0", "r1", "r2"]
    assert all(the_same(one, policy, place, log_probs) for place, one in enumerate(found.rows))


def test_rows_of_tokens_in_any_order(tmp_path: Path) -> None:
    policy = made(responses=3)
    log_probs = policy.log_probs()
    cells = [
        (f"r{place}", at, int(policy.tokens[place, at]), float(log_probs[place, at]))
        for place in range(3)
        for at in reversed(range(40))
    ]
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("request", "position", "token", "logprob"), *cells])
    found = read_responses(str(path), "trainer")
    assert all(the_same(one, policy, place, log_probs) for place, one in enumerate(found.rows))


def test_csv_with_lists_in_cells(tmp_path: Path) -> None:
    policy = made(responses=2)
    log_probs = policy.log_probs()
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        lines = [
            [place, json.dumps(policy.tokens[place].tolist()), json.dumps(log_probs[place].tolist())]
            for place in (0, 1)
        ]
        csv.writer(file).writerows([("id", "token ids", "log-probs"), *lines])
    found = read_responses(str(path), "trainer")
    assert all(the_same(one, policy, place, log_probs) for place, one in enumerate(found.rows))


def test_samples_of_slime(tmp_path: Path) -> None:
    """``--save-debug-rollout-data``: tokens hold the prompt, too."""
    torch = pytest.importorskip("torch")
    policy = made(responses=3)
    log_probs = policy.log_probs()
    samples = [
        {
            "index": place,
            "prompt": "?",
            "tokens": [1, 2, 3, *policy.tokens[place].tolist()],
            "response_length": 40,
            "rollout_log_probs": log_probs[place].tolist(),
            "loss_mask": [1] * 40,
            "weight_versions": ["7"],
        }
        for place in range(3)
    ]
    torch.save({"rollout_id": 0, "samples": samples}, tmp_path / "rollout.pt")
    found = read_responses(str(tmp_path / "rollout.pt"), "engine")
    assert found.field == "rollout_log_probs"
    assert all(the_same(one, policy, place, log_probs) for place, one in enumerate(found.rows))
    data = {
        "tokens": [torch.tensor([1, 2, 3, *policy.tokens[place].tolist()]) for place in range(3)],
        "log_probs": [torch.tensor(log_probs[place]) for place in range(3)],
        "rollout_log_probs": [torch.tensor(log_probs[place] - 1) for place in range(3)],
        "sample_indices": [0, 1, 2],
    }
    torch.save({"rollout_id": 0, "rank": 0, "rollout_data": data}, tmp_path / "train.pt")
    trainer = read_responses(str(tmp_path / "train.pt"), "trainer")
    assert trainer.field == "log_probs"
    assert all(the_same(one, policy, place, log_probs) for place, one in enumerate(trainer.rows))
    assert hold(found, trainer).status == "agree"


def test_a_batch_of_verl_or_trl_is_a_padded_table_that_holds_both_sides(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    policy = made(responses=4)
    mask = torch.ones(4, 40, dtype=torch.int64)
    mask[1, 30:] = mask[3, 12:] = 0
    batch = {
        "prompts": torch.zeros(4, 5, dtype=torch.int64),
        "responses": torch.tensor(policy.tokens),
        "attention_mask": torch.cat([torch.ones(4, 5, dtype=torch.int64), mask], 1),
        "response_mask": mask,
        "old_log_probs": torch.tensor(policy.log_probs(), dtype=torch.float32),
        "rollout_log_probs": torch.tensor(policy.log_probs(noise=3e-3)).bfloat16(),
    }
    torch.save(batch, tmp_path / "batch.pt")
    path = str(tmp_path / "batch.pt")
    engine, trainer = read_responses(path, "engine"), read_responses(path, "trainer")
    assert (engine.field, trainer.field) == ("rollout_log_probs", "old_log_probs")
    found = hold(engine, trainer)
    assert (found.status, found.measures.tokens) == ("agree", 80 + 30 + 12)


def test_tokens_beside_log_probs_as_sglang_has_them(tmp_path: Path) -> None:
    policy = made(responses=2)
    log_probs = policy.log_probs()
    tree = [
        {
            "id": place,
            "output_token_logprobs": [
                [float(a), int(b), None] for a, b in zip(log_probs[place], policy.tokens[place], strict=True)
            ],
        }
        for place in range(2)
    ]
    found = read_responses(written(tmp_path / "a.json", tree), "engine")
    assert all(the_same(one, policy, place, log_probs) for place, one in enumerate(found.rows))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"text": "hello"}\n'),
        ("a.jsonl", '{"log_probs": [1, 2'),
        ("a.jsonl", ""),
        ("a.json", "[[[[[[[[1]]]]]]]]"),
        ("a.json", '{"log_probs": "many"}'),
        ("a.json", '{"log_probs": [{"x": 1}]}'),
        ("a.csv", "request,token\n1,2\n"),
        ("a.pt", "no archive"),
        ("a.xyz", "?"),
        ("missing.jsonl", None),
    ],
)
def test_what_is_no_file_of_log_probs_ends_in_a_sentence(tmp_path: Path, name: str, text: str | None) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    ended = command_line.call("rollout", "--log-probs", path, path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert str(path) in ended.stderr


def test_a_pickle_of_a_strange_class_is_never_run(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(Strange(str(tmp_path / "run")), tmp_path / "a.pt")
    ended = command_line.call("rollout", "--log-probs", tmp_path / "a.pt", tmp_path / "a.pt")
    assert ended.returncode == 2
    assert not (tmp_path / "run").exists()


class Strange:
    """Makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
_KEYS = st.sampled_from(
    ["log_probs", "tokens", "response_mask", "request_id", "logits", "samples", "batch", "position"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.dictionaries(_KEYS, _VALUES, max_size=5), max_size=4))
def test_any_json_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(tree))
    try:
        found = read_responses(str(path), "engine")
        hold(found, found)
    except MsprobeError:
        pass
