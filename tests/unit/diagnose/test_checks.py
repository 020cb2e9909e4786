"""Each check on records written by hand: the fault is found, and what looks like it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checked import call, found, module, of, of_ranks, one, optimizer, plain, some, write
from support.coded_texts import mentions
from support.hand_made import tensor

from msprobe.diagnose.check import CHECKS, check_run
from msprobe.messages import explained, said
from msprobe.report.check_text import check_text

# ---------------------------------------------------------------- one call


@pytest.mark.parametrize(
    ("mean", "zero", "wrong"),
    [(0.25, 0, False), (0.25 * (1 + 1e-7), 0, False), (0.25 * 1.001, 0, True), (0.125, 16, False), (0.125, 2, True)],
)
def test_rows_of_a_softmax_sum_to_one(tmp_path: Path, mean: float, zero: int, wrong: bool) -> None:
    given = some(1, 8, 4)
    result = {**tensor(8, 4, value=mean), "Max": 0.9, "Min": 0.0, "Norm": 2.0, "zero": zero}
    write(tmp_path, {"Torch.softmax.0.forward": call([given, plain(-1)], result)})
    assert bool(found(tmp_path, "softmax")) == wrong


def test_half_rows_may_be_further_off(tmp_path: Path) -> None:
    result = {**tensor(8, 4, value=0.25 * 1.001, dtype="torch.bfloat16"), "Max": 0.9, "Min": 0.0, "Norm": 2.0}
    write(tmp_path, {"Torch.softmax.0.forward": call([some(1, 8, 4), plain(-1)], result)})
    assert found(tmp_path, "softmax") == []


def squeezed(upcast: bool) -> dict[str, Any]:
    half = {"dtype": "torch.bfloat16"}
    data = {
        "Tensor.bfloat16.0.forward": call([some(1, 4, 4)], some(2, 4, 4, **half)),
        "Torch.softmax.0.forward": call([some(2, 4, 4, **half), plain(-1)], some(3, 4, 4, **half)),
    }
    if upcast:
        data["Tensor.float.0.forward"] = call([some(3, 4, 4, **half)], some(4, 4, 4))
    return data


def test_a_softmax_between_casts(tmp_path: Path) -> None:
    write(tmp_path, squeezed(upcast=True))
    finding = one(tmp_path, "dtypes")
    assert (finding.kind, finding.entry) == ("dtype", "Torch.softmax.0.forward")


def test_a_softmax_in_a_half_model_is_meant(tmp_path: Path) -> None:
    write(tmp_path, squeezed(upcast=False))
    assert found(tmp_path, "dtypes") == []


def test_a_double_that_raises_the_others(tmp_path: Path) -> None:
    double = {"dtype": "torch.float64"}
    data = {f"Torch.add.{n}.forward": call([some(n, 4, 4)], some(50 + n, 4, 4)) for n in range(9)}
    data["Torch.mul.0.forward"] = call([some(20, 4, 4), some(21, 1, **double)], some(22, 4, 4, **double))
    write(tmp_path, data)
    assert one(tmp_path, "dtypes").entry == "Torch.mul.0.forward"


def layers(records: dict[int, dict[str, Any]], api: str = "Functional.layer_norm") -> tuple[dict[str, Any], Any]:
    data: dict[str, Any] = {}
    parents: dict[str, Any] = {}
    for number, record in records.items():
        name, above = f"{api}.{number}.forward", f"Module.blocks.{number}.norm.Norm.forward.0"
        data[name] = record
        data[above] = module([some(number, 2, 4)], some(90 + number, 2, 4))
        parents[name], parents[above] = above, None
    return data, parents


def norm(number: int, eps: float) -> dict[str, Any]:
    arguments = [some(number, 2, 4), [plain(4)], some(70, 4), some(71, 4), plain(eps)]
    return call(arguments, some(80 + number, 2, 4))


def test_one_layer_with_another_epsilon(tmp_path: Path) -> None:
    data, parents = layers({n: norm(n, 1e-3 if n == 2 else 1e-5) for n in range(4)})
    write(tmp_path, data, parents=parents)
    finding = one(tmp_path, "siblings")
    assert finding.entry == "Functional.layer_norm.2.forward"
    assert finding.module == "blocks.2.norm"


@pytest.mark.parametrize("word", ["batch_norm", "instance_norm"])
def test_one_layer_with_another_epsilon_of_a_norm_over_the_batch(tmp_path: Path, word: str) -> None:
    def record(number: int) -> dict[str, Any]:
        x, rest = some(number, 2, 4), [some(40, 4), some(41, 4), None, None, plain(True), plain(0.1)]
        return call([x, *rest, plain(1e-3 if number == 1 else 1e-5)], some(50 + number, 2, 4))

    data, parents = layers({number: record(number) for number in range(3)}, f"Functional.{word}")
    write(tmp_path, data, parents=parents)
    assert one(tmp_path, "siblings").entry == f"Functional.{word}.1.forward"


def test_every_second_layer_may_differ(tmp_path: Path) -> None:
    data, parents = layers({n: norm(n, 1e-3 if n % 2 else 1e-5) for n in range(4)})
    write(tmp_path, data, parents=parents)
    assert found(tmp_path, "siblings") == []


def dropout(active: bool, trains: bool, rate: float = 0.1, grad: bool = True) -> tuple[dict[str, Any], Any]:
    given = some(1, 4, 4, requires_grad=grad)
    more = {} if trains else {"training": False}
    name, above = "Functional.dropout.0.forward", "Module.drop.Drop.forward.0"
    data = {
        name: call([given, plain(rate), plain(active)], some(2, 4, 4, requires_grad=grad)),
        above: module([given], some(2, 4, 4), **more),
    }
    return data, {name: above, above: None}


@pytest.mark.parametrize(
    ("active", "trains", "rate", "grad", "wrong"),
    [
        (True, True, 0.1, True, False),
        (False, True, 0.1, True, True),
        (False, True, 0.0, True, False),
        (False, True, 0.1, False, False),
        (True, False, 0.1, True, True),
        (False, False, 0.1, True, False),
    ],
)
def test_dropout_and_mode(tmp_path: Path, active: bool, trains: bool, rate: float, grad: bool, wrong: bool) -> None:
    data, parents = dropout(active, trains, rate, grad)
    write(tmp_path, data, parents=parents)
    assert bool(found(tmp_path, "dropout")) == wrong


# ---------------------------------------------------------------- language models


def text(labels_begin: int, zeros: int, low: float = -np.inf) -> dict[str, Any]:
    """A model of 4 tokens; the labels begin at this position of a sequence of 5."""
    whole = {**some(1, 2, 5), "dtype": "torch.int64"}
    tokens = {**some(2, 2, 4), "dtype": "torch.int64"}
    labels = tokens if labels_begin == 0 else {**some(3, 2, 4), "dtype": "torch.int64"}
    scores = {**some(5, 2, 4, 4), "Min": low}
    piece = {"type": "slice", "value": [None, None, None]}
    return {
        "Tensor.tril.0.forward": call([tensor(4, 4)], tensor(4, 4)),
        "Tensor.__getitem__.0.forward": call([whole, [piece, {"type": "slice", "value": [None, -1, None]}]], tokens),
        "Tensor.__getitem__.1.forward": call(
            [whole, [piece, {"type": "slice", "value": [labels_begin or None, None, None]}]], labels
        ),
        "Functional.embedding.0.forward": call([tokens, some(4, 9, 3)], some(6, 2, 4, 3)),
        "Torch.softmax.0.forward": call([scores, plain(-1)], {**some(7, 2, 4, 4), "zero": zeros}),
        "Functional.cross_entropy.0.forward": call([some(8, 8, 9), labels], some(9, 1)),
    }


@pytest.mark.parametrize(
    ("zeros", "low", "wrong"), [(12, -np.inf, False), (20, -np.inf, False), (9, -np.inf, True), (9, -3e38, False)]
)
def test_attention_that_looks_ahead(tmp_path: Path, zeros: int, low: float, wrong: bool) -> None:
    write(tmp_path, text(1, zeros, low))
    assert bool(found(tmp_path, "attention")) == wrong
    assert found(tmp_path, "labels") == []


@pytest.mark.parametrize("ellipsis", [False, True])
@pytest.mark.parametrize(
    ("logits_begin", "labels_begin", "zeros", "wrong"),
    [(None, 1, 9, True), (None, 1, 12, False), (0, 1, 9, True), (1, None, 9, False), (1, 1, 9, False)],
)
def test_labels_shifted_behind_the_model(
    tmp_path: Path, logits_begin: int | None, labels_begin: int | None, zeros: int, wrong: bool, ellipsis: bool
) -> None:
    """As most language models do it: the model gets all tokens, and the loss the logits but the last."""
    tokens = {**some(2, 2, 4), "dtype": "torch.int64"}
    labels = {**some(3, 2, 3), "dtype": "torch.int64"}

    def cut(*begins: int | None) -> list[dict[str, Any]]:
        slices = [{"type": "slice", "value": [begin, -1 if begin is None else None, None]} for begin in begins]
        whole = {"type": "slice", "value": [None, None, None]}
        return [{"type": "ellipsis", "value": "..."} if ellipsis else whole, *slices]

    data = {
        "Tensor.tril.0.forward": call([tensor(4, 4)], tensor(4, 4)),
        "Functional.embedding.0.forward": call([tokens, some(4, 9, 3)], some(6, 2, 4, 3)),
        "Torch.softmax.0.forward": call([some(5, 2, 4, 4), plain(-1)], {**some(7, 2, 4, 4), "zero": zeros}),
        "Tensor.__getitem__.0.forward": call(
            [some(8, 2, 4, 9), [*cut(logits_begin), {"type": "slice", "value": [None, None, None]}]], some(9, 2, 3, 9)
        ),
        "Tensor.__getitem__.1.forward": call([tokens, cut(labels_begin)], labels),
        "Tensor.reshape.0.forward": call([some(9, 2, 3, 9), plain(-1)], {**some(9, 2, 3, 9), "shape": [6, 9]}),
        "Functional.cross_entropy.0.forward": call([{**some(9, 2, 3, 9), "shape": [6, 9]}, labels], some(11, 1)),
    }
    write(tmp_path, data)
    assert bool(found(tmp_path, "attention")) == wrong
    assert found(tmp_path, "labels") == []


def test_attention_of_what_predicts_no_next_token_may_look_ahead(tmp_path: Path) -> None:
    write(tmp_path, text(0, 0))
    assert found(tmp_path, "attention") == []


def test_labels_that_are_the_tokens(tmp_path: Path) -> None:
    write(tmp_path, text(0, 12))
    finding = one(tmp_path, "labels")
    assert finding.kind == "data"
    assert "Functional.cross_entropy.0.forward" in finding.message


@pytest.mark.parametrize(
    ("masks", "reduction", "updates", "wrong"),
    [((3, 6), "mean", 0, True), ((3, 6), "sum", 0, False), ((5, 5), "mean", 0, False), ((3, 6), "mean", 1, False)],
)
def test_a_mean_of_means(tmp_path: Path, masks: tuple[int, int], reduction: str, updates: int, wrong: bool) -> None:
    """``updates``: whether the program has changed a weight between the two."""
    data: dict[str, Any] = {
        f"Module.m.Linear.forward.{number}": module(
            [some(70, 2, 4)], some(71 + number, 2, 4), parameters={"weight": some(90 + number * updates, 4, 4)}
        )
        for number in range(2)
    }
    for number, real in enumerate(masks):
        tokens = {**some(10 * number + 2, 2, 4), "dtype": "torch.int64"}
        labels = {**some(10 * number + 3, 2, 4), "dtype": "torch.int64"}
        filled = {**some(10 * number + 4, 2, 4), "dtype": "torch.int64", "Min": -100}
        mask = {**tensor(2, 4, dtype="torch.bool"), "zero": real}
        data |= {
            f"Functional.embedding.{number}.forward": call([tokens, some(4, 9, 3)], some(6 + number, 2, 4, 3)),
            f"Tensor.masked_fill.{number}.forward": call([labels, mask, plain(-100)], filled),
            f"Functional.cross_entropy.{number}.forward": call(
                [some(8, 8, 9), filled], some(40 + number, 1), keywords={"reduction": plain(reduction)}
            ),
            f"Functional.cross_entropy.{number}.backward": {"input": [tensor(1)], "output": [some(60, 8, 9)]},
        }
    write(tmp_path, data)
    assert bool(found(tmp_path, "averaging")) == wrong


def values(folder: Path, name: str, array: Any) -> str:
    """Write the values of a tensor beside the dump of step 0."""
    path = folder / "step0" / "rank" / "dump_tensor_data"
    path.mkdir(parents=True, exist_ok=True)
    np.save(path / name, array)
    return name


@pytest.mark.parametrize(("kind", "wrong"), [("causal", False), ("off by one", True), ("a uniform row", False)])
def test_recorded_probabilities_above_the_diagonal(tmp_path: Path, kind: str, wrong: bool) -> None:
    probabilities = np.tril(np.full((2, 4, 4), 0.25), 1 if kind == "off by one" else 0)
    if kind == "a uniform row":
        probabilities[0, 1] = 0.25
    data = text(1, 0)
    data["Torch.softmax.0.forward"]["output"][0]["data_name"] = values(tmp_path, "probs.npy", probabilities)
    write(tmp_path, data)
    assert bool(found(tmp_path, "attention")) == wrong


@pytest.mark.parametrize("row", [0, 3])
def test_the_gradient_of_a_padding_row(tmp_path: Path, row: int) -> None:
    gradient = np.ones((5, 2))
    gradient[0] = 0.0
    tokens = {**some(1, 2, 3), "dtype": "torch.int64"}
    leaf = {**some(2, 5, 2), "data_name": values(tmp_path, "grad.npy", gradient)}
    data = {
        "Functional.embedding.0.forward": call([tokens, some(3, 5, 2), plain(row)], some(4, 2, 3, 2)),
        "Functional.embedding.0.backward": {"input": [some(5, 2, 3, 2)], "output": [leaf]},
    }
    write(tmp_path, data)
    assert bool(found(tmp_path, "padding")) == (row == 3)


# ---------------------------------------------------------------- recomputation, saved tensors, the graph


def recomputed(again: dict[str, Any], stopped: bool = False) -> tuple[dict[str, Any], Any]:
    """Two passes of a block of two additions and a dropout, the first of which is recomputed."""
    data: dict[str, Any] = {}
    parents: dict[str, Any] = {}
    for number in range(2):
        above = f"Module.block.Block.forward.{number}"
        add, last = f"Torch.add.{2 * number}.forward", f"Torch.add.{2 * number + 1}.forward"
        drop = f"Torch.dropout.{number}.forward"
        data[add] = call([some(number, 4)], some(10 + number, 4))
        data[drop] = call([some(10 + number, 4), plain(0.1)], some(20 + number, 4))
        data[last] = call([some(20 + number, 4)], some(30 + number, 4))
        data[above] = module([some(number, 4)], some(30 + number, 4))
        parents |= {add: above, drop: above, last: above, above: None}
    above = "Module.block.Block.forward.2"
    data["Torch.add.4.forward"] = call([some(0, 4)], some(10, 4), is_recompute=True)
    data["Torch.dropout.2.forward"] = {**again, "is_recompute": True}
    if not stopped:
        data["Torch.add.5.forward"] = call([again["output"][0]], some(30, 4), is_recompute=True)
    data[above] = {**module([some(0, 4)], some(30, 4)), "is_recompute": True}
    parents |= {name: above for name in data if name not in parents} | {above: None}
    return data, parents


@pytest.mark.parametrize("stopped", [False, True])
def test_recomputation_that_repeats_the_forward_pass(tmp_path: Path, stopped: bool) -> None:
    data, parents = recomputed(call([some(10, 4), plain(0.1)], some(20, 4)), stopped)
    write(tmp_path, data, parents=parents)
    assert found(tmp_path, "recompute") == []


@pytest.mark.parametrize("repeated", [0, 1, 2])
def test_one_of_several_passes_that_take_the_same_is_repeated(tmp_path: Path, repeated: int) -> None:
    """Passes of the same batch that differ in what dropout leaves, one of them without gradients."""
    data: dict[str, Any] = {}
    parents: dict[str, Any] = {}
    for number in range(4):
        drop, above = f"Torch.dropout.{number}.forward", f"Module.block.Block.forward.{number}"
        result = some(20 + (repeated if number == 3 else number), 4, requires_grad=number > 0)
        again = {"is_recompute": True} if number == 3 else {}
        data[drop] = call([some(1, 4), plain(0.1)], result) | again
        data[above] = module([some(1, 4)], result) | again
        parents |= {drop: above, above: None}
    write(tmp_path, data, parents=parents)
    assert found(tmp_path, "recompute") == []


@pytest.mark.parametrize(
    ("again", "name"),
    [
        (call([some(10, 4), plain(0.1)], some(99, 4)), "recompute-result-differs"),
        (call([some(10, 4), plain(0.2)], some(99, 4)), "recompute-argument-differs"),
        (call([some(98, 4), plain(0.1)], some(99, 4)), "recompute-input-differs"),
    ],
)
def test_recomputation_that_does_not(tmp_path: Path, again: dict[str, Any], name: str) -> None:
    data, parents = recomputed(again)
    write(tmp_path, data, parents=parents)
    finding = one(tmp_path, "recompute")
    assert (finding.entry, finding.name) == ("Torch.dropout.2.forward", name)


def saved(copied: bool, late: bool = False, followed: bool = False) -> dict[str, Any]:
    probs = some(2, 4, 4, requires_grad=True)
    bare = {**probs, "requires_grad": followed}
    data = {"Torch.softmax.0.forward": call([some(1, 4, 4, requires_grad=True), plain(-1)], probs)}
    if copied:
        data["Tensor.clone.0.forward"] = call([{**bare}], bare)
    write_it = {"Tensor.mul_.0.forward": call([bare, plain(0.9)], some(3, 4, 4, requires_grad=followed))}
    back = {"Torch.softmax.0.backward": {"input": [some(4, 4, 4)], "output": [some(5, 4, 4)]}}
    return data | (back | write_it if late else write_it | back)


def test_a_saved_tensor_that_is_written_to(tmp_path: Path) -> None:
    write(tmp_path, saved(copied=False))
    finding = one(tmp_path, "mutation")
    assert finding.entry == "Tensor.mul_.0.forward"
    assert finding.evidence["needed_by"] == "Torch.softmax.0.backward"


@pytest.mark.parametrize(
    "how", [{"copied": True}, {"copied": False, "late": True}, {"copied": False, "followed": True}]
)
def test_writes_that_do_no_harm(tmp_path: Path, how: dict[str, bool]) -> None:
    write(tmp_path, saved(**how))
    assert found(tmp_path, "mutation") == []


def graph(detached: bool, used: bool = True, trained: bool = True) -> dict[str, Any]:
    weight = some(1, 4, 4, requires_grad=trained)
    hidden = some(3, 2, 4, requires_grad=True)
    data = {
        "Module.one.Linear.forward.0": module([some(2, 2, 4)], hidden, parameters={"weight": weight}),
        "Module.one.Linear.parameters_grad": {"weight": [None if detached or not trained else some(4, 4, 4)]},
    }
    if detached:
        data["Tensor.detach.0.forward"] = call([hidden], {**hidden, "requires_grad": False})
    if used:
        data["Torch.relu.0.forward"] = call([hidden], some(5, 2, 4))
    other = {"weight": some(6, 4, 4, requires_grad=True)}
    data["Module.two.Linear.forward.0"] = module([some(5, 2, 4)], some(7, 2, 4, requires_grad=True), parameters=other)
    data["Module.two.Linear.parameters_grad"] = {"weight": [some(8, 4, 4)]}
    return data


def test_parameters_before_a_detach(tmp_path: Path) -> None:
    write(tmp_path, graph(detached=True))
    finding = one(tmp_path, "unreached")
    assert finding.entry == "Tensor.detach.0.forward"
    assert finding.evidence["parameters"] == ["one.weight"]


@pytest.mark.parametrize("how", [{"detached": False}, {"detached": False, "trained": False}])
def test_parameters_that_are_reached_or_frozen(tmp_path: Path, how: dict[str, bool]) -> None:
    write(tmp_path, graph(**how))
    assert found(tmp_path, "unreached") == []


@pytest.mark.parametrize(("around", "harmless"), [("", True), ("model.", False)])
def test_a_model_without_gradients_is_meant_and_a_part_of_one_is_not(
    tmp_path: Path, around: str, harmless: bool
) -> None:
    data = {name.replace("Module.", f"Module.{around}"): record for name, record in graph(detached=True).items()}
    write(tmp_path, data)
    assert one(tmp_path, "unreached").harmless == harmless


def test_a_branch_that_nobody_uses_gets_no_gradient_rightly(tmp_path: Path) -> None:
    data = graph(detached=True, used=False)
    del data["Tensor.detach.0.forward"]
    write(tmp_path, data)
    assert found(tmp_path, "unreached") == []


# ---------------------------------------------------------------- gradients and weights


@pytest.mark.parametrize("more", [{"lr": 0.0}, {"skipped": True}])
def test_weights_may_stay_when_nothing_is_asked(tmp_path: Path, more: dict[str, Any]) -> None:
    data = {"Optimizer.SGD.0.forward": optimizer({"a": (some(1, 4), some(2, 4), some(1, 4))}, **more)}
    write(tmp_path, data)
    assert found(tmp_path, "updates") == []


def test_weights_that_the_optimizer_leaves(tmp_path: Path) -> None:
    weights = {"a": (some(1, 4), some(2, 4), some(1, 4)), "b": (some(3, 4), some(4, 4), some(5, 4))}
    write(tmp_path, {"Optimizer.SGD.0.forward": optimizer(weights)})
    finding = one(tmp_path, "updates")
    assert finding.evidence["parameters"] == ["a"]
    assert not finding.harmless


def test_half_weights_that_are_too_coarse_are_told_and_harmless(tmp_path: Path) -> None:
    half = {"dtype": "torch.bfloat16"}
    weights = {
        "a": (some(1, 4, **half), some(2, 4, **half), some(1, 4, **half)),
        "b": (some(3, 4, **half), some(4, 4, **half), some(5, 4, **half)),
    }
    write(tmp_path, {"Optimizer.SGD.0.forward": optimizer(weights)})
    assert one(tmp_path, "updates").harmless


def test_equal_statistics_of_half_weights_do_not_prove_that_they_are_equal_but_a_single_number_does(
    tmp_path: Path,
) -> None:
    drawn, gradient, ones, more = (
        {**of(values, "", dtype="torch.bfloat16"), "digest": None}
        for values in (np.arange(4), np.arange(1, 5), np.ones(4), np.full(4, 1.0078125))
    )
    weights = {"alike": (drawn, gradient, drawn), "ones": (ones, gradient, ones), "moved": (ones, gradient, more)}
    write(tmp_path, {"Optimizer.SGD.0.forward": optimizer(weights)})
    finding = one(tmp_path, "updates")
    assert (finding.evidence["parameters"], finding.harmless) == (["ones"], True)
    assert "master weights" in check_text(check_run(tmp_path))


def stale(names: list[str]) -> dict[str, Any]:
    weights = {name: some(number, 4, requires_grad=True) for number, name in enumerate(("up.weight", "up.bias"))}
    parameters = {name.partition(".")[2]: leaf for name, leaf in weights.items()}
    gradients = {key: [some(20 + number, 4)] for number, key in enumerate(parameters)}
    held = {name: (weights.get(name, some(40, 4)), some(30, 4), some(31, 4)) for name in names}
    return {
        "Module.up.Linear.forward.0": module([some(9, 2, 4)], some(8, 2, 4), parameters=parameters),
        "Module.up.Linear.parameters_grad": gradients,
        "Optimizer.SGD.0.forward": optimizer(held),
    }


def test_a_parameter_in_no_optimizer(tmp_path: Path) -> None:
    write(tmp_path, stale(["g0.p0", "up.bias"]))
    finding = one(tmp_path, "updates")
    assert finding.evidence["parameters"] == ["up.weight"]
    assert finding.evidence["held_instead"] == ["g0.p0"]


def test_a_tied_parameter_is_in_the_optimizer_by_its_other_name(tmp_path: Path) -> None:
    data = stale(["g0.p0", "up.bias"])
    step = data["Optimizer.SGD.0.forward"]
    step["input_kwargs"]["g0.p0"]["weight"] = data["Module.up.Linear.forward.0"]["parameters"]["weight"]
    write(tmp_path, data)
    assert found(tmp_path, "updates") == []


def test_a_stale_copy_of_equal_values_has_no_gradient(tmp_path: Path) -> None:
    data = stale(["g0.p0", "up.bias"])
    held = data["Optimizer.SGD.0.forward"]["input_kwargs"]["g0.p0"]
    held.update(weight=data["Module.up.Linear.forward.0"]["parameters"]["weight"], grad=None)
    write(tmp_path, data)
    assert one(tmp_path, "updates").evidence["parameters"] == ["up.weight"]


def test_a_gradient_that_rounding_swallows_moves_nothing(tmp_path: Path) -> None:
    weights = {"a": (some(1, 4), some(2, 4, scale=1e-9), some(1, 4)), "b": (some(3, 4), some(4, 4), some(5, 4))}
    write(tmp_path, {"Optimizer.SGD.0.forward": optimizer(weights)})
    assert found(tmp_path, "updates") == []


def test_parameters_that_are_all_there(tmp_path: Path) -> None:
    write(tmp_path, stale(["up.weight", "up.bias"]))
    assert found(tmp_path, "updates") == []


def linears(held: list[str], *names: str) -> dict[str, Any]:
    """A step of a model with one layer for each name, of which the optimizer holds some."""
    data: dict[str, Any] = {}
    weights = {name: some(number, 4, 4, requires_grad=True) for number, name in enumerate(names)}
    for number, (name, weight) in enumerate(weights.items()):
        forward = module([some(9, 2, 4)], some(8, 2, 4), parameters={"weight": weight})
        data[f"Module.{name}.Linear.forward.0"] = forward
        data[f"Module.{name}.Linear.parameters_grad"] = {"weight": [some(20 + number, 4, 4)]}
    held_weights = {
        f"{name}.weight": (weights[name], some(30, 4, 4), some(40 + n, 4, 4)) for n, name in enumerate(held)
    }
    return {**data, "Optimizer.SGD.0.forward": optimizer(held_weights)}


@pytest.mark.parametrize(
    ("held", "names", "harmless"),
    [
        (("body", "neck", "head"), ("embedding", "body", "neck", "head"), False),
        (("head",), ("embedding", "body", "head"), True),
        (("0.up", "0.down"), ("0.up", "0.down", "1.up"), True),
        (("0.up", "1.up"), ("0.up", "1.up", "2.up"), False),
    ],
    ids=["forgotten", "the head alone is trained", "one of two models", "a layer of a sequence"],
)
def test_a_module_in_no_optimizer(tmp_path: Path, held: Any, names: Any, harmless: bool) -> None:
    write(tmp_path, linears(list(held), *names))
    finding = one(tmp_path, "updates")
    assert finding.evidence["parameters"] == [f"{name}.weight" for name in names if name not in held]
    assert (finding.harmless, finding.evidence["held"]) == (harmless, len(held))


def test_a_module_that_another_optimizer_has_in_a_later_step(tmp_path: Path) -> None:
    write(tmp_path, linears(["body", "neck"], "body", "neck", "head"), 0)
    write(tmp_path, linears(["head"], "body", "neck", "head"), 1)
    assert found(tmp_path, "updates") == []


def still(folder: Path, changes: tuple[bool, ...], **more: Any) -> None:
    """A step without an optimizer's record for each of ``changes``, which says whether the weights are others there."""
    seed = 0
    for step, change in enumerate(changes):
        seed += change
        data = linears([], "body", "head")
        del data["Optimizer.SGD.0.forward"]
        for place, name in enumerate(("body", "head")):
            weight = some(100 * seed + place, 4, 4, requires_grad=True, **more)
            data[f"Module.{name}.Linear.forward.0"]["parameters"]["weight"] = weight
        write(folder, data, step)


def test_weights_that_never_change(tmp_path: Path) -> None:
    still(tmp_path, (False, False, False))
    finding = one(tmp_path, "updates")
    assert (finding.step, finding.evidence["parameters"]) == (2, ["body.weight", "head.weight"])
    assert mentions(finding.message, "no-weight-changes")
    assert not finding.harmless


@pytest.mark.parametrize("changes", [(False,), (False, True), (False, True, False), (False, False, True)])
def test_weights_that_change_once_are_trained(tmp_path: Path, changes: tuple[bool, ...]) -> None:
    still(tmp_path, changes)
    assert found(tmp_path, "updates") == []


def test_half_weights_may_be_too_coarse_to_change(tmp_path: Path) -> None:
    still(tmp_path, (False, False), dtype="torch.bfloat16")
    assert found(tmp_path, "updates") == []


def accumulated(folder: Path, mode: str, factor: float = 0.5) -> None:
    """Two steps of two passes over six parameters; what the optimizer got is in ``mode``."""
    random = np.random.default_rng(3)
    left = {n: np.zeros((5, 4)) for n in range(6)}
    for step in range(2):
        data: dict[str, Any] = {}
        held = {}
        for n in range(6):
            passes = [random.standard_normal((5, 4)) for _ in range(2)]
            name = f"Module.m{n}.Linear.parameters_grad"
            data[name] = {"weight": [of(passes[-1], f"xxh3:{step}{n}b")]}
            for number, values in enumerate(passes):
                data[f"{name}.{number}"] = {"weight": [of(values, f"xxh3:{step}{n}{number}")]}
            total = passes[-1] if mode == "last" else sum(passes)
            if mode == "kept":
                total = total + left[n]
            left[n] = factor * total
            held[f"m{n}.weight"] = (some(n, 5, 4), of(left[n], f"xxh3:g{step}{n}"), some(50 + n, 5, 4))
        data["Optimizer.SGD.0.forward"] = optimizer(held)
        write(folder, data, step)


@pytest.mark.parametrize(("mode", "step", "words"), [("kept", 1, "were not cleared"), ("last", 0, "last of 2")])
def test_gradients_that_are_not_the_sum_of_the_step(tmp_path: Path, mode: str, step: int, words: str) -> None:
    accumulated(tmp_path, mode)
    first = found(tmp_path, "clearing")[0]
    assert first.step == step
    assert words in first.message


def test_an_optimizer_with_a_closure_makes_passes_of_its_own(tmp_path: Path) -> None:
    accumulated(tmp_path, "last")
    for step in range(2):
        file = tmp_path / f"step{step}" / "rank" / "dump.json"
        content = json.loads(file.read_text())
        content["data"]["Optimizer.SGD.0.forward"]["closure"] = True
        file.write_text(json.dumps(content))
    assert found(tmp_path, "clearing") == []


@pytest.mark.parametrize("factor", [1.0, 0.5, 1 / 1024])
def test_gradients_that_are_clipped_together(tmp_path: Path, factor: float) -> None:
    accumulated(tmp_path, "sum", factor)
    assert found(tmp_path, "clearing") == []


def scaled(unscale: float | None, scale: float = 1024.0, **more: Any) -> dict[str, Any]:
    loss, larger = (
        {**tensor(value=2.0), "requires_grad": True, "digest": "xxh3:a"},
        {**tensor(value=2048.0), "requires_grad": True, "digest": "xxh3:b"},
    )
    gradient = some(5, 4, 4)
    data = {
        "Tensor.__mul__.0.forward": call([loss, plain(scale)], larger),
        "Tensor.__mul__.0.backward": {"input": [tensor(value=1.0)], "output": [tensor(value=scale)]},
        "Module.m.Linear.parameters_grad": {"weight": [gradient]},
        "Module.m.Linear.backward.0": {"input": [some(7, 2, 4)], "output": [some(8, 2, 4)]},
    }
    if unscale is not None:
        data["Tensor.mul_.0.forward"] = call([gradient, plain(unscale)], some(6, 4, 4))
    held = {"m.weight": (some(1, 4, 4), gradient if unscale is None else some(6, 4, 4), some(2, 4, 4))}
    data["Optimizer.SGD.0.forward"] = optimizer(held, **more)
    return data


@pytest.mark.parametrize("unscale", [None, 2.0 / 1024])
def test_a_loss_scale_that_stays(tmp_path: Path, unscale: float | None) -> None:
    write(tmp_path, scaled(unscale))
    finding = one(tmp_path, "scale")
    assert finding.kind == "loss_scale"
    assert finding.evidence["left"] == (1024.0 if unscale is None else 2.0)


@pytest.mark.parametrize(
    "data", [scaled(1.0 / 1024), scaled(None, scale=2.0), scaled(None, scale=100.0), scaled(None, grad_scaler={})]
)
def test_scales_that_are_undone_or_none(tmp_path: Path, data: dict[str, Any]) -> None:
    write(tmp_path, data)
    assert found(tmp_path, "scale") == []


def test_without_modules_the_optimizer_tells_what_a_gradient_is(tmp_path: Path) -> None:
    data = {name: record for name, record in scaled(1.0 / 1024).items() if not name.startswith("Module")}
    write(tmp_path, data)
    assert found(tmp_path, "scale") == []
    del data["Tensor.mul_.0.forward"]
    write(tmp_path, data, step=1)
    assert one(tmp_path, "scale").step == 1


def tied(other_gradient: int, owner: str = "Embedding") -> dict[str, Any]:
    table = some(1, 9, 4, requires_grad=True)
    return {
        "Functional.embedding.0.forward": call([{**some(2, 2, 3), "dtype": "torch.int64"}, table], some(3, 2, 3, 4)),
        f"Module.tokens.{owner}.forward.0": module([some(2, 2, 3)], some(3, 2, 3, 4), parameters={"weight": table}),
        f"Module.tokens.{owner}.parameters_grad": {"weight": [some(5, 9, 4)]},
        "Module.head.Linear.forward.0": module([some(3, 2, 3, 4)], some(4, 2, 3, 9), parameters={"weight": table}),
        "Module.head.Linear.parameters_grad": {"weight": [some(other_gradient, 9, 4)]},
    }


def test_tied_weights_that_are_two(tmp_path: Path) -> None:
    write(tmp_path, tied(6))
    finding = one(tmp_path, "ties")
    assert finding.evidence["parameters"] == ["tokens.weight", "head.weight"]


@pytest.mark.parametrize("data", [tied(5), tied(6, owner="Linear")])
def test_tied_weights_and_copied_layers(tmp_path: Path, data: dict[str, Any]) -> None:
    write(tmp_path, data)
    assert found(tmp_path, "ties") == []


# ---------------------------------------------------------------- several ranks


def reduced(result: int) -> dict[str, Any]:
    group = {"process_group": {"type": "torch.ProcessGroup", "group_ranks": [0, 1, 2]}}
    return {"Distributed.all_reduce.0.forward": call([some(7, 4)], some(result, 4), **group)}


def test_a_collective_with_another_result_on_one_rank(tmp_path: Path) -> None:
    of_ranks(tmp_path, lambda rank: reduced(5 if rank == 1 else 6))
    finding = one(tmp_path, "collectives")
    assert (finding.rank, finding.entry) == (1, "Distributed.all_reduce.0.forward")


def test_a_collective_with_one_result(tmp_path: Path) -> None:
    of_ranks(tmp_path, lambda rank: reduced(6))
    assert found(tmp_path, "collectives") == []


def test_ranks_and_calls_that_are_missing_are_noted(tmp_path: Path) -> None:
    of_ranks(tmp_path, lambda rank: reduced(6))
    group = {"process_group": {"type": "torch.ProcessGroup", "group_ranks": [0, 1, 2, 3]}}
    extra = {"Distributed.all_reduce.1.forward": call([some(7, 4)], some(8, 4), **group)}
    write(tmp_path, reduced(6) | extra, rank="rank0")
    notes = " ".join(check_run(tmp_path).notes)
    assert mentions(notes, "ranks-not-in-dump", ranks="3")
    lone = "collective-without-counterpart", "Distributed.all_reduce.1.forward", "1, 2", "all_reduce"
    assert said(*lone) in notes


def grouped(*apis: str, rows: int = 4) -> dict[str, Any]:
    """Collectives over ranks 0 to 2, one after the other."""
    group = {"process_group": {"type": "torch.ProcessGroup", "group_ranks": [0, 1, 2]}}
    names = [f"Distributed.{api}.{apis[:place].count(api)}.forward" for place, api in enumerate(apis)]
    inputs = {"all_gather": [[some(8, rows)], some(7, rows)]}
    return {
        name: call(inputs.get(api, [some(7, rows)]), some(6, rows), **group)
        for name, api in zip(names, apis, strict=True)
    }


@pytest.mark.parametrize(
    ("odd", "entry", "name"),
    [
        (
            grouped("all_reduce", "all_gather"),
            "Distributed.all_gather.0.forward",
            "collectives-differ",
        ),
        (
            grouped("all_reduce"),
            "Distributed.all_reduce.0.forward",
            "collective-missing-after",
        ),
        (
            grouped("all_reduce", "broadcast", "barrier"),
            "Distributed.barrier.0.forward",
            "collective-alone",
        ),
        (
            grouped("all_reduce", "broadcast", rows=5),
            "Distributed.all_reduce.0.forward",
            "collective-inputs-differ",
        ),
    ],
)
def test_a_rank_that_makes_other_collectives(tmp_path: Path, odd: dict[str, Any], entry: str, name: str) -> None:
    of_ranks(tmp_path, lambda rank: odd if rank == 1 else grouped("all_reduce", "broadcast"))
    finding = one(tmp_path, "sequence")
    assert (finding.rank, finding.entry, finding.name) == (1, entry, name)


def test_ranks_with_the_same_collectives_are_in_step(tmp_path: Path) -> None:
    of_ranks(tmp_path, lambda rank: grouped("all_reduce", "broadcast") | {f"Torch.add.{rank}.forward": call([], None)})
    assert found(tmp_path, "sequence") == []


def test_a_recording_that_was_cut_off_accuses_no_rank(tmp_path: Path) -> None:
    of_ranks(tmp_path, lambda rank: grouped("all_reduce") if rank == 1 else grouped("all_reduce", "broadcast"))
    file = tmp_path / "step0" / "rank1" / "dump.json"
    file.write_text(file.read_text().replace('"complete": true', '"complete": false'))
    assert found(tmp_path, "sequence") == []


def replica(weight: int, gradient: int, after: int = 3) -> dict[str, Any]:
    leaf = some(weight, 4, requires_grad=True)
    return {
        "Module.m.Linear.forward.0": module([some(9, 2, 4)], some(8, 2, 4), parameters={"weight": leaf}),
        "Optimizer.SGD.0.forward": optimizer({"m.weight": (leaf, some(gradient, 4), some(after, 4))}),
    }


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda rank: replica(1, 2 + rank), "the gradients of all"),
        (lambda rank: replica(1 if rank else 7, 2), "before the step"),
    ],
)
def test_replicas_that_are_none(tmp_path: Path, make: Any, words: str) -> None:
    of_ranks(tmp_path, make)
    assert words in one(tmp_path, "replicas").message


@pytest.mark.parametrize("make", [lambda rank: replica(1, 2), lambda rank: replica(10 + rank, 20 + rank)])
def test_replicas_and_shares(tmp_path: Path, make: Any) -> None:
    of_ranks(tmp_path, make)
    assert found(tmp_path, "replicas") == []


def test_copies_within_a_group_of_ranks(tmp_path: Path) -> None:
    """Four ranks: the same share of a weight on 0 and 1, another on 2 and 3; 2 and 3 get other gradients."""
    for rank in range(4):
        share = rank // 2
        group = {"type": "torch.ProcessGroup", "group_ranks": [2 * share, 2 * share + 1]}
        data = replica(1 + share, 20 + (rank if share else 0))
        data["Distributed.all_reduce.0.forward"] = call([some(7, 4)], some(30 + share, 4), process_group=group)
        write(tmp_path, data, rank=f"rank{rank}")
    finding = one(tmp_path, "replicas")
    assert set(finding.evidence["by_rank"]) == {"2", "3"}


def test_stages_of_a_pipeline_that_begin_from_one_seed(tmp_path: Path) -> None:
    message = {"send": {"dst": plain(1)}, "recv": {"src": plain(0)}}
    for rank, word in enumerate(message):
        data = replica(1, 20 + rank)
        data[f"Distributed.{word}.0.forward"] = call([some(7, 4)], some(7, 4), keywords=message[word])
        write(tmp_path, data, rank=f"rank{rank}")
    assert found(tmp_path, "replicas") == []


def test_shares_of_a_divided_tensor_are_no_copies(tmp_path: Path) -> None:
    def make(rank: int) -> dict[str, Any]:
        data = replica(1, 20 + rank)
        held = data["Optimizer.SGD.0.forward"]["input_kwargs"]["m.weight"]
        held["grad"]["placements"] = [{"Shard": {"dim": 0}}]
        return data

    of_ranks(tmp_path, make)
    assert found(tmp_path, "replicas") == []


def test_shares_of_weights_that_modules_have_whole_are_no_copies(tmp_path: Path) -> None:
    """FSDP1 gathers a flat parameter for the pass; the optimizer has a share of it."""

    def make(rank: int) -> dict[str, Any]:
        whole, share = some(1, 8, requires_grad=True), some(30 + rank, 4, requires_grad=True)
        return {
            "Module.m.Linear.forward.0": module([some(9, 2, 4)], some(8, 2, 4), parameters={"_flat_param": whole}),
            "Optimizer.SGD.0.forward": optimizer({"m._flat_param": (share, some(20 + rank, 4), some(3, 4))}),
        }

    of_ranks(tmp_path, make)
    assert found(tmp_path, "replicas") == []


def test_replicas_that_part_in_a_step(tmp_path: Path) -> None:
    def weights(seed: int) -> dict[str, Any]:
        leaf = some(seed, 4)
        return {"Module.m.Linear.forward.0": module([some(9, 2, 4)], some(8, 2, 4), parameters={"weight": leaf})}

    of_ranks(tmp_path, lambda rank: weights(1))
    of_ranks(tmp_path, lambda rank: weights(2 + rank), step=1)
    finding = one(tmp_path, "replicas")
    assert finding.step == 1
    assert finding.code == "C509"


def test_a_dropout_with_other_random_numbers_on_one_rank(tmp_path: Path) -> None:
    of_ranks(
        tmp_path,
        lambda rank: {"Functional.dropout.0.forward": call([some(1, 8, 8), plain(0.1)], some(5 + (rank == 2), 8, 8))},
    )
    finding = one(tmp_path, "replicas")
    assert finding.rank == 2
    assert "random numbers" in finding.message


# ---------------------------------------------------------------- the run


def test_what_is_said_once_is_not_said_again(tmp_path: Path) -> None:
    for step in range(3):
        data, parents = dropout(active=False, trains=True)
        write(tmp_path, data, step, parents=parents)
    assert [finding.step for finding in found(tmp_path, "dropout")] == [0]


def test_every_check_has_a_name_of_its_own_and_a_line_of_explanation() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.text and explained(f"check:{check.name}", "advice") for check in CHECKS)


def test_the_result_as_json(tmp_path: Path) -> None:
    data, parents = dropout(active=False, trains=True)
    write(tmp_path, data, parents=parents)
    content = check_run(tmp_path).to_json()
    json.dumps(content, allow_nan=False)
    assert content["version"] == 1
    assert content["status"] == "found"
    assert content["findings"][0]["evidence"]["check"] == "dropout"
