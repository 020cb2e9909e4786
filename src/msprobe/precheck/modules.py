"""Passes of leaf modules (levels L0 and mix) as calls: a pass of ``Linear`` is ``linear`` of argument and parameters.

A record has a module's class, arguments, parameters and results, but not what it was made with. What shapes do not show
is taken as the class has it by default; both sides run the same call, so no verdict depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from msprobe.messages import said
from msprobe.precheck.arguments import Argument, ArgumentTensor, Items, Plain, UnreadableArgumentError

_PASS = re.compile(r"(Module\..+)\.(forward|backward)\.(\d+)")
_MOST_STRIDE = 4
#: How many groups a norm usually has.
_GROUPS = (32, 16, 8, 4, 2, 1)


@dataclass(frozen=True)
class RecordedPass:
    """What a record has of one pass."""

    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    parameters: dict[str, Argument]
    outputs: tuple[Argument, ...]


@dataclass(frozen=True)
class Function:
    """The call that a pass is: type and name of the API, its arguments, and whether all of them are known."""

    prefix: str
    name: str
    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    exact: bool = True


def passes_of(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Passes of leaf modules: ``Module.fc.Linear.0`` -> direction -> the name of the record.

    A leaf is a module whose name no other module's begins with.
    """
    passes: dict[str, dict[str, str]] = {}
    inner: set[str] = set()
    for name in names:
        recorded = pass_of(name)
        if recorded is None:
            continue
        key, direction = recorded
        passes.setdefault(key, {})[direction] = name
        path = key.split(".")[1:-2]
        inner.update(".".join(path[:length]) for length in range(len(path)))
    return {key: entries for key, entries in passes.items() if "forward" in entries and _path_of(key) not in inner}


def pass_of(name: str) -> tuple[str, str] | None:
    """``Module.fc.Linear.forward.0`` -> ``Module.fc.Linear.0`` and ``forward``; None for other names."""
    match = _PASS.fullmatch(name)
    return None if match is None else (f"{match[1]}.{match[3]}", match[2])


def _path_of(key: str) -> str:
    return ".".join(key.split(".")[1:-2])


def class_of(key: str) -> str:
    """The class in ``Module.fc.Linear.0``."""
    return key.split(".")[-2]


def function_of(key: str, given: RecordedPass) -> Function:
    """The call that a pass is. Raises UnreadableArgumentError for classes that are not known here."""
    word = class_of(key)
    make = _CLASSES.get(word)
    if make is None:
        raise UnreadableArgumentError(said("module-cannot-be-made", word))
    if not given.args and not given.kwargs:
        raise UnreadableArgumentError(said("pass-without-argument", word))
    return make(given)


def _apply(name: str, prefix: str = "Functional", exact: bool = True) -> Callable[[RecordedPass], Function]:
    """A function of the arguments alone."""
    return lambda given: Function(prefix, name, given.args, given.kwargs, exact)


def _with_weights(name: str) -> Callable[[RecordedPass], Function]:
    """A function of the arguments, weight and bias."""

    def make(given: RecordedPass) -> Function:
        return Function("Functional", name, (*given.args, *_weights(given)), given.kwargs)

    return make


def _embedding(given: RecordedPass) -> Function:
    # padding_idx and max_norm are not recorded: they change gradients of one row, and weights.
    return Function("Functional", "embedding", (*given.args, _weight(given)), given.kwargs, exact=False)


def _norm(name: str) -> Callable[[RecordedPass], Function]:
    """A norm over the dimensions of its weight."""

    def make(given: RecordedPass) -> Function:
        weight = _weight(given)
        lengths = Items(tuple(Plain("int", length) for length in weight.shape))
        bias = given.parameters.get("bias")
        further = () if bias is None else (bias,)
        return Function("Functional", name, (*given.args, lengths, weight, *further), given.kwargs, exact=False)

    return make


def _batch_norm(given: RecordedPass) -> Function:
    nothing = Plain("NoneType", None)
    parameters = {word: given.parameters.get(word, nothing) for word in ("weight", "bias")}
    kwargs = {**given.kwargs, **parameters, "training": Plain("bool", True)}
    return Function("Functional", "batch_norm", (*given.args, nothing, nothing), kwargs, exact=False)


def _softmax(name: str) -> Callable[[RecordedPass], Function]:
    return lambda given: Function("Functional", name, given.args, {**given.kwargs, "dim": Plain("int", -1)}, False)


def _conv(given: RecordedPass) -> Function:
    """Stride, padding and dilation that give the recorded shape, the most usual first; groups follow from shapes."""
    weight, (value,), result = _weight(given), given.args[:1], given.outputs[0] if given.outputs else None
    if not isinstance(value, ArgumentTensor) or not isinstance(result, ArgumentTensor) or value.shape[-2:] == ():
        raise UnreadableArgumentError(said("convolution-needs-shapes"))
    places = len(weight.shape) - 2
    if len(value.shape) < places + 1 or len(result.shape) < places:
        raise UnreadableArgumentError(said("convolution-argument-shape", places, value.shape))
    channels = value.shape[-places - 1]
    fittings = [
        _fitting(value.shape[-places + at], result.shape[-places + at], weight.shape[2 + at]) for at in range(places)
    ]
    stride, padding, dilation = (Items(tuple(Plain("int", fitting[part]) for fitting in fittings)) for part in range(3))
    kwargs = {
        **given.kwargs,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": Plain("int", max(1, channels // max(1, weight.shape[1]))),
    }
    return Function("Functional", f"conv{places}d", (*given.args, *_weights(given)), kwargs, exact=False)


def _fitting(length: int, result: int, kernel: int) -> tuple[int, int, int]:
    """Stride, padding and dilation of one dimension."""
    for dilation, stride, padding in product((1, 2, 4), (*range(1, _MOST_STRIDE + 1), kernel), range(kernel + 1)):
        if (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 == result:
            return stride, padding, dilation
    raise UnreadableArgumentError(said("convolution-does-not-fit", result, length, kernel))


def _group_norm(given: RecordedPass) -> Function:
    """The number of groups is the first of the usual ones that divides the channels."""
    weight = _weight(given)
    groups = next(count for count in _GROUPS if not weight.shape[0] % count)
    return Function(
        "Functional", "group_norm", (*given.args, Plain("int", groups), *_weights(given)), given.kwargs, exact=False
    )


def _instance_norm(given: RecordedPass) -> Function:
    parameters = {word: parameter for word, parameter in given.parameters.items() if word in ("weight", "bias")}
    return Function("Functional", "instance_norm", given.args, {**given.kwargs, **parameters}, exact=False)


def _recurrent(name: str, states: int) -> Callable[[RecordedPass], Function]:
    """Layers, directions and biases follow from the names of the parameters; a state that is not given is zero.

    Which dimension is the batch is known from the states, given or as a result; without them it is the second.
    """

    def make(given: RecordedPass) -> Function:
        value, *rest = (*given.args, *given.kwargs.values())
        first = given.parameters.get("weight_hh_l0")
        if (
            not isinstance(value, ArgumentTensor)
            or not isinstance(first, ArgumentTensor)
            or "weight_hr_l0" in given.parameters
        ):
            raise UnreadableArgumentError(said("recurrent-needs-weights"))
        layers = sum(1 for word in given.parameters if re.fullmatch(r"weight_hh_l\d+", word))
        endings = ["", "_reverse"] if "weight_hh_l0_reverse" in given.parameters else [""]
        kinds = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if "bias_ih_l0" in given.parameters else [])]
        weights = [
            given.parameters[f"{kind}_l{layer}{ending}"]
            for layer in range(layers)
            for ending in endings
            for kind in kinds
        ]
        state, batch_first = rest[0] if rest and not _is_none(rest[0]) else None, False
        if len(value.shape) != 3:
            raise UnreadableArgumentError(said("recurrent-without-batch"))
        part_of_state = state.items[0] if isinstance(state, Items) else state
        for known in (part_of_state, *_tensors(given.outputs[1:])):
            if isinstance(known, ArgumentTensor) and len(known.shape) == 3:
                batch_first = known.shape[1] == value.shape[0] != value.shape[1]
                break
        if state is None:
            lengths = (layers * len(endings), value.shape[0 if batch_first else 1], first.shape[1])
            zeros = ArgumentTensor(value.dtype, lengths, low=0.0, high=0.0, mean=0.0, norm=0.0)
            state = zeros if states == 1 else Items((zeros,) * states)
        flags = [Plain("bool", len(kinds) == 4), Plain("int", layers), Plain("float", 0.0), Plain("bool", True)]
        flags += [Plain("bool", len(endings) == 2), Plain("bool", batch_first)]
        return Function("VF", name, (value, state, Items(tuple(weights)), *flags), {}, exact=False)

    return make


def _tensors(arguments: Iterable[Argument]) -> Iterator[ArgumentTensor]:
    for argument in arguments:
        if isinstance(argument, Items):
            yield from _tensors(argument.items)
        elif isinstance(argument, ArgumentTensor):
            yield argument


def _is_none(argument: Argument) -> bool:
    return isinstance(argument, Plain) and argument.value is None


def _weights(given: RecordedPass) -> tuple[Argument, ...]:
    return tuple(given.parameters[word] for word in ("weight", "bias") if word in given.parameters)


def _weight(given: RecordedPass) -> ArgumentTensor:
    weight = given.parameters.get("weight")
    if not isinstance(weight, ArgumentTensor):
        raise UnreadableArgumentError(said("record-without-weight"))
    return weight


_CLASSES: dict[str, Callable[[RecordedPass], Function]] = {
    "Linear": _with_weights("linear"),
    "Bilinear": _with_weights("bilinear"),
    "Embedding": _embedding,
    "LayerNorm": _norm("layer_norm"),
    "RMSNorm": _norm("rms_norm"),
    **{f"BatchNorm{places}d": _batch_norm for places in (1, 2, 3)},
    **{f"Conv{places}d": _conv for places in (1, 2, 3)},
    "GroupNorm": _group_norm,
    **{f"InstanceNorm{places}d": _instance_norm for places in (1, 2, 3)},
    "GRU": _recurrent("gru", 1),
    "LSTM": _recurrent("lstm", 2),
    "RNN": _recurrent("rnn_tanh", 1),
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "Softmin": _softmax("softmin"),
    **{word: _apply(word.lower(), "Torch") for word in ("Tanh", "Sigmoid")},
    **{word: _apply(word.lower()) for word in ("ReLU", "ReLU6", "SiLU", "SELU", "Mish", "Hardswish", "Softsign")},
    "Hardsigmoid": _apply("hardsigmoid"),
    "LogSigmoid": _apply("logsigmoid"),
    **{word: _apply(word.lower(), exact=False) for word in ("GELU", "ELU", "CELU", "Softplus", "Hardtanh", "GLU")},
    "LeakyReLU": _apply("leaky_relu", exact=False),
    "PReLU": _with_weights("prelu"),
    "MSELoss": _apply("mse_loss", exact=False),
    "L1Loss": _apply("l1_loss", exact=False),
    "SmoothL1Loss": _apply("smooth_l1_loss", exact=False),
    "HuberLoss": _apply("huber_loss", exact=False),
    "CrossEntropyLoss": _apply("cross_entropy", exact=False),
    "NLLLoss": _apply("nll_loss", exact=False),
    "BCELoss": _apply("binary_cross_entropy", exact=False),
    "BCEWithLogitsLoss": _apply("binary_cross_entropy_with_logits", exact=False),
    "KLDivLoss": _apply("kl_div", exact=False),
    "CosineSimilarity": _apply("cosine_similarity", exact=False),
}
