"""States of optimizers under the names of their parameters: ``layers.0.weight.exp_avg``, in whatever format.

torch numbers parameters in the order of its groups; torch's distributed checkpoints and Megatron's name them, each in a
way of its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Any

from msprobe.environment.checkpoint.contents import Checkpoint
from msprobe.environment.checkpoint.copies import copies, place_in_file
from msprobe.environment.checkpoint.tensors import CheckpointTensor, HeldTensor, Replicas
from msprobe.messages import said

Groups = dict[int, tuple[list[int], list[str]]]
#: What a float32 copy of a parameter is called.
MASTER = "master"
_STATE = re.compile(r"(?P<before>(?:.*?\.)??)state\.(?P<rest>.+)")
_MASTERS = re.compile(r"(?P<before>(?:.*?\.)??)(?:fp32_from_fp16_params|fp32_from_fp16|fp32_groups)\.(\d+)\.(\d+)")
_GROUP = re.compile(r"(?P<before>(?:.*?\.)??)param_groups\.(\d+)\.(?P<key>params|param_names)(?:\.(\d+))?")
_NUMBERED = re.compile(r"(\d+)\.(.+)")
_LEADING = re.compile(r"^(?:(?:optimizer|optim|optimizer_state_dict)\.)+(?=(?:.*\.)?(?:param_groups|state)\.)")
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked", "inv_freq", "position_ids", "_extra_state")
_NORM = re.compile(r"(^|[._])(ln|norm|layernorm|layer_norm|rmsnorm|bn)([._\d]|$)|norm\.|_norm|norm_")
_WORDS = {"param": MASTER, "fp32_param": MASTER, "master_param": MASTER}
_OF_SEVERAL = re.compile(r"(?:chained_)?(\d{1,6})\.(?:optimizer\.)?param_groups\.(\d{1,6})\.(.+)")
_A_GROUP = re.compile(r"param_groups\.(\d+)\.")
_STEP_OF_GROUP = re.compile(r"(?:\d+\.)?(?:param_groups\.\d+\.step|state\.common_step)|step(?:\.\d+)?")


def name_states(
    checkpoint: Checkpoint, parameter_name: Callable[[str], str] = str, buffers: Collection[str] = ()
) -> None:
    """Rename what ``found.optimizer`` holds; what belongs to no parameter loses the words before ``param_groups``.

    ``parameter_name`` makes the name of a weight of the name that the optimizer has for it. ``buffers``: weights that
    no optimizer has.
    """
    weights = {name: tensor for name, tensor in checkpoint.weights.items() if name not in buffers}
    checkpoint.optimizer, rest = by_parameter(
        checkpoint.optimizer, checkpoint.facts, weights, parameter_name, checkpoint.numbers
    )
    checkpoint.optimizer.update(in_one_row({plain_name(name): tensor for name, tensor in rest.items()}))


def by_parameter(
    states: dict[str, CheckpointTensor],
    facts: dict[str, str],
    weights: dict[str, CheckpointTensor],
    parameter_name: Callable[[str], str] = str,
    numbers: dict[str, str] | None = None,
) -> tuple[dict[str, CheckpointTensor], dict[str, CheckpointTensor]]:
    """(states by ``parameter.moment``, the other ``states`` under their own names).

    ``numbers`` gets what states were called by number.
    """
    numbers = {} if numbers is None else numbers
    named: dict[str, CheckpointTensor] = {}
    rest: dict[str, CheckpointTensor] = {}
    numbered: dict[str, dict[int, dict[str, CheckpointTensor]]] = defaultdict(lambda: defaultdict(dict))
    for name, tensor in states.items():
        match = _STATE.fullmatch(name)
        subject = match and _subject(match["rest"], weights, parameter_name)
        if match and subject:
            named[subject] = tensor
        elif match and (at := _NUMBERED.fullmatch(match["rest"])) and len(at[1]) < 10:
            numbered[match["before"]][int(at[1])][at[2]] = tensor
        else:
            rest[name] = tensor
    groups = _groups(states, facts)
    for before, subjects in numbered.items():
        names = _names(groups.get(before, {}), subjects, weights)
        for number, moments in subjects.items():
            for moment, tensor in moments.items():
                by_number = f"{before}state.{number}.{moment}"
                if number in names:
                    name = f"{names[number]}.{_WORDS.get(moment, moment)}"
                    named[name], numbers[name] = tensor, plain_name(by_number)
                else:
                    rest[by_number] = tensor
        if names:
            _masters(rest, named, before, groups[before], names)
            for name in [name for name in rest if (match := _GROUP.fullmatch(name)) and match["before"] == before]:
                del rest[name]
    return named, rest


def plain_name(name: str) -> str:
    """A setting of the optimizer without the words before it."""
    return _LEADING.sub("", name)


def in_one_row(states: dict[str, CheckpointTensor]) -> dict[str, CheckpointTensor]:
    """Groups of several optimizers (one for experts) numbered as those of one."""
    matches = {name: match for name in states if (match := _OF_SEVERAL.fullmatch(name))}
    groups = sorted({(int(match[1]), int(match[2])) for match in matches.values()})
    return {
        f"param_groups.{groups.index((int(match[1]), int(match[2])))}.{match[3]}"
        if (match := matches.get(name))
        else name: tensor
        for name, tensor in states.items()
    }


def _subject(rest: str, weights: dict[str, CheckpointTensor], parameter_name: Callable[[str], str]) -> str | None:
    """``parameter.moment`` of ``parameter.moment`` or ``moment.parameter``, where the parameter is known."""
    stem, _, moment = rest.rpartition(".")
    if parameter_name(stem) in weights:
        return f"{parameter_name(stem)}.{_WORDS.get(moment, moment)}"
    moment, _, stem = rest.partition(".")
    if parameter_name(stem) in weights:
        return f"{parameter_name(stem)}.{_WORDS.get(moment, moment)}"
    return None


def _groups(states: dict[str, CheckpointTensor], facts: dict[str, str]) -> dict[str, Groups]:
    """Words before ``param_groups`` -> group -> (numbers of its parameters, their names if they are given)."""
    groups: dict[str, Groups] = defaultdict(lambda: defaultdict(lambda: ([], [])))
    for name, tensor in states.items():
        match = _GROUP.fullmatch(name)
        if match and match["key"] == "params" and isinstance(tensor, HeldTensor):
            groups[match["before"]][int(match[2])][0].extend(
                int(number) for number in tensor.values.reshape(-1).tolist()
            )
    for name, text in facts.items():
        match = _GROUP.fullmatch(name)
        if match and match["key"] == "param_names":
            groups[match["before"]][int(match[2])][1].append(text)
    return groups


def _names(
    groups: Groups, states: dict[int, dict[str, CheckpointTensor]], weights: dict[str, CheckpointTensor]
) -> dict[int, str]:
    """Number -> parameter. Nothing where shapes do not say that the usual order is the one of this optimizer."""
    ordered = [groups[number] for number in sorted(groups)]
    if ordered and all(names and len(names) == len(numbers) for numbers, names in ordered):
        names_by_number = {
            number: name for numbers, names in ordered for number, name in zip(numbers, names, strict=True)
        }
        return names_by_number if set(names_by_number.values()) <= set(weights) else {}
    subjects = [numbers for numbers, _ in ordered] or [sorted(states)]
    sizes = [len(names_of_group) for names_of_group in subjects]
    parameters = _parameters(weights)
    if len(parameters) > sum(sizes):
        # A second name of a weight that was saved as a copy of it.
        copied = copies(parameters)
        parameters = {name: tensor for name, tensor in parameters.items() if name not in copied}
    for candidate in _candidates(parameters, sizes):
        if [len(names_of_group) for names_of_group in candidate] != sizes:
            continue
        pairs = [
            pair
            for numbers, names in zip(subjects, candidate, strict=True)
            for pair in zip(numbers, names, strict=True)
        ]
        if all(_fits(states.get(number, {}), weights[name].shape) for number, name in pairs):
            return dict(pairs)
    return {}


def _fits(moments: dict[str, CheckpointTensor], shape: tuple[int, ...]) -> bool:
    return all(moment.shape == shape for moment in moments.values() if moment.shape not in ((), (1,)))


def _parameters(weights: dict[str, CheckpointTensor]) -> dict[str, CheckpointTensor]:
    """Weights that an optimizer may have, each once, though two names may stand for one (tied embeddings)."""
    seen: set[tuple[Any, ...]] = set()
    parameters = {}
    for name, tensor in weights.items():
        if name.endswith(_BUFFERS) or not tensor.dtype.startswith(("float", "bfloat")):
            continue
        place = place_in_file(tensor) or (name,)
        if place not in seen:
            seen.add(place)
            parameters[name] = tensor
    return parameters


def _candidates(weights: dict[str, CheckpointTensor], sizes: list[int]) -> Iterator[list[list[str]]]:
    """How trainers sort parameters into groups: one part of the model behind the other, by dimensions, or by what
    weight decay is for.
    """
    names = list(weights)
    yield (
        [names[sum(sizes[:at]) : sum(sizes[: at + 1])] for at in range(len(sizes))] if sum(sizes) == len(names) else []
    )
    if len(sizes) != 2:
        return
    is_flat: tuple[Callable[[str], bool], ...] = (
        lambda name: len(weights[name].shape) < 2,
        lambda name: name.endswith("bias") or bool(_NORM.search(name.lower())),
        lambda name: name.endswith("bias"),
    )
    for is_second in is_flat:
        first, second = [name for name in names if not is_second(name)], [name for name in names if is_second(name)]
        yield [first, second]
        yield [second, first]


def _masters(
    rest: dict[str, CheckpointTensor],
    named: dict[str, CheckpointTensor],
    before: str,
    groups: Groups,
    names: dict[int, str],
) -> None:
    """Float32 copies that stand beside the optimizer, in lists as its groups are: Megatron's Float16Optimizer."""
    outer = before.removesuffix("optimizer_state_dict.").removesuffix("optimizer.")
    copies: dict[int, dict[int, str]] = defaultdict(dict)
    for name in rest:
        match = _MASTERS.fullmatch(name)
        if match and match["before"] in (outer, before, f"{outer}optimizer."):
            copies[int(match[2])][int(match[3])] = name
    for group, at in copies.items():
        numbers = groups[group][0] if group in groups else []
        if len(numbers) == len(at):
            for place, name in at.items():
                if numbers[place] in names:
                    named[f"{names[numbers[place]]}.{MASTER}"] = rest.pop(name)


def on_common_terms(
    first: Checkpoint, second: Checkpoint
) -> tuple[dict[str, CheckpointTensor], dict[str, CheckpointTensor], list[str], list[str]]:
    """The optimizer states of both, so that those of two formats can be compared; notes on what one side alone has;
    and why none is compared, where that is so.

    A step that is written once answers to those of all parameters. Between two formats, settings of groups that one
    side alone has are left out, and so are float32 copies of weights.
    """
    sides = dict(first.optimizer), dict(second.optimizer)
    if not all(sides):
        return *sides, [], []
    flat = [any("distributed.dp_group_idx_" in name for name in states) for states in sides]
    if any(flat) and (not all(flat) or _ranks(first) != _ranks(second)):
        return {}, {}, [], [said("flat-buffers-not-compared")]
    steps = [_steps(states) for states in sides]
    stored_once = [any(map(_STEP_OF_GROUP.fullmatch, names_of_steps)) for names_of_steps in steps]
    if all(steps) and any(stored_once) and set(steps[0]) != set(steps[1]):
        for states, own in zip(sides, steps, strict=True):
            copies = tuple(states.pop(name) for name in own)
            states["step"] = copies[0] if len(copies) == 1 else Replicas((), copies[0].dtype, copies)
    groups = [{match[1] for name in states if (match := _A_GROUP.match(name))} for states in sides]
    if first.format == second.format and (groups[0] == groups[1] or "Megatron" not in first.format):
        return *sides, [], []
    notes: list[str] = []
    settings = 0
    for states, others, weights in ((sides[0], sides[1], first.weights), (sides[1], sides[0], second.weights)):
        alone = [name for name in states if name not in others and name.rpartition(".")[0] not in weights]
        copies_alone = [name for name in states if name.endswith("." + MASTER)]
        if any(name.endswith("." + MASTER) for name in others):
            copies_alone = []
        elif copies_alone:
            notes.append(said("master-copies-not-compared"))
        settings += len(alone)
        for name in {*alone, *copies_alone}:
            del states[name]
    if settings:
        notes.append(said("settings-of-one-optimizer", settings))
    return *sides, notes, []


def _ranks(checkpoint: Checkpoint) -> tuple[Any, ...]:
    return tuple(checkpoint.settings.get(f"{word}_model_parallel_size") for word in ("tensor", "pipeline", "expert"))


def _steps(states: dict[str, CheckpointTensor]) -> list[str]:
    group_steps = [name for name in states if _STEP_OF_GROUP.fullmatch(name)]
    return group_steps or [name for name in states if name.endswith(".step")]
