"""The configuration of a monitor: every field, what is allowed, and how mistakes are answered."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions, raising
from support.row_by_row import for_each

from msprobe.errors import InvalidInputError, PathError
from msprobe.monitor.alerts.needs import unmeasured, unnoted
from msprobe.monitor.config import ENDLESS, MonitorConfig, from_object, load

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"targets": ["fc1"]}, TypeError, 'targets must be an object.*found \\["fc1"\\]'),
    ({"targets": {"fc1": 1}}, TypeError, r"targets \['fc1'\] must be an object, found 1"),
    ({"xy_distribution": 1}, TypeError, "xy_distribution must be true or false, found 1"),
    ({"all_xy": "yes"}, TypeError, 'all_xy must be true or false, found "yes"'),
    ({"forward_only": 0}, TypeError, "forward_only must be true or false"),
    ({"backward_only": None}, TypeError, "backward_only must be true or false, found nothing"),
    ({"wg_distribution": "true"}, TypeError, "wg_distribution must be true or false"),
    ({"micro_delta": 1}, TypeError, "micro_delta must be true or false"),
    ({"mv_distribution": 1}, TypeError, "mv_distribution must be true or false"),
    ({"param_distribution": 1}, TypeError, "param_distribution must be true or false"),
    ({"ur_distribution": 1}, TypeError, "ur_distribution must be true or false"),
    ({"mg_direction": 1}, TypeError, "mg_direction must be true or false"),
    ({"cc_distribution": True}, TypeError, "cc_distribution must be an object"),
    ({"cc_distribution": {"enabled": True}}, TypeError, 'cc_distribution.enabled is not known; did you mean "enable"'),
    ({"cc_distribution": {"enable": 1}}, TypeError, "cc_distribution.enable must be true or false"),
    ({"cc_distribution": {"cc_codeline": "x"}}, TypeError, "cc_distribution.cc_codeline must be a list of texts"),
    ({"cc_distribution": {"cc_pre_hook": 1}}, TypeError, "cc_distribution.cc_pre_hook must be true or false"),
    ({"cc_distribution": {"cc_log_only": 1}}, TypeError, "cc_distribution.cc_log_only must be true or false"),
    ({"stack_info": 1}, TypeError, "stack_info must be true or false"),
    ({"print_struct": "yes"}, TypeError, 'print_struct must be true, false or "continue"'),
    ({"module_ranks": "0"}, TypeError, "module_ranks must be a list of whole numbers"),
    ({"module_ranks": [True]}, TypeError, "module_ranks must be a list of whole numbers"),
    ({"module_ranks": ["0"]}, TypeError, "module_ranks must be a list of whole numbers"),
    ({"dynamic_on": "true"}, TypeError, "dynamic_on must be true or false"),
    ({"ops": "norm"}, TypeError, "ops must be a list of norm, min, max, mean, nans, zeros"),
    ({"eps": 1}, TypeError, "eps must be a number with a decimal point"),
    ({"eps": "1e-8"}, TypeError, "eps must be a number with a decimal point"),
    ({"eps": float("nan")}, TypeError, "eps must be a number with a decimal point"),
    ({"ndigits": -1}, ValueError, "ndigits must be a whole number from 1 to 20, found -1"),
    ({"ndigits": 21}, ValueError, "ndigits must be a whole number from 1 to 20"),
    ({"ndigits": 2.5}, ValueError, "ndigits must be a whole number from 1 to 20"),
    ({"step_count_per_record": "5"}, TypeError, "step_count_per_record must be a whole number from 1 to 1000000"),
    ({"step_count_per_record": True}, TypeError, "step_count_per_record must be a whole number"),
    ({"step_count_per_record": 0}, ValueError, "step_count_per_record must be a whole number from 1 to 1000000"),
    ({"step_count_per_record": 1_000_001}, ValueError, "step_count_per_record must be"),
    ({"append_output": "Jan01_08-00-00"}, TypeError, "append_output must be a list of two timestamps"),
    ({"append_output": [1, 2]}, TypeError, "append_output must be a list of two timestamps"),
    ({"append_output": ["Jan01_08-00-00"]}, ValueError, "append_output must be empty, or the first and the last"),
    ({"squash_name": "no"}, TypeError, "squash_name must be true or false"),
    ({"scope": "all"}, TypeError, 'scope must be "local" or "global"'),
    ({"alert": []}, TypeError, "alert must be an object"),
    ({"recording_l2_features": 1}, TypeError, "recording_l2_features must be true or false"),
    ({"l2_targets": []}, TypeError, "l2_targets must be an object"),
    ({"l2_targets": {"mlp_hook": []}}, TypeError, "l2_targets.mlp_hook must be one of attention_hook"),
    ({"l2_targets": {"linear_hook": "fc1"}}, TypeError, "l2_targets.linear_hook must be a list of texts"),
    ({"sa_order": "b,h,s,d"}, TypeError, 'sa_order must be "s,b,h,d" or "b,s,h,d"'),
]


@for_each(("text", "kind", "said"), WRONG)
def test_what_is_wrong_is_reported(text: dict[str, Any], kind: type[Exception], said: str) -> None:
    # The words behind the field's name, which stands in quotes.
    with pytest.raises(kind, match=re.sub(r"^(\S+) ", r'field "\1": ', said)) as raised:
        from_object(text, "monitor.json")
    assert isinstance(raised.value, InvalidInputError)
    assert "monitor.json" in str(raised.value)


PUT_RIGHT: list[tuple[str, Any, Any, str]] = [
    ("monitor_mbs_grad", "yes", False, "monitor_mbs_grad must be true or false"),
    ("start_step", -1, 0, "start_step must be a whole number from 0, found -1; 0 is used instead"),
    ("start_step", 1.5, 0, "start_step must be"),
    ("step_interval", 0, 1, "step_interval must be a whole number from 1, found 0; 1 is used instead"),
    ("step_interval", "2", 1, "step_interval must be"),
    ("collect_times", -1, ENDLESS, "collect_times must be a whole number from 0"),
    ("collect_times", True, ENDLESS, "collect_times must be"),
    ("format", "xml", "csv", 'format must be one of csv, tensorboard, api, wandb, sqlite, found "xml"'),
    ("format", ["csv"], "csv", "format must be one of"),
    ("ops", ["norms", "max"], ("max",), '"norms" is no operator and is left out; did you mean .norm'),
    ("ops", ["mode"], ("norm",), ".mode. is no operator"),
    ("ops", [["norm"]], ("norm",), "is no operator"),
    ("ops", [], ("norm",), ""),
    ("ops", ["max", "max", "shape", "dtype"], ("max",), ""),
    ("ndigits", None, 0, ""),
    ("ndigits", 0, 0, ""),
    ("eps", 0.0, 0.0, ""),
    ("print_struct", "continue", "continue", ""),
]


@pytest.mark.parametrize(("field", "given", "used", "said"), PUT_RIGHT, ids=lambda one: str(one)[:40])
def test_what_earlier_tools_put_right_is_put_right(
    capfd: pytest.CaptureFixture[str], field: str, given: Any, used: Any, said: str
) -> None:
    config = from_object({field: given}, "monitor.json")
    assert getattr(config, field) == used
    out = capfd.readouterr().out
    assert bool(out) == bool(said)
    if said:
        import re

        assert re.search(said, out)


def test_fields_that_nobody_knows_are_reported_with_the_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    from_object({"xy_distributions": True, "wg": True}, "monitor.json")
    shown = capfd.readouterr().out
    assert mentions(shown, "setting-left-out") == 2
    assert mentions(shown, "did-you-mean", name="xy_distribution") == 1


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(TypeError, match=r'targets": must.*xy_distribution": must.*ndigits": must'):
        from_object({"targets": [], "xy_distribution": 1, "ndigits": 99}, "monitor.json")


def test_both_directions_excluded_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    config = from_object({"xy_distribution": True, "forward_only": True, "backward_only": True}, "monitor.json")
    assert not config.forward
    assert not config.backward
    assert mentions(capfd.readouterr().out, "both-passes-excluded")


def test_nothing_given_is_the_default() -> None:
    assert from_object({}, "monitor.json") == MonitorConfig()


@pytest.mark.parametrize("content", ["", "[", "null", "[]", '"text"', '{"ops": [}', "\x00"])
def test_what_is_no_configuration(tmp_path: Path, content: str) -> None:
    path = tmp_path / "monitor.json"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=r"monitor\.json"):
        load(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with raising(PathError, "monitor-config-unreadable"):
            load(path)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe{")
    with raising(PathError, "monitor-config-unreadable"):
        load(tmp_path / "binary.json")


def test_a_file_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "monitor.json"
    path.write_text(json.dumps({"targets": {"fc1": {"input": "tuple[2]:0"}}, "ops": ["min"], "eps": 1e-6}))
    config = load(str(path))
    assert config.targets == ("fc1",)
    assert config.ops == ("min",)
    assert config.text == {"targets": {"fc1": {"input": "tuple[2]:0"}}, "ops": ["min"], "eps": 1e-6}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"alert": {"rules": [], "records": True}},
            "alert.records is not known and is ignored.*did you mean .record",
        ),
        (
            {"alert": {"rules": [{"rule_name": "AnomalyNan", "arg": {}}]}},
            r"alert.rules\[0\].arg is left out.*\"args\"",
        ),
        (
            {"targets": {"fc1": {"xy_distributon": True}}},
            r"targets\['fc1'\].xy_distributon is ignored.*did you mean .xy_distribution",
        ),
    ],
)
def test_keys_inside_of_fields_that_nobody_knows_are_reported(
    capfd: pytest.CaptureFixture[str], given: dict[str, Any], said: str
) -> None:
    from_object(given, "m.json")
    assert re.search(said, capfd.readouterr().out)


def test_parameters_of_a_rule_that_nobody_knows_are_reported_with_the_nearest() -> None:
    rule = {"rule_name": "AnomalyTurbulence", "args": {"treshold": 0.5}}
    with pytest.raises(TypeError, match=r'alert.rules\[0\].args.treshold: .*"threshold"'):
        from_object({"alert": {"rules": [rule]}}, "m.json")


def test_what_older_configurations_say_of_targets_is_not_said(capfd: pytest.CaptureFixture[str]) -> None:
    from_object({"targets": {"fc1": {"input": "tuple[1]:0", "output_grad": "tensor"}}}, "m.json")
    assert capfd.readouterr().out == ""


@for_each(
    ("rule", "config", "said"),
    [
        ("LossSpike", {}, None),
        ("DeadGradient", {"param_distribution": True}, 'set "wg_distribution" to true'),
        ("DeadGradient", {"wg_distribution": True, "ops": ["max"]}, 'add "norm" to ops'),
        ("DeadGradient", {"wg_distribution": True, "ops": ["max", "min"]}, None),
        ("ExplodingUpdateRatio", {"wg_distribution": True}, 'set "ur_distribution" to true'),
        ("ExplodingUpdateRatio", {"ur_distribution": True}, None),
        ("ExplodingUpdateRatio", {"param_distribution": True}, None),
        ("FrozenWeights", {"wg_distribution": True}, 'set "param_distribution" to true'),
        ("AnomalyNan", {"wg_distribution": True}, None),
        ({"rule_name": "AnomalyNan", "args": {"quantities": ["actv"]}}, {"wg_distribution": True}, '"xy_distribution"'),
        (
            {"rule_name": "AnomalyTurbulence", "args": {"threshold": 1}},
            {"wg_distribution": True, "ops": ["max"]},
            "it looks at norm, mean, and measured is max",
        ),
    ],
)
def test_rules_that_can_never_fire_say_what_to_switch_on(rule: Any, config: dict[str, Any], said: str | None) -> None:
    entry = {"rule_name": rule} if isinstance(rule, str) else rule
    told = list(unmeasured(from_object({**config, "alert": {"rules": [entry]}}, "m.json")))
    assert [said is not None and said in one for one in told] == ([True] if said else [])


def test_rules_for_numbers_that_nobody_notes_say_what_to_call() -> None:
    config = from_object({"alert": {"rules": [{"rule_name": "LossSpike"}, {"rule_name": "GradNormSpike"}]}}, "m.json")
    loss, norm = unnoted(config, ())
    assert "monitor.note(loss=loss.item())" in loss
    assert "wg_distribution" in norm
    assert not list(unnoted(config, ("loss", "grad_norm")))


def test_what_is_only_warned_of_is_reported_beside_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "monitor.json"
    path.write_text('{"wg_distributon": true, "ops": ["nrom"], "eps": 1}')
    with pytest.raises(InvalidInputError, match='eps": must be'):
        load(path)
    shown = "".join(capfd.readouterr())
    for name in ("wg_distribution", "norm"):
        assert mentions(shown, "did-you-mean", name=name)
