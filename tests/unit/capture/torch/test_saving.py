"""save(): variables and their gradients, written by hand at level debug."""

from __future__ import annotations

import copy
from collections import namedtuple
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from support.torch_dumps import Recorder, record

__all__ = ["record"]

Pair = namedtuple("Pair", ["left", "right"])


def leaf() -> torch.Tensor:
    return torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], requires_grad=True)


def test_nested_variables_and_their_gradients(record: Recorder) -> None:
    debugger = record(level="debug", task="tensor")
    x = leaf()
    y = 2 * x
    debugger.save({"a": x, "b": [1, "s", {"c": y}]}, "dd")
    debugger.save(x, "x")
    debugger.save(y, "x")
    y.sum().backward()
    debugger.step()
    dump = record.end()
    data = dump.saved()
    assert list(data) == [
        "dd.0.debug",
        "dd_grad.0.debug",
        "x.0.debug",
        "x_grad.0.debug",
        "x.1.debug",
        "x_grad.1.debug",
    ]
    assert data["dd.0.debug"]["a"]["Max"] == 4.0
    assert data["dd.0.debug"]["a"]["data_name"] == "dd.0.debug.a.pt"
    assert data["dd.0.debug"]["b"][0] == {"type": "int", "value": 1}
    assert data["dd.0.debug"]["b"][1] == {"type": "str", "value": "s"}
    gradients = data["dd_grad.0.debug"]
    assert gradients["a"]["Max"] == 2.0
    assert gradients["b"][:2] == [None, None]
    assert gradients["b"][2]["c"]["Max"] == 1.0
    # A bare tensor is the object itself.
    assert data["x.0.debug"]["shape"] == [2, 3]
    assert data["x_grad.0.debug"]["Max"] == 2.0
    assert data["x_grad.1.debug"]["Max"] == 1.0
    files = dump.tensors()
    assert sorted(files) == [
        "dd.0.debug.a.pt",
        "dd.0.debug.b.2.c.pt",
        "dd_grad.0.debug.a.pt",
        "dd_grad.0.debug.b.2.c.pt",
        "x.0.debug.pt",
        "x.1.debug.pt",
        "x_grad.0.debug.pt",
        "x_grad.1.debug.pt",
    ]
    assert torch.equal(files["dd.0.debug.b.2.c.pt"], y.detach())
    assert torch.equal(files["x_grad.0.debug.pt"], torch.full((2, 3), 2.0))
    assert not files["x.0.debug.pt"].requires_grad
    header = dump.file(0, "debug.json")
    assert (header["level"], header["task"]) == ("debug", "tensor")
    assert not (dump.folder / "step0" / "rank" / "dump.json").exists()


def test_statistics_write_no_files(record: Recorder) -> None:
    debugger = record(level="debug")
    debugger.save(leaf(), "x")
    debugger.step()
    dump = record.end()
    assert dump.saved()["x.0.debug"]["Max"] == 4.0
    assert "data_name" not in dump.saved()["x.0.debug"]
    assert dump.tensors() == {}


def test_counts_begin_again_in_each_step(record: Recorder) -> None:
    debugger = record(level="debug")
    for _ in range(2):
        debugger.save(1, "n")
        debugger.save(2.5, "n", save_backward=False)
        debugger.step()
    dump = record.end()
    for step in (0, 1):
        assert list(dump.saved(step)) == ["n.0.debug", "n_grad.0.debug", "n.1.debug"]
        assert dump.saved(step)["n_grad.0.debug"] is None


def test_without_step_the_end_of_the_program_writes(record: Recorder) -> None:
    debugger = record(level="debug")
    debugger.start()
    debugger.save(True, "flag")
    debugger.stop()
    assert record.end().saved()["flag.0.debug"] == {"type": "bool", "value": True}


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (3, {"type": "int", "value": 3}),
        ("text", {"type": "str", "value": "text"}),
        ((), []),
        ({}, {}),
        ((1, (2.0,)), [{"type": "int", "value": 1}, [{"type": "float", "value": 2.0}]]),
        (Pair(1, 2), {"left": {"type": "int", "value": 1}, "right": {"type": "int", "value": 2}}),
    ],
)
def test_what_else_can_be_saved(record: Recorder, variable: Any, expected: Any) -> None:
    record(level="debug").save(variable, "v")
    assert record.end().saved()["v.0.debug"] == expected


def cyclic() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("arguments", "name", "found"),
    [
        ((None, "x"), "save-none", {}),
        ((object(), "x"), "save-type-wrong", {"where": "variable 'x'", "kind": "object"}),
        (([1, {"k": {2}}], "x"), "save-type-wrong", {"where": "variable 'x'[1]['k']", "kind": "set"}),
        (({1: 2}, "x"), "save-key-wrong", {"key": 1}),
        ((1, 5), "save-name-wrong", {"name": 5}),
        ((1, None), "save-name-wrong", {}),
        ((1, "x", 1), "save-backward-wrong", {"name": "x", "value": 1}),
        ((cyclic(), "x"), "save-too-deep", {"limit": 50}),
        ((deep(51), "x"), "save-too-deep", {"limit": 50}),
    ],
)
def test_what_cannot_be_saved_gives_a_warning(
    record: Recorder, arguments: Any, name: str, found: dict[str, Any], capsys: Any
) -> None:
    debugger = record(level="debug", task="tensor")
    debugger.save(*arguments)
    out = capsys.readouterr().out
    assert mentions(out, "variable-skipped")
    assert mentions(out, name, **found)
    debugger.save(1, "y")
    assert list(record.end().saved()) == ["y.0.debug", "y_grad.0.debug"]


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_nothing_in_a_container_is_null_beside_the_rest(record: Recorder, task: str) -> None:
    x = torch.ones(2, requires_grad=True)
    debugger = record(level="debug", task=task)
    debugger.save({"past": None, "values": [None, x]}, "state")
    (x * 3).sum().backward()
    debugger.step()
    saved = record.end().saved()
    assert saved["state.0.debug"]["past"] is None
    assert saved["state.0.debug"]["values"][0] is None
    assert saved["state.0.debug"]["values"][1]["Max"] == 1.0
    assert saved["state_grad.0.debug"]["values"][1]["Max"] == 3.0
    assert saved["state_grad.0.debug"]["past"] is None


def test_fifty_levels_are_fine(record: Recorder) -> None:
    record(level="debug").save(deep(50), "x", save_backward=False)
    value = record.end().saved()["x.0.debug"]
    for _ in range(50):
        value = value[0]
    assert value == {"type": "int", "value": 1}


@pytest.mark.parametrize(
    ("name", "entry"),
    [("a/b", "a_b"), ("../../x", ".._.._x"), ("with blank", "with blank"), ("线", "线"), ("a\\b\n", "a_b_")],
)
def test_names_never_lead_elsewhere(record: Recorder, name: str, entry: str) -> None:
    record(level="debug", task="tensor").save(torch.ones(1), name, save_backward=False)
    dump = record.end()
    assert list(dump.saved()) == [f"{entry}.0.debug"]
    assert len(dump.tensors()) == 1
    assert not list(dump.folder.parent.glob("*.pt"))


@pytest.mark.parametrize("settings", [{"level": "L1"}, {"level": "mix"}])
def test_other_levels_save_nothing(record: Recorder, settings: dict[str, Any]) -> None:
    record(**settings).save(1, "x")
    assert record.end().steps() == []


def test_step_and_rank_filters_hold(record: Recorder) -> None:
    debugger = record(level="debug", step=[1])
    for _ in range(3):
        debugger.save(1, "x")
        debugger.step()
    assert record.end().steps() == ["step1"]
    record(level="debug", rank=[4], step=[0]).save(1, "x")
    assert record.end().steps() == ["step1"]


def test_the_values_are_those_of_the_moment(record: Recorder) -> None:
    """Also where a write does not show in the version counter."""
    debugger = record(level="debug", task="tensor")
    x = torch.zeros(3)
    debugger.save(x, "x", save_backward=False)
    x.data.add_(1)
    debugger.save(x, "x", save_backward=False)
    x.numpy()[:] = 5
    debugger.save(x, "x", save_backward=False)
    dump = record.end()
    assert [dump.saved()[f"x.{i}.debug"]["Max"] for i in range(3)] == [0.0, 1.0, 5.0]
    assert [float(dump.tensors()[f"x.{i}.debug.pt"][0]) for i in range(3)] == [0.0, 1.0, 5.0]


def test_gradients_are_what_reaches_the_variable(record: Recorder) -> None:
    """Summed over its uses, of an intermediate value as of a leaf, and of one that is written to later."""
    debugger = record(level="debug")
    x = leaf()
    y = x * 3
    debugger.save([x, y], "both")
    z = y.sum() + (y * y).sum()
    y.mul_(0.5)
    with pytest.raises(RuntimeError):
        z.backward()  # the user's own mistake stays one
    z = (x * 3).sum() + (x * x).sum()
    z.backward()
    debugger.step()
    gradients = record.end().saved()["both_grad.0.debug"]
    assert gradients[0]["Max"] == pytest.approx(3 + 2 * 4.0)


def test_a_second_pass_replaces_the_first(record: Recorder) -> None:
    debugger = record(level="debug")
    x = leaf()
    y = x.sum()
    debugger.save(x, "x")
    y.backward(retain_graph=True)
    (y * 5).backward()
    debugger.step()
    assert record.end().saved()["x_grad.0.debug"]["Max"] == 5.0


def test_a_gradient_after_step_is_not_taken(record: Recorder) -> None:
    debugger = record(level="debug")
    x = leaf()
    debugger.save(x, "x")
    debugger.step()
    x.sum().backward()
    debugger.save(1, "y")
    debugger.step()
    dump = record.end()
    assert dump.saved(0)["x_grad.0.debug"] is None
    assert list(dump.saved(1)) == ["y.0.debug", "y_grad.0.debug"]


def test_the_tensor_itself_carries_nothing(record: Recorder) -> None:
    debugger = record(level="debug")
    x = leaf()
    y = x * 2
    node = y.grad_fn
    debugger.save([x, y], "v")
    assert x._backward_hooks is None
    assert y._backward_hooks is None
    assert y.grad_fn is node
    copy.deepcopy(x)
    debugger.step()


def test_a_large_container_is_not_written_anew_for_each_gradient(record: Recorder) -> None:
    debugger = record(level="debug")
    leaves = [torch.ones(2, requires_grad=True) for _ in range(400)]
    debugger.save(leaves, "many")
    written = []
    put = debugger.recorder.session.put
    debugger.recorder.session.put = lambda name, *rest, **words: (written.append(name), put(name, *rest, **words))[1]  # type: ignore[func-returns-value,method-assign,assignment]
    torch.stack(leaves).sum().backward()
    debugger.step()
    assert len(written) < 30
    assert all(g["Max"] == 1.0 for g in record.end().saved()["many_grad.0.debug"])
