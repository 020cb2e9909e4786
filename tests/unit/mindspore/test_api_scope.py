"""Which functions are recorded as calls: those of the list, all, or those of a list of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import Tensor, mint, ops  # noqa: E402
from support.mindspore_dumps import Recorder, batch, record  # noqa: E402

from msprobe.capture.mindspore.calls.surface import MINDSPORE, Surface  # noqa: E402
from msprobe.errors import InvalidInputError  # noqa: E402
from msprobe.mindspore import PrecisionDebugger  # noqa: E402

__all__ = ["record"]


def calls(x: Any) -> Any:
    y = x.copy()
    y[0] = 1.0
    ops.tanh(y[1])
    x.mul(y)
    x.softmax(-1)
    mint.clip(x, 0, 1)
    return ops.softplus(x) * 2


def names_of(debugger: PrecisionDebugger, record: Recorder) -> list[str]:
    with debugger.recording():
        calls(batch())
    dump = record.end()
    assert dump.errors() == []
    return [name for name in dump.names() if name.endswith(".forward")]


def test_the_list_is_the_rule(record: Recorder) -> None:
    names = names_of(record(level="L1"), record)
    assert names == names_of(record(level="L1", api_scope="listed"), record)
    assert "Functional.tanh.0.forward" in names
    assert "Tensor.__mul__.0.forward" in names
    assert not [name for name in names if name.startswith(("Mint.clip", "Tensor.softmax"))]


def test_indexing_and_stop_gradient_are_seen_beside_the_list_and_move_no_other_name(
    record: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ms.Parameter(batch(1, (4, 8)), name="table")

    def both(x: Any) -> Any:
        x = x.copy()
        x[0, 1:3] = ops.stop_gradient(x[1, 1:3]) * 2
        rows = table[ms.Tensor([1, 3])] + table[:2]
        return ops.tanh(x[:2] * rows)[x[:2] > 0].sum()

    def train(debugger: PrecisionDebugger) -> tuple[Any, Any]:
        with debugger.recording():
            loss, (gradient,) = ms.value_and_grad(both, None, [table])(batch())
        dump = record.end()
        assert dump.errors() == []
        return dump.data(), (loss.asnumpy().tobytes(), gradient.asnumpy().tobytes())

    data, found = train(record(level="L1"))
    new = ("Tensor.__getitem__.", "Tensor.__setitem__.", "Functional.stop_gradient.")
    monkeypatch.setattr(Surface, "apis_beside", lambda self: iter(()))
    listed, alone = train(record(level="L1"))
    assert found == alone
    assert [name for name in data if not name.startswith(new)] == list(listed)
    assert not any(name.startswith(new) for name in listed)
    written = data["Tensor.__setitem__.0.forward"]
    assert written["input_args"][0]["shape"] == [3, 8]
    assert data["Functional.stop_gradient.0.forward"]["output"][0]["shape"] == [2]
    # Of the first dimension rows 1 and 3: the gradient of a parameter's rows is that of the parameter.
    taken = [name for name in data if name.startswith("Tensor.__getitem__.") and name.endswith(".backward")]
    assert any(data[name]["output"] and data[name]["output"][0]["shape"] == [4, 8] for name in taken)


def test_a_list_of_the_user_is_all_that_is_recorded(record: Recorder, tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_text("ops: [tanh]\n")
    assert names_of(record(level="L1", api_list_file=str(file)), record) == ["Functional.tanh.0.forward"]


def test_all_functions(record: Recorder) -> None:
    names = names_of(record(level="L1", api_scope="all"), record)
    assert names == [
        "Tensor.copy.0.forward",
        "Tensor.__setitem__.0.forward",
        "Tensor.__getitem__.0.forward",
        "Functional.tanh.0.forward",
        "Tensor.mul.0.forward",
        "Tensor.softmax.0.forward",
        "Mint.clip.0.forward",
        "Functional.softplus.0.forward",
        "Tensor.__mul__.0.forward",
    ]


def test_the_functions_that_all_has_beside_the_list() -> None:
    listed = {(id(holder), name): key for holder, name, key in MINDSPORE.apis()}
    every = {(id(holder), name): key for holder, name, key in MINDSPORE.apis(everything=True)}
    assert listed.items() <= every.items()
    for holder, names in (
        (Tensor, "__getitem__ __setitem__ mul gather softmax"),
        (mint, "addmm var einsum mm std squeeze"),
        (mint.nn.functional, "cross_entropy conv2d smooth_l1_loss"),
        (ops, "softplus conv_transpose2d stft"),
        (mint.distributed, "barrier all_gather_into_tensor_uneven"),
    ):
        for name in names.split():
            assert (id(holder), name) in every, name
            assert (id(holder), name) not in listed, name
    without = {name for _, name in every}
    assert not without & {"grad", "value_and_grad", "vmap", "asnumpy", "item_", "shape_", "get_rank", "register_hook"}
    assert every[id(mint), "einsum"] == "Mint.einsum"
    # The same function as one of the list goes by the name that the list has.
    assert ops.tensor_gt is ops.greater
    assert every[id(ops), "tensor_gt"] == "Functional.greater"


def test_a_list_of_the_users_own(record: Recorder, tmp_path: Path) -> None:
    file = tmp_path / "support_wrap_ops.yaml"
    file.write_text("ops: [tanh, softplus]\nmint.ops: [clip]\ntensor: [__mul__]\n")
    assert names_of(record(level="L1", api_list_file=str(file)), record) == [
        "Functional.tanh.0.forward",
        "Mint.clip.0.forward",
        "Functional.softplus.0.forward",
        "Tensor.__mul__.0.forward",
    ]
    file.write_text("ops: [tanhh]\noops: [tanh]\n")
    with pytest.raises(InvalidInputError, match=r"(?s)tanhh.*oops"):
        record(level="L1", api_list_file=str(file))
