from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions, raising
from support.packs import statistics, write_pack

from msprobe.environment.configuration.comparison import ConfigurationComparison, Options, compare_packs, open_packs
from msprobe.environment.configuration.differences import DifferenceSheet
from msprobe.errors import InvalidInputError
from msprobe.messages import said

ONE, TWO = statistics(1.0, -1.0, 0.5, 2.0), statistics(1.0, -1.0, 0.25, 2.0)
STATIC = "hyperparameters/hyperparameters_static.json"
BASE: dict[str, Any] = {"env": {}, "pip": "torch=2.13.0\n"}


def compared(folder: Path, bench: dict[str, Any], cmp: dict[str, Any], **options: Any) -> ConfigurationComparison:
    first, second = open_packs(
        write_pack(folder / "a.zip", {**BASE, **bench}), write_pack(folder / "b.zip", {**BASE, **cmp})
    )
    with first, second:
        return compare_packs(first, second, Options(**options))


def part_of(result: ConfigurationComparison, name: str) -> DifferenceSheet:
    (found,) = [part for part in result.parts if part.name == name]
    return found


def weights(tree: dict[str, Any], step: int = 0, rank: int = 0) -> dict[str, Any]:
    return {f"weights/step{step}/rank{rank}/weight.json": tree}


def dataset(tree: dict[str, Any], step: int = 0, rank: int = 0) -> dict[str, Any]:
    return {f"dataset/step{step}/rank{rank}/dataset.json": tree}


def test_a_weight_that_one_side_lacks_fails(tmp_path: Path) -> None:
    result = compared(tmp_path, weights({"l1.weight": ONE, "l1.bias": ONE}), weights({"l1.weight": ONE, "new": ONE}))
    part = part_of(result, "weights")
    assert [row[:4] for row in part.rows] == [
        (0, 0, "l1.weight", True),
        (0, 0, "l1.bias", "only bench have"),
        (0, 0, "new", "only cmp have"),
    ]
    assert part.rows[0][4:] == (0, 0, 0, 0)
    assert part.rows[1][4:] == (None,) * 4
    assert part.level == "error"
    assert result.differs


def test_differences_are_relative_to_the_size_of_the_bench(tmp_path: Path) -> None:
    part = part_of(compared(tmp_path, weights({"w": ONE}), weights({"w": statistics(0.5, -2.0, 0.5, 2.0)})), "weights")
    assert part.rows == [(0, 0, "w", False, 0.5, 1.0, 0.0, 0.0)]
    zero = part_of(
        compared(tmp_path, weights({"w": statistics(0, 0, 0, 0)}), weights({"w": statistics(1, 0, 0, 1)})), "weights"
    )
    assert zero.rows == [(0, 0, "w", False, None, None, None, None)]


def test_a_tolerance_lets_rounding_pass_and_nan_equals_nan(tmp_path: Path) -> None:
    near = statistics(1.0 + 1e-7, -1.0, 0.5, 2.0)
    assert part_of(compared(tmp_path, weights({"w": ONE}), weights({"w": near})), "weights").level == "error"
    assert (
        part_of(compared(tmp_path, weights({"w": ONE}), weights({"w": near}), tolerance=1e-6), "weights").level
        == "pass"
    )
    nan = statistics(*[float("nan")] * 4)
    assert part_of(compared(tmp_path, weights({"w": nan}), weights({"w": nan})), "weights").level == "pass"
    assert part_of(compared(tmp_path, weights({"w": nan}), weights({"w": ONE})), "weights").level == "error"
    with raising(InvalidInputError, "tolerance-wrong"):
        compared(tmp_path, {}, {}, tolerance=-1.0)


def test_digests_say_what_statistics_cannot(tmp_path: Path) -> None:
    sides = [
        {**dataset({"args": {"0": ONE}, "kwargs": {}}), "digests/step0/rank0.json": {"dataset": {"args.0": digest}}}
        for digest in ("aa", "bb")
    ]
    part = part_of(compared(tmp_path, *sides), "dataset")
    assert part.header[-1] == "crc_equal"
    assert part.rows == [(0, 0, "args.0", False, 0, 0, 0, 0, False)]
    assert part_of(compared(tmp_path, *sides, tolerance=1e-3), "dataset").rows[0][3] is True
    assert part_of(compared(tmp_path, sides[0], dataset({"args": {"0": ONE}})), "dataset").level == "pass"


def test_inputs_are_named_by_their_place_and_only_tensors_count(tmp_path: Path) -> None:
    tree = {"args": {"0": ONE, "1": ""}, "kwargs": {"mask": ONE, "extra": {"k": {"0": ONE, "1": ""}}}}
    other = {"args": {"0": ONE, "1": ""}, "kwargs": {"extra": {"k": {"0": TWO}}, "more": ONE}}
    part = part_of(compared(tmp_path, dataset(tree), dataset(other)), "dataset")
    assert [row[2:4] for row in part.rows] == [
        ("args.0", True),
        ("kwargs.mask", "only bench have"),
        ("kwargs.extra.k.0", False),
        ("kwargs.more", "only cmp have"),
    ]


def test_a_rank_that_is_missing_is_an_error_and_a_step_that_was_not_collected_a_note(tmp_path: Path) -> None:
    bench = {**weights({"w": ONE}), **weights({"w": ONE}, rank=1), **weights({"w": ONE}, step=1)}
    result = compared(tmp_path, bench, weights({"w": ONE}))
    part = part_of(result, "weights")
    assert [row[:4] for row in part.rows] == [(0, 0, "w", True), (0, 1, "w", "only bench have")]
    assert part.level == "error"
    assert any(mentions(note, "micro-steps-in-one-pack", steps="1", side="bench") for note in result.notes)
    nothing = part_of(compared(tmp_path, weights({"w": ONE}), weights({"w": ONE}, step=5)), "weights")
    assert nothing.level == "error"


@pytest.mark.parametrize(("name", "level"), [("weights", "error"), ("random", "warning"), ("hyperparameters", "error")])
def test_a_part_that_one_pack_lacks_is_reported(tmp_path: Path, name: str, level: str) -> None:
    entries = {"weights": weights({"w": ONE}), "random": {"random/rank0.json": {}}, "hyperparameters": {STATIC: {}}}
    for sides, side in (((entries[name], {}), "cmp"), (({}, entries[name]), "bench")):
        part = part_of(compared(tmp_path, *sides), name)
        assert (part.missing_in, part.level) == (side, level)


def test_random_calls_match_by_place_and_not_by_line(tmp_path: Path) -> None:
    def calls(*stacks: tuple[str, int]) -> dict[str, Any]:
        return {"random/rank0.json": {"torch.rand": [{"count": count, "stack": [line]} for line, count in stacks]}}

    first = calls(
        ("File /a/x.py, line 3, in f, y = torch.rand(2)", 2), ("File /a/x.py, line 9, in g, torch.rand(1)", 1)
    )
    moved = calls(
        ("File /b/x.py, line 30, in f, y = torch.rand(3)", 2), ("File /b/z.py, line 9, in h, torch.rand(1)", 1)
    )
    part = part_of(compared(tmp_path, first, moved), "random")
    assert [row[4:] for row in part.rows] == [(2, 2, True), (1, 0, False), (0, 1, False)]
    assert part.rows[1][3] == part.rows[2][2] == "no match stack"
    assert part_of(compared(tmp_path, first, first), "random").level == "pass"
    more = calls(("File /a/x.py, line 3, in f, y = torch.rand(2)", 3), ("File /a/x.py, line 9, in g, rand(1)", 1))
    assert [row[-1] for row in part_of(compared(tmp_path, first, more), "random").rows] == [False, True]


def test_seeds_generators_and_dropout_are_compared(tmp_path: Path) -> None:
    def state(seed: int, digest: str, p: float) -> dict[str, Any]:
        told = {
            "seeds": [["torch.manual_seed", seed]],
            "states": {"0": {"torch": digest, "numpy": digest}},
            "dropout": {"d": {"p": p}},
        }
        return {"random_state/rank0.json": told}

    part = part_of(compared(tmp_path, state(1, "a", 0.1), state(2, "b", 0.0)), "random_state")
    assert [row[1:] for row in part.rows] == [
        ("seeds", "torch.manual_seed (call 1)", 1, 2, "error"),
        ("states", "micro-step 0 torch", "a", "b", "error"),
        ("states", "micro-step 0 numpy", "a", "b", "warning"),
        ("dropout", "d p", 0.1, 0.0, "error"),
    ]
    assert [(one.level, one.name) for one in part.findings] == [
        ("error", "torch.manual_seed (call 1)"),
        ("error", "d p"),
        ("error", "micro-step 0 torch"),
        ("warning", "micro-step 0 numpy"),
    ]
    assert part_of(compared(tmp_path, state(1, "a", 0.1), state(1, "a", 0.1)), "random_state").level == "pass"


def test_what_most_likely_explains_a_divergence_comes_first(tmp_path: Path) -> None:
    settings = ({"seed": 1, "lr": 1e-4, "log-interval": 1}, {"seed": 2, "lr": 1e-3, "log-interval": 10})
    sides = [{STATIC: one, "env": {"OMP_NUM_THREADS": str(number)}} for number, one in enumerate(settings, 1)]
    names = [one.name for one in compared(tmp_path, *sides).findings]
    assert names == ["seed", "lr", "OMP_NUM_THREADS", "log-interval"]
    other = compared(tmp_path, {**sides[0], **weights({"w": ONE})}, {**sides[1], **weights({"w": TWO})}).findings
    assert [one.name for one in other[:3:2]] == ["seed", "lr"]
    assert mentions(other[1].name, "inputs-or-weights-at-step", count=1, total=1, what=said("weights-in-count"), step=0)
    assert mentions(other[0].why, "may-explain-start-weights")
    same = {**weights({"w": ONE}), **dataset({"args": {"0": ONE}})}
    calm = compared(tmp_path, {**sides[0], **same}, {**sides[1], **same}).findings
    assert [one.name for one in calm] == ["lr", "OMP_NUM_THREADS", "seed", "log-interval"]
    assert mentions(calm[2].why, "but-start-weights-agree")


@pytest.mark.parametrize(
    ("entry", "content", "expected"),
    [
        ("weights/step0/rank0/weight.json", "{", "entry weights/step0/rank0/weight.json"),
        ("random/rank0.json", "[]", "must be a JSON object"),
        ("env", "null", "must be a JSON object"),
    ],
)
def test_broken_entries_are_named(tmp_path: Path, entry: str, content: str, expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        compared(tmp_path, {entry: content}, {entry: content})


def test_values_of_a_stranger_of_any_kind_are_taken(tmp_path: Path) -> None:
    odd: dict[str, Any] = {
        "env": {"CUDA_LAUNCH_BLOCKING": [1], "A": None},
        "pip": "torch\n=1\n\x00=2\n",
        **weights({"w": 3, "v": {"max": "x", "min": [], "mean": None, "norm": 10**320}}),
        **dataset({"args": 5, "kwargs": {"a": {"max": {}, "min": 1}}}),
        "random/rank0.json": {"f": 3, "g": [1, {"count": "x", "stack": 7}]},
        "random_state/rank0.json": {"seeds": 5, "states": [], "dropout": {"a": 1}},
        STATIC: {"a": {"b": [1]}, "c": None},
    }
    assert not compared(tmp_path, odd, odd).differs
    assert compared(tmp_path, odd, weights({"v": ONE})).differs


def test_the_values_of_a_name_that_has_several_are_shown_in_a_line(tmp_path: Path) -> None:
    sides = [{STATIC: {"lr": lr}} for lr in (0.001, {"description": "duplicate_value", "values": ["0.002", 0.001]})]
    (finding,) = part_of(compared(tmp_path, *sides), "hyperparameters").findings
    assert (finding.bench, finding.cmp) == ("0.001", "0.002 / 0.001")
