"""Gradients of each call and module, against torch.autograd.grad; nothing of the graph is changed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.recorded import Dump, is_value_of, record
from torch import nn

from msprobe.capture.torch.gradients.graph_nodes import GradientGathering, NodeHooks, accumulating_node, collect_tensors

Tensor = torch.Tensor


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(len(shapes))
    return [torch.rand(shape, generator=generator).add_(0.5).requires_grad_() for shape in shapes]


def weights_of(result: Tensor) -> Tensor:
    """Fixed coefficients, so that no gradient is made of equal numbers."""
    return torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape)


def weighted(result: Any) -> Tensor:
    found: list[tuple[str, Tensor]] = []
    collect_tensors(result, "", found)
    total: Tensor = sum((weights_of(t) * t).sum() for _, t in found if t.requires_grad)  # type: ignore[assignment]
    return total


S = (3, 4)
L = (2, 3, 4)
# name of the entry, what is called, shapes of its tensor arguments
CALLS: dict[str, tuple[str, Callable[..., Any], list[tuple[int, ...]]]] = {
    "add": ("Torch.add", torch.add, [S, S]),
    "add, broadcast": ("Torch.add", torch.add, [S, (4,)]),
    "mul": ("Tensor.__mul__", lambda a, b: a * b, [S, S]),
    "mul by itself": ("Tensor.__mul__", lambda a: a * a, [S]),
    "pow of two": ("Tensor.__pow__", lambda a, b: a**b, [S, S]),
    "matmul": ("Torch.matmul", torch.matmul, [(3, 4), (4, 5)]),
    "matmul, 3-D": ("Torch.matmul", torch.matmul, [L, (4, 5)]),
    "bmm": ("Torch.bmm", torch.bmm, [(2, 3, 4), (2, 4, 5)]),
    "linear": ("Functional.linear", F.linear, [S, (5, 4), (5,)]),
    "linear, 3-D": ("Functional.linear", F.linear, [L, (5, 4), (5,)]),
    "linear, 3-D, no bias": ("Functional.linear", F.linear, [L, (5, 4)]),
    "conv2d": ("Functional.conv2d", F.conv2d, [(1, 2, 4, 4), (3, 2, 2, 2), (3,)]),
    "layer_norm": ("Functional.layer_norm", lambda a, w, b: F.layer_norm(a, (4,), w, b), [S, (4,), (4,)]),
    "group_norm": ("Functional.group_norm", lambda a, w, b: F.group_norm(a, 2, w, b), [(2, 4, 3), (4,), (4,)]),
    "gelu": ("Functional.gelu", F.gelu, [S]),
    "softmax": ("Functional.softmax", lambda a: F.softmax(a, dim=-1), [S]),
    "log_softmax": ("Torch.log_softmax", lambda a: torch.log_softmax(a, 1), [S]),
    "cross_entropy": ("Functional.cross_entropy", lambda a: F.cross_entropy(a, torch.tensor([0, 1, 2])), [S]),
    "mse_loss": ("Functional.mse_loss", F.mse_loss, [S, S]),
    "cosine_similarity": ("Functional.cosine_similarity", F.cosine_similarity, [S, S]),
    "attention": ("Functional.scaled_dot_product_attention", F.scaled_dot_product_attention, [L, L, L]),
    "bilinear": ("Functional.bilinear", F.bilinear, [S, S, (2, 4, 4)]),
    "addmm": ("Torch.addmm", torch.addmm, [(3, 5), (3, 4), (4, 5)]),
    "einsum": ("Torch.einsum", lambda a, b: torch.einsum("ij,kj->ik", a, b), [S, S]),
    "where": ("Torch.where", lambda a, b: torch.where(torch.ones(S) > 0, a, b), [S, S]),
    "gather": ("Torch.gather", lambda a: torch.gather(a, 1, torch.zeros(3, 1, dtype=torch.long)), [S]),
    "logsumexp": ("Torch.logsumexp", lambda a: torch.logsumexp(a, 1), [S]),
    "std": ("Torch.std", lambda a: torch.std(a, dim=1), [S]),
    "normalize": ("Functional.normalize", F.normalize, [S]),
    "embedding": ("Functional.embedding", lambda w: F.embedding(torch.tensor([0, 0, 2]), w), [S]),
    "smooth_l1_loss": ("Functional.smooth_l1_loss", F.smooth_l1_loss, [S, S]),
    "triplet": ("Functional.triplet_margin_loss", F.triplet_margin_loss, [S, S, S]),
    "cdist": ("Torch.cdist", torch.cdist, [S, S]),
    "by keyword": ("Torch.add", lambda a, b: torch.add(input=a, other=b, alpha=2), [S, S]),
    "split": ("Torch.split", lambda a: torch.split(a, 2, dim=1), [S]),
    "svd": ("Torch.svdvals", torch.linalg.svdvals, [S]),
    "prelu": ("Functional.prelu", F.prelu, [S, (1,)]),
    "instance_norm": ("Functional.instance_norm", F.instance_norm, [(2, 3, 4)]),
    "max": ("Torch.max", lambda a: torch.max(a, 1).values, [S]),
    "interpolate": ("Functional.interpolate", lambda a: F.interpolate(a, scale_factor=2), [(1, 2, 3)]),
    "multi-head attention": (
        "Functional.multi_head_attention_forward",
        lambda q, w, o: F.multi_head_attention_forward(
            q, q, q, 4, 2, w, None, None, None, False, 0.0, o, None, need_weights=False
        )[0],
        [(3, 2, 4), (12, 4), (4, 4)],
    ),
}


def gradients_of(function: Callable[..., Any], tensors: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(weighted(function(*tensors)), tensors))


def described(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """All gradients that a call's backward entry tells as those of its arguments."""
    if "input_grads" in entry:
        return [d for d in entry["input_grads"].values() if d is not None]
    return [d for d in entry["output"] if d is not None]


def is_one_of(gradient: Tensor, found: list[dict[str, Any]]) -> bool:
    """True if one of the descriptions is that of ``gradient``; a node may have it transposed."""
    turned = gradient.t() if gradient.dim() == 2 else gradient
    return any(is_value_of(d, gradient) or is_value_of(d, turned) for d in found)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_a_call_are_those_of_autograd(tmp_path: Path, name: str) -> None:
    key, function, shapes = CALLS[name]
    tensors = leaves(*shapes)
    expected = gradients_of(function, tensors)
    dump = record(tmp_path, lambda: weighted(function(*tensors)).backward())
    entry = dump.data[f"{key}.0.backward"]
    found = described(entry)
    for gradient, tensor in zip(expected, tensors, strict=True):
        assert tensor.grad is not None
        assert torch.equal(tensor.grad, gradient)
        if name != "mul by itself":
            assert is_one_of(gradient, found), entry
    assert not list(dump.folder.glob("dump_error_info.log"))


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


@pytest.mark.parametrize("above", [False, True], ids=["leaves", "results"])
@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_a_module_are_those_of_autograd(tmp_path: Path, name: str, above: bool) -> None:
    _, function, shapes = CALLS[name]
    tensors = leaves(*shapes)
    expected = gradients_of(function, tensors)
    model = nn.ModuleDict({"it": Calls(function)})

    def work() -> None:
        given = [t * 1 for t in tensors] if above else tensors
        weighted(model["it"](*given)).backward()

    entry = record(tmp_path, work, model, level="L0").data["Module.it.Calls.backward.0"]
    assert len(entry["output"]) == len(tensors)
    for found, gradient in zip(entry["output"], expected, strict=True):
        assert is_value_of(found, gradient)
    result = function(*tensors)
    results = list(result) if isinstance(result, tuple) else [result]
    for found, tensor in zip(entry["input"], results, strict=True):
        assert is_value_of(found, weights_of(tensor))


def test_a_tensor_used_often_inside_a_module_gets_the_sum(tmp_path: Path) -> None:
    (x,) = leaves(S)
    model = nn.ModuleDict({"it": Calls(lambda x: x * 2 + x.exp() + F.linear(x, torch.ones(4, 4)))})
    work = lambda: weighted(model["it"](x * 1)).backward()  # noqa: E731
    entry = record(tmp_path, work, model, level="L0").data["Module.it.Calls.backward.0"]
    assert x.grad is not None
    assert is_value_of(entry["output"][0], x.grad)


def test_an_argument_given_twice_has_one_gradient(tmp_path: Path) -> None:
    (x,) = leaves(S)
    model = nn.ModuleDict({"it": Calls(lambda a, b: a * b.exp())})

    def work() -> None:
        y = x * 1
        weighted(model["it"](y, y)).backward()

    entry = record(tmp_path, work, model, level="L0").data["Module.it.Calls.backward.0"]
    assert x.grad is not None
    assert is_value_of(entry["output"][0], x.grad)
    assert entry["output"][1] is None
    assert entry["merged"] == {"input.1": "input.0"}


@pytest.mark.parametrize("leaf", [True, False])
def test_a_call_that_got_one_tensor_twice_says_which_gradient_is_the_sum(tmp_path: Path, leaf: bool) -> None:
    given = torch.randn(3, 3, requires_grad=True)
    a = given if leaf else given * 1
    a.retain_grad()

    def work() -> None:
        torch.einsum("ij,jk->ik", a, a).sum().backward()
        F.linear(given, torch.ones(3, 3, requires_grad=True)).sum().backward()

    dump = record(tmp_path, work)
    backward = dump.data["Torch.einsum.0.backward"]
    assert list(backward["input_grads"]) == ["input.1"]
    assert backward["merged"] == {"input.2": "input.1"}
    assert "merged" not in dump.data["Functional.linear.0.backward"]


def test_only_this_call_s_share_of_a_gradient(tmp_path: Path) -> None:
    """The argument is used elsewhere too; what comes from there is not this module's."""
    (x,) = leaves(S)
    model = nn.ModuleDict({"it": Calls(torch.exp)})

    def work() -> None:
        y = x * 1
        (weighted(model["it"](y)) + (y**3).sum()).backward()

    entry = record(tmp_path, work, model, level="L0").data["Module.it.Calls.backward.0"]
    assert is_value_of(entry["output"][0], weights_of(x) * x.exp())


def test_unused_results_and_arguments_have_null(tmp_path: Path) -> None:
    x, y = leaves(S, S)
    model = nn.ModuleDict({"it": Calls(lambda a, b: (a * 2, b * 3, a + 1))})

    def work() -> None:
        first, _, _ = model["it"](x, y)
        weighted(first).backward()

    entry = record(tmp_path, work, model, level="L0").data["Module.it.Calls.backward.0"]
    assert [d is None for d in entry["input"]] == [False, True, True]
    assert is_value_of(entry["output"][0], 2 * weights_of(x))
    assert entry["output"][1] is None


def test_only_the_last_result_of_a_call_is_used(tmp_path: Path) -> None:
    (x,) = leaves((5, 1, 4))
    cell = nn.LSTM(4, 3)
    entry = record(tmp_path, lambda: weighted(cell(x)[1][1]).backward()).data["VF.lstm.0.backward"]
    assert x.grad is not None
    assert is_one_of(x.grad, described(entry))


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_a_graph_that_is_walked_again_is_recorded_again(tmp_path: Path, level: str) -> None:
    x, weight = leaves(L, (5, 4))
    model = nn.ModuleDict({"it": Calls(F.linear)})

    def work() -> None:
        result = model["it"](x, weight)
        weighted(result).backward(retain_graph=True)
        (3 * weighted(result)).backward()

    data = record(tmp_path, work, model, level=level).data
    name = "Module.it.Calls.backward.0" if level == "L0" else "Functional.linear.0.backward"
    assert weight.grad is not None
    assert is_one_of(weight.grad * 3 / 4, [d for d in data[name].get("output", []) if d] + described(data[name]))


def test_a_second_walk_that_ends_early_does_not_mix_with_the_first(tmp_path: Path) -> None:
    x, weight = leaves(L, (5, 4))
    model = nn.ModuleDict({"it": Calls(F.linear)})

    def work() -> None:
        result = model["it"](x * 1, weight * 1)
        torch.autograd.grad(weighted(result), result, retain_graph=True)
        weighted(result * 2).backward()

    entry = record(tmp_path, work, model, level="L0").data["Module.it.Calls.backward.0"]
    assert x.grad is not None
    assert is_value_of(entry["output"][0], x.grad)
    assert entry["input"][0]["Max"] == pytest.approx(3.0)


def test_second_derivatives_are_recorded_and_right(tmp_path: Path) -> None:
    (x,) = leaves(S)

    def work() -> None:
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (first**2).sum().backward()

    data = record(tmp_path, work).data
    assert x.grad is not None
    assert torch.allclose(x.grad, 36 * x.detach() ** 3)
    assert is_value_of(data["Tensor.__pow__.0.backward"]["output"][0], 3 * x.detach() ** 2)


def test_autograd_grad_of_some_inputs(tmp_path: Path) -> None:
    x, y = leaves(S, S)
    found: list[Any] = []
    data = record(tmp_path, lambda: found.append(torch.autograd.grad(F.softplus(x * y).sum(), y))).data
    outputs = data["Tensor.__mul__.0.backward"]["output"]
    assert outputs[0] is None
    assert is_value_of(outputs[1], found[0][0])


# ---------------------------------------------------------------- results that are written to


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("shape", [S, L], ids=["2-D", "3-D"])
def test_a_result_that_is_written_to_keeps_its_gradient(tmp_path: Path, level: str, shape: tuple[int, ...]) -> None:
    """From 3-D input on, the result of a linear layer with bias is a view."""
    (x,) = leaves(shape)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True))
    before = model[0](x).detach()
    arriving = weights_of(before) * (before > 0)
    expected = torch.autograd.grad(model[0](x), x, arriving)[0]
    data = record(tmp_path, lambda: weighted(model(x)).backward(), model, level=level).data
    if level != "L1":
        entry = data["Module.0.Linear.backward.0"]
        assert is_value_of(entry["input"][0], arriving)
        assert is_value_of(entry["output"][0], expected)
        after = data["Module.1.ReLU.backward.0"]
        assert is_value_of(after["input"][0], weights_of(before))
        assert after["output"][0]["Norm"] == pytest.approx(arriving.norm().item())
    if level != "L0":
        entry = data["Functional.linear.0.backward"]
        assert entry["input"][0]["Norm"] == pytest.approx(arriving.norm().item())
        assert is_one_of(expected, described(entry))


class Halves(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, :2], x[:, 2:]


def test_views_that_are_written_to_have_the_gradients_of_what_they_were(tmp_path: Path) -> None:
    (x,) = leaves(S)
    model = nn.ModuleDict({"it": Halves()})

    def work() -> None:
        left, right = model["it"](x * 2)
        left *= 3
        (weighted(left) + weighted(right)).backward()

    entry = record(tmp_path, work, model, level="L0").data["Module.it.Halves.backward.0"]
    assert x.grad is not None
    of_left, of_right = 3 * weights_of(x[:, :2]), weights_of(x[:, 2:])
    assert is_value_of(entry["input"][0], of_left)
    assert is_value_of(entry["input"][1], of_right)
    assert is_value_of(entry["output"][0], torch.cat([of_left, of_right], 1))
    assert "written to" in entry["msprobe"]["note"]


def test_views_that_are_not_written_to_have_no_note(tmp_path: Path) -> None:
    (x,) = leaves(S)
    model = nn.ModuleDict({"it": Halves()})
    work = lambda: weighted(model["it"](x * 2)).backward()  # noqa: E731
    entry = record(tmp_path, work, model, level="L0").data["Module.it.Halves.backward.0"]
    assert "note" not in entry["msprobe"]
    assert is_value_of(entry["input"][1], weights_of(x[:, 2:]))


# ---------------------------------------------------------------- whole gradients in files


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_gradients_are_saved_whole(tmp_path: Path, level: str) -> None:
    x, weight = leaves(S, (5, 4))
    model = nn.ModuleDict({"it": Calls(F.linear)})
    dump = record(tmp_path, lambda: weighted(model["it"](x, weight)).backward(), model, level=level, task="tensor")
    assert x.grad is not None
    assert weight.grad is not None
    if level == "L0":
        saved = [dump.load(f"Module.it.Calls.backward.0.output.{n}.pt") for n in range(2)]
        assert torch.equal(dump.load("Module.it.Calls.backward.0.input.0.pt"), weights_of(torch.empty(3, 5)))
    else:
        files = [d["data_name"] for d in dump.data["Functional.linear.0.backward"]["output"] if d]
        saved = [dump.load(name) for name in files]
    for gradient in (x.grad, weight.grad):
        assert any(torch.equal(found, turned) for found in saved for turned in (gradient, gradient.t()))


def test_gradients_of_each_argument_of_a_call_of_several_nodes_are_saved(tmp_path: Path) -> None:
    tensors = leaves(L, (5, 4), (5,))
    dump = record(tmp_path, lambda: weighted(F.linear(*tensors)).backward(), task="tensor")
    for n, tensor in enumerate(tensors):
        assert tensor.grad is not None
        saved = dump.load(f"Functional.linear.0.backward.input_grads.input.{n}.pt")
        assert torch.equal(saved, tensor.grad)


# ---------------------------------------------------------------- the graph stays as it is


def shape_of_graph(tensor: Tensor) -> list[str]:
    """The nodes below a tensor, by name, in the order of a walk."""
    found, todo = [], [tensor.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and len(found) < 1000:
            found.append(node.name())
            todo += [following for following, _ in node.next_functions]
    return found


@pytest.mark.parametrize("level", ["L0", "L1", "mix", "L2"])
def test_no_node_is_added_and_none_is_kept(tmp_path: Path, level: str) -> None:
    (x,) = leaves(L)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Identity(), nn.LayerNorm(4), nn.Dropout(0.0))
    expected = shape_of_graph(model(x).sum())
    found: list[Any] = []

    def work() -> None:
        result = model(x).sum()
        found.append(shape_of_graph(result))

        class Token:
            pass

        token = Token()
        result.grad_fn.metadata["token"] = token
        found.append(weakref.ref(token))
        del token, result
        found.append(found[1]() is None)

    record(tmp_path, work, model, level=level)
    assert found[0] == expected
    assert found[2], "the graph outlives its last result"


# ---------------------------------------------------------------- the parts


def test_the_node_that_accumulates_is_found_without_a_trace() -> None:
    (x,) = leaves(S)
    before = gc.get_count()
    node = accumulating_node(x)
    assert node.variable is x
    assert accumulating_node(x) is node
    assert x.grad is None
    assert before is not None
    assert accumulating_node(torch.ones(2)) is None
    assert accumulating_node(x * 1) is None
    with torch.no_grad():
        assert accumulating_node(x) is node


def test_shares_are_added_without_touching_the_gradients() -> None:
    gathering = GradientGathering([2, 1, 0])
    first, second, third = torch.ones(2), torch.full((2,), 2.0), torch.full((2,), 5.0)
    seen: list[Tensor] = []

    def describe(tensor: Tensor) -> float:
        seen.append(tensor)
        return float(tensor.sum())

    gathering.add(0, first, describe)
    gathering.add(0, None, describe)
    gathering.add(0, second, describe)
    gathering.add(1, third, describe)
    assert [gathering.result(n, describe) for n in range(3)] == [6.0, 10.0, None]
    assert (first == 1).all()
    assert (second == 2).all()
    # What comes in one piece is not copied, and not held.
    assert seen[0] is third
    assert 1 not in gathering.sums


def test_hooks_are_all_taken_away() -> None:
    (x,) = leaves(S)
    y = (x * 2).exp()
    hooks, seen = NodeHooks(), []
    hooks.before(y.grad_fn, lambda tag, gradients: seen.append((tag, len(gradients))), "before")
    hooks.after(y.grad_fn, lambda tag, passed, received: seen.append((tag, len(passed), len(received))), "after")
    y.sum().backward(retain_graph=True)
    assert seen == [("before", 1), ("after", 1, 1)]
    hooks.remove()
    y.sum().backward()
    assert len(seen) == 2
    hooks.suspended = True
    hooks.before(y.grad_fn, lambda *_: seen.append("never"))
    assert not hooks._handles


class Pair:
    def __init__(self, left: Any) -> None:
        self.left = left


def test_tensors_are_collected_with_the_path_they_have_in_a_record() -> None:
    import dataclasses
    from collections import OrderedDict, namedtuple

    Point = namedtuple("Point", "x y")

    @dataclasses.dataclass
    class Options:
        mask: Any
        rest: Any = None

    a, b, c, d, e = (torch.ones(n) for n in range(5))
    loop: list[Any] = [e]
    loop += [loop, loop]
    found: list[tuple[str, Tensor]] = []
    collect_tensors([a, {"k": (b, 1)}, Point(c, 2), Options(OrderedDict(m=d)), Pair(a), loop], "input.0", found)
    assert [(path, t.numel()) for path, t in found] == [
        ("input.0.0", 0),
        ("input.0.1.k.0", 1),
        ("input.0.2.x", 2),
        ("input.0.3.mask.m", 3),
        ("input.0.5.0", 4),
    ]


def test_a_module_that_returns_a_dataclass_has_a_backward(tmp_path: Path) -> None:
    import dataclasses

    @dataclasses.dataclass
    class Output:
        logits: Tensor
        hidden: Any = None

    (x,) = leaves(S)
    model = nn.ModuleDict({"it": Calls(lambda x: Output(x * 2, (x * 3,)))})

    def work() -> None:
        output = model["it"](x * 1)
        (weighted(output.logits) + weighted(output.hidden)).backward()

    dump: Dump = record(tmp_path, work, model, level="L0")
    entry = dump.data["Module.it.Calls.backward.0"]
    assert x.grad is not None
    assert is_value_of(entry["output"][0], x.grad)
    assert len(entry["input"]) == 2
    assert set(dump.data["Module.it.Calls.forward.0"]["output"][0]) == {"logits", "hidden"}
