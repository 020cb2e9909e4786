"""Whether two runs have different layouts, as their dumps tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.diagnose.layout.detect import layouts_differ
from msprobe.store.reader import open_dump

Shapes = dict[str, tuple[int, ...]]
WHOLE: Shapes = {"up": (8, 4), "down": (4, 8)}
COLUMNS: Shapes = {"up": (4, 4), "down": (4, 4)}


def write(
    folder: Path, ranks: list[Shapes], batch: int = 4, world: int = 0, numbers: list[int] | None = None, **more: Any
) -> Path:
    """A dump of ranks that hold these weights of linear modules; ``world``: the size of the group they speak of."""
    for number, shapes in zip(numbers or range(len(ranks)), ranks, strict=True):
        rec = Recording()
        x = Value(drawn("x", batch, 4))
        for name, shape in shapes.items():
            weight = Value(drawn(name, *shape), grad=True, more=more)
            with rec.module(f"blocks.0.{name}", "Linear", [x], {"weight": weight}) as done:
                done(x)
        if world:
            rec.call("Distributed.all_reduce", [x], x, process_group={"group_ranks": list(range(world))})
        rec.write(folder / "step0" / (f"rank{number}" if numbers or len(ranks) > 1 or world else "rank"))
    return folder


def differ(one: Path, other: Path) -> bool:
    parts = [[dump.part(0, rank) for rank in dump.ranks(0)] for dump in map(open_dump, (one, other))]
    return layouts_differ(*parts)


def test_a_single_process_has_one_layout(tmp_path: Path) -> None:
    assert not differ(write(tmp_path / "a", [WHOLE]), write(tmp_path / "b", [WHOLE]))


def test_ranks_that_hold_the_same_have_one_layout(tmp_path: Path) -> None:
    assert not differ(write(tmp_path / "a", [COLUMNS] * 2), write(tmp_path / "b", [COLUMNS] * 2))


def test_other_parts_of_the_parameters_are_another_layout(tmp_path: Path) -> None:
    assert differ(write(tmp_path / "a", [COLUMNS] * 2), write(tmp_path / "b", [WHOLE] * 2))
    assert differ(write(tmp_path / "c", [WHOLE] * 2), write(tmp_path / "d", [COLUMNS] * 2))


def test_shards_of_tensors_that_know_their_whole_shape(tmp_path: Path) -> None:
    sharded = write(tmp_path / "a", [{"up": (8, 4)}] * 2, local_shape=[4, 4], placements=[], device_mesh=[0, 1])
    assert differ(sharded, write(tmp_path / "b", [{"up": (8, 4)}] * 2))


def test_a_weight_of_another_size_is_a_bug_and_no_layout(tmp_path: Path) -> None:
    assert not differ(write(tmp_path / "a", [{"up": (8, 5)}] * 2), write(tmp_path / "b", [{"up": (8, 4)}] * 2))


def test_a_pipeline_against_whole_models(tmp_path: Path) -> None:
    stages = write(tmp_path / "a", [{"up": (8, 4)}, {"down": (4, 8)}])
    assert differ(stages, write(tmp_path / "b", [WHOLE] * 2))
    assert differ(write(tmp_path / "c", [{"down": (4, 8)}, {"up": (8, 4)}]), stages)


def test_a_module_more_on_all_ranks_is_no_layout(tmp_path: Path) -> None:
    assert not differ(write(tmp_path / "a", [{**WHOLE, "more": (2, 2)}] * 2), write(tmp_path / "b", [WHOLE] * 2))


@pytest.mark.parametrize("batch", [2, 4])
def test_other_numbers_of_ranks(tmp_path: Path, batch: int) -> None:
    """As many samples on each: one of them was recorded in part. A part of the samples: data parallel."""
    four = write(tmp_path / "a", [WHOLE] * 4, batch=batch)
    assert differ(four, write(tmp_path / "b", [WHOLE] * 2, batch=4)) == (batch == 2)


def test_ranks_recorded_in_part_speak_of_the_same_group(tmp_path: Path) -> None:
    four = write(tmp_path / "a", [WHOLE] * 4, batch=2, world=4)
    one_of_four = write(tmp_path / "b", [WHOLE], batch=3, world=4, numbers=[0])
    assert not differ(four, one_of_four)
    assert differ(four, write(tmp_path / "c", [WHOLE], batch=8, world=1, numbers=[0]))


def test_values_do_not_count(tmp_path: Path) -> None:
    one = write(tmp_path / "a", [COLUMNS] * 2)
    other = tmp_path / "b" / "step0"
    for rank in range(2):
        rec = Recording()
        for name, shape in COLUMNS.items():
            x = Value(np.ones((4, 4), np.float32))
            with rec.module(f"blocks.0.{name}", "Linear", [x], {"weight": Value(np.ones(shape, np.float32))}) as done:
                done(x)
        rec.write(other / f"rank{rank}")
    assert not differ(one, other.parent)
