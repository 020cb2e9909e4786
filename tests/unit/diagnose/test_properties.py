"""What holds for any dump, however it is made."""

from __future__ import annotations

import copy
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.hand_made import write_part

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict
from msprobe.report.verdict_file import verdict_bytes

#: Shrinking takes minutes; a failing example is small enough to be read.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
MANY = settings(max_examples=50, deadline=None, phases=PHASES, suppress_health_check=[HealthCheck.too_slow])

NUMBER = st.one_of(
    st.floats(-10, 10, width=32),
    st.sampled_from([0.0, 1.0, math.nan, math.inf, -math.inf, None, "NaN", "Infinity", 3, True]),
)
TYPES = st.sampled_from(["torch.float32", "torch.bfloat16", "torch.int64", "torch.bool", "torch.complex64", "Float32"])
SHAPES = st.sampled_from([[], [0], [1], [4], [2, 3], [2, 3, 4]])
TENSOR = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["torch.Tensor", "mindspore.Tensor"]),
        "dtype": TYPES,
        "shape": SHAPES,
        "Max": NUMBER,
        "Min": NUMBER,
        "Mean": NUMBER,
        "Norm": NUMBER,
    },
    optional={
        "requires_grad": st.booleans(),
        "digest": st.sampled_from(["xxh3:1", "xxh3:2", "xxh3:3"]),
        "md5": st.sampled_from(["aaaa", "bbbb"]),
        "stride": st.sampled_from([[1], [1, 2], [3, 1]]),
        "nan": st.integers(0, 3),
        "data_name": st.just("gone.pt"),
    },
)
PLAIN = st.one_of(
    st.none(),
    st.fixed_dictionaries({"type": st.just("float"), "value": NUMBER}),
    st.fixed_dictionaries({"type": st.just("int"), "value": st.integers(-3, 3)}),
    st.fixed_dictionaries({"type": st.just("str"), "value": st.text(max_size=3)}),
    st.just({"type": "torch.device", "value": "cpu"}),
    st.just({"type": "slice", "value": [None, 2, None]}),
)
VALUE = st.recursive(TENSOR | PLAIN, lambda inner: st.lists(inner, max_size=2), max_leaves=4)
VALUES = st.lists(VALUE, max_size=3)
KEYWORDS = st.dictionaries(st.sampled_from(["mask", "weight", "dim"]), VALUE, max_size=2)
OURS = st.fixed_dictionaries({"order": st.integers(0, 50)}, optional={"source": st.just("/home/me/train.py:3")})

FORWARD = st.fixed_dictionaries(
    {"input_args": VALUES, "input_kwargs": KEYWORDS, "output": VALUES, "is_recompute": st.just(False)},
    optional={"msprobe": OURS, "parameters": st.dictionaries(st.sampled_from(["weight", "bias"]), TENSOR, max_size=2)},
)
BACKWARD = st.fixed_dictionaries(
    {"input": VALUES, "output": VALUES},
    optional={"input_grads": st.dictionaries(st.sampled_from(["input.0", "kwargs.mask"]), VALUE), "msprobe": OURS},
)
GRADIENTS = st.dictionaries(st.sampled_from(["weight", "bias"]), st.lists(st.none() | TENSOR, min_size=1, max_size=1))
FIELDS = st.dictionaries(st.sampled_from(["weight", "grad", "exp_avg"]), st.none() | TENSOR, max_size=3)
MEMBERS = st.dictionaries(st.sampled_from(["fc.weight", "fc.bias"]), FIELDS, max_size=2)
STEP = st.fixed_dictionaries(
    {"input_args": st.just([]), "input_kwargs": MEMBERS, "output": st.lists(MEMBERS, max_size=1)},
    optional={"groups": st.just([{"lr": {"type": "float", "value": 0.1}, "params": ["fc.weight"]}])},
)
APIS = ("Torch.tanh", "Tensor.__add__", "Tensor.mul_", "Functional.dropout", "Distributed.all_reduce", "Tensor.to")
RECORDS = st.one_of(
    *(st.tuples(st.just(f"{api}.{{}}.forward"), FORWARD) for api in APIS),
    *(st.tuples(st.just(f"{api}.{{}}.backward"), BACKWARD) for api in APIS[:2]),
    st.tuples(st.just("Module.fc.Linear.forward.{}"), FORWARD),
    st.tuples(st.just("Module.fc.Linear.backward.{}"), BACKWARD),
    st.tuples(st.just("Module.fc.Linear.parameters_grad.{}"), GRADIENTS),
    st.tuples(st.just("Optimizer.SGD.{}.forward"), STEP),
    st.tuples(st.just("odd name {}"), VALUE),
)


@st.composite
def dumps(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Records and the tree of modules."""
    data: dict[str, Any] = {}
    for form, record in draw(st.lists(RECORDS, max_size=8)):
        number = sum(1 for name in data if name.startswith(form.partition("{")[0]) and name.endswith(form[-7:]))
        data[form.format(number)] = record
    modules = [name for name in data if name.startswith("Module.fc.Linear.forward")]
    choices = st.sampled_from([None, "optimizer", *modules])
    return data, {name: draw(choices) for name in data}


def verdict_of(one: tuple[Any, Any], other: tuple[Any, Any]) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        for name, (data, tree) in (("one", one), ("other", other)):
            write_part(Path(folder) / name / "step0" / "rank", data, construct=tree).close()
        return compare_runs(Path(folder) / "one", Path(folder) / "other")


@MANY
@given(dumps())
def test_any_dump_agrees_with_itself(dump: tuple[Any, Any]) -> None:
    verdict = verdict_of(dump, copy.deepcopy(dump))
    assert verdict.findings == ()
    assert verdict.status == ("agree" if dump[0] else "incomparable")
    assert verdict.summary["same"] == verdict.summary["pairs"] == len(dump[0])


@MANY
@given(dumps(), st.integers(0, 8), st.sampled_from(["Torch.sin", "Tensor.clone", "Tensor.__add__"]))
def test_a_call_more_that_changes_nothing_is_no_reason_to_part(dump: tuple[Any, Any], place: int, api: str) -> None:
    data, tree = dump
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3], "requires_grad": False}
    tensor |= {"Max": 17.0, "Min": 16.0, "Mean": 16.5, "Norm": 28.6, "digest": "xxh3:more"}
    more = {"input_args": [tensor], "input_kwargs": {}, "output": [tensor], "is_recompute": False}
    items = [*data.items()]
    items.insert(place, (f"{api}.99.forward", more))
    for one, other in (((dict(items), tree), dump), (dump, (dict(items), tree))):
        verdict = verdict_of(one, other)
        assert verdict.status in ("agree", "harmless") or not data, verdict.findings
        assert all(finding.harmless for finding in verdict.findings)


@MANY
@given(dumps(), dumps())
def test_any_two_dumps_have_a_verdict_that_is_json(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    verdict = verdict_of(one, other)
    found = json.loads(verdict_bytes(verdict), parse_constant=lambda word: 1 / 0)
    assert found["status"] == verdict.status
    assert len(found["findings"]) == len(verdict.findings)
    if verdict.status == "diverged":
        assert found["findings"]
        assert not all(finding["harmless"] for finding in found["findings"])
    if verdict.status in ("agree", "harmless"):
        assert all(finding["harmless"] for finding in found["findings"])
    names = {*one[0], *other[0], None}
    assert {finding["entry"] for finding in found["findings"]} <= names


def test_results_that_one_side_lacks_need_not_be_tensors() -> None:
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3], "Max": 2.0, "Min": 1.0, "Mean": 1.5}
    tensor |= {"Norm": 2.7, "requires_grad": False}
    name = "Torch.tanh.0.forward"
    one, other = (
        ({name: {"input_args": [], "input_kwargs": {}, "output": output, "is_recompute": False}}, {name: None})
        for output in ([tensor, {"type": "str", "value": "text"}], [])
    )
    assert verdict_of(one, other).status == "diverged"
