from __future__ import annotations

import json
import math
import stat
from pathlib import Path

from support.coded_texts import raising
from unit.report.verdicts import finding, verdict

from msprobe.errors import PathError
from msprobe.report.verdict_file import verdict_bytes, write_verdict


def test_the_form_is_the_documented_one() -> None:
    found = json.loads(verdict_bytes(verdict(finding(), apart=(3,), reason="none")))
    fields = "version status candidate reference summary coverage notes messages findings"
    assert list(found) == fields.split()
    assert found["version"] == 1
    assert found["summary"]["kinds"] == {"computation": 1}
    assert list(found["findings"][0]) == [
        "rank", "step", "direction", "kind", "harmless", "where", "entry", "module", "order",
        "code", "name", "message", "arguments", "evidence", "stack", "alternatives",
    ]  # fmt: skip


def test_any_reader_of_json_takes_it() -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    evidence = {"a": math.nan, "b": [math.inf, -math.inf], "c": {"d": (1, 2.5, None, True)}, "text": "\udc80\x1b"}
    found = json.loads(verdict_bytes(verdict(finding(evidence=evidence))), parse_constant=refuse)
    assert found["findings"][0]["evidence"] == {
        "a": "NaN",
        "b": ["Infinity", "-Infinity"],
        "c": {"d": [1, 2.5, None, True]},
        "text": "\udc80\x1b",
    }


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = write_verdict(tmp_path / "verdict.json", verdict(finding()))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with raising(PathError, "file-not-written", problem="no such file or directory"):
        write_verdict(tmp_path / "missing" / "verdict.json", verdict())
    assert [one.name for one in tmp_path.iterdir()] == ["verdict.json"]
