"""Where steps end, asked of the rules alone: nothing is recorded."""

from __future__ import annotations

import copy
import sys
import types
import weakref
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from support.coded_texts import pieces_of
from support.row_by_row import for_each
from torch import nn

from msprobe.capture.step_on import StepOn
from msprobe.launcher.step_rules import BackwardRule, CallRule, OptimizerRule, StepRule, UpdateRule, rule_of


def no_optimizers() -> Iterable[Any]:
    return ()


# Those that a test has made and that are alive.
MADE: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def update_rule() -> UpdateRule:
    MADE.clear()
    return UpdateRule(lambda: list(MADE))


def forward_and_backward(rule: StepRule, model: nn.Module) -> bool:
    """One pass as a script makes it; True if a step was over before it."""
    is_over = rule.is_over()
    if is_over:
        rule.end()
    rule.call(model, True)
    loss = model(torch.ones(1, 2)).sum()
    rule.backward(True)
    loss.backward()
    return is_over


def step(rule: StepRule, optimizer: torch.optim.Optimizer) -> bool:
    """A step of ``optimizer``; True if the training step is over by it, which is then ended."""
    rule.before_step(optimizer)
    optimizer.step()
    is_over = rule.stepped(optimizer)
    if is_over:
        rule.end()
    return is_over


def sgd(rule: StepRule, model: nn.Module) -> torch.optim.Optimizer:
    made = torch.optim.SGD(model.parameters(), 0.1)
    MADE.add(made)
    rule.made(made)
    return made


def test_a_step_ends_with_the_optimizer() -> None:
    rule, model = update_rule(), nn.Linear(2, 2)
    optimizer = sgd(rule, model)
    for _ in range(3):
        assert not forward_and_backward(rule, model)
        assert step(rule, optimizer)


def test_a_write_through_data_behind_a_backward_pass_ends_the_step_before_the_next_forward_pass() -> None:
    rule, model = update_rule(), nn.Linear(2, 2)
    assert not forward_and_backward(rule, model)
    assert not forward_and_backward(rule, model)  # accumulation
    model.weight.data.add_(1)
    assert forward_and_backward(rule, model)
    assert not rule.is_over()
    model.weight.data.add_(1)
    assert rule.is_over()


def test_weights_that_change_without_a_backward_pass_end_no_step() -> None:
    rule, model = update_rule(), nn.Linear(2, 2)
    rule.call(model, True)
    model.weight.data.add_(1)
    assert not rule.is_over()


def test_weights_that_an_optimizer_has_are_not_updated_by_hand_between_its_backward_passes() -> None:
    """As SAM perturbs them before its first step."""
    rule, model = update_rule(), nn.Linear(2, 2)
    optimizer = sgd(rule, model)
    for _ in range(2):
        assert not forward_and_backward(rule, model)
        model.weight.data.add_(1)
        assert not forward_and_backward(rule, model)
        assert step(rule, optimizer)


def test_an_optimizer_that_never_steps_does_not_hide_updates_by_hand_for_ever() -> None:
    rule, model = update_rule(), nn.Linear(2, 2)
    held = sgd(rule, model)
    ended = []
    for _ in range(20):
        ended.append(forward_and_backward(rule, model))
        with torch.no_grad():
            model.weight.add_(1)
    assert held is not None
    assert not any(ended[:11])
    assert all(ended[11:])


def test_a_copy_that_is_updated_by_hand_ends_no_step() -> None:
    rule, model = update_rule(), nn.Linear(2, 2)
    for _ in range(3):
        forward_and_backward(rule, model)
        learner = copy.deepcopy(model)
        for _ in range(3):
            assert not forward_and_backward(rule, learner)
            learner.weight.data.add_(1)
        assert not rule.is_over()
        model.weight.data.add_(1)
        assert rule.is_over()
        rule.end()


def test_two_models_updated_by_hand_in_turn_are_one_step() -> None:
    rule, one, two = update_rule(), nn.Linear(2, 2), nn.Linear(2, 2)
    ended = []
    for _ in range(3):
        ended += [rule.is_over()]
        if ended[-1]:
            rule.end()
        rule.call(one, True)
        rule.call(two, True)
        rule.backward(True)
        one.weight.data.add_(1)
        ended += [rule.is_over()]
        rule.call(two, True)
        rule.backward(True)
        two.weight.data.add_(1)
    assert ended == [False, False, True, False, True, False]


@pytest.mark.parametrize("warm", [False, True])
def test_inner_optimizers_of_copies_end_no_step(warm: bool) -> None:
    rule, model = update_rule(), nn.Linear(2, 2)
    outer = sgd(rule, model)
    for _ in range(3):
        if warm:
            forward_and_backward(rule, model)
        for _ in range(2):
            learner = copy.deepcopy(model)
            inner = sgd(rule, learner)
            for _ in range(3):
                assert not forward_and_backward(rule, learner)
                assert not step(rule, inner)
        model.weight.grad = learner.weight.grad
        assert step(rule, outer)


def test_an_optimizer_made_in_each_step_for_something_else_ends_no_step() -> None:
    """As an attack on the inputs, or latents that are fitted."""
    rule, model = update_rule(), nn.Linear(2, 2)
    outer = sgd(rule, model)
    for _ in range(4):
        attack = torch.optim.SGD([nn.Parameter(torch.zeros(2))], 0.1)
        rule.made(attack)
        for _ in range(5):
            forward_and_backward(rule, model)
            assert not step(rule, attack)
        assert step(rule, outer)


def test_a_copy_of_a_trained_model_is_a_training_of_its_own() -> None:
    rule, model = update_rule(), nn.Linear(2, 2)
    first = sgd(rule, model)
    for _ in range(2):
        forward_and_backward(rule, model)
        assert step(rule, first)
    tuned = copy.deepcopy(model)
    second = sgd(rule, tuned)
    for _ in range(2):
        forward_and_backward(rule, tuned)
        assert step(rule, second)


@pytest.mark.parametrize("critics", [2, 5, 9])
def test_a_generator_that_is_called_and_has_yet_to_step_is_waited_for(critics: int) -> None:
    rule, generator, critic = update_rule(), nn.Linear(2, 2), nn.Linear(2, 2)
    of_generator, of_critic = sgd(rule, generator), sgd(rule, critic)
    for _ in range(3):
        for _ in range(critics):
            rule.call(generator, True)
            forward_and_backward(rule, critic)
            assert not step(rule, of_critic)
        forward_and_backward(rule, generator)
        assert step(rule, of_generator)


@for_each("acts", [True, False])
@for_each("place", ["first", "last"])
@for_each("delay", [2, 3, 5])
def test_no_step_ends_between_a_critic_and_its_delayed_actor(delay: int, place: str, acts: bool) -> None:
    rule, critic, actor = update_rule(), nn.Linear(2, 2), nn.Linear(2, 2)
    of_actor, of_critic = sgd(rule, actor), sgd(rule, critic)
    steps: list[list[str]] = [[]]

    def call(model: nn.Module, gradients: bool = True) -> None:
        if rule.is_over(model, gradients):
            rule.end()
            steps.append([])
        rule.call(model, gradients)

    def update(model: nn.Module, optimizer: torch.optim.Optimizer, name: str) -> None:
        rule.backward(True)
        model(torch.ones(1, 2)).sum().backward()
        steps[-1].append(name)
        if step(rule, optimizer):
            steps.append([])

    for turn in range(6 * delay):
        if acts:
            call(actor, gradients=False)
        call(critic)
        update(critic, of_critic, f"critic {turn}")
        if turn % delay == (0 if place == "first" else delay - 1):
            call(actor)
            call(critic)  # through which its loss goes
            update(actor, of_actor, f"actor {turn}")
    for ended in steps[1:]:
        assert not ended or ended[0].startswith("critic"), steps
    whole = [ended for ended in steps if ended]
    # It settles: one update of the actor in each step.
    assert [len(ended) for ended in whole[-4:-1]] == [delay + 1] * 3


@pytest.mark.parametrize("is_evaluated", [True, False])
def test_what_is_called_before_a_training_of_a_different_model_may_be_an_evaluation(is_evaluated: bool) -> None:
    rule, one, two = update_rule(), nn.Linear(2, 2), nn.Linear(2, 2)
    for turn, model in enumerate([one, two, one, two]):
        optimizer = sgd(rule, model)
        if turn and is_evaluated:
            assert rule.begins_other_training(model)
            rule.begin_anew()
        elif turn:
            rule.backward(True)
            assert not rule.begins_other_training(model)
            rule.end()
        for _ in range(2):
            assert not rule.begins_other_training(model)
            forward_and_backward(rule, model)
            assert step(rule, optimizer)
        rule.call(model, True)
        del optimizer


def test_models_that_are_trained_together_evaluate_nothing_for_each_other() -> None:
    rule, generator, critic = update_rule(), nn.Linear(2, 2), nn.Linear(2, 2)
    of_generator, of_critic = sgd(rule, generator), sgd(rule, critic)
    for _ in range(3):
        rule.call(generator, True)
        assert not rule.begins_other_training(critic)
        forward_and_backward(rule, critic)
        assert not step(rule, of_critic)
        forward_and_backward(rule, generator)
        assert step(rule, of_generator)


def test_an_optimizer_that_never_steps_is_dropped_in_the_end() -> None:
    rule, model, other = update_rule(), nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer, held = sgd(rule, model), sgd(rule, other)
    ended = []
    for _ in range(14):
        rule.call(other, True)
        forward_and_backward(rule, model)
        ended.append(step(rule, optimizer))
    assert held is not None
    assert ended == [False] * 10 + [True] * 4


def test_what_follows_the_last_step() -> None:
    rule, model = update_rule(), nn.Linear(2, 2)
    optimizer = sgd(rule, model)
    assert not rule.is_evaluation()
    forward_and_backward(rule, model)
    assert not rule.is_unfinished()  # the whole program may be this
    step(rule, optimizer)
    rule.call(model, True)
    assert rule.is_evaluation()
    rule.backward(False)  # autograd.grad
    assert rule.is_evaluation()
    rule.backward(True)
    assert not rule.is_evaluation()
    assert rule.is_unfinished()


def test_a_backward_pass_ends_a_step_before_the_next_forward_pass() -> None:
    rule, model = BackwardRule(no_optimizers), nn.Linear(2, 2)
    assert pieces_of(rule.problem()) == {"step-on-backward-unmet"}
    assert [forward_and_backward(rule, model) for _ in range(3)] == [False, True, True]
    rule.end()
    rule.call(model, True)
    rule.backward(False)
    assert not rule.is_over()
    assert rule.problem() == ""


@pytest.mark.parametrize("name", ["Adam", "torch.optim.Adam", "torch.optim.adam.Adam", "1", "outer", "box.outer"])
def test_an_optimizer_is_known_by_its_class_a_variable_or_its_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, model = OptimizerRule(no_optimizers, name), nn.Linear(2, 2)
    inner, outer = torch.optim.SGD(model.parameters(), 0.1), torch.optim.Adam(model.parameters())
    main = types.ModuleType("__main__")
    main.outer, main.box = outer, types.SimpleNamespace(outer=outer)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    for optimizer in (inner, outer):
        rule.made(optimizer)
    assert not step(rule, inner)
    assert "SGD" in rule.problem()
    assert step(rule, outer)
    assert rule.problem() == ""


def train_step(seen: list[str], fails: bool = False) -> str:
    seen.append("inside")
    if fails:
        raise KeyError
    return "done"


def test_a_call_of_a_function_is_a_step() -> None:
    seen: list[str] = []
    name = f"{__name__}.train_step"
    rule = rule_of(
        StepOn("call", name),
        no_optimizers,
        "",
        lambda: seen.append("begin"),
        lambda error: seen.append(f"end {error!r}"),
    )
    assert isinstance(rule, CallRule)
    code = train_step.__code__
    assert not rule.look()
    assert train_step(seen) == "done"
    with pytest.raises(KeyError):
        train_step(seen, fails=True)
    assert seen == ["begin", "inside", "end None", "begin", "inside", "end KeyError()"]
    rule.detach()
    assert train_step.__code__ is code
    assert rule.problem() == ""


def test_a_function_that_is_not_there_is_said() -> None:
    rule = CallRule(no_optimizers, "no_such.function", lambda: None, lambda error: None)
    assert not rule.look()
    assert "call:no_such.function" in rule.problem()


def test_modules_that_answer_questions_in_their_own_way_are_asked_none() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> Any:
            return self.inner(x)

        def parameters(self, recurse: bool = True) -> Any:
            return list(super().parameters())

        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        __hash__ = None  # type: ignore[assignment]

    rule, model = update_rule(), Odd()
    assert not forward_and_backward(rule, model)
    model.inner.weight.data.add_(1)
    assert forward_and_backward(rule, model)
