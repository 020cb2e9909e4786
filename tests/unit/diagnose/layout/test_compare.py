"""Runs of different parallel layouts: only parameters answer to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from support.coded_texts import mentions, names_of, raising
from unit.diagnose.comparing import first
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict
from msprobe.errors import InvalidInputError
from msprobe.messages import code_of, said

Change = Callable[[np.ndarray], np.ndarray]
#: Parameters by name: shape, and the dimension that ranks have parts of (None: each has all of it).
NAMES = {"norm.weight": ((8,), None), "up.weight": ((16, 8), 0), "down.weight": ((8, 16), 1)}


def write(folder: Path, ranks: int, changes: dict[tuple[int, str, str], Change] | None = None, steps: int = 1) -> Path:
    """One optimizer step of each rank; ``changes``: (rank, parameter, weight, grad or new) -> what becomes of it."""
    for step in range(steps):
        for rank in range(ranks):
            before: dict[str, dict[str, Value]] = {}
            after: dict[str, dict[str, Value]] = {}
            for name, (shape, dimension) in NAMES.items():
                whole = {"weight": drawn(f"{name} {step}", *shape), "grad": drawn(f"grad {name} {step}", *shape)}
                whole["new"] = whole["weight"] - np.float32(0.1) * whole["grad"]
                part: dict[str, Value] = {}
                for field, array in whole.items():
                    own = array if dimension is None or ranks == 1 else np.split(array, ranks, dimension)[rank]
                    part[field] = Value((changes or {}).get((rank, name, field), np.asarray)(own), field != "grad")
                before[name] = {"weight": part["weight"], "grad": part["grad"]}
                after[name] = {"weight": part["new"]}
            rec = Recording()
            rec.call("Torch.sin", [rank], Value(drawn(f"rank {rank}", 3)))
            rec.optimizer("SGD", before, after, {"lr": 0.1})
            rec.write(folder / f"step{step}" / (f"rank{rank}" if ranks > 1 else "rank"))
    return folder


def compare(
    tmp_path: Path, ranks: tuple[int, int], changes: dict[tuple[int, str, str], Change], steps: int = 1
) -> Verdict:
    return compare_runs(
        write(tmp_path / "one", ranks[0], changes, steps), write(tmp_path / "other", ranks[1], steps=steps)
    )


def off(factor: float) -> Change:
    return lambda array: array * np.float32(factor)


@pytest.mark.parametrize("ranks", [(2, 1), (1, 2), (4, 1), (1, 4)])
def test_whole_and_sharded_parameters_agree(tmp_path: Path, ranks: tuple[int, int]) -> None:
    verdict = compare(tmp_path, ranks, {}, steps=2)
    assert (verdict.status, verdict.findings) == ("agree", ())
    layouts = verdict.summary["layouts"]
    assert (layouts["candidate"]["ranks"], layouts["reference"]["ranks"]) == ranks
    # Two steps, three tensors of each of three parameters; all had to be put together or are copies.
    assert layouts["tensors"] == {
        "reassembled": 0, "invariants": 18, "whole": 0, "without_numbers": 0, "not_comparable": 0,
    }  # fmt: skip
    several = "candidate" if ranks[0] > 1 else "reference"
    count = max(ranks)
    held = {f"{count} copies": 3, f"{count} parts along 0": 3, f"{count} parts along 1": 3}  # in each step
    assert layouts[several]["held"] == {"parameter": held}
    assert layouts[several]["found_from"] == ["guess"]
    assert any(
        mentions(note, "layout-of-ranks", side=several, ranks=count, source="shapes and values")
        for note in verdict.notes
    )


@pytest.mark.parametrize(("name", "rank"), [("up.weight", 1), ("down.weight", 0), ("norm.weight", 0)])
@pytest.mark.parametrize(
    ("field", "kind"), [("weight", "initial_weights"), ("grad", "parameter_gradient"), ("new", "optimizer")]
)
def test_what_differs_is_named(tmp_path: Path, name: str, rank: int, field: str, kind: str) -> None:
    changes = {(each, name, field): off(1.1) for each in ((0, 1) if name == "norm.weight" else (rank,))}
    found = first(compare(tmp_path, (2, 1), changes))
    assert (found.kind, found.where, found.step) == (kind, name, 0)
    assert found.evidence["parameter"] == name
    assert found.module == name.rpartition(".")[0]


def test_a_factor_is_told(tmp_path: Path) -> None:
    changes = {(rank, "up.weight", "grad"): off(2.0) for rank in (0, 1)}
    found = first(compare(tmp_path, (2, 1), changes))
    assert code_of(found.message)[1] == "gradient-at-optimizer-differs-in-layout"
    assert found.message.startswith(said("gradient-of-slot", '"up.weight"'))
    assert mentions(
        f"{found.message}.", "gradient-at-optimizer-differs-in-layout", ranks="", relation=said("times-as-large", 2.0)
    )


def test_copies_that_are_not_the_same_on_all_ranks(tmp_path: Path) -> None:
    verdict = compare(tmp_path, (2, 1), {(1, "norm.weight", "weight"): off(1.1)})
    found = first(verdict)
    assert (found.kind, found.where) == ("replica", "norm.weight")
    assert (found.code, str(found.arguments["ranks"]).strip()) == ("D614", "ranks 0, 1")
    assert said("it-differs-from-the-reference", said("on-rank", "1")) in found.message
    assert (found.rank, found.evidence["ranks_at_fault"]) == (1, [1])


def test_weights_of_a_later_step(tmp_path: Path) -> None:
    one = write(tmp_path / "one", 2, steps=2)
    other = write(tmp_path / "other", 1, steps=2)
    for rank in (0, 1):
        (one / "step1" / f"rank{rank}" / "dump.json").unlink()
        (one / "step1" / f"rank{rank}" / "construct.json").unlink()
        (one / "step1" / f"rank{rank}" / "stack.json").unlink()
        (one / "step1" / f"rank{rank}").rmdir()
    (one / "step1").rmdir()
    changed = write(tmp_path / "changed", 2, {(rank, "up.weight", "weight"): off(1.1) for rank in (0, 1)}, steps=2)
    (changed / "step1").rename(one / "step1")
    found = first(compare_runs(one, other))
    assert (found.kind, found.step, found.where) == ("weights", 1, "up.weight")


def test_what_differs_before_the_step_is_not_told_again_after_it(tmp_path: Path) -> None:
    changes = {(rank, "up.weight", field): off(1.1) for rank in (0, 1) for field in ("weight", "new")}
    verdict = compare(tmp_path, (2, 1), changes)
    assert [finding.kind for finding in verdict.findings] == ["initial_weights"]


def test_sums_in_another_order_agree(tmp_path: Path) -> None:
    changes = {(rank, name, "grad"): off(1 + 2e-6) for rank in (0, 1) for name in NAMES}
    assert compare(tmp_path, (2, 1), changes).status == "agree"


def test_parts_that_do_not_make_a_whole_are_left_out(tmp_path: Path) -> None:
    changes: dict[tuple[int, str, str], Change] = {(1, "up.weight", "grad"): lambda array: array[1:]}
    verdict = compare(tmp_path, (2, 1), changes)
    assert verdict.status == "agree"
    assert verdict.summary["layouts"]["tensors"]["not_comparable"] == 1
    assert "tensors-not-comparable" in names_of(verdict.notes)


def test_without_an_optimizer_nothing_can_be_compared(tmp_path: Path) -> None:
    names: Sequence[str] = ("one/step0/rank0", "one/step0/rank1", "other/step0/rank")
    for name in names:
        rec = Recording()
        rec.call("Torch.sin", [1], Value(drawn("x", 3)))
        rec.write(tmp_path / name)
    verdict = compare_runs(tmp_path / "one", tmp_path / "other")
    assert (verdict.status, verdict.exit_code) == ("incomparable", 2)


def layout_file(folder: Path, ranks: int) -> Path:
    path = folder / "layout.yaml"
    path.write_text(f"candidate: {{mesh: {{tensor: {ranks}}}}}")
    return path


def test_a_mesh_of_fewer_ranks_than_there_are_is_a_mistake(tmp_path: Path) -> None:
    dumps = write(tmp_path / "one", 4), write(tmp_path / "other", 1)
    with raising(InvalidInputError, "layout-mesh-too-small", name="candidate", size=2, last=3):
        compare_runs(*dumps, layout=layout_file(tmp_path, 2))


def test_a_mesh_of_more_ranks_is_told(tmp_path: Path) -> None:
    dumps = write(tmp_path / "one", 2), write(tmp_path / "other", 1)
    verdict = compare_runs(*dumps, layout=layout_file(tmp_path, 4))
    assert any(said("recorded-of-layout", 2, 4) in note for note in verdict.notes)


def test_a_second_healthy_run_is_not_used(tmp_path: Path) -> None:
    dumps = write(tmp_path / "one", 2), write(tmp_path / "other", 1)
    verdict = compare_runs(*dumps, noise=write(tmp_path / "healthy", 1))
    assert any(mentions(note, "healthy-run-not-used") for note in verdict.notes)


def test_without_modules_the_parameters_are_counted(tmp_path: Path) -> None:
    verdict = compare(tmp_path, (2, 1), {})
    assert verdict.summary["pairs"] == len(NAMES)
    assert verdict.summary["same"] + verdict.summary["rounding"] == len(NAMES)


def test_dumps_without_numbers_say_that_they_have_none(tmp_path: Path) -> None:
    for name in ("one/step0/rank0", "one/step0/rank1", "other/step0/rank"):
        rec = Recording()
        with rec.module("norm", "Norm", [Value(drawn("x", 3))]) as done:
            done(Value(drawn("y", 3)))

        def without(data: dict[str, dict[str, list[dict[str, object]]]]) -> None:
            for record in data.values():
                for leaf in [*record["input_args"], *record["output"]]:
                    for key in ("Max", "Min", "Mean", "Norm", "digest"):
                        leaf.pop(key, None)

        rec.write(tmp_path / name, edit=without)
    verdict = compare_runs(tmp_path / "one", tmp_path / "other")
    assert verdict.status == "incomparable"
    assert "layouts-need-values" in names_of(verdict.notes)
