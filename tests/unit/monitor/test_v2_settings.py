"""The configuration of monitor_v2 of 26.2.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions, raising

from msprobe.errors import InvalidInputError, PathError
from msprobe.monitor.v2.settings import OPS, load_v2


def settings(folder: Path, **fields: Any) -> Any:
    path = folder / "monitor_v2.json"
    path.write_text(json.dumps(fields))
    return load_v2(path)


def test_each_monitor_has_its_operators_and_all_by_default(tmp_path: Path) -> None:
    monitors = {"module": {"enabled": True, "ops": ["norm"]}, "param": {"enabled": True}, "cc": {"enabled": False}}
    found = settings(tmp_path, framework="PT", rank=3, monitors=monitors)
    assert found.monitors == {"module": ("norm",), "param": OPS}
    assert (found.framework, found.rank, found.ops) == ("pytorch", (3,), OPS)


@pytest.mark.parametrize(("first", "end", "every", "times"), [(0, 5, 1, 5), (2, 7, 2, 3), (1, 2, 10, 1), (0, 10, 3, 4)])
def test_stop_step_is_the_first_that_is_not_measured(
    tmp_path: Path, first: int, end: int, every: int, times: int
) -> None:
    found = settings(tmp_path, start_step=first, stop_step=end, step_interval=every)
    assert len(range(first, end, every)) == times == found.translated(()).collect_times


def test_targets_are_parts_of_names_of_modules_and_leave_parameters_alone(tmp_path: Path) -> None:
    found = settings(tmp_path, monitors={"module": {"enabled": True, "targets": ["attn"]}})
    assert found.translated(["", "l.0.attn", "l.0.attn.q", "l.0.mlp"]).targets == ("", "l.0.attn", "l.0.attn.q")
    assert settings(tmp_path, monitors={"module": {"enabled": True}}).translated(["fc"]).targets == ()


def test_all_mistakes_are_in_one_message(tmp_path: Path) -> None:
    monitors = {"modul": {}, "param": {"enabled": 1}, "cc": {"enabled": True, "ops": ["var"]}}
    with pytest.raises(InvalidInputError) as caught:
        settings(tmp_path, framework="jax", format="tensorboard", step_interval=0, rank="0", monitors=monitors)
    for words in (
        'framework": must be one of pytorch',
        'format": must be "csv"',
        'step_interval": must be a whole number from 1, found 0',
        'rank": must be',
        'monitors.modul": is not known; did you mean "module"?',
        'monitors.param.enabled": must be',
        'monitors.cc.ops": must be a list of min, max, mean, norm, nans',
    ):
        assert words in str(caught.value)


def test_kinds_of_errors_are_those_that_programs_catch(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='must be "csv"'):
        settings(tmp_path, format="xlsx")
    with pytest.raises(TypeError, match="output_dir"):
        settings(tmp_path, output_dir=1)
    with pytest.raises(ValueError, match="stop_step") as refused:
        settings(tmp_path, start_step=4, stop_step=4)
    assert mentions(str(refused.value), "stop-step-wrong", start=4, found=4)
    with raising(PathError, "monitor-config-unreadable"):
        load_v2(tmp_path / "nowhere.json")
