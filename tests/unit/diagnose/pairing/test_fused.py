"""Two ways of writing one thing are one: activations in layers or behind them, matrices that are transposed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.hand_made import call, write_part

from msprobe.diagnose.pairing.match import pair
from msprobe.diagnose.pairing.translation import translate
from msprobe.diagnose.steps.timeline import Timeline

Record = dict[str, Any]


def tensor(array: np.ndarray[Any, Any], framework: str, stride: list[int] | None = None) -> Record:
    kind, dtype = ("mindspore.Tensor", "Float32") if framework == "mindspore" else ("torch.Tensor", "torch.float32")
    numbers = {"Max": array.max(), "Min": array.min(), "Mean": array.mean(), "Norm": np.linalg.norm(array)}
    found = {
        "type": kind,
        "dtype": dtype,
        "shape": list(array.shape),
        **{key: float(one) for key, one in numbers.items()},
    }
    return found if stride is None else {**found, "stride": stride}


def array(name: str, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([*name.encode()]).normal(size=shape)


def whole(number: int) -> Record:
    return {"type": "int", "value": number}


def flag(value: bool) -> Record:
    return {"type": "bool", "value": value}


def both(tmp_path: Path, mine: Record, theirs: Record, inside: tuple[Record, Record] = ({}, {})) -> tuple[Any, ...]:
    """(candidate, reference, pairs by name) of a run in MindSpore and one in PyTorch."""
    one = Timeline(write_part(tmp_path / "ms", mine, framework="mindspore", construct=inside[0]))
    other = Timeline(write_part(tmp_path / "pt", theirs, framework="pytorch", construct=inside[1]))
    assert translate(one, other)
    found = pair(one, other)
    return one, other, {event.name: twin.name for event, twin in found.partner.items()}


def dense(activation: str, with_calls: bool) -> tuple[Record, Record]:
    """A dense layer with its activation in it, as MindSpore records it; and what ran in which module."""
    x, h, y = (tensor(array(name, 2, 4), "mindspore") for name in "xhy")
    back = {name: tensor(array(name, 2, 4), "mindspore") for name in ("gx", "gh", "gy")}
    cell = f"Cell.fc.activation.{activation}"
    calls: Record = {
        "Primitive.matmul.MatMul.0.forward": call(x, tensor(array("w", 4, 4), "mindspore"), out=h),
        f"Primitive.act.{activation}.0.forward": call(h, out=y),
        f"Primitive.act.{activation}.0.backward": {"input": [back["gy"]], "output": [back["gh"]]},
        "Primitive.matmul.MatMul.0.backward": {"input": [back["gh"]], "output": [back["gx"]]},
    }
    data: Record = {
        f"{cell}.forward.0": call(h, out=y),
        "Cell.fc.Dense.forward.0": call(x, out=y),
        f"{cell}.backward.0": {"input": [back["gy"]], "output": [back["gh"]]},
        "Cell.fc.Dense.backward.0": {"input": [back["gy"]], "output": [back["gx"]]},
    }
    names = list(calls)
    if with_calls:
        forward = {names[0]: calls[names[0]], names[1]: calls[names[1]]}
        backward = {names[2]: calls[names[2]], names[3]: calls[names[3]]}
        data = {**forward, **dict(list(data.items())[:2]), **backward, **dict(list(data.items())[2:])}
    construct: Record = {
        names[0]: "Cell.fc.Dense.forward.0",
        names[1]: f"{cell}.forward.0",
        names[2]: f"{cell}.backward.0",
        names[3]: "Cell.fc.Dense.backward.0",
        f"{cell}.forward.0": "Cell.fc.Dense.forward.0",
        f"{cell}.backward.0": "Cell.fc.Dense.backward.0",
        "Cell.fc.Dense.forward.0": None,
        "Cell.fc.Dense.backward.0": None,
    }
    return data, {name: construct[name] for name in data}


@pytest.mark.parametrize("activation", ["ReLU", "Tanh", "AnyName"])
@pytest.mark.parametrize("with_calls", [True, False])
def test_an_activation_in_a_layer_is_a_call_behind_it(tmp_path: Path, activation: str, with_calls: bool) -> None:
    mine, inside = dense(activation, with_calls)
    x, h, y = (tensor(array(name, 2, 4), "pytorch") for name in "xhy")
    gx, gh, gy = (tensor(array(name, 2, 4), "pytorch") for name in ("gx", "gh", "gy"))
    theirs: Record = {"Module.fc.Linear.forward.0": call(x, out=h)}
    if with_calls:
        theirs[f"Functional.{activation.lower()}.0.forward"] = call(h, out=y)
        theirs[f"Functional.{activation.lower()}.0.backward"] = {"input": [gy], "output": [gh]}
    theirs["Module.fc.Linear.backward.0"] = {"input": [gh], "output": [gx]}
    one, _, pairs = both(tmp_path, mine, theirs, (inside, dict.fromkeys(theirs)))
    assert pairs["Cell.fc.Dense.forward.0"] == "Module.fc.Linear.forward.0"
    layer = one.by_name["Cell.fc.Dense.forward.0"]
    assert [leaf["Norm"] for _, leaf in layer.outputs()] == [h["Norm"]]
    back = one.by_name["Cell.fc.Dense.backward.0"]
    assert [leaf["Norm"] for _, leaf in back.inputs()] == [gh["Norm"]]
    if with_calls:
        assert one.by_name[f"Primitive.act.{activation}.0.forward"].parent is None
        # A name that no table knows has a partner where both sides spell it alike.
        assert (f"Primitive.act.{activation}.0.forward" in pairs) == (activation != "AnyName")
        assert (f"Primitive.act.{activation}.0.backward" in pairs) == (activation != "AnyName")


def test_layers_that_have_the_same_in_them_stay_whole(tmp_path: Path) -> None:
    mine, inside = dense("ReLU", True)
    theirs = {
        name.replace("Cell", "Module").replace("Dense", "Linear"): record
        for name, record in json_of(dense("ReLU", False)[0]).items()
    }
    construct = dict.fromkeys(theirs)
    construct["Module.fc.activation.ReLU.forward.0"] = "Module.fc.Linear.forward.0"  # type: ignore[assignment]
    one, _, _ = both(tmp_path, mine, theirs, (inside, construct))
    (_, leaf), *_ = one.by_name["Cell.fc.Dense.forward.0"].outputs()
    assert leaf["Norm"] == tensor(array("y", 2, 4), "mindspore")["Norm"]


def json_of(records: Record) -> Record:
    """Records of MindSpore's as PyTorch's."""
    import json

    text = json.dumps(records).replace("mindspore.Tensor", "torch.Tensor").replace("Float32", "torch.float32")
    found: Record = json.loads(text)
    return found


def products(framework: str, explicit: bool, rows: int = 6) -> Record:
    """Scores of an attention: the keys are transposed by a call, or by the product."""
    q, k, s = array("q", 2, 6, 4 if rows == 6 else 6), array("k", 2, 6, 4 if rows == 6 else 6), array("s", 2, 6, 6)
    turned = tensor(k.swapaxes(-1, -2), framework, [24, 1, 4])
    result: Record = {}
    if explicit:
        name = "Tensor.transpose.0.forward" if framework == "pytorch" else "Primitive.t.Transpose.0.forward"
        axes = [whole(-1), whole(-2)] if framework == "pytorch" else [[whole(0), whole(2), whole(1)]]
        result[name] = call(tensor(k, framework), *axes, out=turned)
        keys = turned
    else:
        keys = tensor(k, framework)
    record = call(tensor(q, framework), keys, out=tensor(s, framework))
    if framework == "pytorch":
        result["Torch.matmul.0.forward"] = record
    else:
        record["attributes"] = {"transpose_a": flag(False), "transpose_b": flag(not explicit)}
        result["Primitive.bmm.BatchMatMul.0.forward"] = record
    return result


@pytest.mark.parametrize("rows", [6, 4], ids=["by shape", "square, by arguments"])
@pytest.mark.parametrize("explicit", [True, False], ids=["by a call", "by the product"])
def test_a_transposed_matrix_is_an_argument_of_the_product(tmp_path: Path, explicit: bool, rows: int) -> None:
    one, other, pairs = both(tmp_path, products("mindspore", explicit, rows), products("pytorch", True, rows))
    assert pairs == {"Primitive.bmm.BatchMatMul.0.forward": "Torch.matmul.0.forward"}
    for timeline in (one, other):
        (event,) = timeline.events
        told = dict(event.inputs())
        assert (told["input.transpose_a"]["value"], told["input.transpose_b"]["value"]) == (False, True)
        assert told["input.1"]["Norm"] == pytest.approx(np.linalg.norm(array("k", *told["input.1"]["shape"])))


def test_a_matrix_that_one_side_does_not_transpose_is_another_argument(tmp_path: Path) -> None:
    mine = products("mindspore", False, 4)
    mine["Primitive.bmm.BatchMatMul.0.forward"]["attributes"]["transpose_b"] = flag(False)
    one, other, _ = both(tmp_path, mine, products("pytorch", True, 4))
    told = [dict(timeline.events[-1].inputs())["input.transpose_b"]["value"] for timeline in (one, other)]
    assert told == [False, True]


def test_a_transposed_tensor_that_others_take_too_stays(tmp_path: Path) -> None:
    theirs = products("pytorch", True)
    turned = theirs["Tensor.transpose.0.forward"]["output"][0]
    theirs["Tensor.sum.0.forward"] = call(turned, out=tensor(array("n", 1), "pytorch"))
    _, other, _ = both(tmp_path, products("mindspore", False), theirs)
    assert [event.name for event in other] == list(theirs)
