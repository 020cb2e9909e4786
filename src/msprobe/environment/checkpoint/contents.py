"""What a checkpoint holds, whatever its format: weights, optimizer state, random states, and facts about the
training.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from msprobe.environment.checkpoint.tensors import CheckpointTensor, held
from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign import file_names
from msprobe.foreign.budget import factor
from msprobe.foreign.opening import open_regular
from msprobe.messages import said
from msprobe.store.pickles import Name, Opaque

Section = Literal["weights", "optimizer", "random", "other"]
SECTIONS: tuple[Section, ...] = ("weights", "optimizer", "random", "other")
_MODEL_KEYS = ("model", "state_dict", "module", "model_state_dict", "network", "net", "weights")
_MODULE_TABLES = {"_parameters", "_buffers", "_modules"}
_MOST_DEPTH = 60
_MOST_VALUES = 4_000_000
_MOST_MET_AGAIN = 400_000
_MOST_LETTERS = 1 << 28
_MOST_LETTERS_OF_A_KEY = 1000
_MANY_NUMBERS = 8
_MOST_OPTIMIZERS = 64
_MOST_SMALL_FILE = 16 << 20


@dataclass
class Checkpoint:
    """A checkpoint that was opened; no tensor of it is read yet.

    ``other``: what is neither weights nor optimizer nor random state (averages, a second model), under the key that
    holds it. ``iteration``: which step of the training wrote it, where it says so. ``settings``: facts that layouts
    and names depend on (``num_attention_heads``, ``swiglu``, ...). ``facts``: other single values, as text.
    ``notes``: for people. ``unread``: what it holds and nobody can read, with the reason.
    """

    path: str
    format: str
    weights: dict[str, CheckpointTensor] = field(default_factory=dict)
    optimizer: dict[str, CheckpointTensor] = field(default_factory=dict)
    random: dict[str, CheckpointTensor] = field(default_factory=dict)
    other: dict[str, CheckpointTensor] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    iteration: int | None = None
    notes: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    #: State of a parameter -> what it is called by number, where the file numbers its parameters.
    numbers: dict[str, str] = field(default_factory=dict)

    def section(self, name: Section) -> dict[str, CheckpointTensor]:
        """The tensors of one section."""
        section: dict[str, CheckpointTensor] = getattr(self, name)
        return section


class Walk:
    """What walking through trees of one checkpoint has cost. One object may stand in many places of a tree, which a
    file says in two bytes each: what is met again counts, and what names of all leaves have in letters.

    Raises InvalidInputError for what is nested too deep, in itself, or has too many values.
    """

    def __init__(self) -> None:
        self._values = self._again = self._letters = 0
        self._met: dict[int, Any] = {}
        many = factor()
        self._most = int(_MOST_VALUES * many), int(_MOST_MET_AGAIN * many), int(_MOST_LETTERS * many)

    def count(self, name: str, value: Any, depth: int) -> None:
        """Count a value, and of a container its items."""
        self._values += 1
        self._letters += len(name)
        if isinstance(value, (dict, list, tuple)) and len(value) > 1:
            if id(value) in self._met:
                self._again += len(value)
            self._met[id(value)] = value  # held, so that no other gets its number
        values, again, letters = self._most
        if depth > _MOST_DEPTH or self._values > values or self._again > again or self._letters > letters:
            raise InvalidInputError(said("checkpoint-entry-too-deep", name[:80]))


def leaves(tree: Any, prefix: str = "", walk: Walk | None = None) -> Iterator[tuple[str, Any]]:
    """What a tree of dicts and lists holds, with dotted names; a list of numbers is one array.

    ``walk`` counts for several trees of one file. Raises InvalidInputError for a tree that is nested too deep, in
    itself, or has too many values.
    """
    todo: list[tuple[str, Any, int]] = [(prefix, tree, 0)]
    walk = Walk() if walk is None else walk
    while todo:
        name, value, depth = todo.pop()
        if isinstance(value, Opaque):
            value = _content(value)
        walk.count(name, value, depth)
        if isinstance(value, dict) and value.keys() >= _MODULE_TABLES:
            value = _module_state(value)
        if isinstance(value, dict):
            inner: list[tuple[Any, Any]] = list(value.items())
        elif isinstance(value, (list, tuple)):
            if len(value) > _MANY_NUMBERS and all(isinstance(element, (int, float)) for element in value):
                yield (
                    name,
                    np.array(value, np.float64 if any(isinstance(element, float) for element in value) else object),
                )
                continue
            inner = list(enumerate(value))
        else:
            yield name, value
            continue
        for key, inner_value in reversed(inner):
            todo.append((f"{name}.{_word(key)}" if name else _word(key), inner_value, depth + 1))


def _content(value: Opaque) -> Any:
    """What an object of an unknown class holds; itself where that is nothing.

    A tensor of a form of its own (sparse, of a subclass) is described by the tensors that it was called with.
    """
    if isinstance(value.state, (dict, list)):
        held: Any = value.state
    else:
        held = value.items or value.elements or None
    if any(isinstance(argument, CheckpointTensor) for argument in _flat(value.arguments)):
        return {"arguments": value.arguments, **({"state": held} if held is not None else {})}
    return value if held is None else held


def _flat(arguments: Any) -> Iterator[Any]:
    for argument in arguments if isinstance(arguments, (tuple, list)) else ():
        if isinstance(argument, (tuple, list)):
            yield from argument
        else:
            yield argument


def _module_state(state: dict[Any, Any]) -> dict[Any, Any]:
    """What a ``torch.nn.Module`` that was saved whole has in its ``state_dict``, with the same names."""
    left_out = state.get("_non_persistent_buffers_set")
    names = left_out if isinstance(left_out, set) else set()
    tables = [state[name] for name in ("_parameters", "_buffers", "_modules")]
    by_key = {key: entry for table in tables for key, entry in _entries(table).items() if entry is not None}
    return {key: entry for key, entry in by_key.items() if key not in names}


def _entries(table: Any) -> dict[Any, Any]:
    if isinstance(table, Opaque):
        table = table.items or table.state
    return table if isinstance(table, dict) else {}


def _word(key: Any) -> str:
    word = key.full if isinstance(key, Name) else str(key)
    if len(word) > _MOST_LETTERS_OF_A_KEY:
        raise InvalidInputError(said("checkpoint-name-too-long", word[:80], len(word)))
    return word


def put(
    into: dict[str, CheckpointTensor], facts: dict[str, str], tree: Any, prefix: str = "", walk: Walk | None = None
) -> None:
    """The leaves of a tree: numbers and tensors to ``into``, texts to ``facts``."""
    for name, value in leaves(tree, prefix, walk):
        tensor = as_tensor(value)
        if tensor is not None:
            into[name] = tensor
        elif isinstance(value, str):
            facts[name] = value[:200]


def as_tensor(value: Any) -> CheckpointTensor | None:
    """Numbers as a tensor; None for what has none."""
    if isinstance(value, CheckpointTensor):
        return value
    if isinstance(value, (bool, float)):
        return held(np.array(value))
    if isinstance(value, int):
        return held(np.array(value if abs(value) < 1 << 63 else float("inf")))
    if isinstance(value, bytes):
        return held(np.frombuffer(value, np.uint8)) if value else None
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            value = np.array([int(element) % (1 << 64) for element in value.tolist()], np.uint64)
        return held(value)
    return None


def from_tree(checkpoint: Checkpoint, tree: Any) -> None:
    """Sort what one file of a training holds into the sections of ``checkpoint``: by what is in it, then by its name.

    Raises InvalidInputError where there is no tensor in it.
    """
    if isinstance(tree, Opaque) and isinstance(tree.state, dict):
        tree = tree.state
    if isinstance(tree, dict) and tree.keys() >= _MODULE_TABLES:
        tree = {"model": tree}
    if not isinstance(tree, dict):
        tree = {"tensor": tree} if isinstance(tree, CheckpointTensor) else {"list": tree}
    rest: dict[Any, Any] = dict(tree)
    looked, walk = Walk(), Walk()
    called = {_word(key).lower(): key for key in reversed(rest)}
    model = next(
        (
            called[word]
            for word in _MODEL_KEYS
            if word in called
            and isinstance(rest[called[word]], (dict, Opaque))
            and _has_tensor(rest[called[word]], looked)
        ),
        None,
    )
    if model is not None:
        put(checkpoint.weights, checkpoint.facts, rest.pop(model), walk=walk)
    optimizers = [key for key, value in rest.items() if is_optimizer_state(value)]
    for key, value in rest.items():
        word = _word(key)
        place = place_of(word, value, model is not None, looked)
        if key in optimizers:
            # One optimizer has one name, whatever the program calls it.
            word, place = ("optimizer" if len(optimizers) == 1 and "optim" not in word.lower() else word), "optimizer"
        if place == "fact":
            _fact(checkpoint, word, value, walk)
        else:
            put(checkpoint.section(place), checkpoint.facts, value, word, walk)
    if not (checkpoint.weights or checkpoint.optimizer or checkpoint.random):
        raise InvalidInputError(said("checkpoint-holds-no-tensor", checkpoint.path))


def place_of(word: str, value: Any, has_model: bool, walk: Walk) -> Section | Literal["fact"]:
    """Where one entry of a checkpoint goes, by what it holds and what it is called."""
    if isinstance(value, CheckpointTensor) and not has_model:
        return "weights"
    named = "optimizer" if _is_scaler(value) else section_of(word)
    kinds = [leaf for _, leaf in leaves(value, "", walk)]
    tensors = [leaf for leaf in kinds if isinstance(leaf, CheckpointTensor)]
    if named == "optimizer" or (named == "random" and not any(_is_float(tensor) for tensor in tensors)):
        return named
    if tensors:
        return "other" if has_model else "weights"
    if named == "weights" and not has_model:
        return "weights"
    numbers = isinstance(value, (dict, list, tuple)) and any(isinstance(leaf, (int, float)) for leaf in kinds)
    return "other" if has_model and numbers and not any(isinstance(leaf, (str, Opaque)) for leaf in kinds) else "fact"


def _is_float(tensor: CheckpointTensor) -> bool:
    return tensor.dtype.startswith(("float", "bfloat"))


def is_optimizer_state(value: Any) -> bool:
    """True for the state of an optimizer, and for several of them: ``state`` beside ``param_groups``."""
    if isinstance(value, Opaque):
        value = _content(value)
    if isinstance(value, dict) and {"state", "param_groups"} <= {key for key in value if isinstance(key, str)}:
        return True
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    return 0 < len(inner) <= _MOST_OPTIMIZERS and all(
        isinstance(inner_value, dict)
        and {"state", "param_groups"} <= {key for key in inner_value if isinstance(key, str)}
        for inner_value in inner
    )


def _is_scaler(value: Any) -> bool:
    """True for the state of a gradient scaler, whatever it is called."""
    return isinstance(value, dict) and {"scale", "_growth_tracker"} <= {key for key in value if isinstance(key, str)}


def section_of(key: str) -> Section | Literal["fact"]:
    """``weights``, ``optimizer``, ``random`` or ``fact``, by what a key of a checkpoint is called."""
    word = key.lower()
    if "rng" in word or "random" in word or "generator" in word:
        return "random"
    if any(part in word for part in ("optim", "sched", "scaler")) or word == "ema_state":
        return "optimizer"
    if word in _MODEL_KEYS or word.startswith("model"):
        return "weights"
    return "fact"


def _has_tensor(tree: Any, walk: Walk) -> bool:
    return any(isinstance(value, CheckpointTensor) for _, value in leaves(tree, "", walk))


def _fact(checkpoint: Checkpoint, key: str, value: Any, walk: Walk) -> None:
    if key in ("iteration", "global_step", "global_steps", "step") and type(value) is int:
        checkpoint.iteration = value
    for name, leaf in leaves(value, key, walk):
        if isinstance(leaf, (str, int, float)) and len(checkpoint.facts) < 10_000:
            checkpoint.facts[name] = str(leaf)[:200]


def settings_of(args: Any) -> dict[str, Any]:
    """The single values of a namespace of arguments."""
    state = args.state if isinstance(args, Opaque) else args
    if not isinstance(state, dict):
        return {}
    return {str(key): value for key, value in state.items() if isinstance(value, (str, int, float, bool, type(None)))}


def small_file(path: str) -> bytes:
    """All of a file of settings. Raises PathError, and InvalidInputError for one that is too large."""
    try:
        with open_regular(path) as file:
            data = file.read(_MOST_SMALL_FILE + 1)
    except OSError as problem:
        raise PathError(said("file-unreadable", path, reason_of(problem))) from problem
    if len(data) > _MOST_SMALL_FILE:
        raise InvalidInputError(said("settings-file-too-large", path, _MOST_SMALL_FILE))
    return data


def inside(folder: str, name: object, named_by: str) -> str:
    """The path of a file that a checkpoint names, which must lie in the folder of the checkpoint.

    Raises InvalidInputError for one that leads out of it, PathError for one that is missing.
    """
    cache = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(folder))), "blobs")
    # A cache of downloads has snapshots/NAME beside blobs, and links to them.
    is_of_cache = os.path.basename(os.path.dirname(os.path.abspath(folder))) == "snapshots"
    path = file_names.inside(folder, name, named_by, (cache,) if is_of_cache else ())
    if not os.path.isfile(path):
        raise PathError(said("named-file-missing", path, named_by))
    return path
