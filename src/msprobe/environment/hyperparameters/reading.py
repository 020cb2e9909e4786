"""Hyper-parameters of files and folders, whatever wrote them: one row of names and values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msprobe import log
from msprobe.environment import rl_logs
from msprobe.environment.checkpoint.contents import small_file
from msprobe.environment.checkpoint.torch_files import read_torch
from msprobe.environment.hyperparameters import hydra, settings_files
from msprobe.environment.hyperparameters.launch import hyperparameters
from msprobe.environment.hyperparameters.shell.script import follow
from msprobe.environment.hyperparameters.trees import flat, tree_from_pickle
from msprobe.environment.hyperparameters.values import is_same
from msprobe.errors import InvalidInputError, MsprobeError, PathError
from msprobe.messages import joined, said
from msprobe.store.pickles import Opaque

#: Under these names programs keep their arguments in files of ``torch.save``.
_ARGUMENTS = ("args", "hyper_parameters", "hparams", "config", "cfg", "arguments")
_MOST_SCRIPT_BYTES = 1 << 20
_RANK_FOLDER = re.compile(r"mp_rank_\d+(_\d+)*$")
_RANK_FILES = ("model_optim_rng.pt", "model_rng.pt")


class UnknownSourceError(InvalidInputError, ValueError):
    """A file of this kind is no source of hyper-parameters."""


class NotAListError(InvalidInputError, TypeError):
    """Paths are given as a list."""


@dataclass
class Sources:
    """What was read: the hyper-parameters, the files they came from, and notes of what was left out."""

    values: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read(paths: Sequence[str | os.PathLike[str]]) -> dict[str, Any]:
    """The hyper-parameters of files and folders: name -> text, number, truth, None, or a list of those.

    Values of scripts are texts, and True for an option without one; those of settings files keep their type. A name
    that has several values in all is ``{"description": "duplicate_value", "values": [...]}``. A missing file is
    reported in the log and left out; so is what a script does not say without being run.

    Raises NotAListError, UnknownSourceError, and InvalidInputError with all that is wrong with the files.
    """
    sources = read_sources(paths)
    for note in sources.notes:
        log.warning(f"hyper-parameters: {note}.")
    return sources.values


def read_sources(paths: Sequence[str | os.PathLike[str]]) -> Sources:
    """The same, with the notes; nothing is logged."""
    given = check_sources(paths)
    sources = Sources()
    values: dict[str, list[Any]] = {}
    problems: list[MsprobeError] = []
    for path in given:
        if not os.path.exists(path):
            sources.notes.append(said("source-does-not-exist", path))
            continue
        try:
            settings, notes = _folder(path) if os.path.isdir(path) else _file(path, given)
        except (InvalidInputError, PathError) as problem:
            problems.append(problem)
            continue
        sources.files.append(path)
        sources.notes += notes
        for name, several in settings.items():
            _add(values.setdefault(name, []), several)
    if problems:
        raise type(problems[0])(joined(" ", (problem.message for problem in problems))) from problems[0]
    sources.values = {name: _value(several) for name, several in values.items()}
    return sources


def check_sources(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The paths, if all can be sources. Raises NotAListError, UnknownSourceError with all that are of no known kind."""
    if not isinstance(paths, (list, tuple)) or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise NotAListError(said("sources-are-no-list", paths))
    given = [os.fspath(path) for path in paths]
    unknown = [path for path in given if _ending(path) not in _READERS and not os.path.isdir(path)]
    if unknown:
        quoted = ", ".join(f'"{path}"' for path in unknown)
        raise UnknownSourceError(said("source-unknown", quoted, joined(" ", _READERS)))
    return given


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _add(known: list[Any], several: list[Any]) -> None:
    for value in several:
        if not any(is_same(value, known_value) for known_value in known):
            known.append(value)


def _value(several: list[Any]) -> Any:
    return several[0] if len(several) == 1 else {"description": "duplicate_value", "values": several}


Read = tuple[dict[str, list[Any]], list[str]]


def _file(path: str, given: Sequence[str] = ()) -> Read:
    reader = _READERS[_ending(path)]
    return _script(path, given) if reader is _script else reader(path)


def _script(path: str, given: Sequence[str] = ()) -> Read:
    """The arguments of the trainings that a script starts; files of ``given`` that it names are read anyway."""
    data = small_file(path)
    if len(data) > _MOST_SCRIPT_BYTES:
        raise InvalidInputError(said("script-too-large", path, _MOST_SCRIPT_BYTES))
    text = data.decode("utf-8", "replace")
    return hyperparameters(follow(text, path), path, given)


def _tree(read_tree: Callable[[str], dict[Any, Any]]) -> Callable[[str], Read]:
    return lambda path: (_listed(flat(read_tree(path), path)), [])


def _listed(values: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [value] for name, value in values.items()}


def _yaml(path: str) -> Read:
    tree, notes = settings_files.read_yaml(path), list[str]()
    if isinstance(tree.get("defaults"), list):
        tree, notes = hydra.compose(path)
    return _listed(flat(tree, path)), notes


def _log(path: str) -> Read:
    """The arguments that Megatron (and slime) or verl print when they begin."""
    problems = []
    for reader in (rl_logs.read_slime, rl_logs.read_verl):
        try:
            settings, notes, missing = reader(path)
            return _listed(flat(settings, path)), [*notes, *map(str, missing)]
        except InvalidInputError as problem:
            problems.append(problem)
    raise InvalidInputError(joined(" ", (problem.message for problem in problems))) from problems[0]


def _saved(path: str) -> Read:
    """The arguments in a file of ``torch.save``: a checkpoint's, or a ``training_args.bin``; it is read as data."""
    tree = read_torch(path)
    if isinstance(tree, dict):
        name = next((key for key in _ARGUMENTS if isinstance(tree.get(key), (dict, Opaque))), None)
        tree = tree.get(name) if name else None
    tree_found = tree_from_pickle(tree)
    if not isinstance(tree_found, dict) or not tree_found:
        raise InvalidInputError(said("no-training-arguments", path, ", ".join(_ARGUMENTS)))
    public = {name: value for name, value in tree_found.items() if not name.startswith("_")}
    return _listed(flat(public, path)), []


def _folder(path: str) -> Read:
    files = [os.path.join(path, name) for name in ("training_args.bin", "trainer_state.json")]
    there = [file for file in files if os.path.isfile(file)][:1]
    candidates = (os.path.join(path, ".hydra", "config.yaml"), os.path.join(path, "config.yaml"))
    there = there or [file for file in candidates if os.path.isfile(file)][:1]
    there = there or _rank_file(path)
    if not there:
        raise InvalidInputError(said("folder-without-settings", path, said("known-sources-in-folder")))
    return _file(there[0])


def _rank_file(path: str) -> list[str]:
    """The file of one rank, of which all have the same arguments."""
    tracker = os.path.join(path, "latest_checkpointed_iteration.txt")
    if os.path.isfile(tracker):
        text = small_file(tracker).decode("utf-8", "replace").strip()
        path = os.path.join(path, f"iter_{int(text):07d}" if text.isdecimal() and len(text) < 12 else "release")
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    ranks = [os.path.join(path, name, file) for name in names if _RANK_FOLDER.match(name) for file in _RANK_FILES]
    return [file for file in [*ranks, os.path.join(path, "common.pt")] if os.path.isfile(file)][:1]


_READERS: dict[str, Callable[[str], Read]] = {
    ".sh": _script,
    ".bash": _script,
    ".slurm": _script,
    ".sbatch": _script,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": _tree(settings_files.read_json),
    ".toml": _tree(settings_files.read_toml),
    ".ini": _tree(settings_files.read_ini),
    ".cfg": _tree(settings_files.read_ini),
    ".py": _tree(settings_files.read_python),
    ".log": _log,
    ".txt": _log,
    ".bin": _saved,
    ".pt": _saved,
    ".pth": _saved,
    ".ckpt": _saved,
}
