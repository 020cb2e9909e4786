"""Which alert came first: ``anomaly.json`` of all ranks in the order of the training, and the command for it.

``python -m msprobe.core.monitor.anomaly_processor -d DIR [-o DIR] [-k N] [-s "[1,2]"]``
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msprobe.errors import InvalidInputError, MsprobeError, PathError
from msprobe.foreign.console import say
from msprobe.foreign.json_text import read_json
from msprobe.messages import said, translated
from msprobe.monitor.alerts.alert import place_in_training, text_of_record
from msprobe.monitor.alerts.sink import DETAILS_FILE, FILE
from msprobe.paths import (
    StrPath,
    check_output_folder,
    check_path_form,
    check_readable_file,
    make_folder,
    write_atomically,
)

RESULT_FILE = "anomaly_analyse.json"
TOP = 8

_RANK = re.compile(r"rank\d{1,9}", re.ASCII)
Records = dict[str, Mapping[str, Any]]


def read_alerts(folder: StrPath) -> Records:
    """The alerts of all ranks below an ``anomaly_detected`` folder, the earliest in the training first.

    Files of mindstudio-probe are read as well. Raises PathError and InvalidInputError.
    """
    records = _read_all(folder, FILE)
    return dict(sorted(records.items(), key=lambda entry: place_in_training(entry[1])))


def read_details(folder: StrPath) -> Records:
    """By the key of an alert: ``rule``, ``op`` and ``value``. Alerts of mindstudio-probe have none. Raises as above."""
    return _read_all(folder, DETAILS_FILE)


def first_alerts(records: Records, top: int = TOP, steps: Collection[int] = ()) -> Records:
    """The first ``top`` of them; only those of ``steps``, unless there are none given. Raises InvalidInputError."""
    if isinstance(top, bool) or not isinstance(top, int) or top <= 0:
        raise InvalidInputError(said("top-k-wrong", top))
    wanted = [(key, record) for key, record in records.items() if not steps or record.get("step") in steps]
    return dict(wanted[:top])


def write_first_alerts(records: Records, folder: StrPath) -> Path:
    """Write ``anomaly_analyse.json``; its path. Raises PathError."""
    path = make_folder(check_output_folder(folder)) / RESULT_FILE
    write_atomically(path, json.dumps(records, indent=2, ensure_ascii=False).encode("utf-8", "replace"))
    return path


def steps_of(text: str) -> list[int]:
    """``"[1, 2]"`` as numbers. Raises InvalidInputError."""
    try:
        steps = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        steps = None
    if not isinstance(steps, list):
        raise InvalidInputError(said("step-list-unreadable", text))
    wrong = [step for step in steps if isinstance(step, bool) or not isinstance(step, int) or step < 0]
    if wrong:
        raise InvalidInputError(said("step-list-wrong", wrong[0]))
    return steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("-d", "--data_path", required=True, metavar="DIR", help=translated(said("analysis-folder")))
    parser.add_argument(
        "-o",
        "--out_path",
        default="",
        metavar="DIR",
        help=translated(said("analysis-output")),
    )
    parser.add_argument("-k", "--topk", type=int, default=TOP, metavar="N", help=translated(said("analysis-top", TOP)))
    parser.add_argument(
        "-s", "--step", "--step_list", default="[]", metavar="LIST", help=translated(said("analysis-steps"))
    )


def analyse(data_path: str, out_path: str, top: int, steps: str) -> list[str]:
    """Write the first alerts, and say which they are: lines for people, in their language. Raises MsprobeError."""
    wanted = steps_of(steps)
    records = read_alerts(data_path)
    first = first_alerts(records, top, wanted)
    path = write_first_alerts(first, out_path or data_path)
    lines: list[str] = [said("alerts-file-is", path)]
    if not first:
        steps_text = said("of-steps", wanted) if wanted and records else ""
        return [translated(line) for line in (*lines, said("no-alerts-in", steps_text, data_path))]
    lines.append(said("first-alerts-of", len(first), len(records)))
    details = read_details(data_path)
    texts = [text_of_record({**record, **details.get(key, {})}) or key for key, record in first.items()]
    lines += [said("numbered-alert", number, text) for number, text in enumerate(texts)]
    return [translated(line) for line in lines]


def main(words: Sequence[str] | None = None) -> int:
    """The command; its exit status: 0 done, 1 an error that is printed. Raises SystemExit for wrong usage."""
    parser = argparse.ArgumentParser(prog="anomaly_processor", description=translated(said("analysis-about")))
    add_arguments(parser)
    args = parser.parse_args(words)
    try:
        say("\n".join(analyse(args.data_path, args.out_path, args.topk, args.step)))
    except MsprobeError as problem:
        say(problem, file=sys.stderr)
        return 1
    return 0


def _read_all(folder: StrPath, name: str) -> Records:
    """The files of this name of all ranks, as one."""
    place = check_path_form(folder, "folder")
    if not place.is_dir():
        kind = said("is-no-folder") if os.path.lexists(place) else said("is-not-there")
        raise PathError(said("no-alerts-folder", folder, kind))
    records: Records = {}
    for rank in sorted(os.listdir(place)):
        path = place / rank / name
        if _RANK.fullmatch(rank) and path.is_file():
            records.update(_read(path))
    return records


def _read(path: Path) -> Records:
    records = read_json(check_readable_file(path, ".json"))
    if not isinstance(records, dict) or not all(isinstance(record, dict) for record in records.values()):
        raise InvalidInputError(said("no-alerts-file", path))
    return records
