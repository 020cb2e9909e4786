"""Full names of parameters, and that nobody puts them together by hand, which goes wrong for those of the model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import msprobe.diagnose
from msprobe.compare.entry_names import read_name
from msprobe.diagnose.steps.parameter_names import parameter_name, plain_name
from msprobe.diagnose.steps.timeline import Event

ROOT = Path(msprobe.diagnose.__file__).parent
BY_HAND = re.compile(r"""\{[^{}"]*path\}\.\{|parts\.path\)?\}\.\{|removeprefix\("\."\)""")


def event(name: str) -> Event:
    parts = read_name(name)
    return Event(name, parts, {}, "gradient" if parts.kind == "parameters" else "forward")


@pytest.mark.parametrize(
    ("name", "slot", "expected"),
    [
        ("Module.blocks.0.norm.LayerNorm.forward.0", "parameters.weight", "blocks.0.norm.weight"),
        ("Module.blocks.0.norm.BatchNorm2d.forward.0", "buffers.running_mean", "blocks.0.norm.running_mean"),
        ("Module.blocks.0.norm.LayerNorm.parameters_grad", "weight.0", "blocks.0.norm.weight"),
        ("Module.GPT.forward.0", "parameters.scale", "scale"),
        ("Module.GPT.parameters_grad", "scale.0", "scale"),
    ],
)
def test_module_and_gradients_give_a_parameter_one_name(name, slot, expected):
    assert parameter_name(event(name), slot) == expected


def test_wrappers_are_left_out_of_plain_names():
    assert plain_name(event("Module.module._orig_mod.norm.Norm.forward.0"), "parameters.weight") == "norm.weight"
    assert plain_name(event("Module.module.GPT.forward.0"), "parameters.scale") == "scale"


def test_nobody_puts_names_together_by_hand():
    found = {
        str(path.relative_to(ROOT)): line.strip()
        for path in sorted(ROOT.rglob("*.py"))
        if path.name != "parameter_names.py"
        for line in path.read_text().splitlines()
        if BY_HAND.search(line)
    }
    assert found == {}
