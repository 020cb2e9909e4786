"""What MindSpore recorded, in the words of PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.hand_made import backward, call, write_part

from msprobe.compare.name_table import layer_name, operation_in_torch
from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.pairing.match import pair
from msprobe.diagnose.pairing.slots import answering
from msprobe.diagnose.pairing.translation import translate
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.tolerance.judge import delta_of_gradient


def value(name: str, *shape: int, framework: str = "mindspore", dtype: str = "float32") -> dict[str, Any]:
    """A tensor whose statistics depend on its name and number of elements."""
    array = np.random.default_rng([*name.encode(), *(int(np.prod(shape)).to_bytes(4, "little"))]).normal(size=shape)
    written = dtype.capitalize() if framework == "mindspore" else f"torch.{dtype}"
    return {
        "type": "mindspore.Tensor" if framework == "mindspore" else "torch.Tensor",
        "dtype": written,
        "shape": list(shape),
        "Max": float(array.max()),
        "Min": float(array.min()),
        "Mean": float(array.mean()),
        "Norm": float(np.linalg.norm(array)),
    }


def torch(name: str, *shape: int, dtype: str = "float32") -> dict[str, Any]:
    return value(name, *shape, framework="pytorch", dtype=dtype)


def timelines(
    tmp_path: Path, mine: dict[str, Any], theirs: dict[str, Any], places: tuple[int | None, ...] = ()
) -> tuple[Timeline, Timeline]:
    """Both sides. ``places``: for each record the number of the one that it ran in."""
    inside = [
        {name: None if at is None else list(side)[at] for name, at in zip(side, places, strict=False)}
        for side in (mine, theirs)
    ]
    one = write_part(tmp_path / "ms", mine, framework="mindspore", construct=inside[0])
    other = write_part(tmp_path / "pt", theirs, framework="pytorch", construct=inside[1])
    return Timeline(one), Timeline(other)


def pairs(one: Timeline, other: Timeline) -> dict[str, str]:
    assert translate(one, other)
    found = pair(one, other)
    return {event.name: twin.name for event, twin in found.partner.items()}


def test_calls_answer_by_what_they_compute(tmp_path: Path) -> None:
    x, y = value("x", 2, 3), value("y", 2, 3)
    a, b = torch("x", 2, 3), torch("y", 2, 3)
    mine = {
        "Tensor.swapaxes.0.forward": call(x, out=y),
        "Primitive.softmax.Softmax.0.forward": call(y, out=x),
        "Functional.stop_gradient.0.forward": call(x, out=x),
        "Mint.mul.0.forward": call(x, y, out=y),
    }
    theirs = {
        "Tensor.transpose.0.forward": call(a, out=b),
        "Functional.softmax.0.forward": call(b, out=a),
        "Tensor.detach.0.forward": call(a, out=a),
        "Tensor.__mul__.0.forward": call(a, b, out=b),
    }
    assert pairs(*timelines(tmp_path, mine, theirs)) == dict(zip(mine, theirs, strict=True))


def test_what_is_inside_of_layers_of_both_is_left_out(tmp_path: Path) -> None:
    x, y = value("x", 2, 3), value("y", 2, 4)
    a, b = torch("x", 2, 3), torch("y", 2, 4)
    mine = {
        "Primitive.matmul.MatMul.0.forward": call(x, value("w", 4, 3), out=y),
        "Cell.fc.Dense.forward.0": call(x, out=y),
        "Functional.mine.0.forward": call(y, out=x),
        "Cell.own.Block.forward.0": call(y, out=x),
    }
    theirs = {
        "Functional.linear.0.forward": call(a, torch("w", 4, 3), out=b),
        "Module.fc.Linear.forward.0": call(a, out=b),
        "Functional.mine.0.forward": call(b, out=a),
        "Module.own.Block.forward.0": call(b, out=a),
    }
    one, other = timelines(tmp_path, mine, theirs, (1, None, 3, None))
    assert pairs(one, other) == {
        "Cell.fc.Dense.forward.0": "Module.fc.Linear.forward.0",
        "Functional.mine.0.forward": "Functional.mine.0.forward",
        "Cell.own.Block.forward.0": "Module.own.Block.forward.0",
    }
    assert [event.name for event in one if event.layer] == ["Cell.fc.Dense.forward.0"]


def test_a_product_and_its_bias_are_one_linear_call(tmp_path: Path) -> None:
    x, w, b, xw, y = (value(*one) for one in (("x", 2, 3), ("w", 4, 3), ("b", 4), ("xw", 2, 4), ("y", 2, 4)))
    grads = [value(*one) for one in (("gy", 2, 4), ("gx", 2, 3), ("gw", 4, 3), ("gb", 4))]
    mine = {
        "Primitive.matmul.MatMul.0.forward": call(x, w, out=xw),
        "Primitive.bias_add.BiasAdd.0.forward": call(xw, b, out=y),
        "Primitive.bias_add.BiasAdd.0.backward": {"input": [grads[0]], "output": [grads[0], grads[3]]},
        "Primitive.matmul.MatMul.0.backward": {"input": [grads[0]], "output": grads[1:3]},
    }
    a, result = torch("x", 2, 3), torch("y", 2, 4)
    theirs = {
        "Functional.linear.0.forward": call(a, torch("w", 4, 3), torch("b", 4), out=result),
        "Functional.linear.0.backward": {
            **backward(torch("gb", 4), torch("gx", 2, 3), torch("gw", 3, 4)),
            "input_grads": {
                f"input.{place}": torch(*one) for place, one in enumerate((("gx", 2, 3), ("gw", 4, 3), ("gb", 4)))
            },
            "msprobe": {"order": 1},
        },
    }
    one, other = timelines(tmp_path, mine, theirs)
    assert pairs(one, other) == {
        "Primitive.matmul.MatMul.0.forward": "Functional.linear.0.forward",
        "Primitive.matmul.MatMul.0.backward": "Functional.linear.0.backward",
    }
    forward, back = one.events
    assert [leaf["shape"] for _, leaf in forward.inputs()] == [[2, 3], [4, 3], [4]]
    assert [leaf["Norm"] for _, leaf in forward.outputs()] == [y["Norm"]]
    assert [(slot, leaf["shape"]) for slot, leaf in back.outputs()] == [
        ("output.0", [2, 3]),
        ("output.1", [4, 3]),
        ("output.2", [4]),
    ]


def test_what_asks_for_shapes_or_moves_nothing_is_left_out(tmp_path: Path) -> None:
    x = value("x", 2, 3)
    mine = {
        "Functional.shape.0.forward": {**call(x), "output": [[{"type": "int", "value": 2}]]},
        "Primitive.reshape.Reshape.0.forward": call(x, out={**x, "shape": [6]}),
        "Functional.relu.0.forward": call({**x, "shape": [6]}, out=value("y", 6)),
    }
    one, other = timelines(tmp_path, mine, {"Functional.relu.0.forward": call(torch("x", 6), out=torch("y", 6))})
    assert translate(one, other)
    assert [event.name for event in one] == ["Functional.relu.0.forward"]


def test_arguments_go_by_the_names_of_pytorch(tmp_path: Path) -> None:
    number = {"type": "int", "value": -1}
    mine = {"Functional.mean.0.forward": call(value("x", 2, 3), axis=number, keep_dims={"type": "bool", "value": True})}
    one, other = timelines(tmp_path, mine, {"Torch.mean.0.forward": call(torch("x", 2, 3), dim=number)})
    assert translate(one, other)
    assert [slot for slot, _ in one.events[0].inputs()] == ["input.0", "input.dim", "input.keepdim"]
    assert [slot for slot, _ in other.events[0].inputs()] == ["input.0", "input.dim"]


def test_averages_of_a_batch_norm_are_buffers(tmp_path: Path) -> None:
    mine = {
        "Cell.bn.BatchNorm2d.forward.0": {
            **call(value("x", 2, 3)),
            "parameters": {"gamma": value("g", 3), "moving_mean": value("m", 3), "moving_variance": value("v", 3)},
        }
    }
    one, other = timelines(tmp_path, mine, {"Module.bn.BatchNorm2d.forward.0": call(torch("x", 2, 3))})
    assert translate(one, other)
    slots = [slot for slot, _ in one.events[0].parameters()]
    assert slots == ["parameters.gamma", "buffers.running_mean", "buffers.running_var"]


def test_two_runs_of_one_framework_are_left_as_they_are(tmp_path: Path) -> None:
    data = {"Primitive.relu.ReLU.0.forward": call(value("x", 2))}
    one = Timeline(write_part(tmp_path / "one", data, framework="mindspore"))
    other = Timeline(write_part(tmp_path / "other", data, framework="mindspore"))
    assert not translate(one, other)
    assert one.events[0].key == "Primitive.relu.ReLU"


def test_results_that_one_side_alone_gives_answer_to_none() -> None:
    left = [("output.0", value("y", 2, 3)), ("output.1", value("mean", 2)), ("output.2", value("deviation", 2))]
    right = [("output.0", torch("y", 2, 3))]
    mine, theirs = answering(left, right)
    assert (mine, theirs) == (left[:1], right)


def test_a_gradient_that_cancels_counts_for_the_terms_that_it_is_the_sum_of() -> None:
    left, right = value("a", 8), value("b", 8)
    difference = Difference("bias.0", "value", left, right, 0.8)
    assert delta_of_gradient(difference, 0.0) == 0.8
    size = max(left["Norm"], right["Norm"]) / 8**0.5
    assert np.isclose(delta_of_gradient(difference, 0.0, lambda leaf: 1000 * size), 0.8e-3)
    assert np.isclose(delta_of_gradient(difference, 100 * size), 0.8e-2)


def test_layers_and_primitives_have_the_words_of_pytorch() -> None:
    assert [layer_name(kind) for kind in ("Dense", "Conv2dTranspose", "SeLU", "Transformer")] == [
        "Linear",
        "ConvTranspose2d",
        "SELU",
        None,
    ]
    primitives = ("ReduceMean", "BatchMatMul", "MaxPool", "GeLU", "RealDiv", "Conv2D", "ExpandDims")
    assert [operation_in_torch(f"Primitive.some.{one}") for one in primitives] == [
        *("mean", "matmul", "max_pool2d", "gelu", "div", "conv2d", "unsqueeze")
    ]


def test_a_gradient_that_a_norm_takes_no_notice_of_is_rounding(tmp_path: Path) -> None:
    from msprobe.diagnose.runs import compare_runs

    def write(framework: str, tiny: float) -> Path:
        describe = value if framework == "mindspore" else torch
        x, y, z, g = (describe(one, 4, 4) for one in "xyzg")
        nothing = {**describe("x", 4, 4), "Max": tiny, "Min": -tiny, "Mean": tiny / 9, "Norm": 2 * tiny}
        data = {
            "Tensor.sum.0.forward": call(x, out=y),
            "Functional.tanh.0.forward": call(y, out=z),
            "Functional.tanh.0.backward": {"input": [g], "output": [g]},
            "Tensor.sum.0.backward": {"input": [nothing], "output": [nothing]},
        }
        write_part(tmp_path / f"{framework}_{tiny}" / "step0" / "rank", data, framework=framework)
        return tmp_path / f"{framework}_{tiny}"

    assert compare_runs(write("mindspore", 1e-8), write("pytorch", 3e-8)).status == "agree"
    assert compare_runs(write("mindspore", 1e-2), write("pytorch", 3e-2)).status == "diverged"


def test_gradients_that_another_recorder_wrote_by_the_node_are_not_compared(tmp_path: Path) -> None:
    mine = {
        "Functional.dense.0.forward": call(value("x", 2, 3), value("w", 4, 3), out=value("y", 2, 4)),
        "Functional.dense.0.backward": backward(value("gx", 2, 3), value("gw", 4, 3)),
    }
    theirs = {
        "Functional.linear.0.forward": call(torch("x", 2, 3), torch("w", 4, 3), out=torch("y", 2, 4)),
        "Functional.linear.0.backward": backward(torch("gw", 3, 4), torch("gx", 2, 3)),
    }
    one, other = timelines(tmp_path, mine, theirs)
    assert translate(one, other)
    assert [len(side.events[1].outputs()) for side in (one, other)] == [2, 0]
