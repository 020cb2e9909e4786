"""Tokens and log-probs of responses, read from what engines and trainers write.

JSON lines, JSON, csv and files of ``torch.save``, as verl, slime, TRL, NeMo-RL, vLLM and SGLang (or a line of the
user's own) write them: a row for each response, a row for each token, or padded tables of a batch. Names of fields
are a table (:data:`FIELDS`); nothing of a file is executed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from msprobe.environment.checkpoint.tensors import CheckpointTensor
from msprobe.environment.checkpoint.torch_files import read_torch
from msprobe.errors import InvalidInputError
from msprobe.foreign.budget import Budget
from msprobe.foreign.json_text import parse_json
from msprobe.foreign.opening import file_bytes
from msprobe.foreign.plain_numbers import is_number, number_or_text
from msprobe.messages import Wording, said
from msprobe.store.pickles import Opaque

Side = Literal["engine", "trainer"]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_ENGINE = (
    "rollout_log_probs",
    "rollout_logprobs",
    "sampling_per_token_logps",
    "sampling_logprobs",
    "generation_logprobs",
    "inference_logprobs",
    "vllm_logprobs",
    "output_token_logprobs",
)
_TRAINER = (
    "old_log_probs",
    "old_per_token_logps",
    "prev_logprobs",
    "train_log_probs",
    "trainer_log_probs",
    "actor_log_probs",
    "per_token_logps",
    "policy_logprobs",
)
_EITHER = ("log_probs", "logprobs", "logps", "token_logprobs", "log_prob", "logprob", "logp")
#: What a field holds -> the names it is known by, the most specific first.
FIELDS: dict[str, tuple[str, ...]] = {
    "tokens": (
        *("response_ids", "responses", "completion_ids", "output_token_ids", "completion_token_ids"),
        *("response_token_ids", "output_ids", "token_ids", "tokens", "token_id", "token"),
    ),
    "mask": ("response_mask", "completion_mask", "loss_mask", "loss_masks", "token_mask", "mask", "attention_mask"),
    "name": ("request_id", "uid", "sample_id", "sample_index", "sample_indices", "request", "index", "id"),
    "position": ("position", "pos", "step", "token_index"),
    "length": ("response_length", "response_lengths", "completion_length"),
    "logits": ("logits", "old_logits"),
    "router": ("routed_experts", "rollout_routed_experts", "router_ids", "expert_ids"),
    "weight_version": ("weight_version", "weight_versions", "policy_version", "model_version"),
}
_SETTINGS = ("temperature", "top_p", "top_k", "min_p")
_INNER = ("samples", "rollout_data", "batch", "data", "rows")
_MOST_NESTED = 4


@dataclass(frozen=True)
class Response:
    """What one side says of one response of n tokens; None for what it does not say.

    ``log_probs``: natural logarithms, float64, NaN where there is none. ``mask``: which tokens count. ``candidates``:
    for each token the dictionary of token -> log-prob that the engine gave, in its order. ``logits``: [n, vocabulary].
    ``router``: the experts chosen, [n, ...].
    """

    name: str
    log_probs: Floats
    tokens: Integers | None = None
    mask: Booleans | None = None
    candidates: tuple[dict[int, float], ...] = ()
    logits: Floats | None = None
    router: npt.NDArray[Any] | None = None
    weight_version: str = ""
    settings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Responses:
    """A file as it was read. ``field``: the one that log-probs were taken from; ``unread``: row -> why."""

    path: str
    field: str
    rows: tuple[Response, ...]
    unread: tuple[tuple[str, str], ...] = ()
    #: True where rows have names of their own; else they are numbered.
    is_named: bool = False


def read_responses(path: str, side: Side) -> Responses:
    """The responses of one file, from the point of view of ``side``: a file of both sides has fields for each.

    Raises PathError, and InvalidInputError with what was found where no log-probs are.
    """
    rows = [{_plain(key): value for key, value in row.items()} for row in _rows(path)]
    names = (*_ENGINE, *_EITHER, *_TRAINER) if side == "engine" else (*_TRAINER, *_EITHER, *_ENGINE)
    chosen = next((name for name in names if any(row.get(name) is not None for row in rows)), None)
    if chosen is None:
        keys = ", ".join(sorted({key for row in rows for key in row})[:20]) or "nothing"
        raise InvalidInputError(said("log-probs-missing", path, keys, ", ".join((*_ENGINE, *_TRAINER)[:4])))
    if all(is_number(row.get(chosen)) for row in rows if row.get(chosen) is not None):
        rows = _joined_tokens(rows, chosen)
    done: list[Response] = []
    unread: list[tuple[str, str]] = []
    for number, row in enumerate(rows):
        named = _value(row, "name")
        name = str(named) if isinstance(named, (str, int)) and not isinstance(named, bool) else str(number)
        try:
            done.append(_response(row, chosen, name))
        except InvalidInputError as problem:
            unread.append((said("response-named", name), problem.message))
        except (ValueError, TypeError, OverflowError) as problem:
            unread.append((said("response-named", name), str(problem)[:120]))
    if not done:
        why = Wording(": {}", unread[0][1]) if unread else ""
        raise InvalidInputError(said("responses-unreadable", path, chosen, why))
    texts = [_value(row, "name") for row in rows]
    is_named = len({str(unread) for unread in texts}) == len(texts) and None not in texts
    return Responses(path, chosen, tuple(done), tuple(unread), is_named)


def _plain(key: Any) -> str:
    return str(key).strip().lower().replace("-", "_").replace(" ", "_")


def _value(row: Mapping[str, Any], what: str) -> Any:
    return next((row[name] for name in FIELDS[what] if row.get(name) is not None), None)


# ---- files to rows


def _rows(path: str) -> list[dict[Any, Any]]:
    lower = path.lower()
    if lower.endswith((".pt", ".pth", ".bin", ".ckpt")):
        return list(_tree_rows(read_torch(path), path))
    budget = Budget(path)
    text = file_bytes(path, budget)
    if lower.endswith((".csv", ".tsv")):
        return _csv_rows(text, path, "\t" if lower.endswith(".tsv") else ",")
    if lower.endswith(".json"):
        return list(_tree_rows(parse_json(text, path, budget, spent=True), path))
    if not lower.endswith((".jsonl", ".ndjson", ".txt", ".log")):
        raise InvalidInputError(said("log-probs-file-unknown", path))
    rows: list[dict[Any, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            rows += _tree_rows(parse_json(line, f"{path}, line {number}", budget, spent=True), path)
    return rows


def _csv_rows(text: bytes, path: str, delimiter: str) -> list[dict[Any, Any]]:
    try:
        lines = list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline=""), delimiter=delimiter))
    except (csv.Error, UnicodeDecodeError) as problem:
        raise InvalidInputError(said("log-probs-csv-unreadable", path, problem)) from problem
    return [{key: _cell(cell, path) for key, cell in line.items() if key is not None} for line in lines]


def _cell(text: Any, path: str) -> Any:
    if not isinstance(text, str) or not text.strip():
        return None
    text = text.strip()
    if text[0] in "[{":
        return parse_json(text, path)
    return number_or_text(text)


def _tree_rows(tree: Any, path: str, depth: int = 0) -> Iterator[dict[Any, Any]]:
    """Rows of what a file holds: a row, a list of rows, one of both below a known name, or columns of a batch."""
    if isinstance(tree, Opaque):
        tree = tree.state if isinstance(tree.state, dict) else tree.items or tree.elements or tree
    if isinstance(tree, Opaque) or depth > _MOST_NESTED:
        what = tree.name.full if isinstance(tree, Opaque) else "a deeper tree"
        raise InvalidInputError(said("log-probs-tree-unknown", path, what))
    if isinstance(tree, (list, tuple)):
        for branch in tree:
            yield from _tree_rows(branch, path, depth + 1)
        return
    if not isinstance(tree, dict):
        raise InvalidInputError(said("log-probs-row-unknown", path, type(tree).__name__))
    inner = next((tree[name] for name in _INNER if isinstance(tree.get(name), (dict, list, tuple, Opaque))), None)
    known = {name for names in FIELDS.values() for name in names}.union(_ENGINE, _TRAINER, _EITHER)
    if inner is not None and not known & {_plain(key) for key in tree}:
        yield from _tree_rows(inner, path, depth + 1)
        return
    count = _batch(tree)
    if count is None:
        yield tree
        return
    columns = {key: _column(value, count) for key, value in tree.items()}
    for place in range(count):
        yield {key: column[place] if column is not None else tree[key] for key, column in columns.items()}


def _batch(tree: Mapping[Any, Any]) -> int | None:
    """How many responses a dict of columns has; None for a dict that is one response."""
    for key, value in tree.items():
        if _plain(key) not in (*_ENGINE, *_TRAINER, *_EITHER):
            continue
        if isinstance(value, CheckpointTensor):
            return value.shape[0] if len(value.shape) == 2 else None
        if isinstance(value, (list, tuple)) and value and all(_is_vector(item) for item in value):
            return len(value)
    return None


def _is_vector(value: Any) -> bool:
    if isinstance(value, CheckpointTensor):
        return len(value.shape) == 1
    # [log-prob, token, text] is what SGLang says of one token.
    return isinstance(value, (list, tuple)) and not (len(value) == 3 and isinstance(value[2], (str, type(None))))


def _column(value: Any, count: int) -> Any:
    if isinstance(value, CheckpointTensor):
        return value.read() if value.shape and value.shape[0] == count else None
    return value if isinstance(value, (list, tuple)) and len(value) == count else None


def _joined_tokens(rows: list[dict[str, Any]], chosen: str) -> list[dict[str, Any]]:
    """A row for each token as a row for each response, in the order of their positions."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(str(_value(row, "name")), []).append(row)
    done = []
    for name, rows_of_name in by_name.items():
        if all(is_number(_value(row, "position")) for row in rows_of_name):
            rows_of_name.sort(key=lambda row: float(_value(row, "position")))
        whole: dict[str, Any] = dict(rows_of_name[0])
        for what in ("tokens", "mask"):
            values = [_value(row, what) for row in rows_of_name]
            for key in FIELDS[what]:
                whole.pop(key, None)
            whole[FIELDS[what][0]] = values if None not in values else None
        whole[chosen] = [row.get(chosen) for row in rows_of_name]
        whole["request_id"] = name
        done.append(whole)
    return done


# ---- a row to a response


def _response(row: Mapping[str, Any], chosen: str, name: str) -> Response:
    values = _listed(row.get(chosen))
    if values is None:
        raise InvalidInputError(said("response-field-missing", chosen))
    tokens = _integers(_value(row, "tokens"))
    numbers, own, candidates = _log_probs(values, None if tokens is None else tokens[-len(values) :])
    count = len(numbers)
    if tokens is None or (own is not None and len(tokens) < count):
        tokens = own
    length = _value(row, "length")
    if isinstance(length, (int, np.integer)) and 0 < length < count and _value(row, "mask") is None:
        numbers, candidates = numbers[:length], candidates[:length]
        tokens, count = (None if tokens is None else tokens[: -(count - length) or None]), int(length)
    settings = dict(row)
    for key in ("sampling_params", "sampling", "generation_config"):
        if isinstance(row.get(key), dict):
            settings.update({_plain(name): value for name, value in row[key].items()})
    mask = _last(_listed(_value(row, "mask")), count)
    logits = _value(row, "logits")
    version = _value(row, "weight_version")
    return Response(
        name=name,
        log_probs=numbers,
        # Where prompt and response stand in one list, the response is its end.
        tokens=None if tokens is None or len(tokens) < count else tokens[len(tokens) - count :],
        mask=None if mask is None else np.asarray(mask, np.float64) > 0,
        candidates=candidates,
        logits=_table(logits, count),
        router=_last(_listed(_value(row, "router")), count),
        weight_version="" if version is None else str(version),
        settings={key: float(settings[key]) for key in _SETTINGS if is_number(settings.get(key))},
    )


def _listed(value: Any) -> Any:
    if isinstance(value, CheckpointTensor):
        value = value.read()
    if isinstance(value, np.ndarray):
        return value
    return value if isinstance(value, (list, tuple)) else None


def _last(values: Any, count: int) -> Any:
    if values is None or len(values) < count:
        return None
    return np.asarray(values[len(values) - count :])


def _table(values: Any, count: int) -> Floats | None:
    table = _last(_listed(values), count)
    return None if table is None or table.ndim != 2 else table.astype(np.float64)


def _integers(values: Any) -> Integers | None:
    values = _listed(values)
    if values is None or not len(values) or not all(isinstance(value, (int, np.integer)) for value in values):
        return None
    return np.asarray(values, np.int64)


def _log_probs(values: Any, tokens: Integers | None) -> tuple[Floats, Integers | None, tuple[dict[int, float], ...]]:
    """Numbers, the tokens that stand beside them, and whole dictionaries where those are given."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise InvalidInputError(said("log-probs-dimensions", values.ndim))
        return values.astype(np.float64), None, ()
    numbers: list[float] = []
    own: list[int] = []
    candidates: list[dict[int, float]] = []
    for place, value in enumerate(values):
        token = None if tokens is None or len(tokens) != len(values) else int(tokens[place])
        if value is None:
            numbers.append(float("nan"))
        elif is_number(value) or isinstance(value, np.number):
            numbers.append(float(value))
        elif isinstance(value, (list, tuple)) and len(value) >= 2 and is_number(value[0]):
            numbers.append(float(value[0]))
            own.append(int(value[1]))
        elif isinstance(value, dict) and is_number(value.get("logprob")):
            numbers.append(float(value["logprob"]))
            if is_number(value.get("token_id")):
                own.append(int(value["token_id"]))
        elif isinstance(value, dict) and value:
            entries = {
                int(key): float(candidate_value["logprob"] if isinstance(candidate_value, dict) else candidate_value)
                for key, candidate_value in value.items()
            }
            candidates.append(entries)
            numbers.append(entries.get(token, float("nan")) if token is not None else next(iter(entries.values())))
        else:
            raise InvalidInputError(said("no-log-prob", place, str(value)[:40]))
    whole = tuple(candidates) if len(candidates) == len(numbers) else ()
    return np.asarray(numbers), np.asarray(own, np.int64) if len(own) == len(numbers) and own else None, whole
