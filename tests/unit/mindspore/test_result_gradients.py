"""Gradients where MindSpore does not show its graph (2.7): the same as with it, but for what cannot be seen."""

from __future__ import annotations

from typing import Any

import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.mindspore_dumps import Recorder, Toy, batch, record, train_step  # noqa: E402

from msprobe.capture.mindspore.gradients import backward_graph as graph  # noqa: E402

__all__ = ["record"]


def numbers(tree: Any) -> Any:
    """A record without what says where it stands in the program."""
    if isinstance(tree, dict):
        return {key: numbers(value) for key, value in tree.items() if key not in ("msprobe", "merged", "row")}
    return [numbers(value) for value in tree] if isinstance(tree, list) else tree


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_gradients_are_those_of_the_graph(record: Recorder, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not graph.is_readable():
        pytest.skip("this MindSpore has no graph to compare with")
    model = Toy()
    debugger = record(level=level, summary_mode="md5")
    wanted_loss, wanted_gradients = train_step(debugger, model)
    wanted = record.end().data()
    monkeypatch.setattr(graph, "is_readable", lambda: False)
    debugger = record(level=level, summary_mode="md5")
    loss, gradients = train_step(debugger, model)
    dump = record.end()
    assert float(loss) == float(wanted_loss)
    assert all((a == b).all() for a, b in zip(gradients, wanted_gradients, strict=True))
    assert dump.errors() == []
    found = dump.data()
    # A parameter that is handed through under another object is a result like others here.
    assert {name for name in found.keys() ^ wanted.keys() if not name.startswith("Tensor.to.")} == set()
    seen = 0
    for name, entry in wanted.items():
        there, here = numbers(entry), numbers(found[name])
        if ".backward" in name:
            assert here["output"] == [None] * len(there["output"])
            there, here = there["input"], here["input"]
            seen += len(here) - here.count(None)
        assert here == there, name
    assert seen >= 3


class Nested(nn.Cell):
    """Takes a list, a dict and a keyword, and returns one of them as it is, a whole number and None."""

    def construct(self, pair: Any, named: Any, scale: Any = None) -> Any:
        result = ops.tanh(pair[0] + pair[1] * named["x"]) * scale
        return result, pair[1], ops.argmax(result), None


class Model(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.nested = Nested()

    def construct(self, x: Any, y: Any) -> Any:
        first, second, _, _ = self.nested([x, y], {"x": x}, scale=y)
        return (first + second).sum()


def test_arguments_and_results_in_containers(record: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "is_readable", lambda: False)
    model, x, y = Model(), batch(), batch(1)
    wanted = ms.value_and_grad(model, (0, 1))(x, y)
    with record(level="L0").recording(model):
        found = ms.value_and_grad(model, (0, 1))(x, y)
    dump = record.end()
    assert dump.errors() == []
    assert float(found[0]) == float(wanted[0])
    assert all((a == b).all() for a, b in zip(found[1], wanted[1], strict=True))
    entry = dump.data()["Cell.nested.Nested.backward.0"]
    assert entry["output"] == [None] * 3
    assert entry["input"][0]["Max"] == 1.0
    assert entry["input"][2] is None


def test_saved_variables(record: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "is_readable", lambda: False)
    debugger = record(level="debug")

    def loss(x: Any) -> Any:
        y = ops.tanh(x)
        debugger.save(y, "y")
        return (y * y).sum()

    ms.value_and_grad(loss, 0)(batch())
    debugger.step()
    saved = record.end().saved()
    assert saved["y_grad.0.debug"]["shape"] == [3, 8]
