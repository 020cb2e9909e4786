from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.hand_made import call, tensor, write_part
from unit.diagnose.dumps import Recording, Value, drawn
from unit.diagnose.training import Plan, train

from msprobe.diagnose.pairing.match import Pairing, pair, repeats
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.store.reader import open_dump


def pairing(tmp_path: Path, candidate: Plan, reference: Plan | None = None) -> Pairing:
    one, other = train(tmp_path / "one", candidate), train(tmp_path / "other", reference or Plan())
    return pair(Timeline(open_dump(one).part()), Timeline(open_dump(other).part()))


def by_hand(tmp_path: Path, one: dict[str, Any], other: dict[str, Any], *trees: dict[str, Any]) -> Pairing:
    parts = [
        write_part(tmp_path / name, data, construct=tree or None)
        for name, data, tree in zip(("one", "other"), (one, other), trees or ({}, {}), strict=True)
    ]
    return pair(Timeline(parts[0]), Timeline(parts[1]))


def pairs(found: Pairing) -> dict[str, str]:
    """Names of pairs that have different names."""
    return {one.name: other.name for one, other in found.partner.items() if one.name != other.name}


def alone(found: Pairing) -> tuple[list[str], list[str]]:
    return [event.name for event in found.alone()], [event.name for event in found.missing()]


def repeat(api: str, *arguments: Any) -> Any:
    def before(rec: Recording, x: Value) -> Value:
        rec.call(api, [x, *arguments], x)
        return x

    return before


def test_equal_runs_pair_by_name(tmp_path: Path) -> None:
    found = pairing(tmp_path, Plan(recompute=True), Plan(recompute=True))
    assert pairs(found) == {}
    assert alone(found) == ([], [])
    assert len(found.partner) == len(found.back) == len(found.candidate)
    assert not found.loose


def test_one_call_more_shifts_nothing(tmp_path: Path) -> None:
    found = pairing(tmp_path, Plan(before={"blocks.0.tanh": repeat("Tensor.__mul__", 1.0)}))
    assert alone(found) == (["Tensor.__mul__.0.forward"], [])
    assert pairs(found) == {
        f"Tensor.__mul__.{number + 1}.{direction}": f"Tensor.__mul__.{number}.{direction}"
        for number in (0, 1)
        for direction in ("forward", "backward")
    }


def test_one_call_less_shifts_nothing(tmp_path: Path) -> None:
    found = pairing(tmp_path, Plan(left_out=frozenset(["blocks.0.mul"])))
    assert alone(found) == ([], ["Tensor.__mul__.0.forward", "Tensor.__mul__.0.backward"])
    assert pairs(found) == {f"Tensor.__mul__.0.{end}": f"Tensor.__mul__.1.{end}" for end in ("forward", "backward")}


def test_a_block_more(tmp_path: Path) -> None:
    found = pairing(tmp_path, Plan(blocks=3))
    left, right = alone(found)
    assert right == []
    assert "Module.blocks.2.Block.forward.0" in left
    assert pairs(found)["Functional.linear.3.forward"] == "Functional.linear.2.forward"


def test_the_same_calculation_is_paired_loosely(tmp_path: Path) -> None:
    found = pairing(tmp_path, Plan(renamed={"blocks.0.mul": "Torch.mul"}))
    assert pairs(found) == {
        "Torch.mul.0.forward": "Tensor.__mul__.0.forward",
        "Torch.mul.0.backward": "Tensor.__mul__.0.backward",
        "Tensor.__mul__.0.forward": "Tensor.__mul__.1.forward",
        "Tensor.__mul__.0.backward": "Tensor.__mul__.1.backward",
    }
    assert sorted(event.name for event in found.loose) == ["Torch.mul.0.backward", "Torch.mul.0.forward"]


@pytest.mark.parametrize("wrapped", ["candidate", "reference"])
def test_a_module_around_on_one_side_is_opened(tmp_path: Path, wrapped: str) -> None:
    plans = [Plan(wrapper="blocks.0"), Plan()]
    found = pairing(tmp_path, *(plans if wrapped == "candidate" else plans[::-1]))
    left, right = alone(found)
    around = [name for name in (*left, *right) if "Linear" not in name]
    assert around == ["Module.blocks.0.inner.Inner.forward.0"]
    assert all("fc.Linear" in name for name in (*left, *right) if name not in around)


def test_a_module_around_all_is_opened_before_calls_pair(tmp_path: Path) -> None:
    """The call behind it is one of the candidate alone, not that which the model begins with."""
    view, linear, sin = "Tensor.view.{}.forward".format, "Functional.linear.0.forward", "Torch.sin.0.forward"
    net, fc, bare = "Module.model.Net.forward.0", "Module.model.fc.Linear.forward.0", "Module.fc.Linear.forward.0"
    one = {view(0): net, linear: fc, fc: net, net: None, view(1): None, sin: None}
    other = {view(0): None, linear: bare, bare: None, sin: None}
    found = by_hand(tmp_path, *({name: call(value=1.0) for name in side} for side in (one, other)), one, other)
    assert alone(found) == ([net, view(1)], [])


def test_modules_go_by_their_place_where_the_one_around_has_another_name(tmp_path: Path) -> None:
    def block(around: str, *inner: str) -> tuple[dict[str, Any], dict[str, Any]]:
        top = f"Module.{around}.Block.forward.0"
        names = [f"Module.{around}.{one}.Linear.forward.0" for one in inner]
        return {name: call(value=1.0) for name in (*names, top)}, {**dict.fromkeys(names, top), top: None}

    (one, inside), (other, inside_other) = block("layers.0", "q", "v", "out"), block("blocks.0", "q", "k", "v", "out")
    found = by_hand(tmp_path, one, other, inside, inside_other)
    assert alone(found) == ([], ["Module.blocks.0.k.Linear.forward.0"])


@pytest.mark.parametrize("prefix", ["module.", "module._orig_mod."])
def test_prefixes_of_wrappers_are_no_difference(tmp_path: Path, prefix: str) -> None:
    found = pairing(tmp_path, Plan(prefix=prefix))
    assert alone(found) == ([], [])
    assert pairs(found)[f"Module.{prefix}head.Linear.parameters_grad"] == "Module.head.Linear.parameters_grad"


def test_shapes_tell_which_of_equal_calls_is_missing(tmp_path: Path) -> None:
    small, large = call(tensor(2, value=1.0)), call(tensor(5, value=1.0))
    name = "Torch.sin.{}.forward".format
    found = by_hand(tmp_path, {name(0): large}, {name(0): small, name(1): large, name(2): small})
    assert pairs(found) == {name(0): name(1)}


def test_values_tell_which_of_equal_calls_is_missing(tmp_path: Path) -> None:
    rows = [call(tensor(2, value=1.0, digest=f"xxh3:{number}")) for number in range(3)]
    name = "Torch.sin.{}.forward".format
    found = by_hand(tmp_path, {name(0): rows[0], name(1): rows[2]}, dict(zip(map(name, range(3)), rows, strict=True)))
    assert pairs(found) == {name(1): name(2)}
    assert alone(found) == ([], [name(1)])


def test_calls_pair_within_their_modules(tmp_path: Path) -> None:
    """A call that moved from one module to another is one more there and one less here."""

    def run(first: int, second: int) -> tuple[dict[str, Any], dict[str, Any]]:
        data: dict[str, Any] = {}
        tree: dict[str, Any] = {}
        number = 0
        for path, count in (("a", first), ("b", second)):
            module = f"Module.{path}.Block.forward.0"
            for _ in range(count):
                data[f"Torch.sin.{number}.forward"] = call(tensor(2, value=float(number)))
                tree[f"Torch.sin.{number}.forward"] = module
                number += 1
            data[module], tree[module] = call(), None
        return data, tree

    (one, tree), (other, other_tree) = run(2, 1), run(1, 2)
    found = by_hand(tmp_path, one, other, tree, other_tree)
    assert alone(found) == (["Torch.sin.1.forward"], ["Torch.sin.2.forward"])
    assert pairs(found) == {"Torch.sin.2.forward": "Torch.sin.1.forward"}


class TestRecomputation:
    def test_answers_to_the_calls_that_it_repeats(self, tmp_path: Path) -> None:
        plan = Plan(recompute=True)
        found = pairing(tmp_path, plan, plan)
        again = {one.name: first.name for one, first in repeats(found.candidate).items()}
        # Blocks are repeated last one first.
        assert again["Torch.tanh.2.forward"] == "Torch.tanh.1.forward"
        assert again["Torch.tanh.3.forward"] == "Torch.tanh.0.forward"
        assert again["Module.blocks.1.Block.forward.1"] == "Module.blocks.1.Block.forward.0"
        assert len(again) == 14

    @pytest.mark.parametrize("candidate", [True, False])
    def test_on_one_side_leaves_the_backward_calls_paired(self, tmp_path: Path, candidate: bool) -> None:
        plans = [Plan(recompute=True), Plan()]
        found = pairing(tmp_path, *(plans if candidate else plans[::-1]))
        left, right = alone(found)
        assert len(left or right) == 14
        assert all(name.split(".")[-1] == "forward" or ".forward." in name for name in left or right)
        names = pairs(found)
        wanted = ("Torch.tanh.2.backward", "Torch.tanh.1.backward")
        assert names[wanted[0 if candidate else 1]] == wanted[1 if candidate else 0]


def test_optimizers_answer_to_each_other_whatever_they_are(tmp_path: Path) -> None:
    found = pairing(tmp_path, Plan(optimizer="AdamW"))
    assert pairs(found) == {"Optimizer.AdamW.0.forward": "Optimizer.SGD.0.forward"}


def test_what_a_closure_runs_inside_the_step_of_an_optimizer_pairs(tmp_path: Path) -> None:
    module, step = "Module.fc.Linear.forward.0", "Optimizer.LBFGS.0.forward"
    data = {"Functional.linear.0.forward": call(), module: call(), step: {"input_args": [], "output": []}}
    tree = {"Functional.linear.0.forward": module, module: "optimizer", step: "optimizer"}
    found = by_hand(tmp_path, data, data, tree, tree)
    assert alone(found) == ([], [])


def test_a_dump_of_calls_answers_to_the_calls_of_a_mixed_one(tmp_path: Path) -> None:
    found = pairing(tmp_path, Plan(level="L1"))
    left, right = alone(found)
    assert left == []
    assert all(name.startswith("Module.") for name in right)


def test_modules_alone_answer_to_those_of_a_mixed_dump(tmp_path: Path) -> None:
    left, right = alone(pairing(tmp_path, Plan(level="L0")))
    assert left == []
    assert not any(name.startswith("Module.") for name in right)


def test_backward_calls_without_forward_pair_by_name(tmp_path: Path) -> None:
    record = {"input": [tensor(2)], "output": [tensor(2)]}
    found = by_hand(tmp_path, {"Torch.sin.4.backward": record}, {"Torch.sin.4.backward": record})
    assert len(found.partner) == 1


def test_nothing_in_common(tmp_path: Path) -> None:
    found = by_hand(tmp_path, {"Torch.sin.0.forward": call()}, {"Torch.cos.0.forward": call()})
    assert found.partner == {}


def test_a_pair_is_never_broken(tmp_path: Path) -> None:
    found = pairing(tmp_path, Plan())
    one, other = found.candidate.events[:2]
    before = found.partner[one]
    found.add(one, found.partner[other])
    assert found.partner[one] is before
    assert np.all([found.back[there] is here for here, there in found.partner.items()])


def test_gradients_that_are_summed_in_another_order_pair_by_what_they_are(tmp_path: Path) -> None:
    """As the zero-bubble schedules of torch's pipelines do it, whose order hangs on addresses in memory."""
    names = ("a", "b", "c")
    for side, order in (("candidate", (0, 1, 2)), ("reference", (2, 0, 1))):
        rec = Recording()
        for number in order:
            old, new = Value(drawn(names[number], 4)), Value(drawn(names[number] + "2", 4))
            rec.call("Tensor.__iadd__", [old, new], Value(old.array + new.array))
        rec.write(tmp_path / side)
    found = pair(*(Timeline(open_dump(tmp_path / side).part()) for side in ("candidate", "reference")))
    assert {one.name[-9]: other.name[-9] for one, other in found.partner.items()} == {"0": "1", "1": "2", "2": "0"}
