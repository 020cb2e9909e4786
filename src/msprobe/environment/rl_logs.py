"""Parameters in the logs of verl and slime: two logs compared, or one held against wanted values.

The files and words are those of mindstudio-probe 26.2.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from msprobe.coverage import Coverage, NotRead, write
from msprobe.environment.checkpoint.contents import small_file
from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign import csv_cells, yaml_text
from msprobe.foreign.plain_numbers import number_or_text
from msprobe.messages import joined, said
from msprobe.paths import make_folder, write_atomically

_STARTS = ("{'actor_rollout_ref':", '{"actor_rollout_ref":')
_MOST_LOG_BYTES = 512 << 20
_MOST_DEPTH = 100
_LINE = re.compile(r"^\s*(\S+) \.{2,} (.*)$")
_COMPARED = ("超参名称", "NPU生效值", "bench生效值", "是否一致")
_VERIFIED = ("关键参数名称", "bench生效值", "target生效值", "是否一致")
_WANTED = {
    "trainer/balance_batch": False,
    "critic/shuffle": False,
    "critic/use_dynamic_bsz": False,
    "critic/model/use_remove_padding": True,
    "data/shuffle": False,
    "actor_rollout_ref/actor/shuffle": False,
    "actor_rollout_ref/actor/load_weight": True,
    "actor_rollout_ref/actor/use_dynamic_bsz": False,
    "actor_rollout_ref/actor/use_remove_padding": True,
    "actor_rollout_ref/actor/megatron/override_transformer_config/use_ascend_mc2": False,
    "actor_rollout_ref/actor/override_transformer_config/calculate_per_token_loss": False,
    "actor_rollout_ref/ref/load_weight": True,
    "actor_rollout_ref/ref/log_prob_use_dynamic_bsz": False,
    "actor_rollout_ref/rollout/log_prob_use_dynamic_bsz": False,
    "actor_rollout_ref/model/use_remove_padding": True,
    "algorithm/filter_groups/enable": False,
    "VLLM_ASCEND_ENABLE_NZ": 0,
}


class LogsCompared(NamedTuple):
    """How many parameters differ, what there is to say of the logs, and what was read of them."""

    apart: int
    notes: list[str]
    coverage: Coverage


# Parameters, what there is to say, and what was not read.
_Read = tuple[dict[str, Any], list[str], list[NotRead]]


def compare_logs(first: str, second: str, output: str, tool: str = "verl") -> LogsCompared:
    """Write both configurations, ``hyper_params_compare.csv`` and ``coverage.json``.

    ``first`` is the log of the run that is looked at (NPU), ``second`` the trusted one. Raises PathError,
    InvalidInputError with what is wrong with each log.
    """
    read = read_verl if tool == "verl" else read_slime
    (npu, *more), (bench, *others) = _both(read, first, second)
    skipped = ("profiler/", "ray_") if tool == "verl" else ("profile",)
    ours, two = flatten(npu), flatten(bench)
    names = sorted({*ours, *two})
    rows = [_row(name, ours, two) for name in names if not any(word in name for word in skipped)]
    make_folder(output)
    _write_json(os.path.join(output, "NPU_config.json"), npu)
    _write_json(os.path.join(output, "bench_config.json"), bench)
    _write_csv(os.path.join(output, "hyper_params_compare.csv"), _COMPARED, rows)
    skips = len({*ours, *two}) - len(rows)
    notes: list[str] = [said("profile-parameters-skipped", skips)] if skips else []
    return _compared(rows, output, notes, (more, others))


def _compared(
    rows: list[tuple[str, str, str, str]], output: str, notes: list[str], logs: Iterable[list[Any]]
) -> LogsCompared:
    read = list(logs)
    covered = Coverage({"parameters": len(rows)}, tuple(note for _, missing in read for note in missing))
    write(covered, os.path.join(output, "coverage.json"))
    return LogsCompared(
        sum(row[3] == "否" for row in rows),
        [*notes, *(note for notes_of_log, _ in read for note in notes_of_log)],
        covered,
    )


def verify_log(files: list[str], output: str) -> LogsCompared:
    """Hold a log against wanted values (of a YAML file before it, or the built-in ones).

    Writes ``tgt_config.json``, ``hyper_params_verify.csv`` and ``coverage.json``. Raises PathError, InvalidInputError.
    """
    if len(files) > 2:
        raise InvalidInputError(said("log-arguments", len(files)))
    if len(files) == 2 and not files[0].endswith((".yaml", ".yml")):
        raise InvalidInputError(said("log-arguments-order", files[0]))
    wanted = dict(_WANTED)
    if len(files) == 2:
        content = yaml_text.load(small_file(files[0]), files[0])
        if not isinstance(content, dict) or not content:
            raise InvalidInputError(said("wanted-values-form", files[0]))
        wanted = flatten(content)
    settings, *more = read_verl(files[-1])
    values = flatten(settings)
    rows = [_row(name, wanted, values) for name in wanted]
    make_folder(output)
    _write_json(os.path.join(output, "tgt_config.json"), settings)
    _write_csv(os.path.join(output, "hyper_params_verify.csv"), _VERIFIED, rows)
    return _compared(rows, output, [], [more])


def _both(read: Any, first: str, second: str) -> list[_Read]:
    logs, problems = [], []
    for path in (first, second):
        try:
            logs.append(read(path))
        except (InvalidInputError, PathError) as problem:
            problems.append(problem)
    if problems:
        raise type(problems[0])(joined(" ", (problem.message for problem in problems))) from problems[0]
    return logs


def flatten(tree: dict[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, keys joined with ``/``; lists and empty dicts are values."""
    result: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}/{key}" if prefix else str(key)
        if isinstance(value, dict) and value:
            result.update(flatten(value, name))
        else:
            result[name] = value
    return result


def _row(name: str, first: dict[str, Any], second: dict[str, Any]) -> tuple[str, str, str, str]:
    ours, two = (repr(side[name]) if name in side else "NA" for side in (first, second))
    # True and 1 are not one value in print, and are where they are used.
    same = name in first and name in second and (ours == two or first[name] == second[name])
    return name, ours, two, "是" if same else "否"


def _text(path: str) -> str:
    if not path.endswith((".log", ".txt")):
        raise InvalidInputError(said("no-log-name", path))
    try:
        if os.path.getsize(path) > _MOST_LOG_BYTES:
            raise InvalidInputError(said("log-too-large", path, _MOST_LOG_BYTES))
        return Path(path).read_text("utf-8", "replace")
    except OSError as problem:
        raise PathError(said("file-unreadable", path, reason_of(problem))) from problem


def read_verl(path: str) -> _Read:
    """The last configuration that verl has printed, notes, what was not read. Raises PathError, InvalidInputError."""
    text = _text(path)
    places = sorted(at.start() for start in _STARTS for at in re.finditer(re.escape(start), text))
    if not places:
        raise InvalidInputError(said("log-without-configuration", path))
    notes: list[str] = [said("configuration-printed-more-than-once", path, len(places))] if len(places) > 1 else []
    begin = places[-1]
    line = text.rfind("\n", 0, begin) + 1
    prefix = text[line:begin]
    block = _balanced(path, text, begin, prefix)
    try:
        settings = json.loads(block) if text.startswith(_STARTS[1], begin) else ast.literal_eval(block)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as problem:
        raise InvalidInputError(said("log-configuration-no-plain-dict", path)) from problem
    if not isinstance(settings, dict):
        raise InvalidInputError(said("log-configuration-no-dict", path))
    return settings, notes, []


def _balanced(path: str, text: str, begin: int, prefix: str) -> str:
    """From the first bracket to the one that closes it; every further line without the prefix that it begins with."""
    depth, quote, place = 0, "", begin
    pieces, start = [], begin
    while place < len(text):
        letter = text[place]
        if letter == "\n":
            pieces.append(text[start : place + 1])
            if prefix and text.startswith(prefix, place + 1):
                place += len(prefix)
            start = place + 1
        elif quote:
            if letter == "\\":
                place += 1
            elif letter == quote:
                quote = ""
        elif letter in "'\"":
            quote = letter
        elif letter in "{[(":
            depth += 1
            if depth > _MOST_DEPTH:
                raise InvalidInputError(said("log-configuration-too-deep", path))
        elif letter in "}])":
            depth -= 1
            if depth == 0:
                return "".join(pieces) + text[start : place + 1]
        place += 1
    raise InvalidInputError(said("log-brackets-open", path))


def read_slime(path: str) -> _Read:
    """The last list of arguments that slime has printed, notes, and what was not read.

    Raises PathError, InvalidInputError.
    """
    settings: dict[str, Any] | None = None
    current: dict[str, Any] | None = None
    for line in _text(path).splitlines():
        if "end of arguments" in line:
            settings, current = current or settings, None
        elif re.search(r"-{3,} *arguments *-{3,}", line):
            current = {}
        elif current is not None and (match := _LINE.match(_without_prefix(line))):
            current[match[1]] = _value(match[2].strip())
    if not settings:
        raise InvalidInputError(said("log-without-arguments", path))
    cut = [NotRead(said("last-argument-list", path), said("list-without-end"))]
    return settings, [], cut if current is not None else []


def _without_prefix(line: str) -> str:
    return re.sub(r"^\([^)]*\)", "", line)


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    return number_or_text(text)


def _write_json(path: str, tree: Any) -> None:
    write_atomically(path, json.dumps(tree, indent=4, ensure_ascii=False, default=str).encode())


def _write_csv(path: str, header: tuple[str, ...], rows: list[tuple[str, str, str, str]]) -> None:
    out = io.StringIO()
    writer = csv_cells.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_atomically(path, out.getvalue().encode("utf-8-sig"))
