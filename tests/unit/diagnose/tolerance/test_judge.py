from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.hand_made import write_part
from unit.diagnose.dumps import Recording, Value, drawn
from unit.diagnose.training import Plan, train

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.pairing.match import pair
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.randomness import is_random
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.diagnose.tolerance.judge import Judged, judge, judge_all
from msprobe.store.reader import open_dump

A = drawn("a", 40)


@pytest.fixture
def comparer(tmp_path: Path) -> Comparer:
    return Comparer(write_part(tmp_path / "one", {}), write_part(tmp_path / "other", {}))


def call(given: Any, out: Any, api: str = "Torch.tanh", *more: Any) -> Event:
    rec = Recording()
    inputs = [Value(np.asarray(given)), *more] if given is not None else [None]
    name = f"{rec.call(api, inputs, None if out is None else Value(np.asarray(out)))}.forward"
    return Event(name, read_name(name), rec.data[name], "forward")


def off(factor: float) -> Any:
    return A * np.float32(factor)


@pytest.mark.parametrize(
    ("candidate", "reference", "status"),
    [
        (call(A, A), call(A, A), "same"),
        (call(A, off(1 + 5e-7)), call(A, A), "rounding"),
        (call(A, off(1.01)), call(A, A), "unexplained"),
        (call(off(1.01), off(1.01)), call(A, A), "explained"),
        (call(off(1.01), A), call(A, A), "explained"),
        (call(off(1.0001), off(2.0)), call(A, A), "unexplained"),
        (call(A, off(math.nan)), call(A, A), "unexplained"),
        (call(off(math.nan), off(math.nan)), call(A, A), "explained"),
        (call(A, A), call(A, off(math.nan)), "unexplained"),
        (call(off(math.nan), off(math.nan)), call(off(math.nan), off(math.nan)), "same"),
        (call(A, off(1 + 5e-7), "Tensor.reshape"), call(A, A, "Tensor.reshape"), "unexplained"),
        (call(A, A[:20]), call(A, A), "unexplained"),
        (call(np.zeros(0), np.zeros(0)), call(np.zeros(0), np.zeros(0)), "same"),
        (call(np.int64([1]), np.int64([2])), call(np.int64([1]), np.int64([3])), "unexplained"),
    ],
)
def test_inputs_and_results_decide(comparer: Comparer, candidate: Event, reference: Event, status: str) -> None:
    assert judge(candidate, reference, comparer).status == status


def test_what_is_measured(comparer: Comparer) -> None:
    found = judge(call(A, off(1.01)), call(A, A), comparer)
    assert found.input_difference == 0.0
    assert found.output_difference == pytest.approx(0.01, rel=0.02)
    assert 0 < found.allowed < 1e-4


def test_a_healthy_run_may_allow_more(comparer: Comparer) -> None:
    comparer.measured_noise = lambda entry: 0.02 if entry == "Torch.tanh.0.forward" else 0.0
    assert judge(call(A, off(1.01)), call(A, A), comparer).status == "rounding"


def test_what_the_forward_call_differs_by_is_inherited(comparer: Comparer) -> None:
    assert judge(call(A, off(1.01)), call(A, A), comparer, inherited=0.01).status == "explained"
    assert judge(call(A, A), call(A, A), comparer, inherited=0.01).status == "same"


def test_arguments_and_tensors_are_told_apart(comparer: Comparer) -> None:
    found = judge(call(off(1.01), A, "Torch.clamp", 0.5), call(A, A, "Torch.clamp", 0.25), comparer)
    assert [one.slot for one in found.arguments] == ["input.1"]
    assert [one.slot for one in found.changed_inputs] == ["input.0"]


def test_gradients_by_argument_on_one_side_alone_are_not_compared(comparer: Comparer) -> None:
    record = {"input": [], "output": [Recording().leaf(Value(A))]}
    name = "Torch.tanh.0.backward"
    one = Event(
        name, read_name(name), {**record, "input_grads": {"input.0": Recording().leaf(Value(off(2)))}}, "backward"
    )
    assert judge(one, Event(name, read_name(name), record, "backward"), comparer).status == "same"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Functional.dropout.0.forward", True),
        ("Tensor.normal_.0.forward", True),
        ("Torch.randn_like.0.forward", True),
        ("Torch.tanh.0.forward", False),
        ("Module.dropout.Dropout.forward.0", False),
    ],
)
def test_random_calls(name: str, expected: bool) -> None:
    assert is_random(Event(name, read_name(name), {}, "forward")) is expected


class TestGradientsOfParameters:
    """All uses of a parameter explain its gradient."""

    @staticmethod
    def of(tmp_path: Path, name: str, candidate: Plan, reference: Plan) -> Judged:
        dumps = [open_dump(train(tmp_path / side, plan)) for side, plan in (("a", candidate), ("b", reference))]
        pairing = pair(Timeline(dumps[0].part()), Timeline(dumps[1].part()))
        comparer = Comparer(dumps[0].part(), dumps[1].part())
        found = judge_all(pairing, comparer, Producers(pairing.candidate))
        assert list(found) != []
        return found[pairing.candidate.by_name[name]]

    @pytest.mark.parametrize("tied", [True, False])
    def test_a_use_that_differs_explains_it(self, tmp_path: Path, tied: bool) -> None:
        plan = Plan(tied=tied, results={"blocks.0.tanh.backward": lambda array: array * np.float32(1.1)})
        found = self.of(tmp_path, "Module.embedding.Embedding.parameters_grad", plan, Plan(tied=tied))
        assert (found.status, found.input_difference > 0) == ("explained", True)

    def test_no_use_explains_it(self, tmp_path: Path) -> None:
        plan = Plan(parameter_gradients={"head.bias": lambda array: array * np.float32(1.1)})
        assert self.of(tmp_path, "Module.head.Linear.parameters_grad", plan, Plan()).status == "unexplained"
        assert self.of(tmp_path / "x", "Module.embedding.Embedding.parameters_grad", plan, Plan()).status == "same"


class TestMaskedWithInfinities:
    """``masked_fill(-inf)`` with another mask, and the softmax of it."""

    scores = drawn("scores", 6, 6)

    def calls(self, diagonal: int, rec: Recording, factor: float = 1.0) -> np.ndarray:
        mask = np.tril(np.ones((6, 6), bool), diagonal)
        scores = Value(self.scores * np.float32(factor))
        masked = Value(np.where(mask, scores.array, np.float32("-inf")).astype(np.float32))
        rec.call("Tensor.masked_fill", [scores, Value(~mask, dtype="bool"), -math.inf], masked)
        exponents = np.exp(np.where(mask, scores.array - scores.array.max(axis=-1, keepdims=True), np.float32("-inf")))
        return np.asarray(exponents / exponents.sum(axis=-1, keepdims=True), np.float32), masked

    def judged(self, folder: Path, diagonal: int, factor: float = 1.0, planted: float = 1.0) -> list[Judged]:
        parts = []
        for side, place, of_scores, of_result in (("one", diagonal, factor, planted), ("other", 0, 1.0, 1.0)):
            rec = Recording()
            result, masked = self.calls(place, rec, of_scores)
            rec.call("Torch.softmax", [masked], Value(result * np.float32(of_result)))
            parts.append(open_dump(rec.write(folder / side)).part())
        pairing = pair(*(Timeline(part) for part in parts))
        return list(judge_all(pairing, Comparer(*parts), Producers(pairing.candidate)).values())

    @pytest.mark.parametrize("diagonal", [1, 2, 3])
    def test_its_softmax_is_a_victim(self, tmp_path: Path, diagonal: int) -> None:
        masking, softmax = self.judged(tmp_path, diagonal)
        assert (masking.status, softmax.status) == ("explained", "explained")

    def test_its_softmax_is_guilty_where_only_rounding_comes_in(self, tmp_path: Path) -> None:
        masking, softmax = self.judged(tmp_path, 0, factor=1 + 3e-7, planted=1.1)
        assert (masking.status, softmax.status) == ("explained", "unexplained")
