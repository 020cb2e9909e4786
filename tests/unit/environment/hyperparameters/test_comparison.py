from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.row_by_row import for_each

from msprobe.environment.hyperparameters.comparison import ParameterDifference, compare
from msprobe.environment.hyperparameters.effects import effect_of
from msprobe.environment.hyperparameters.values import is_same

STATIC = "hyperparameters_static.json"


def cells(bench: dict[str, Any], cmp: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [row.cells(STATIC) for row in compare(bench, cmp)]


def test_the_rows_of_the_reference_come_out() -> None:
    bench = {"batch": 4, "bf16": True, "seed": "1234"}
    assert sorted(cells(bench, {"bs": 8, "fp16": True, "seed": "42"}), key=str) == [
        (STATIC, "Only in comparison", "fp16", None, True, None, "warning"),
        (STATIC, "batch", "bs", 4, 8, "mapping", "error"),
        (STATIC, "bf16", "Only in benchmark", True, None, None, "warning"),
        (STATIC, "seed", "seed", "1234", "42", "pure name", "error"),
    ]


@for_each(
    ("one", "two"),
    [
        (1e-5, "0.00001"), ("1.0e-5", "1e-05"), (True, "true"), ("True", 1), (0, "False"), (None, "null"), (4, "4.0"),
        ("949,50,1", [949, 50, 1]), ("[1, 2]", ["1", 2.0]), ("a", " a "), (float("nan"), "nan"), ((1, 2), [1, 2]),
        ({"x": "1"}, {"x": 1}),
    ],
)  # fmt: skip
def test_one_value_in_two_types_is_no_difference(one: Any, two: Any) -> None:
    assert is_same(one, two)
    assert is_same(two, one)
    assert not compare({"x": one}, {"x": two})


@for_each(
    ("one", "two"), [(1, 2), ("a", "A"), (True, "yes"), ("1", "01x"), ([1, 2], [2, 1]), (None, 0), ("", None), (1, [1])]
)
def test_other_values_are_a_difference(one: Any, two: Any) -> None:
    assert not is_same(one, two)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=6))
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert is_same(value, value)


@for_each(
    ("one", "two"),
    [
        ("per_device_train_batch_size", "train_micro_batch_size_per_gpu"), ("micro-batch-size", "mbs"),
        ("optimizer.params.lr", "learning_rate"), ("clip-grad", "gradient_clipping"), ("max_grad_norm", "clip-grad"),
        ("fp16.enabled", "fp16"), ("zero_optimization.stage", "zero-stage"),
        ("runner_config.epochs", "num_train_epochs"),
        ("rms_norm_eps", "norm-epsilon"), ("lr-warmup-iters", "warmup_steps"),
        ("tp", "tensor-model-parallel-size"),
    ],
)  # fmt: skip
def test_names_of_one_thing_are_paired(one: str, two: str) -> None:
    (row,) = compare({one: 1}, {two: 2})
    assert (row.matched_with, row.level) == ("mapping", "error")


@for_each(
    ("one", "two"),
    [
        ("adam-beta1", "adam-beta2"), ("min_lr_value", "max_lr_value"), ("attention_dropout_p", "hidden_dropout_p"),
        ("actor.optim.lr", "critic.optim.lr"), ("lr-decay-samples", "lr-decay-iters"), ("no-load-optim", "no-load-rng"),
        ("train_data_path", "valid_data_path"), ("bf16.enabled", "fp16.enabled"), ("scheduler.type", "optimizer.type"),
        ("use_bias_linear", "no_bias_linear"),
    ],
)  # fmt: skip
def test_names_of_two_things_are_not_paired(one: str, two: str) -> None:
    assert [row.matched_with for row in compare({one: 1}, {two: 1})] == [None, None]


def test_names_that_look_alike_are_paired_and_show_how_much() -> None:
    (row,) = compare({"model.hidden_sizes": 1}, {"modelhidden_size": 2})
    assert row.matched_with is not None
    assert row.matched_with.startswith("similarity:0.9")
    assert row.level == "error"
    (row,) = compare({"hidden_act_fn": 1}, {"hiden_act": 2})
    assert (row.matched_with, row.level) == ("similarity:0.8181818181818182", "warning")


def test_a_flag_and_a_dtype_that_say_the_same_are_paired() -> None:
    assert not compare({"bf16": True}, {"model.compute_dtype": "torch.bfloat16"})
    assert not compare({"mixed_precision": "fp16"}, {"fp16": {"enabled": 1}["enabled"]})
    assert len(compare({"bf16": True}, {"compute_dtype": "float16"})) == 2


def test_adams_betas_are_compared_one_by_one() -> None:
    (row,) = compare({"optimizer.betas": [0.9, 0.95]}, {"adam-beta1": "0.9", "adam-beta2": "0.999"})
    assert (row.bench_value, row.cmp_value, row.level) == (0.95, "0.999", "error")


def test_what_changes_the_numbers_comes_first_and_what_is_logged_last() -> None:
    bench = {"log-interval": 1, "lr": 1, "seed": 1, "tp": 1, "num-workers": 2, "odd": 1, "load": "/a/x", "use_x": 1}
    cmp = {**dict.fromkeys(bench, 3), "load": "/b/x", "new_dropout": 1}
    del cmp["use_x"]
    rows = compare(bench, cmp)
    assert [(row.bench_para, row.effect, row.level) for row in rows] == [
        ("seed", "first step", "error"),
        ("Only in comparison", "first step", "warning"),
        ("lr", "later steps", "error"),
        ("odd", "unknown", "error"),
        ("use_x", "unknown", "warning"),
        ("tp", "rounding", "error"),
        ("num-workers", "speed", "warning"),
        ("load", "output", "warning"),
        ("log-interval", "output", "warning"),
    ]


@for_each(
    ("name", "effect"),
    [
        ("adam-beta2", "later steps"), ("init_method_std", "first step"), ("attention-dropout", "first step"),
        ("recompute-granularity", "rounding"), ("use-flash-attn", "rounding"), ("data.shuffle", "first step"),
        ("env.NCCL_ALGO", "rounding"), ("env.HCCL_CONNECT_TIMEOUT", "speed"), ("wandb-project", "output"),
        ("gradient_checkpointing", "rounding"), ("lr_decay_samples", "later steps"), ("dataloader_pin_memory", "speed"),
    ],
)  # fmt: skip
def test_effects_of_names(name: str, effect: str) -> None:
    assert effect_of(name) == effect


NAMES = st.sampled_from(
    ["lr", "learning_rate", "bs", "batch", "a.b", "a-b", "a_b", "seed", "hidden_size", "hidden-sizes"]
)


@given(st.dictionaries(NAMES, st.integers(0, 2)), st.dictionaries(NAMES, st.integers(0, 2)))
def test_every_name_is_accounted_for_once(bench: dict[str, int], cmp: dict[str, int]) -> None:
    assert compare(bench, bench) == []
    rows: list[ParameterDifference] = compare(bench, cmp)
    assert len({row.bench_para for row in rows if row.cmp_para == "Only in benchmark"} - bench.keys()) == 0
    paired = [row for row in rows if row.matched_with]
    assert len({row.bench_para for row in paired}) == len(paired) == len({row.cmp_para for row in paired})


@pytest.mark.parametrize(
    ("name", "one", "two", "level"),
    [
        ("pack", "p1.zip", "p2.zip", "warning"),
        ("where", "/home/a/x", "/home/a/y", "warning"),
        ("data_path", "/data/a", "/data/b", "error"),
        ("what", "1/3", "1/4", "error"),
        ("what", "v1.5", "v1.6", "error"),
    ],
)
def test_places_of_unknown_meaning_are_a_warning(name: str, one: str, two: str, level: str) -> None:
    assert [row.level for row in compare({name: one}, {name: two})] == [level]
