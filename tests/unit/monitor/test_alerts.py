"""Alerts: which rule fires when, what is told of it, and which came first."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions
from unit.monitor.runs import PARAMETERS, begun, gradients, metrics, row

from msprobe import log
from msprobe.messages import arguments_of, code_of, in_language, said
from msprobe.monitor.alerts import Alert, AlertConfigError, AlertSink, read_alert_settings
from msprobe.monitor.alerts.alert import text_of_record
from msprobe.monitor.alerts.analysis import main, read_alerts, read_details
from msprobe.monitor.alerts.ranks import divergences
from msprobe.monitor.files import by_rank, find_runs
from msprobe.monitor.measurements import Row, StepMetrics
from msprobe.monitor.sinks.csv import CsvSink

NAN, INF = math.nan, math.inf
TURBULENCE = {"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}
NOT_A_NUMBER = {"rule_name": "AnomalyNan"}


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


def rule(name: str, **args: Any) -> dict[str, Any]:
    return {"rule_name": name, "args": args}


def alerts_of(
    tmp_path: Path, steps: Sequence[StepMetrics], *rules: Any, dump: bool = False, **options: Any
) -> list[Alert]:
    told: list[Alert] = []
    sink = AlertSink(read_alert_settings({"rules": list(rules), "dump": dump}), on_alert=[told.extend], **options)
    sink.open(begun(tmp_path))
    for step in steps:
        sink.write(step)
        sink.flush()
    sink.close()
    return told


def places(alerts: Sequence[Alert]) -> list[tuple[int, str, str]]:
    return [(alert.step, alert.tag, alert.op) for alert in alerts]


OPS = ("norm", "mean")


def training(steps: int, spikes: dict[int, float]) -> list[StepMetrics]:
    """Gradients with norms and means, as those of the documented model; a spike is a factor."""
    random = np.random.default_rng(0)
    made = []
    for step in range(steps):
        factor = spikes.get(step, 1.0)
        rows = [row(name, factor * (0.2 + 0.02 * random.random()), factor * 0.03) for name in PARAMETERS]
        made.append(metrics(step, {"grad_reduced": rows}, OPS))
    return made


def test_a_spike_is_reported_for_each_statistic_and_nothing_before_it(tmp_path: Path) -> None:
    told = alerts_of(tmp_path, training(5, {3: 100.0}), TURBULENCE, dump=True)
    assert places(told) == [(3, f"0:{name}/rank0/post_grad", op) for name in PARAMETERS for op in OPS]
    kept = json.loads((tmp_path / "anomaly_detected/rank0/anomaly.json").read_text())
    assert len(kept) == 8
    key = "0:fc1.weight/rank0/post_grad_step_3_call_0_norm"
    record = kept[key]
    assert list(record) == "rank step micro_step pp_stage vpp_stage call_id tag_name message group_mates".split()
    assert record["tag_name"] == "0:fc1.weight/rank0/post_grad"
    # The message is that of mindstudio-probe 8.1.1.
    started = "Rule AnomalyTurbulence reports anomaly signal in ('0:fc1.weight/rank0/post_grad', 'norm') at step 3, "
    assert record["message"].startswith(started)
    assert "history mean 0.2" in record["message"]
    assert record["group_mates"] == [0]
    assert (tmp_path / "anomaly_detected/rank0/anomaly.json").stat().st_mode & 0o777 == 0o640


def test_a_nan_does_not_silence_what_follows(tmp_path: Path) -> None:
    told = alerts_of(tmp_path, training(10, {3: 100.0, 4: NAN, 8: 1000.0}), TURBULENCE)
    assert {alert.step for alert in told} == {3, 8}


def test_infinity_is_turbulence_too(tmp_path: Path) -> None:
    assert {alert.step for alert in alerts_of(tmp_path, training(4, {3: INF}), TURBULENCE)} == {3}


def test_means_that_wander_around_zero_raise_no_flood(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    steps = [
        metrics(step, {"grad_reduced": [row("fc1.weight", 1.0, 1e-4 * random.standard_normal())]}, OPS)
        for step in range(200)
    ]
    assert alerts_of(tmp_path, steps, TURBULENCE) == []
    bare = rule("AnomalyTurbulence", threshold=0.5, scale_share=0)
    assert len(alerts_of(tmp_path, steps, bare)) > 4


def test_nothing_fires_before_the_warm_up(tmp_path: Path) -> None:
    late = rule("AnomalyTurbulence", threshold=0.5, warm_up=5)
    assert alerts_of(tmp_path, training(5, {4: 100.0}), late) == []
    assert alerts_of(tmp_path, training(6, {5: 100.0}), late)


def test_values_below_the_floor_are_nobodys_business(tmp_path: Path) -> None:
    steps = [gradients(step, *[1e-12 * (1 + 9 * (step == 3))] * 4) for step in range(4)]
    assert alerts_of(tmp_path, steps, TURBULENCE)
    assert alerts_of(tmp_path, steps, rule("AnomalyTurbulence", threshold=0.5, floor=1e-6)) == []


def test_the_robust_method_knows_what_is_usual(tmp_path: Path) -> None:
    """A gradient that is large now and then is usual; one a thousand times its largest is not."""
    random = np.random.default_rng(2)
    steps = [gradients(step, *np.exp(0.8 * random.standard_normal(4))) for step in range(300)]
    steps[250] = gradients(250, 1, 1, 1, 1e4)
    robust = rule("AnomalyTurbulence", threshold=0, method="robust", z=8, warm_up=20)
    assert places(alerts_of(tmp_path, steps, robust)) == [(250, "0:fc2.bias/rank0/post_grad", "norm")]
    assert len(alerts_of(tmp_path, steps, TURBULENCE)) > 10


def test_not_a_number_means_infinity_too_and_missing_values_are_none(tmp_path: Path) -> None:
    rows = [
        row("fc1.weight", NAN),
        row("fc1.bias", -INF),
        Row(0, ".input", None, (None,), None, None),
        row("fc2.bias", 1.0),
    ]
    told = alerts_of(tmp_path, [metrics(4, {"grad_reduced": rows})], NOT_A_NUMBER, dump=True)
    assert [alert.tag.split("/")[0] for alert in told] == ["0:fc1.weight", "0:fc1.bias"]
    kept = json.loads((tmp_path / "anomaly_detected/rank0/anomaly_details.json").read_text())
    known = {"rule": "AnomalyNan", "op": "norm", "value": "nan", "limit": "finite", "what": "grad_reduced fc1.weight"}
    first = next(iter(kept.values()))
    assert first.items() >= known.items()
    text = text_of_record(first)
    assert str(text) == first["text"]
    values = {"step": 4, "rank": 0, "op": "norm", "value": "nan", "rule": "AnomalyNan"}
    assert (code_of(text)[1], arguments_of(text).items() >= values.items()) == ("alert-text", True)
    assert in_language(said("limit-finite"), "zh") in in_language(text, "zh")
    assert [record["value"] for record in kept.values()] == ["nan", "-inf"]
    assert kept.keys() == read_alerts(tmp_path / "anomaly_detected").keys()


def test_how_to_record_the_step_of_an_alert_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [metrics(step, {"grad_reduced": [row("fc1.weight", NAN if step > 1 else 1.0)]}) for step in range(5)]
    alerts_of(tmp_path, steps, NOT_A_NUMBER)
    said = capsys.readouterr().out
    assert said.count("msprobe run --config record.json") == 1
    (asked,) = re.findall(r"(\{.*?\}) as record.json", said)
    assert json.loads(asked)["step"] == [1, 2]
    assert "Alert on rank 0 at step 2: norm of grad_reduced fc1.weight: nan (limit: finite); rule AnomalyNan" in said


def test_a_count_of_nans_and_a_threshold_count(tmp_path: Path) -> None:
    one = [metrics(0, {"grad_reduced": [row("a", 0, 5.0), row("b", 2, 1.0)]}, ("nans", "max"))]
    assert places(alerts_of(tmp_path, one, NOT_A_NUMBER)) == [(0, "0:b/rank0/post_grad", "nans")]
    told = alerts_of(tmp_path, one, rule("AnomalyNan", threshold=4))
    assert places(told) == [(0, "0:a/rank0/post_grad", "max"), (0, "0:b/rank0/post_grad", "nans")]


def test_the_first_rule_that_fires_wins(tmp_path: Path) -> None:
    steps = training(4, {3: INF})
    first = alerts_of(tmp_path, steps, NOT_A_NUMBER, TURBULENCE)
    assert {alert.rule for alert in first} == {"AnomalyNan"}
    assert len(first) == 8
    assert {alert.rule for alert in alerts_of(tmp_path, steps, TURBULENCE, NOT_A_NUMBER)} == {"AnomalyTurbulence"}


def test_each_rule_may_have_its_own_operators_and_quantities(tmp_path: Path) -> None:
    rows = [row("a", NAN, NAN)]
    one = [metrics(0, {"grad_reduced": rows, "exp_avg": rows}, OPS)]
    told = alerts_of(tmp_path, one, rule("AnomalyNan", ops=["mean"], quantities=["exp_avg"]))
    assert places(told) == [(0, "0:a/rank0/exp_avg", "mean")]


def test_a_tensor_that_stays_wrong_is_reported_a_few_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [gradients(step, NAN, 1, 1, 1) for step in range(250)]
    told = alerts_of(tmp_path, steps, NOT_A_NUMBER)
    assert [alert.step for alert in told] == [*range(5), *range(100, 105), *range(200, 205)]
    assert mentions(capsys.readouterr().out, "alerts-held-back", held_back="235")


def test_micro_steps_are_in_tag_and_record_and_calls_in_the_order_of_the_step(tmp_path: Path) -> None:
    activations = [row("fc1.input", NAN, micro=0), row("fc1.input", NAN, micro=1)]
    backward = [row("fc1.output", NAN, micro=0), row("fc1.output", NAN, micro=1)]
    one = metrics(0, {"grad_reduced": [row("w", NAN)], "actv": activations, "actv_grad": backward})
    told = alerts_of(tmp_path, [one], NOT_A_NUMBER)
    assert [(alert.tag, alert.micro_step, alert.call_id) for alert in told] == [
        ("0:fc1.input:0/rank0/actv", 0, 0),
        ("0:fc1.output:0/rank0/actv_grad", 0, 1),
        ("0:fc1.input:1/rank0/actv", 1, 2),
        ("0:fc1.output:1/rank0/actv_grad", 1, 3),
        ("0:w/rank0/post_grad", 0, 4),
    ]


def test_pipeline_stage_and_mates_are_reported(tmp_path: Path) -> None:
    told = alerts_of(tmp_path, [gradients(0, NAN, 1, 1, 1)], NOT_A_NUMBER, pipeline_stage=2, group_mates=(0, 4, 8))
    assert told[0].record()["pp_stage"] == 2
    assert told[0].record()["group_mates"] == [0, 4, 8]


def test_a_callback_that_fails_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def broken(alerts: Sequence[Alert]) -> None:
        calls.append(alerts)
        raise RuntimeError("oh")

    sink = AlertSink(read_alert_settings({"rules": [NOT_A_NUMBER]}), on_alert=[broken])
    sink.open(begun(tmp_path))
    for step in range(3):
        sink.write(gradients(step, NAN, 1, 1, 1))
    assert len(calls) == 1
    assert capsys.readouterr().out.count("RuntimeError: oh") == 1


def scalar_steps(values: Sequence[float], name: str = "loss") -> list[StepMetrics]:
    return [metrics(step, {}, scalars={name: value}) for step, value in enumerate(values)]


def test_a_loss_that_jumps_or_is_lost_is_reported(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = list(3 * np.exp(-np.arange(100) / 60) + 0.05 * random.standard_normal(100))
    assert alerts_of(tmp_path, scalar_steps(values), rule("LossSpike")) == []
    values[60], values[80] = values[60] * 3, NAN
    told = alerts_of(tmp_path, scalar_steps(values), rule("LossSpike"))
    assert places(told) == [(60, "0:loss/rank0/loss", "value"), (80, "0:loss/rank0/loss", "value")]
    assert "limit" in told[0].message


def test_the_norm_of_all_gradients_is_watched_whatever_it_is_known_by(tmp_path: Path) -> None:
    usual = [gradients(step) for step in range(30)]
    spiked = [*usual, gradients(30, 0.5, 40.0, 0.5, 0.5)]
    assert alerts_of(tmp_path, usual, rule("GradNormSpike")) == []
    told = alerts_of(tmp_path, spiked, rule("GradNormSpike"))
    assert places(told) == [(30, "0:grad_norm/rank0/grad_norm", "norm")]
    assert told[0].value == pytest.approx(math.sqrt(1600.75))
    by_scalar = scalar_steps([1.0 + 0.01 * (step % 3) for step in range(30)] + [50.0], "grad_norm")
    assert [alert.step for alert in alerts_of(tmp_path, by_scalar, rule("GradNormSpike"))] == [30]


def test_a_dead_gradient_is_reported_when_it_has_been_dead_for_some_steps(tmp_path: Path) -> None:
    steps = [gradients(step, 0.0 if 2 <= step < 8 or step > 10 else 1.0, 1, 1, 1) for step in range(14)]
    told = alerts_of(tmp_path, steps, rule("DeadGradient", steps=3))
    assert places(told) == [(4, "0:fc1.weight/rank0/post_grad", "norm"), (13, "0:fc1.weight/rank0/post_grad", "norm")]


def test_a_step_that_changes_a_weight_too_much_is_reported(tmp_path: Path) -> None:
    def step(number: int, before: float, after: float) -> StepMetrics:
        return metrics(number, {"param_origin": [row("w", before)], "param_updated": [row("w", after)]})

    steps = [step(0, 1.0, 1.01), step(1, 1.01, 1.5)]
    told = alerts_of(tmp_path, steps, rule("ExplodingUpdateRatio", threshold=0.1))
    assert places(told) == [(1, "0:w/rank0/param_updated", "norm")]
    measured = metrics(0, {"update": [row("w", 0.5, 0.3)]}, columns={"update": ("norm", "ratio")})
    told = alerts_of(tmp_path, [measured], rule("ExplodingUpdateRatio"))
    assert places(told) == [(0, "0:w/rank0/update", "ratio")]


def test_weights_that_stop_moving_are_reported_unless_their_gradient_is_zero(tmp_path: Path) -> None:
    def step(number: int, a: float, b: float, gradient: float) -> StepMetrics:
        rows = {"param_updated": [row("a", a), row("b", b)], "grad_reduced": [row("a", 1.0), row("b", gradient)]}
        return metrics(number, rows)  # type: ignore[arg-type]

    steps = [step(number, min(number, 5), 1.0, 0.0) for number in range(12)]
    told = alerts_of(tmp_path, steps, rule("FrozenWeights", steps=3))
    assert places(told) == [(8, "0:a/rank0/param_updated", "norm")]


def test_weights_whose_change_is_lost_behind_the_step_are_reported(tmp_path: Path) -> None:
    """The optimizer moves them, and something puts the old ones back."""

    def step(number: int) -> StepMetrics:
        before = min(number, 5)
        return metrics(
            number, {"param_origin": [row("a", before)], "param_updated": [row("a", before + number % 3 + 1)]}
        )

    told = alerts_of(tmp_path, [step(number) for number in range(12)], rule("FrozenWeights", steps=3))
    assert places(told) == [(8, "0:a/rank0/param_origin", "norm")]


def test_ranks_that_no_longer_agree_are_named_with_step_and_tensor(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        run = begun(tmp_path, rank)
        sink = CsvSink()
        sink.open(run)
        for step in range(8):
            shard = row("shard", float(rank))
            weight = row("w", 1.0 + step + (1e-6 if rank == 1 and step >= 5 else 0.0))
            sink.write(metrics(step, {"param_updated": [shard, weight]}))
        sink.close()
    found = divergences(by_rank(find_runs(tmp_path)))
    assert len(found) == 1
    assert (found[0].rank, found[0].step, found[0].name, found[0].tensors) == (1, 5, "w", 1)
    assert (found[0].rank, found[0].reference, found[0].step, found[0].quantity, found[0].name) == (
        1,
        0,
        5,
        "param_updated",
        "w",
    )


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ([], ["alert must be an object"]),
        ({"rules": {}}, ["alert.rules: "]),
        ({"rules": [], "dump": "yes"}, ["alert.dump: ", '"yes"']),
        ({"rules": [{"rule_name": "Foo"}]}, ["alert.rules[0].rule_name: ", "AnomalyTurbulence", '"Foo"']),
        ({"rules": [{"rule_name": "AnomalyNaN"}]}, ['did you mean "AnomalyNan"?']),
        ({"rules": [rule("AnomalyTurbulence", threshold=-1)]}, ["alert.rules[0].args.threshold: ", "-1"]),
        ({"rules": [rule("AnomalyNan", threshold="1")]}, ["alert.rules[0].args.threshold: ", '"1"']),
        ({"rules": [rule("AnomalyNan", treshold=1)]}, ["alert.rules[0].args.treshold: ", '"threshold"']),
        ({"rules": [rule("AnomalyTurbulence", warm_up=3)]}, ["alert.rules[0].args.threshold: is missing"]),
        ({"rules": [rule("AnomalyTurbulence", threshold=1, method="men")]}, ["args.method: ", '"mean"']),
        (
            {"rules": [rule("AnomalyNan", quantities=["actv", "actvs"])]},
            ["alert.rules[0].args.quantities[1]: ", 'did you mean "actv"?'],
        ),
        ({"rules": [3, rule("Foo")], "dump": 1}, ["alert.rules[0]: ", "alert.rules[1].rule_name: ", "alert.dump: "]),
    ],
)
def test_a_bad_configuration_is_reported_at_once(config: Any, said: list[str]) -> None:
    with pytest.raises(AlertConfigError) as problem:
        read_alert_settings(config)
    assert [text for text in said if text not in str(problem.value)] == []
    assert isinstance(problem.value, TypeError)


def test_a_rule_without_its_threshold_is_left_out_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    settings = read_alert_settings({"rules": [{"rule_name": "AnomalyTurbulence"}, NOT_A_NUMBER], "dump": True})
    assert [rule.name for rule in settings.rules] == ["AnomalyNan"]
    assert read_alert_settings({"dump": True}).rules == ()
    assert capsys.readouterr().out.count("[WARNING]") == 2


# ---------------------------------------------------------------- which came first


def record(tag: str, step: int, call: int, pipeline_stage: int = 0) -> dict[str, Any]:
    return {
        "rank": pipeline_stage, "step": step, "micro_step": 0, "pp_stage": pipeline_stage, "vpp_stage": int(tag[0]),
        "call_id": call, "tag_name": tag, "message": f"{tag} at {step}", "group_mates": [0, 1],
    }  # fmt: skip


@pytest.fixture
def detected(tmp_path: Path) -> Path:
    """Alerts of two ranks of a pipeline, as 8.1.1 keys them."""
    records = {
        0: [
            record("0:w/rank0/param_updated", 3, 9),
            record("0:w/rank0/post_grad", 3, 8),
            record("0:fc.input:1/rank0/actv", 3, 4),
            record("0:fc.output:0/rank0/actv_grad", 3, 2),
            record("0:fc.input:0/rank0/actv", 3, 0),
            record("0:w/rank0/post_grad", 1, 8),
        ],
        1: [
            record("0:fc.output:0/rank1/actv_grad", 3, 7, 1),
            record("0:fc.input:0/rank1/actv", 3, 0, 1),
        ],
    }
    for rank, entries in records.items():
        folder = tmp_path / "anomaly_detected" / f"rank{rank}"
        folder.mkdir(parents=True)
        text = {f"{entry['tag_name']}_step_{entry['step']}_call_{entry['call_id']}": entry for entry in entries}
        (folder / "anomaly.json").write_text(json.dumps(text))
    return tmp_path / "anomaly_detected"


def test_alerts_are_in_the_order_of_the_training(detected: Path) -> None:
    assert [f"{entry['tag_name']} {entry['step']}" for entry in read_alerts(detected).values()] == [
        "0:w/rank0/post_grad 1",
        "0:fc.input:0/rank0/actv 3",
        "0:fc.input:0/rank1/actv 3",
        "0:fc.output:0/rank1/actv_grad 3",
        "0:fc.output:0/rank0/actv_grad 3",
        "0:fc.input:1/rank0/actv 3",
        "0:w/rank0/post_grad 3",
        "0:w/rank0/param_updated 3",
    ]


def test_the_command_names_the_first(detected: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-d", str(detected), "-k", "3"]) == 0
    shown = capsys.readouterr().out
    assert "The first 3 of 8 alerts:\n0: 0:w/rank0/post_grad at 1\n1: 0:fc.input:0/rank0/actv at 3\n" in shown
    assert len(json.loads((detected / "anomaly_analyse.json").read_text())) == 3
    assert main(["-d", str(detected), "-s", "[3]"]) == 0
    assert {entry["step"] for entry in json.loads((detected / "anomaly_analyse.json").read_text()).values()} == {3}
    assert main(["-d", str(detected), "--step_list", "[7]"]) == 0
    assert mentions(capsys.readouterr().out, "no-alerts-in", steps=said("of-steps", [7]), folder=detected)


def test_the_command_writes_where_it_is_reported(detected: Path, tmp_path: Path) -> None:
    assert main(["-d", str(detected), "-o", str(tmp_path / "new" / "out")]) == 0
    assert (tmp_path / "new" / "out" / "anomaly_analyse.json").exists()
    (tmp_path / "file").write_text("")
    assert main(["-d", str(detected), "-o", str(tmp_path / "file")]) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-k", "0"], "top-k-wrong"),
        (["-s", "3"], "step-list-unreadable"),
        (["-s", "[1,"], "step-list-unreadable"),
        (["-s", "['a']"], "step-list-wrong"),
    ],
)
def test_a_bad_argument_is_one_sentence(
    detected: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["-d", str(detected), *words]) == 1
    assert mentions(capsys.readouterr().err, message) == 1


def test_a_missing_folder_is_wrong_usage_or_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main([])
    assert ending.value.code == 2
    assert main(["-d", str(tmp_path / "nothing")]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_a_file_of_something_else_is_named(detected: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (detected / "rank1" / "anomaly.json").write_text("[1]")
    assert main(["-d", str(detected)]) == 1
    assert "rank1/anomaly.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    "module", ["msprobe.core.monitor.anomaly_processor", "msprobe.pytorch.monitor.anomaly_analyse"]
)
def test_both_old_paths_are_the_command(module: str) -> None:
    import importlib

    assert importlib.import_module(module).main is main


def test_alerts_of_an_earlier_run_are_not_lost(tmp_path: Path) -> None:
    for _ in range(2):
        alerts_of(tmp_path, [gradients(0, NAN, 1, 1, 1)], NOT_A_NUMBER, dump=True)
    kept = sorted(path.name for path in (tmp_path / "anomaly_detected/rank0").iterdir())
    assert kept == ["anomaly.json", "anomaly_1.json", "anomaly_details.json", "anomaly_details_1.json"]


def test_a_run_that_goes_on_keeps_the_alerts_so_far(tmp_path: Path) -> None:
    settings = read_alert_settings({"rules": [NOT_A_NUMBER], "dump": True})
    for step in (3, 4):
        sink = AlertSink(settings)
        sink.open(begun(tmp_path, append_to=("Jan01_00-00-00", "Dec31_23-59-59") if step == 4 else ()))
        sink.write(gradients(step, NAN, 1, 1, 1))
        sink.close()
    assert [record["step"] for record in read_alerts(tmp_path / "anomaly_detected").values()] == [3, 4]
    assert len(read_details(tmp_path / "anomaly_detected")) == 2
