"""From which recording the call of a finding is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import names_of

from msprobe.errors import InvalidInputError
from msprobe.lockstep.confirm import named_calls
from msprobe.precheck.verdicts import call_of_finding

CALL = "Functional.relu.0"


def dump(folder: Path, task: str, call: str = CALL) -> Path:
    """A dump of one call in step 0."""
    values = str(folder / "step0" / "rank" / "dump_tensor_data") if task == "tensor" else None
    data = {f"{call}.forward": {"input_args": [], "input_kwargs": {}, "output": []}}
    (folder / "step0" / "rank").mkdir(parents=True)
    content = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": values, "data": data}
    (folder / "step0" / "rank" / "dump.json").write_text(json.dumps(content))
    return folder


def verdict(folder: Path, **content: Any) -> Path:
    finding = {"entry": f"{CALL}.forward", "step": 0, "rank": "rank", "kind": "computation", "evidence": {}}
    path = folder / "verdict.json"
    path.write_text(json.dumps({"candidate": str(folder / "candidate"), "findings": [finding], **content}))
    return path


@pytest.mark.parametrize(("call", "has_values"), [(CALL, True), ("Functional.gelu.0", False)])
def test_a_call_of_a_second_look_is_taken_from_there(tmp_path: Path, call: str, has_values: bool) -> None:
    dump(tmp_path / "candidate", "statistics")
    again = dump(tmp_path / "look" / "candidate", "tensor", call)
    path = verdict(tmp_path, summary={"second_look": {"recordings": {"candidate": str(again)}}})
    assert call_of_finding(path, 1, None)[0].has_values is has_values
    # What the user names goes before.
    assert call_of_finding(path, 1, tmp_path / "candidate")[0].has_values is False


def test_a_recording_of_a_second_look_that_is_gone_is_not_needed(tmp_path: Path) -> None:
    dump(tmp_path / "candidate", "statistics")
    path = verdict(tmp_path, summary={"second_look": {"recordings": {"candidate": str(tmp_path / "gone")}}})
    assert call_of_finding(path, 1, None)[1] == CALL


@pytest.mark.parametrize(
    ("content", "name"), [({"data": {}}, "verdict-is-no-verdict"), ({"findings": []}, "verdict-has-no-findings")]
)
def test_a_file_that_is_no_verdict_is_called_so(tmp_path: Path, content: dict[str, Any], name: str) -> None:
    path = tmp_path / "verdict.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidInputError) as raised:
        call_of_finding(path, 1, None)
    assert names_of(raised.value.args) == [name]


@pytest.mark.parametrize("folder", ["here", "here/out", "here/out/deep"])
def test_a_dump_is_found_from_the_folder_that_the_verdict_was_written_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    dump(tmp_path / "here" / "candidate", "statistics")
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    path = verdict(tmp_path / folder, candidate="candidate", reference="candidate")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert call_of_finding(path, 1, None)[1] == CALL
    assert named_calls(path, [1]).reference == tmp_path / "here" / "candidate"
