"""Each way in which an engine and a trainer came to mean different things by their log-probs in a public thread."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import command_line
from support.rollouts_made import Made, made, rows

from msprobe.rollout.contract import Contract, hold
from msprobe.rollout.responses import read_responses

Rows = list[dict[str, Any]]


def judged(folder: Path, engine: Rows, trainer: Rows, prefill: Rows | None = None) -> Contract:
    files = []
    for name, side in (("engine", engine), ("trainer", trainer), ("prefill", prefill or [])):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in side))
        files.append(str(path))
    return hold(
        read_responses(files[0], "engine"),
        read_responses(files[1], "trainer"),
        read_responses(files[2], "engine") if prefill is not None else None,
    )


def codes(contract: Contract) -> list[str]:
    return [one.name for one in contract.findings]


# ---- healthy pairs


@pytest.mark.parametrize("noise", [0.0, 1e-7, 4e-3, 8e-3], ids=["equal", "float32", "bfloat16", "two bfloat16"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("drawn", [{}, {"temperature": 0.6}], ids=["whole", "warm"])
def test_rounding_alone_agrees(tmp_path: Path, noise: float, seed: int, drawn: dict[str, Any]) -> None:
    policy = made(seed=seed, **drawn)
    warm = drawn.get("temperature", 1.0)
    found = judged(
        tmp_path, rows(policy, policy.log_probs(warm, noise=noise), **drawn), rows(policy, policy.log_probs(warm))
    )
    assert (found.status, codes(found), found.exit_code) == ("agree", [], 0)
    assert (found.measures.equal == found.measures.tokens) == (noise == 0)


def test_a_flipped_router_is_counted_apart(tmp_path: Path) -> None:
    policy = made()
    engine = policy.log_probs(noise=4e-3)
    experts = [[[0, 1]] * 40 for _ in range(12)]
    flipped = json.loads(json.dumps(experts))
    for place in (3, 7):
        engine[place, 11] -= 3.2
        flipped[place][11] = [2, 1]
    found = judged(
        tmp_path,
        rows(policy, engine, routed_experts=flipped),
        rows(policy, policy.log_probs(), routed_experts=experts),
    )
    assert (found.status, found.measures.flipped) == ("agree", 2)
    assert found.measures.largest < 0.2


def test_tokens_of_tools_that_a_trainer_leaves_out_are_no_fault(tmp_path: Path) -> None:
    policy = made()
    mask = [[1] * 10 + [0] * 6 + [1] * 24 for _ in range(12)]
    found = judged(tmp_path, rows(policy, policy.log_probs()), rows(policy, policy.log_probs(), response_mask=mask))
    assert (found.status, found.measures.tokens) == ("agree", 12 * 34)


# ---- what people found in weeks: the code, and the arguments that prove it


def processing(policy: Made) -> tuple[Rows, Rows]:
    """vime 64, NeMo-RL 902, trl 4159: the engine's after temperature, the trainer's before; logits are there."""
    logits = [one.tolist() for one in policy.logits]
    return (
        rows(policy, policy.log_probs(0.6), temperature=0.6),
        rows(policy, policy.log_probs(), logits=logits),
    )


def warm_only(policy: Made) -> tuple[Rows, Rows]:
    return rows(policy, policy.log_probs(0.6), temperature=0.6), rows(policy, policy.log_probs())


def shifted(policy: Made) -> tuple[Rows, Rows]:
    """A response's log-probs taken from the logits one place too late."""
    log_probs = policy.log_probs(noise=4e-3)
    return rows(policy, policy.log_probs()), rows(policy, np.roll(log_probs, 1, axis=1))


def neighbours(policy: Made) -> tuple[Rows, Rows]:
    """open-instruct 1473: rows of prompt and response shifted."""
    return rows(policy, policy.log_probs()), rows(policy, np.roll(policy.log_probs(noise=4e-3), 1, axis=0))


def wrong_entry(policy: Made) -> tuple[Rows, Rows]:
    """NeMo-RL 3297, trl 3867: the first entry of vLLM's dictionary in place of the token's."""
    engine = rows(policy, policy.log_probs())
    whole = policy.logits - np.log(np.exp(policy.logits).sum(axis=2, keepdims=True))
    taken = []
    for place, row in enumerate(engine):
        entries = []
        for at, token in enumerate(row["response_ids"]):
            best = int(np.argmax(whole[place, at]))
            both = {best: {"logprob": whole[place, at, best]}, token: {"logprob": whole[place, at, token]}}
            entries.append(both)
        row["log_probs"] = entries
        taken.append([next(iter(one.values()))["logprob"] for one in entries])
    return engine, rows(policy, np.asarray(taken))


def base_two(policy: Made) -> tuple[Rows, Rows]:
    return rows(policy, policy.log_probs() / np.log(2)), rows(policy, policy.log_probs(noise=4e-3))


def probabilities(policy: Made) -> tuple[Rows, Rows]:
    return rows(policy, policy.log_probs()), rows(policy, np.exp(policy.log_probs()))


def negative(policy: Made) -> tuple[Rows, Rows]:
    """A loss (negative log likelihood) in place of log-probs."""
    return rows(policy, policy.log_probs()), rows(policy, -policy.log_probs(noise=1e-7))


def old_weights(policy: Made) -> tuple[Rows, Rows]:
    return (
        rows(policy, policy.log_probs(noise=4e-3), weight_version="4"),
        rows(policy, policy.log_probs(), weight_version="5"),
    )


def end_token(policy: Made) -> tuple[Rows, Rows]:
    """pytorch/rl 3580: the padding token is the end token, and the end is cut off."""
    trainer = rows(policy, policy.log_probs())
    for row in trainer:
        row["response_ids"].pop()
        row["log_probs"].pop()
    return rows(policy, policy.log_probs()), trainer


def masked_end(policy: Made) -> tuple[Rows, Rows]:
    mask = [[1] * 39 + [0] for _ in range(12)]
    return rows(policy, policy.log_probs()), rows(policy, policy.log_probs(), response_mask=mask)


def one_prefix(policy: Made) -> tuple[Rows, Rows]:
    """NeMo-RL 4018, prime-rl 1650: a cached prefix of old weights in two of the responses."""
    engine = policy.log_probs(noise=4e-3)
    engine[[2, 5]] -= np.abs(np.random.default_rng(3).standard_normal((2, 40))) * 2
    return rows(policy, engine), rows(policy, policy.log_probs())


def far_positions(policy: Made) -> tuple[Rows, Rows]:
    """vllm 27722: a range of the rotary embedding that is rounded, wrong from a position on."""
    engine = policy.log_probs(noise=4e-3)
    engine[:, 24:] -= np.abs(np.random.default_rng(3).standard_normal((12, 16)))
    return rows(policy, engine), rows(policy, policy.log_probs())


def filled(policy: Made) -> tuple[Rows, Rows]:
    engine = policy.log_probs()
    engine[:, 0] = 0.0
    return rows(policy, engine), rows(policy, policy.log_probs())


def lost(policy: Made) -> tuple[Rows, Rows]:
    engine = policy.log_probs()
    engine[4, 9] = np.nan
    return rows(policy, engine), rows(policy, policy.log_probs())


def other_order(policy: Made) -> tuple[Rows, Rows]:
    trainer = rows(policy, policy.log_probs())[::-1]
    for side in (engine := rows(policy, policy.log_probs()), trainer):
        for row in side:
            del row["request_id"]
    return engine, trainer


def tokenised_again(policy: Made) -> tuple[Rows, Rows]:
    trainer = rows(policy, policy.log_probs())
    trainer[3]["response_ids"][17] += 1
    return rows(policy, policy.log_probs()), trainer


def other_model(policy: Made) -> tuple[Rows, Rows]:
    return rows(policy, policy.log_probs()), rows(policy, policy.log_probs(noise=0.5))


KNOWN: list[tuple[Callable[[Made], tuple[Rows, Rows]], str, dict[str, Any]]] = [
    (processing, "processed", {"temperature": 0.6}),
    (warm_only, "temperature-not-applied", {"temperature": 0.6}),
    (shifted, "shifted-tokens", {"places": -1}),
    (neighbours, "shifted-responses", {"rows": 1}),
    (wrong_entry, "wrong-entry", {"entry": "first"}),
    (base_two, "log-base", {"base": 2.0, "side": "engine"}),
    (probabilities, "probabilities", {"side": "trainer"}),
    (negative, "sign", {"side": "trainer"}),
    (old_weights, "weight-versions-differ", {"engine": "4", "trainer": "5", "count": 12}),
    (end_token, "last-token-missing", {"side": "trainer", "count": 12}),
    (masked_end, "last-token-masked", {"count": 12}),
    (one_prefix, "responses-stand-out", {"count": 2}),
    (far_positions, "from-a-position-on", {"position": 24}),
    (filled, "filled-with-zero", {"side": "engine", "tokens": 12}),
    (lost, "no-number", {"side": "engine", "tokens": 1}),
    (other_order, "order-differs", {"count": 12}),
    (tokenised_again, "tokens-differ", {"count": 1, "position": 17}),
    (other_model, "log-probs-beyond-rounding", {}),
]


@pytest.mark.parametrize(("mistake", "code", "arguments"), KNOWN, ids=[one[0].__name__ for one in KNOWN])
@pytest.mark.parametrize("seed", [0, 5])
def test_a_mistake_is_named(
    tmp_path: Path, mistake: Callable[[Made], tuple[Rows, Rows]], code: str, arguments: dict[str, Any], seed: int
) -> None:
    drawn = 0.6 if mistake in (processing, warm_only) else 1.0
    engine, trainer = mistake(made(temperature=drawn, seed=seed))
    found = judged(tmp_path, engine, trainer)
    assert codes(found) == [code]
    assert (found.status, found.exit_code) == ("diverged", 1)
    first = found.findings[0].arguments
    assert (
        {key: first[key] for key in arguments} == pytest.approx(arguments)
        if code == "processed"
        else ({key: first[key] for key in arguments} == arguments)
    )


@pytest.mark.parametrize("settings", [{"top_p": 0.7}, {"top_k": 4}, {"top_k": 12, "top_p": 0.8}], ids=str)
@pytest.mark.parametrize("seed", [0, 5])
def test_log_probs_of_fewer_tokens_are_named(tmp_path: Path, settings: dict[str, Any], seed: int) -> None:
    """trl 6789 and 7269, vllm 42259: processed log-probs are renormalised over what top-k and top-p keep."""
    policy = made(seed=seed, responses=24, **settings)
    engine = rows(policy, policy.log_probs(**settings, noise=0.0), **settings)
    found = judged(tmp_path, engine, rows(policy, policy.log_probs(noise=2e-3)))
    assert codes(found) == ["renormalised"]
    assert found.findings[0].arguments["kept"] < 0.95
    logits = [one.tolist() for one in policy.logits]
    found = judged(tmp_path, engine, rows(policy, policy.log_probs(noise=2e-3), logits=logits))
    assert codes(found) == ["processed"]
    assert {key: found.findings[0].arguments.get(key) for key in settings} == settings


def test_decode_and_prefill_are_the_first_bisection(tmp_path: Path) -> None:
    """NeMo-RL 2141: the engine itself gives two answers."""
    policy = made()
    decode = policy.log_probs(noise=0.3)
    found = judged(
        tmp_path, rows(policy, decode), rows(policy, policy.log_probs(noise=4e-3)), rows(policy, policy.log_probs())
    )
    assert codes(found)[0] == "decode-and-prefill-differ"
    assert found.decode is not None
    assert found.decode.mean > found.measures.mean / 2


def test_half_of_the_responses_taken_away_is_said(tmp_path: Path) -> None:
    policy = made()
    engine, trainer = rows(policy, policy.log_probs()), rows(policy, policy.log_probs())[:6]
    found = judged(tmp_path, engine, trainer)
    assert (found.status, found.exit_code, found.coverage.is_complete) == ("agree", 2, False)
    assert found.coverage.read == {"responses": 6, "tokens": 240}


def test_the_command_says_writes_and_prints_the_same(tmp_path: Path) -> None:
    policy = made()
    for name, side in zip(("e.jsonl", "t.jsonl"), shifted(policy), strict=True):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in side))
    words = ["rollout", "--log-probs", str(tmp_path / "e.jsonl"), str(tmp_path / "t.jsonl")]
    ended = command_line.call(*words, "-o", str(tmp_path / "out"))
    assert ended.returncode == 1
    written = json.loads((tmp_path / "out" / "rollout.json").read_text())
    printed = command_line.call(*words, "--json", "-")
    assert json.loads(printed.stdout) == written
    first = written["findings"][0]
    assert (first["code"], first["name"], first["arguments"]["places"]) == ("T115", "shifted-tokens", -1)
    assert first["message"] in ended.stdout
    assert written["coverage"]["complete"] is True
    page = (tmp_path / "out" / "rollout.html").read_text()
    assert "T115 shifted-tokens" in page
    assert html.escape(first["message"]) in page


#: Words that are no language: what files call their fields, and terms that Chinese engineers write as they are.
_TERMS = {"log-prob", "token", "logits", "log_probs", "softmax", "k3", "jsonl", "i"}


@pytest.mark.parametrize("what", ["shifted", "equal"])
def test_the_console_answers_in_chinese(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_LANG", "zh")
    policy = made()
    sides = shifted(policy) if what == "shifted" else (rows(policy, policy.log_probs()),) * 2
    for name, side in zip(("e.jsonl", "t.jsonl"), sides, strict=True):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in side))
    words = ["rollout", "--log-probs", "e.jsonl", "t.jsonl"]
    ended = command_line.call(*words, cwd=tmp_path)
    assert ended.returncode == (what == "shifted")
    code = "  T115 shifted-tokens"
    said = [line for line in ended.stdout.splitlines() if not line.startswith(code)]
    assert (len(said) < len(ended.stdout.splitlines())) == (what == "shifted")
    words_of = set(re.findall(r"[A-Za-z_][A-Za-z_0-9]*(?:-[A-Za-z]+)*", " ".join(said)))
    assert words_of <= {*_TERMS, "e", "t"}
