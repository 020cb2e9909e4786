"""Folders of a dump that other processes create and remove meanwhile."""

from __future__ import annotations

import os
import shutil

from msprobe.store import layout


def test_a_step_that_another_process_removes_meanwhile_hides_no_other(tmp_path, monkeypatch):
    for step in (3, 4, 5):
        (tmp_path / f"step{step}" / "rank1").mkdir(parents=True)
        (tmp_path / f"step{step}" / "rank1" / "dump.json").touch()
    (tmp_path / "step5" / "rank2").mkdir()
    scan = os.scandir

    def scan_late(folder="."):
        if not isinstance(folder, int) and os.path.basename(folder) == "step4":
            monkeypatch.undo()
            shutil.rmtree(folder)
        return scan(folder)

    monkeypatch.setattr(os, "scandir", scan_late)
    assert list(layout.ranks_written_since(tmp_path, 0)) == ["rank1", "rank1"]


def test_only_what_was_written_since_then_counts(tmp_path):
    (tmp_path / "script" / "step0" / "rank0").mkdir(parents=True)
    file = tmp_path / "script" / "step0" / "rank0" / "dump.json"
    file.touch()
    os.utime(file, (1000, 1000))
    assert list(layout.ranks_written_since(tmp_path, 1000, "*/")) == ["rank0"]
    assert list(layout.ranks_written_since(tmp_path, 1010, "*/")) == []
    assert list(layout.ranks_written_since(tmp_path, 1000)) == []
