"""``msprobe compare --second-look``: what statistics cannot settle is settled from the calls' own inputs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import call

from .faults import FAULTS
from .looked import record_again
from .record import Recording, recorded
from .recordings import KernelPair

NETWORK, PRECISION, VARIANT = "messages", "bfloat16", "halves"
#: Three of a thousand too large, of eight bits: no limit of rounding can see it in one call.
FAULT = replace(FAULTS["messages-native_batch_norm-scale-0.01"], amount=0.003)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> KernelPair:
    """A device with a wrong kernel beside torch itself."""
    cache = tmp_path_factory.mktemp("kernels")
    sides = [Recording(NETWORK, PRECISION, VARIANT, FAULT), Recording(NETWORK, PRECISION)]
    return KernelPair(NETWORK, PRECISION, VARIANT, FAULT, *(recorded(one, cache) for one in sides), None)


def look(pair: KernelPair, folder: Path) -> tuple[int, dict]:
    """The exit status of the command, and what it prints as JSON."""
    done = call("compare", pair.candidate / "dump", pair.reference / "dump", "--second-look", folder, "--json")
    return done.returncode, json.loads(done.stdout)


def record_both(pair: KernelPair, folder: Path) -> None:
    for side, variant, fault in (("candidate", pair.variant, pair.fault), ("reference", "", None)):
        record_again(pair, variant, fault, folder / f"{side}.json")


def test_a_kernel_that_is_wrong_on_one_side_is_named_first(pair: KernelPair, tmp_path: Path) -> None:
    status, verdict = look(pair, tmp_path / "look")
    assert status == 0
    assert len(verdict["summary"]["second_look"]["calls"]) <= 20
    for side in ("candidate", "reference"):
        settings = json.loads((tmp_path / "look" / f"{side}.json").read_text())
        assert settings["task"] == "tensor"
        assert "Functional.batch_norm.0." in settings["tensor"]["list"]
    record_both(pair, tmp_path / "look")
    status, verdict = look(pair, tmp_path / "look")
    assert status == 1
    assert verdict["findings"][0]["entry"] == "Functional.batch_norm.0.forward"
    assert verdict["findings"][0]["evidence"]["cause"] == "wrong_alone"
    assert any("other_networks.py" in line for line in verdict["findings"][0]["stack"])
    recordings = verdict["summary"]["second_look"]["recordings"]
    assert recordings == {side: str(tmp_path / "look" / side) for side in ("candidate", "reference")}
    settled = {one["entry"]: one["answer"] for one in verdict["summary"]["second_look"]["results"]}
    assert settled["Functional.batch_norm.0.forward"] == "wrong"
    assert "right" in settled.values()


def test_a_healthy_device_stays_in_agreement(pair: KernelPair, tmp_path: Path) -> None:
    cache = pair.reference.parent.parent
    healthy = replace(pair, fault=None, candidate=recorded(Recording(NETWORK, PRECISION, VARIANT), cache))
    look(healthy, tmp_path / "look")
    record_both(healthy, tmp_path / "look")
    status, verdict = look(healthy, tmp_path / "look")
    assert status == 0
    assert not verdict["findings"]
    assert {one["answer"] for one in verdict["summary"]["second_look"]["results"]} == {"right"}


def test_one_recording_alone_settles_nothing(pair: KernelPair, tmp_path: Path) -> None:
    look(pair, tmp_path)
    record_again(pair, pair.variant, pair.fault, tmp_path / "candidate.json")
    done = call("compare", pair.candidate / "dump", pair.reference / "dump", "--second-look", tmp_path)
    assert done.returncode == 2
    assert "reference.json" in done.stderr
