"""Section free_benchmark: what is wrong is told at once, in a sentence each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import raising

from msprobe.config.load import load_settings
from msprobe.errors import InvalidInputError, ScopeError
from msprobe.messages import said


def load(folder: Path, section: dict[str, Any], **top: Any) -> Any:
    path = folder / "config.json"
    path.write_text(
        json.dumps({"task": "free_benchmark", "dump_path": str(folder / "out"), "free_benchmark": section, **top})
    )
    return load_settings(path).free_benchmark


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"fuzz_device": "tpu"}, ['"free_benchmark.fuzz_device": found "tpu"', '"npu", "cpu"']),
        ({"pert_mode": "exchange"}, ['pert_mode": found "exchange"', '"change_value"']),
        ({"pert_mode": ""}, ['pert_mode": found ""']),
        ({"pert_mode": None}, ['pert_mode": found null']),
        ({"pert_mode": []}, ['pert_mode": found []']),
        ({"pert_mode": ["add_noise", "x"]}, ["no such mode: 'x'"]),
        ({"fuzz_device": "cpu"}, [said("fuzz-device-wrong", '"cpu"', '["improve_precision"]')]),
        ({"pert_mode": "to_cpu"}, [said("fuzz-device-wrong", '"npu"', '["to_cpu"]')]),
        (
            {"pert_mode": ["to_cpu", "no_change"], "fuzz_device": "cpu"},
            [said("fuzz-device-wrong", '"cpu"', '["to_cpu", "no_change"]')],
        ),
        ({"handler_type": "repair"}, ['"check", "fix"']),
        ({"fuzz_stage": "both"}, ['"forward", "backward"']),
        ({"fuzz_level": "L2"}, ['allowed: "L1"']),
        ({"if_preheat": "true"}, ["allowed: true or false"]),
        ({"preheat_step": 0}, ["a whole number above 0"]),
        ({"preheat_step": True}, ["a whole number above 0"]),
        ({"max_sample": 1.5}, ["a whole number above 0"]),
        ({"handler_type": "fix", "fuzz_stage": "backward"}, ['"fuzz_stage": ', said("fix-needs-forward")]),
        ({"handler_type": "fix", "pert_mode": "add_noise"}, ['allowed: "improve_precision", "to_cpu"']),
        ({"handler_type": "fix", "if_preheat": True}, ['"if_preheat": ', said("fix-without-preheat")]),
        ({"fix_graph": True}, [said("only-with-handler-fix")]),
        ({"noise": "loud"}, ['"ulp", "absolute"']),
        ({"noise_scale": 0}, ["1..1024"]),
        ({"sample_ratio": 0}, ["above 0, at most 1"]),
        ({"report": "some"}, ['"all", "risks"']),
    ],
)
def test_each_wrong_value(tmp_path: Path, section: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InvalidInputError) as raised:
        load(tmp_path, section)
    for word in ("config.json:1", *words):
        assert word.replace('"fuzz_stage"', 'fuzz_stage"').replace('"if_preheat"', 'if_preheat"') in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    section = {"handler_type": "fix", "fuzz_stage": "backward", "pert_mode": "add_noise", "if_preheat": True}
    with pytest.raises(InvalidInputError, match="has 3 mistakes"):
        load(tmp_path, section)


def test_scope_and_list_exclude_each_other(tmp_path: Path) -> None:
    with raising(ScopeError, "config-mistake"):
        load(tmp_path, {"scope": ["Torch.matmul.0.forward"], "list": ["relu"]})


@pytest.mark.parametrize("device", ["npu", "gpu", "cuda", "device"])
def test_words_for_the_device_of_the_tensors(tmp_path: Path, device: str) -> None:
    assert load(tmp_path, {"fuzz_device": device}).modes == ("improve_precision",)


def test_defaults(tmp_path: Path) -> None:
    found = load(tmp_path, {}, level="L0")
    assert (found.handler, found.stage, found.preheat_step, found.max_sample) == ("check", "forward", 15, 15)
