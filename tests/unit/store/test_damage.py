"""Dumps of which a part is broken, gone, or was never there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.coded_texts import mentions
from support.hand_made import call, write_part

from msprobe.messages import said
from msprobe.store import processes
from msprobe.store.damage import broken_parts, lost_parts, missing_ranks, readable_records
from msprobe.store.reader import open_dump
from msprobe.store.writer import DumpWriter


def ranks(folder: Path, steps: int = 2) -> Path:
    for step in range(steps):
        for rank in range(2):
            write_part(folder / f"step{step}" / f"rank{rank}", {"Torch.exp.0.forward": call()}, construct={})
    return folder


def test_a_sound_dump_has_no_damage(tmp_path: Path) -> None:
    dump = open_dump(ranks(tmp_path))
    assert (broken_parts(dump), lost_parts(dump), missing_ranks(dump)) == ({}, [], [])


@pytest.mark.parametrize(
    "text", ['{"data": {"Torch.exp.0.forward": {"a"', '{"data": {"Torch.exp.0.forward": {"a" 1}}}', ""]
)
def test_a_broken_part_is_named(tmp_path: Path, text: str) -> None:
    dump = open_dump(ranks(tmp_path))
    (tmp_path / "step1" / "rank0" / "dump.json").write_text(text)
    ((place, words),) = broken_parts(dump).items()
    assert place == (1, 0)
    assert words.startswith("step 1, rank 0 cannot be read: ")


def test_a_broken_file_beside_the_dump_breaks_the_part(tmp_path: Path) -> None:
    dump = open_dump(ranks(tmp_path))
    (tmp_path / "step1" / "rank0" / "stack.json").write_text("{")
    assert list(broken_parts(dump)) == [(1, 0)]


def test_a_folder_that_has_lost_its_dump_is_named(tmp_path: Path) -> None:
    (ranks(tmp_path) / "step1" / "rank1" / "dump.json").unlink()
    dump = open_dump(tmp_path)
    (words,) = lost_parts(dump)
    assert mentions(words, "place-unreadable", place="step 1, rank 1", problem=said("dump-file-gone", "dump.json"))
    assert dump.ranks(1) == [0]
    assert missing_ranks(dump) == []


def test_an_empty_folder_is_no_loss(tmp_path: Path) -> None:
    shutil.rmtree(ranks(tmp_path) / "step1" / "rank1")
    (tmp_path / "step1" / "rank1").mkdir()
    dump = open_dump(tmp_path)
    assert lost_parts(dump) == []
    (words,) = missing_ranks(dump)
    assert mentions(words, "rank-missing-in-step", step=1, ranks=1)


def test_an_open_dump_can_be_given_for_its_path(tmp_path: Path) -> None:
    dump = open_dump(ranks(tmp_path)).without([(0, 0), (1, 0), (1, 1)])
    assert open_dump(dump) is dump
    assert (dump.steps, dump.ranks(), Path(dump), str(dump)) == ([0], [1], tmp_path, str(tmp_path))


def write(folder: Path) -> None:
    writer = DumpWriter(folder, {})
    for name in "abc":
        writer.put(name, 1)
    assert readable_records(folder) == 3
    writer.publish(final=True)
    assert readable_records(folder) == 3


def test_what_can_be_read_counts_only_what_this_process_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump that was refused, as an older one is there, left nothing."""
    write(tmp_path / "ours" / "rank")
    other = replace(processes.this_process(), pid=1)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "this_process", lambda: other)
        write(tmp_path / "theirs" / "rank")
    assert readable_records(tmp_path / "ours" / "rank") == 3
    assert readable_records(tmp_path / "theirs" / "rank") == 0
    assert readable_records(tmp_path / "nothing") == 0
