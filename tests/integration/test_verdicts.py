"""Real trainings with one planted mistake, recorded and compared: the verdict names what was planted, and first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bugs import truth
from bugs.clean import CLEAN
from bugs.patterns import PATTERNS
from bugs.planting import draw
from bugs.record import Pair, record
from support import command_line
from support.page_data import page_words

from msprobe.diagnose import compare_runs

#: One of each class.
PLANTED = {
    "F05": "forward",
    "B01": "backward",
    "O03": "optimizer",
    "X24": "further training",
    "X37": "further model",
    "D01": "two ranks",
}
HEALTHY = ("C05", "K01", "N11")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Each pair once, with digests."""
    folder = tmp_path_factory.mktemp("pairs")
    known = {**PATTERNS, **CLEAN}
    return {name: record(known[name], draw(known[name], 0), "digest", folder / name) for name in (*PLANTED, *HEALTHY)}


def run(*words: object) -> command_line.Completed:
    return command_line.call("compare", *words)


@pytest.mark.parametrize("name", PLANTED, ids=PLANTED.get)
def test_what_was_planted_is_named_first(pairs: dict[str, Pair], name: str) -> None:
    pair = pairs[name]
    verdict = compare_runs(pair.dump("candidate"), pair.dump("reference")).to_json()
    assert verdict["status"] == ("harmless" if pair.pattern.harmless else "diverged")
    assert truth.is_right(verdict["findings"][0], truth.resolve(pair)), verdict["findings"][0]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_pair_raises_no_alarm(pairs: dict[str, Pair], name: str) -> None:
    pair = pairs[name]
    verdict = compare_runs(pair.dump("candidate"), pair.dump("reference"))
    assert verdict.status in pair.pattern.expected, verdict.findings
    assert verdict.exit_code == 0
    assert verdict.summary["steps_compared"] == pair.pattern.steps


def test_the_command_exits_with_one_and_writes_what_it_found(pairs: dict[str, Pair], tmp_path: Path) -> None:
    pair = pairs["F05"]
    done = run(pair.dump("candidate"), pair.dump("reference"), "-o", tmp_path / "out", "--html")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("DIVERGED at step 0")
    written: dict[str, Any] = json.loads((tmp_path / "out" / "verdict.json").read_text())
    expected = compare_runs(pair.dump("candidate"), pair.dump("reference")).to_json()
    assert written == json.loads(json.dumps(expected))
    assert written["findings"][0]["entry"] in page_words(tmp_path / "out" / "verdict.html")


def test_the_command_exits_with_zero_where_nothing_is_wrong(pairs: dict[str, Pair]) -> None:
    done = run(pairs["C05"].dump("candidate"), pairs["C05"].dump("reference"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("AGREE")


def test_the_command_exits_with_two_on_bad_input(pairs: dict[str, Pair], tmp_path: Path) -> None:
    done = run(pairs["C05"].dump("candidate"), tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert "nowhere" in done.stderr


def test_a_single_step_of_a_run_can_be_compared(pairs: dict[str, Pair]) -> None:
    pair = pairs["F05"]
    whole = compare_runs(pair.dump("candidate"), pair.dump("reference"))
    step = compare_runs(pair.dump("candidate") / "step0", pair.dump("reference") / "step0")
    assert [finding.entry for finding in step.findings] == [finding.entry for finding in whole.findings]
