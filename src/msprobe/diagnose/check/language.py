"""What a step shows of a language model: its tokens, its labels, and that it predicts the next token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.shifts import Shifts, first_of, is_ellipsis
from msprobe.diagnose.check.values import distinct, tensors
from msprobe.diagnose.differences.records import fingerprint, is_integer, numel
from msprobe.diagnose.steps.argument_names import argument
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Event, Timeline

#: So many tables at most may be looked up between tokens and loss, less one.
_LOOKED_UP = 9


@dataclass(frozen=True)
class TokenText:
    """One forward pass: the embedding of its tokens, the loss, and where the labels come from.

    ``chain``: the calls that the labels went through, the loss's own first. ``ahead``: by how many positions the
    labels are ahead of the tokens, where both come from one tensor; None if that is not known. ``length``: tokens
    in a sequence.
    """

    embedding: Event
    loss: Event
    chain: tuple[Event, ...]
    same_as_tokens: Event | None
    ahead: int | None
    length: int


def texts(moment: CheckedStep) -> list[TokenText]:
    """The passes of language models in a step."""
    if "texts" not in moment.remembered:
        moment.remembered["texts"] = _texts(moment)
    texts_read: list[TokenText] = moment.remembered["texts"]
    return texts_read


def _texts(moment: CheckedStep) -> list[TokenText]:
    texts_read = []
    embeddings: list[Event] = []
    for event in moment.timeline:
        if event.direction != "forward" or event.parts.kind != "api":
            continue
        word = operation(event.stem)
        if word == "embedding" and _tokens(event) is not None:
            embeddings.append(event)
        elif word in operators.LOSSES:
            # Tokens are as many as labels; positions, which are looked up too, need not be.
            every = (_text(moment, embedding, event) for embedding in embeddings[:-_LOOKED_UP:-1])
            text = next((text for text in every if text is not None), None)
            if text is not None:
                texts_read.append(text)
    return texts_read


def _tokens(event: Event) -> dict[str, Any] | None:
    given = tensors(event.inputs())
    shape = given[0].get("shape") if given else None
    if given and is_integer(given[0]) and isinstance(shape, list) and len(shape) == 2 and distinct(given[0]):
        return None if _are_positions(given[0]) else given[0]
    return None


def _are_positions(leaf: dict[str, Any]) -> bool:
    """True for one row of the numbers from 0 on."""
    rows, length = leaf["shape"]
    return bool(rows == 1 and leaf.get("Min") == 0 and leaf.get("Max") == length - 1 == 2 * (leaf.get("Mean") or 0))


def _text(moment: CheckedStep, embedding: Event, loss: Event) -> TokenText | None:
    tokens = _tokens(embedding)
    target = dict(loss.inputs()).get("input.1") or dict(loss.inputs()).get("input.target")
    if tokens is None or not isinstance(target, dict) or not is_integer(target):
        return None
    rows, length = tokens["shape"]
    # Logits and labels may be shifted against each other behind the model: then the last position has no label.
    shortened = numel(target) == rows * (length - 1)
    if numel(target) != rows * length and not shortened:
        return None
    makers = moment.makers
    mark = fingerprint(tokens)
    chain: list[Event] = [loss]
    leaf, at = target, loss
    source_event: Event | None = loss if fingerprint(leaf) == mark else None
    source: Event | None = None
    while source_event is None and len(chain) < 20:
        maker = makers.of(leaf, at)
        if maker is None or maker.parts.kind != "api":
            break
        chain.append(maker)
        word = operation(maker.stem)
        given = tensors(maker.inputs())
        if word in operators.SHIFTS_SEQUENCE or (word not in operators.KEEPS_MOST) or not given:
            source = maker if word in operators.SHIFTS_SEQUENCE else None
            break
        leaf, at = given[0], maker
        if fingerprint(leaf) == mark:
            source_event = maker
    # Labels may be the tokens themselves before a mask was laid over them.
    if (
        source_event is None
        and source is not None
        and any(fingerprint(leaf) == mark for leaf in tensors(source.outputs()))
    ):
        source_event = source
    ahead = (
        Shifts(moment.timeline, makers, embedding).of(leaf, at) if source is not None and source_event is None else None
    )
    if shortened and not _from_the_first(makers, loss):
        ahead = None
    return TokenText(embedding, loss, tuple(chain), source_event, ahead, length)


def _from_the_first(makers: Producers, loss: Event) -> bool:
    """True if the logits of a loss are a slice that begins with the first position."""
    at, given = loss, tensors(loss.inputs())
    for _ in range(20):
        maker = makers.of(given[0], at) if given else None
        if maker is None or maker.parts.kind != "api":
            return False
        word = operation(maker.stem)
        if word == "getitem":
            slices = [leaf for slot, leaf in maker.inputs() if slot.startswith("input.1")]
            return all(is_ellipsis(leaf) or first_of(leaf) == 0 for leaf in slices)
        if word not in operators.STORED_OTHERWISE | operators.RESHAPES:
            return False
        at, given = maker, tensors(maker.inputs())
    return False


def is_causal(timeline: Timeline) -> bool:
    """True if some call says that attention looks back only."""
    for event in timeline:
        if event.direction == "forward" and event.parts.kind == "api":
            word = operation(event.stem)
            if word in operators.TRIANGLES:
                return True
            if word == "scaled_dot_product_attention" and argument(event, 5, "is_causal"):
                return True
    return False
