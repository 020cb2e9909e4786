"""The call that a finding of ``verdict.json`` names, in the dump that it was found in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe.errors import InvalidInputError
from msprobe.foreign.json_text import read_json
from msprobe.messages import said
from msprobe.paths import StrPath, check_readable_file, named_in
from msprobe.precheck.modules import pass_of
from msprobe.precheck.requests import BACKWARD, FORWARD, Requests
from msprobe.store.damage import place_in_words
from msprobe.store.part import DumpPart
from msprobe.store.reader import open_dump


def call_of_finding(verdict: StrPath, number: int, dump: StrPath | None) -> tuple[Requests, str, str, str]:
    """The calls of the part, the name of the call, ``forward`` or ``backward``, and the kind of the finding. A call
    that a second look recorded with its values is taken from there. Raises MsprobeError.
    """
    path = Path(verdict) / "verdict.json" if Path(verdict).is_dir() else Path(verdict)
    content = _read(check_readable_file(path, ".json"))
    findings = content.get("findings")
    if not isinstance(findings, list):
        raise InvalidInputError(said("verdict-is-no-verdict", path))
    if not findings:
        raise InvalidInputError(said("verdict-has-no-findings", path))
    if not 1 <= number <= len(findings):
        raise InvalidInputError(said("finding-number-out-of-range", number, path, len(findings)))
    finding = findings[number - 1]
    entry = finding.get("entry") if isinstance(finding, dict) else None
    named = key_of(entry) if isinstance(entry, str) else None
    if named is None:
        raise InvalidInputError(said("finding-names-no-api", number, path, entry))
    key, direction = named
    side = "reference" if finding.get("evidence", {}).get("side") == "reference" else "candidate"
    requests = None if dump is not None else _recorded_again(content, side, path, finding, key)
    if requests is None:
        where = dump if dump is not None else _place(content.get(side), path)
        part = _part(where, finding)
        if part is None:
            step, rank = finding.get("step"), finding.get("rank")
            place = place_in_words(step, rank if rank is not None else "rank")
            raise InvalidInputError(said("finding-not-in-dump", number, path, place, where))
        requests = Requests(part, modules=True)
    if key not in requests.keys and key.startswith("Module."):
        raise InvalidInputError(said("finding-names-no-leaf", number, path, entry))
    return requests, key, direction, str(finding.get("kind"))


def _recorded_again(
    content: Mapping[str, Any], side: str, path: Path, finding: Mapping[str, Any], key: str
) -> Requests | None:
    """The calls of the recording with values that a second look made of one side, if this call is among them."""
    look = (content.get("summary") or {}).get("second_look") or {}
    recordings = look.get("recordings") if isinstance(look, dict) else None
    if not isinstance(recordings, dict) or side not in recordings:
        return None
    where = _place(recordings[side], path)
    part = _part(where, finding) if where.is_dir() else None
    requests = Requests(part, modules=True) if part is not None else None
    return requests if requests is not None and key in requests.keys else None


def _part(where: StrPath, finding: Mapping[str, Any]) -> DumpPart | None:
    """The step and rank of a finding in a dump; None if they are not there."""
    opened = open_dump(where)
    step, rank = finding.get("step"), finding.get("rank")
    if step not in opened.steps and len(opened.steps) == 1 and None in (step, opened.steps[0]):
        step = opened.steps[0]
    ranks = opened.ranks(step) if step in opened.steps else ()
    unnamed = [rank for rank in ranks if not isinstance(rank, int)]
    if rank not in ranks and len(ranks) == 1 and (unnamed or not isinstance(rank, int)):
        rank = ranks[0]
    return opened.part(step, rank) if rank in ranks else None


def key_of(entry: str) -> tuple[str, str] | None:
    """Call and direction of a record, as ``Module.fc.Linear.0`` and ``backward``; None for others."""
    module_pass = pass_of(entry)
    if module_pass is not None:
        return module_pass
    if entry.startswith(("Cell.", "Optimizer.")):
        return None
    for direction in (FORWARD, BACKWARD):
        if entry.endswith(direction):
            return entry.removesuffix(direction), direction.removeprefix(".")
    return None


def _read(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise InvalidInputError(said("verdict-is-no-verdict", path))
    return content


def _place(given: Any, path: Path) -> Path:
    """Where the dump is, as the verdict says."""
    if not isinstance(given, str) or not given:
        raise InvalidInputError(said("verdict-without-dumps", path))
    return named_in(path, given)
