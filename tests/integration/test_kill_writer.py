"""A process is killed at any moment while it writes: what it was told is written can be read."""

from __future__ import annotations

import mmap
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from msprobe.store import journal, layout, row_format
from msprobe.store.part import DumpPart
from msprobe.store.reader import open_dump
from msprobe.store.tensor_files import TensorFileWriter
from msprobe.store.values import read_pt
from msprobe.store.writer import DumpWriter

HEADER: dict[str, object] = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}


class Acknowledged:
    """How far the child has come: the step, and the number of records in it whose ``put`` has returned."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 4096)

    def tell(self, step: int, count: int) -> None:
        # One number: a kill between two would tell a step that has not begun with the count of the one before.
        self._memory[:8] = (step << 32 | count).to_bytes(8, "little")

    def hear(self) -> tuple[int, int]:
        number = int.from_bytes(self._memory[:8], "little")
        return number >> 32, number & 0xFFFFFFFF


def name_of(number: int) -> str:
    return f"Functional.linear.{number}.forward"


def record_of(step: int, number: int) -> dict[str, object]:
    return {"step": step, "number": number, "text": "x" * (number * 37 % 3000)}


def row_of(number: int) -> bytes:
    return row_format.NATIVE.pack(number, 1.0, *range(8), *([0.0] * 8), 1.0, 0.0, 0, 0)


def killed(
    child: Callable[[Acknowledged], None], after: float, has_begun: Callable[[], bool] = lambda: True
) -> tuple[int, int]:
    """Run ``child`` in a process of its own, kill it ``after`` seconds after it has begun, and give what it had
    acknowledged.
    """
    acknowledged = Acknowledged()
    pid = os.fork()
    if pid == 0:
        try:
            child(acknowledged)
        finally:
            os._exit(1)
    patience = time.monotonic() + 60
    while not has_begun() and time.monotonic() < patience:
        time.sleep(0.001)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status), "the child ended by itself"
    return acknowledged.hear()


def write_for_ever(folder: Path, acknowledged: Acknowledged, random_stops: random.Random) -> None:
    """Steps of some hundred records, some of them with stops in between, until the process is killed."""
    for step in range(1_000_000):
        writer = DumpWriter(layout.rank_folder(layout.step_folder(folder, step), 0), HEADER)
        writer.define_stack(0, ["File train.py, line 1, in step, \n loss.backward()"])
        for number in range(random_stops.randrange(1, 400)):
            if number % 3:
                writer.put(name_of(number), record_of(step, number))
            else:
                writer.put_call(name_of(number), record_of(step, number), None, False, (number // 3, row_of(number)))
            acknowledged.tell(step, number + 1)
            writer.put_stack(name_of(number), 0)
            writer.put_parent(name_of(number), None)
            if random_stops.random() < 0.01:
                writer.publish(final=False)
        writer.publish(final=False)
        writer.publish(final=True)


def check_records(part: DumpPart, step: int, at_least: int) -> None:
    names = part.names()
    assert names == [name_of(number) for number in range(len(names))], "all of them, in order"
    assert len(names) >= at_least, f"{at_least - len(names)} of {at_least} records are lost"
    for number, (_, record) in enumerate(part.records()):
        assert record == record_of(step, number)
        if number % 3 == 0:
            row = part.rows.row(number // 3)
            assert row is not None
            assert row.sum == number
    # The record that was being written may lack its stack and its place.
    for name in names[:-1]:
        assert part.stack(name) == ["File train.py, line 1, in step, \n loss.backward()"]
        assert name in part.parents()


def check_steps(folder: Path, step: int, count: int) -> int:
    """All steps are there and whole but the last, which has at least ``count`` records. Gives the number of records."""
    dump = open_dump(folder)
    assert dump.steps[: step + 1] == list(range(step + 1))
    total = 0
    for found in dump.steps:
        assert found is not None
        part = dump.part(found)
        if found < step:
            assert part.complete, f"step {found} was finished before step {step} began"
        # A kill may come between the last record of a step and the first acknowledgement in the next.
        check_records(part, found, count if found == step else 0)
        total += len(part)
    assert len(dump.steps) <= step + 2
    return total


@pytest.mark.parametrize("wanted", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_no_record_is_lost_by_a_kill_at_any_moment(tmp_path: Path, wanted: int) -> None:
    moments = random.Random(20240607)
    records = kills = interrupted = 0
    while kills < wanted:
        folder = tmp_path / str(kills)
        seed = moments.randrange(1 << 30)

        def child(acknowledged: Acknowledged, folder: Path = folder, seed: int = seed) -> None:
            write_for_ever(folder, acknowledged, random.Random(seed))

        step, count = killed(child, moments.uniform(0.005, 0.1))
        if count == 0:
            continue  # before the first record
        kills += 1
        records += check_steps(folder, step, count)
        interrupted += not open_dump(folder).part(step).complete
    assert records > 20 * wanted
    assert interrupted > wanted // 2, "the moments must hit the middle of steps"


def test_where_files_cannot_be_mapped_the_last_tenth_of_a_second_may_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_can_be_mapped", lambda _: False)

    def child(acknowledged: Acknowledged) -> None:
        writer = DumpWriter(tmp_path / "rank0", HEADER)
        returned: list[float] = []
        old = 0
        for number in range(10_000_000):
            writer.put(name_of(number), record_of(0, number))
            returned.append(time.monotonic())
            while returned[old] < returned[-1] - 0.15:
                old += 1
            acknowledged.tell(0, old)
            time.sleep(0.001)

    _, count = killed(child, 1.0)
    assert count > 100
    part = open_dump(tmp_path).part()
    assert not part.complete
    assert part.names() == [name_of(number) for number in range(len(part))]
    assert len(part) >= count


@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("threads", [1, 2])
def test_tensor_files_are_whole_or_not_there(tmp_path: Path, threads: int, kills: int) -> None:
    class Payload:
        dtype_name = "float32"
        shape = (50, 50)

        def __init__(self, number: int) -> None:
            self.data = memoryview(np.full((50, 50), number, np.float32))

    moments = random.Random(7)
    found = 0
    for kill in range(kills):
        folder = tmp_path / str(kill)

        def child(acknowledged: Acknowledged, folder: Path = folder) -> None:
            files = TensorFileWriter(folder, max_bytes_in_flight=100_000, threads=threads)
            for number in range(1_000_000):
                files.save(f"{number}.pt", Payload(number))
                files.link(f"{number}.link.pt", f"{number}.pt")
                acknowledged.tell(0, number + 1)

        _, count = killed(child, moments.uniform(0.02, 0.15), folder.exists)
        names = [path for path in folder.iterdir() if path.suffix == ".pt"]
        for path in names:
            values = read_pt(path).array
            assert values.shape == (50, 50)
            assert (values == float(path.name.split(".")[0])).all()
        saved = {int(path.name[:-3]) for path in names if not path.name.endswith(".link.pt")}
        # What was on its way is lost: ten tensors fit into the 100 kB, and each thread has one in hand.
        assert len(saved) >= count - 10 - threads
        found += len(saved)
    assert found > 10 * kills
