"""A run in MindSpore and one in PyTorch: what both recorded, in the words of PyTorch.

Calls are known by what they compute (:func:`msprobe.compare.name_table.operation_in_torch`), arguments by PyTorch's
names, gradients by the order of the arguments that they belong to. What says nothing of the training is left out: the
calls inside layers that both frameworks have (each composes them of its own), those that ask for shapes, and those that
give the same elements another shape or type. A layer whose composition has its bias in a call of its own is made one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.compare.frameworks import crosses, framework_of
from msprobe.compare.name_table import ARGUMENT_NAMES, PARAMETER_NAMES, layer_name, operation_in_torch
from msprobe.compare.problems import InvalidArgumentError
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import fingerprint, is_integer
from msprobe.diagnose.pairing.fused import below, fold_transposes, separate_activations
from msprobe.diagnose.pairing.naming import drop_prefixes
from msprobe.diagnose.pairing.settings import settings_of
from msprobe.diagnose.steps.timeline import Event, Slot, Timeline, flatten, is_tensor
from msprobe.messages import said

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings


#: What is to be said of it.
NOTE = said("frameworks-differ")
_PLAIN = frozenset(("int", "float", "bool", "str", "slice"))
_BUFFERS = frozenset(("moving_mean", "moving_variance"))


def translate(candidate: Timeline, reference: Timeline, mappings: Mappings | None = None) -> bool:
    """Say in the words of PyTorch what two timelines hold, if one side ran on MindSpore and the other on PyTorch.

    ``mappings``: names that are given, from MindSpore's to PyTorch's; those of functions and modules are used. Returns
    whether they did. To be called before calls are paired.
    """
    try:
        frameworks = framework_of(candidate.part), framework_of(reference.part)
    except InvalidArgumentError:
        return False  # a dump that does not say is taken for one of the other's framework
    if not crosses(*frameworks):
        if "mindspore" in frameworks:
            _leave_out_attributes(candidate, reference)
        if set(frameworks) == {"mindspore"} and _is_static(candidate) != _is_static(reference):
            _leave_out_averages(candidate)
            _leave_out_averages(reference)
        return False
    for timeline, framework in zip((candidate, reference), frameworks, strict=True):
        is_mindspore = framework == "mindspore"
        if is_mindspore and mappings is not None:
            from msprobe.diagnose.pairing.mapped_names import use_mapped_names  # readers of mapping files come with it

            use_mapped_names(timeline, mappings)
        for event in timeline:
            _translate(event, is_mindspore)
    drop_prefixes(candidate, reference)
    _leave_out_layers(candidate, reference)
    for timeline in (candidate, reference):
        _join_biases(timeline)
        fold_transposes(timeline)
        timeline.leave_out({event for event in timeline if _is_uninformative(event)})
    return True


def _leave_out_attributes(*timelines: Timeline) -> None:
    """Where one side does not say what objects were given when they were made, another recorder or an older one, those
    of the other side say nothing.
    """
    if all(any("attributes" in event.record for event in timeline) for timeline in timelines):
        return
    for timeline in timelines:
        for event in timeline:
            event.record.pop("attributes", None)


def _is_static(timeline: Timeline) -> bool:
    """True for the cells of a compiled graph: nothing in it is called from a line of the program."""
    return not any(timeline.part.stack(event.name) for event in timeline)


def _leave_out_averages(timeline: Timeline) -> None:
    """Batch norms change their averages in the pass: a static graph shows them before it, the dynamic one behind it."""
    for event in timeline:
        parameters = event.parameters()
        kept = [parameter for parameter in parameters if parameter[0].rpartition(".")[2] not in _BUFFERS]
        if len(kept) < len(parameters):
            event.call(event.parts.path, parameters=kept)


def _translate(event: Event, is_mindspore: bool) -> None:
    if event.parts.kind == "api":
        if is_mindspore:
            word = operation_in_torch(event.stem)
            event.stem = f"{event.parts.owner}.{word}{'_' if writes_in_place(event.stem) else ''}"
        word = operation(event.stem)
        # A product with the weight of a layer is a linear function.
        alike = "matmul" if word == "linear" else "transpose" if word in operators.TRANSPOSES else word
        event.key = f"api:{alike}"
    if event.direction == "backward":
        # Of a call, other recorders write the gradients of PyTorch in the order of the autograd node.
        known = is_mindspore or event.is_module or "msprobe" in event.record
        outputs = _numbered("output", _gradients(event)) if known else []
        event.arrange(inputs=_numbered("input", event.inputs()), outputs=outputs)
    elif event.direction in ("forward", "recompute") and event.parts.kind in ("api", "module"):
        event.arrange(inputs=_arguments(event))
    if event.parts.kind == "optimizer" and is_mindspore:
        owner = event.parts.owner
        event.record = in_words_of_torch(event.record, owner)
        event.parts = event.parts._replace(owner=CLASSES.get(owner, owner))
    if event.is_module and is_mindspore:
        event.call(event.parts.path, parameters=[_parameter(*slot) for slot in event.parameters()])


def _parameter(slot: str, leaf: Any) -> Slot:
    """Averages that layers keep are parameters in MindSpore and buffers in PyTorch."""
    own = slot.partition(".")[2]
    return (f"buffers.{PARAMETER_NAMES[own]}", leaf) if own in _BUFFERS else (slot, leaf)


def _numbered(word: str, slots: Iterable[Slot]) -> list[Slot]:
    return [(f"{word}.{number}", leaf) for number, (_, leaf) in enumerate(slots) if is_tensor(leaf)]


def _gradients(event: Event) -> list[Slot]:
    """The gradients of the arguments, those that there are."""
    return [(slot, leaf) for slot, leaf in event.outputs() if is_tensor(leaf)]


def _arguments(event: Event) -> list[Slot]:
    """Tensors by their order, numbers and words by their place where both frameworks have it, and by their name."""
    word = operation(event.stem)
    by_place: list[Slot] = []
    by_name: list[Slot] = []
    flatten("input", event.record.get("input_args"), by_place)
    flatten("input", event.record.get("input_kwargs"), by_name)
    tensors = [leaf for _, leaf in (*by_place, *by_name) if is_tensor(leaf)]
    if event.parts.kind == "api" and word in operators.SAME_ORDER and not any(map(_is_tensor, by_name)):
        slots = [slot for slot in by_place if is_tensor(slot[1]) or _is_plain(slot[1])]
    else:
        if word == "batch_norm" and event.parts.owner == "Primitive":
            tensors = [*tensors[:1], *tensors[3:5], *tensors[1:3], *tensors[5:]]  # averages come before scale and bias
        if word == "embedding":
            tensors.sort(key=lambda leaf: not is_integer(leaf))  # MindSpore gathers from the table
        slots = [(f"input.{number}", leaf) for number, leaf in enumerate(tensors)]
    if event.parts.kind == "api":
        for slot, leaf in by_name:
            name = slot.partition(".")[2]
            if _is_plain(leaf):
                slots.append((f"input.{ARGUMENT_NAMES.get(name, name)}", leaf))
        alike = dict(settings_of(event))
        slots = [(slot, leaf) for slot, leaf in slots if slot not in alike] + list(alike.items())
    return slots


def _is_tensor(slot: Slot) -> bool:
    return is_tensor(slot[1])


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, dict) and leaf.get("type") in _PLAIN


def _leave_out_layers(candidate: Timeline, reference: Timeline) -> None:
    """Leave out the calls inside layers of one name that both sides have in one place."""
    sides = _layers(candidate), _layers(reference)
    common = {key: kind for key, kind in sides[0].items() if sides[1].get(key) == kind}
    separate_activations(candidate, reference, common)
    for timeline in (candidate, reference):
        for event in timeline:
            if event.is_module and event.key in common and event.direction != "backward":
                event.layer, event.stem = True, f"Layer.{operators.operator_of_layer(common[event.key])}"
                event.arrange(inputs=[*event.inputs(), *_averages(event), *_settings(event)])
        inside = {inner for event in timeline if event.is_module and event.key in common for inner in below(event)}
        timeline.leave_out(inside)


def _layers(timeline: Timeline) -> dict[str, str]:
    """The key of each module that is a known layer, and what it is called in PyTorch."""
    return {
        event.key: kind for event in timeline if event.is_module and (kind := layer_name(event.parts.owner)) is not None
    }


def _settings(layer: Event) -> list[Slot]:
    """The settings of the calls inside a layer, each name once."""
    settings: dict[str, Any] = {}
    for event in below(layer):
        for slot, leaf in settings_of(event) if event.parts.kind == "api" else ():
            settings.setdefault(slot, leaf)
    return list(settings.items())


def _averages(event: Event) -> list[Slot]:
    """The running averages that the call inside a batch norm takes: of the module itself, MindSpore records those that
    it leaves, and PyTorch none.
    """
    for inner in below(event):
        given = inner.record.get("input_args")
        if inner.parts.kind == "api" and operation(inner.stem) == "batch_norm" and isinstance(given, list):
            first = 3 if inner.parts.owner == "Primitive" else 1
            statistics_given = given[first : first + 2]
            if len(statistics_given) == 2 and all(map(is_tensor, statistics_given)):
                return [("input.running_mean", statistics_given[0]), ("input.running_var", statistics_given[1])]
    return []


def _join_biases(timeline: Timeline) -> None:
    """Make one call of a product and the bias that is added to its result: PyTorch does both in one."""
    gone: set[Event] = set()
    last: Event | None = None
    for event in list(timeline):
        if event.parts.kind != "api" or event.direction != "forward":
            continue
        if last is not None and event.parts.stem.endswith(".BiasAdd") and _takes_result(event, last):
            _join(timeline, last, event)
            gone.add(event)
            last = None
        elif event.parts.owner == "Primitive" and operation(event.stem) in operators.LAYERS_BEGIN:
            last = event
    timeline.leave_out(gone)


def _takes_result(event: Event, maker: Event) -> bool:
    mark = fingerprint(event.inputs()[0][1]) if event.inputs() else None
    return mark is not None and any(fingerprint(leaf) == mark for _, leaf in maker.outputs())


def _join(timeline: Timeline, product: Event, bias: Event) -> None:
    product.arrange(inputs=_numbered("input", [*product.inputs(), *bias.inputs()[1:]]), outputs=bias.outputs())
    back, bias_backward = timeline.backward_of(product), timeline.backward_of(bias)
    if back is not None and bias_backward is not None:
        gradients = [*back.outputs(), *bias_backward.outputs()[1:]]
        back.arrange(inputs=bias_backward.inputs(), outputs=_numbered("output", gradients))


def _is_uninformative(event: Event) -> bool:
    """True for a call that gives no tensor, or its argument in another shape or type."""
    if event.parts.kind != "api" or event.direction not in ("forward", "recompute"):
        return False
    results = [leaf for _, leaf in event.outputs() if is_tensor(leaf)]
    if not results:
        return True
    given = [leaf for _, leaf in event.inputs() if is_tensor(leaf)]
    if operation(event.stem) not in operators.SAME_ELEMENTS or len(results) != 1 or len(given) != 1:
        return False
    return fingerprint(results[0]) is not None and fingerprint(results[0]) == fingerprint(given[0])


#: Optimizers of ``mindspore.nn`` that PyTorch calls otherwise; the others have one name, or are in one framework only.
CLASSES = {
    "AdamWeightDecay": "AdamW",
    "Momentum": "SGD",
    "AdaMax": "Adamax",
    "RMSProp": "RMSprop",
    "AdaFactor": "Adafactor",
}
_SETTINGS = {
    "learning_rate": "lr",
    "epsilon": "eps",
    "use_nesterov": "nesterov",
    "use_amsgrad": "amsgrad",
}
#: What one class alone calls so.
_OF_CLASS = {"RMSProp": {"decay": "alpha"}}


def in_words_of_torch(record: dict[str, Any], owner: str) -> dict[str, Any]:
    """The record of a step of the optimizer ``owner`` with its groups' settings as PyTorch calls them."""
    groups = record.get("groups")
    if not isinstance(groups, list):
        return record
    return {**record, "groups": [_group(group, owner) if isinstance(group, dict) else group for group in groups]}


def _group(group: dict[str, Any], owner: str) -> dict[str, Any]:
    words = {**_SETTINGS, **_OF_CLASS.get(owner, {})}
    translated = {words.get(key, key): value for key, value in group.items()}
    if "beta1" in translated and "beta2" in translated:
        translated["betas"] = [translated.pop("beta1"), translated.pop("beta2")]
    return translated
