"""Places that are kept for records that come later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msprobe.store.writer import DumpWriter

HEADER: dict[str, object] = {"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": None}


def test_a_reserved_record_stands_where_its_place_was_kept(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "rank", HEADER)
    writer.put("first", {"n": 1})
    writer.reserve("kept")
    writer.put("last", {"n": 3})
    writer.put("kept", {"n": 2})
    writer.reserve("kept")
    writer.publish(final=True)
    found = json.loads((tmp_path / "rank" / "dump.json").read_text())
    assert list(found["data"].items()) == [("first", {"n": 1}), ("kept", {"n": 2}), ("last", {"n": 3})]
    assert found["msprobe"]["records"] == 3


@pytest.mark.parametrize("others", [0, 2])
def test_a_place_that_nothing_was_put_in_is_left_out(tmp_path: Path, others: int) -> None:
    writer = DumpWriter(tmp_path / "rank", HEADER)
    writer.reserve("kept")
    for number in range(others):
        writer.put(f"n{number}", {})
    writer.publish(final=True)
    found = json.loads((tmp_path / "rank" / "dump.json").read_text())
    assert list(found["data"]) == [f"n{number}" for number in range(others)]
    assert found["msprobe"]["records"] == others
