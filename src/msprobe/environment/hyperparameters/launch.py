"""The hyper-parameters of a command line: ``--name value``, ``--name=value``, ``--flag``, and ``name=value`` as Hydra
takes it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msprobe.environment.hyperparameters.shell.expansion import UNSET, plain
from msprobe.environment.hyperparameters.shell.script import Called, FollowedScript
from msprobe.messages import Wording, said

#: Programs that start trainings: what follows their script (or their name) are its arguments.
_LAUNCHERS = frozenset(
    "torchrun msrun deepspeed accelerate mpirun mpiexec srun horovodrun ray bash torch-launcher colossalai "
    "llamafactory-cli swift axolotl tune xtuner trl fairseq-train fairseq-hydra-train litgpt composer".split()
)
_LAUNCHER_MODULES = frozenset(
    ("launch", "torch.distributed.launch", "torch.distributed.run", "accelerate.commands.launch", "deepspeed.launcher")
)
_OF_PYTHON = frozenset({"-m", "-u", "--module", "-O", "-B"})
_WRAPPERS = frozenset({"srun", "mpirun", "mpiexec", "bash", "ray"})
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*$")
#: Everyday programs whose options are no hyper-parameters.
_EVERYDAY = frozenset(
    "echo printf cat cp mv rm mkdir ls cd find grep sed awk sort head tail wc tee date sleep wait kill trap "
    "ulimit export pip pip3 conda mamba apt apt-get yum git wget curl tar unzip docker podman ssh scp rsync chmod "
    "chown sudo nvidia-smi npu-smi ds_ssh sysctl module which hostname set test read exit "
    "return umask stdbuf sbatch scancel".split()
)
#: Of those the ones that start others: elsewhere, or as somebody else.
_CONTAINERS = frozenset({"docker", "podman", "ssh", "sudo"})
_PREPARES = re.compile(r"(?i)(preprocess|prepare|convert|download|export|merge|tokenize|evaluat|infer)\w*\.py")
#: Different values of one name that are kept: a loop may start as many trainings.
_MOST_VALUES = 1000
_MOST_NAME = 1000
_SCRIPT, _OPTION_BEHIND = re.compile(r"\.py\b"), re.compile(r"\s-")
_STARTED = re.compile(r"\s*(torchrun|msrun|python|deepspeed)\S*\s")
_OPTION = re.compile(r"--?[A-Za-z_+][\w.:+/-]*")
_HYDRA = re.compile(r"(\+{0,2}|~)([A-Za-z_][\w./@-]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_VARIABLE = re.compile(rf"{UNSET}\$\{{?\w+\}}?")
_ARGUMENT_LISTS = re.compile(r"(ARGS?|ARGUMENTS|OPTS?|OPTIONS?|PARAMS|FLAGS?|CMD|CONFIGS?|EXTRA\w*)$", re.IGNORECASE)
_SETTINGS = (".json", ".yaml", ".yml", ".toml")
#: Variables that a script exports and that change numbers or speed: they count as ``env.NAME``.
_EXPORTED = re.compile(
    r"(CUDA_|CUBLAS_|CUDNN_|NCCL_|TORCH_|PYTORCH_|NVTE_|HCCL_|ASCEND_|ACL|ATB_|LCCL_|MS_|MINDSPORE_|OMP_|MKL_|HIP_|RCCL_|HSA_|"
    r"VLLM_|TASK_QUEUE_ENABLE$|COMBINED_ENABLE$|CPU_AFFINITY_CONF$|NVIDIA_TF32_OVERRIDE$|PYTHONHASHSEED$|FLASH_ATTENTION_|"
    r"TOKENIZERS_PARALLELISM$)"
)


def hyperparameters(
    followed: FollowedScript, path: str, given: Sequence[str] = ()
) -> tuple[dict[str, list[Any]], list[str]]:
    """What the trainings that a script starts are given: name -> each value it has, and notes for people.

    ``given`` are the other files that are read.
    """
    read = {os.path.basename(name) for name in given}
    notes = list(followed.notes)
    trainings = _trainings(followed.called)
    by_name: dict[str, list[Any]] = {}
    for called, (launcher, own) in trainings:
        values = {**_options(launcher, most=1), **_options(own)}
        for name, value in values.items():
            known = by_name.setdefault(name, [])
            if len(known) < _MOST_VALUES and value not in known:
                known.append(value)
        notes += _files_named(called, values, own, read)
    if not trainings:
        notes.append(said("no-training-command"))
    for name, text in followed.exported.items():
        if _EXPORTED.match(name):
            by_name[f"env.{name}"] = [text]
    return by_name, [Wording("{}: {}", os.path.basename(path), note) for note in dict.fromkeys(notes)]


def _trainings(called: Iterable[Called]) -> list[tuple[Called, tuple[list[str], list[str]]]]:
    """The commands that start a training; of several kinds the likeliest: launched over devices, Python, anything."""
    by_kind: dict[int, list[tuple[Called, tuple[list[str], list[str]]]]] = {}
    for call in called:
        kind, parts = _parts(_unwrapped(list(call.words)))
        if kind and any(_is_option(word) or _HYDRA.fullmatch(word) for part in parts for word in part):
            by_kind.setdefault(kind, []).append((call, parts))
    likely = by_kind[min(by_kind)] if by_kind else []
    return [
        called
        for called in likely
        if not _PREPARES.search(" ".join(word[-_MOST_NAME:] for word in called[0].words[:6]))
    ] or likely


def _unwrapped(words: list[str]) -> list[str]:
    """The words, where one of them is a whole command line (``srun sh -c "python ..."``) those of it."""
    for place, word in enumerate(words):
        if " " in word and place and _is_command_line(word):
            try:
                inner = shlex.split(word)
            except ValueError:
                continue
            return [*words[:place], *inner]
    return words


def _is_command_line(text: str) -> bool:
    lines = ((line, _SCRIPT.search(line)) for line in text.split("\n"))
    with_options = any(match and _OPTION_BEHIND.search(line, match.end()) for line, match in lines)
    return with_options or _STARTED.match(text) is not None


def _parts(words: list[str]) -> tuple[int, tuple[list[str], list[str]]]:
    """Of what kind a command is (0: no training), the words of its launcher and those of the training's script."""
    names = [os.path.basename(plain(word)) for word in words]
    begin = next((at for at, name in enumerate(names) if name in _LAUNCHERS or _PYTHON.fullmatch(name)), None)
    script = _script(words, begin or 0)
    if begin is None and script is None:
        if not words or names[0] in _EVERYDAY or UNSET + "@" in words[0]:
            return 0, ([], [])
        return 3, ([], words[1:])
    if names[0] in _EVERYDAY - _CONTAINERS:
        return 0, ([], [])
    first = script if begin is None else begin
    if script is None:
        # A launcher without a script that can be recognised: all that follows the last are options.
        last = max(at for at, name in enumerate(names) if name in _LAUNCHERS or _PYTHON.fullmatch(name))
        return (2 if _PYTHON.fullmatch(names[last]) else 1), ([], words[last + 1 :])
    launchers = [at for at in range(first or 0, script) if names[at] in _LAUNCHERS]
    is_module = "torch.distributed.launch" in words[first or 0 : script + 1] or "torch.distributed.run" in words
    kind = 1 if launchers or is_module else 2
    # The options of srun and its like say where to run, those of the other launchers how.
    starts = [at for at in launchers if names[at] not in _WRAPPERS]
    if is_module:
        starts += [at for at in range(first or 0, script) if _PYTHON.fullmatch(names[at])]
    launcher = words[max(starts) + 1 : script] if starts else []
    return kind, (_without_module(launcher), words[script + 1 :])


def _script(words: Sequence[str], begin: int) -> int | None:
    """The place of the training's script: the first ``*.py``, or the name behind ``-m`` that is no launcher."""
    for at in range(begin, len(words)):
        word = plain(words[at])
        if word.endswith(".py") and not word.startswith("-") and not words[at - 1].startswith("--config"):
            return at
        before = words[at - 1] if at else ""
        if before in ("-m", "--module") and not word.startswith("-") and word not in _LAUNCHER_MODULES:
            return at
    return None


def _without_module(words: list[str]) -> list[str]:
    return [word for word in words if word not in _OF_PYTHON and word not in _LAUNCHER_MODULES]


def _is_option(word: str) -> bool:
    name = word.partition("=")[0]
    return word.startswith("-") and bool(_OPTION.fullmatch(name)) and not _NUMBER.fullmatch(word)


def _options(words: Sequence[str], most: int | None = None) -> dict[str, Any]:
    """Options and their values: texts, lists of them where several follow a name, True where none does.

    ``most``: how many values one option may have. Of options that come twice the last counts, as for argparse.
    """
    options: dict[str, Any] = {}
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not _is_option(word):
            match = _HYDRA.fullmatch(word)
            if match and match[1] != "~":
                options[match[2]] = _clean(match[3])
            continue
        name, sign, value = word.lstrip("-").partition("=")
        if sign:
            options[plain(name)] = _clean(value)
            continue
        values: list[str] = []
        while place < len(words) and not _is_option(words[place]) and words[place] != "--":
            following = words[place]
            if (most is not None and len(values) >= most) or (_HYDRA.fullmatch(following) and values):
                break
            place += 1
            # A variable from outside behind a value stands for further options.
            if not _is_list_of_arguments(following) and not (values and _VARIABLE.fullmatch(following)):
                values.append(_clean(following))
        options[plain(name)] = True if not values else values[0] if len(values) == 1 else values
    return options


def _is_list_of_arguments(word: str) -> bool:
    """True for ``$EXTRA_ARGS`` that the script never sets: it stands for further options, or for none."""
    return (
        word.startswith(UNSET)
        and len(word) < _MOST_NAME
        and bool(_ARGUMENT_LISTS.search(word.strip(UNSET + '${}"[@]')))
    )


def _clean(text: str) -> str:
    text = plain(text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" and text[0] not in text[1:-1]:
        return text[1:-1]
    return text


def _files_named(called: Called, values: dict[str, Any], own: Sequence[str], read: Collection[str]) -> list[str]:
    """Notes of settings files that the command names, where what they hold is not read."""
    texts = [value for value in values.values() if isinstance(value, str)] + [
        word for word in own if not _is_option(word)
    ]
    files = dict.fromkeys(plain(text) for text in texts if text.endswith(_SETTINGS) and not _HYDRA.fullmatch(text))
    return [said("give-named-file", called.line, name) for name in files if os.path.basename(name) not in read]
