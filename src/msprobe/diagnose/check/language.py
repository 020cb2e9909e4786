"""What a step shows of a language model: its tokens, its labels, and that it predicts the next token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import distinct, same, tensors
from msprobe.diagnose.differences.records import fingerprint, is_integer, numel, statistics
from msprobe.diagnose.steps.argument_names import argument
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor

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
    for event in moment.calls:
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


def is_causal(moment: CheckedStep) -> bool:
    """True if some call says that attention looks back only."""
    for event in moment.calls:
        word = operation(event.stem)
        if word in operators.TRIANGLES:
            return True
        if word == "scaled_dot_product_attention" and argument(event, 5, "is_causal"):
            return True
    return False


_DEEPEST = 20


class Shifts:
    """How far whole numbers are ahead of the tokens that an embedding looks up."""

    def __init__(self, timeline: Timeline, makers: Producers, embedding: Event) -> None:
        self._timeline = timeline
        self._makers = makers
        self._embedding = embedding
        self._tokens = tensors(embedding.inputs())[0]

    def of(self, leaf: dict[str, Any], at: Event, depth: int = 0) -> int | None:
        """The positions by which ``leaf``, which ``at`` takes, is ahead; None if that is not known."""
        if fingerprint(leaf) == fingerprint(self._tokens):
            return 0
        maker = self._makers.of(leaf, at)
        if maker is None:
            return self._shift_of_outside(leaf) if depth else None
        given = tensors(maker.inputs())
        own = _own(maker) if maker.parts.kind == "api" and given and depth < _DEEPEST else None
        if own is None:
            return None
        before = self.of(given[0], maker, depth + 1)
        if before is None:
            before = self._shift_in_whole(given[0])
        return None if before is None else before + own

    def _shift_in_whole(self, whole: dict[str, Any]) -> int | None:
        """How far a tensor is ahead of the tokens if these are a slice of it: not at all, but for where that begins."""
        mark = fingerprint(self._tokens)
        for event in self._timeline.events[: self._embedding.index]:
            if event.direction == "forward" and operation(event.stem) == "getitem":
                given, made = tensors(event.inputs()), tensors(event.outputs())
                if given and made and fingerprint(given[0]) == fingerprint(whole) and fingerprint(made[0]) == mark:
                    begin = _begin(event)
                    return None if begin is None else -begin
        return None

    def _shift_of_outside(self, leaf: dict[str, Any]) -> int | None:
        """Of labels that no recorded call made: by their values; without these, if they are the tokens in another
        order, as they are when they were rolled.
        """
        names = leaf.get("data_name"), self._tokens.get("data_name")
        if leaf.get("shape") != self._tokens.get("shape"):
            return None
        if all(isinstance(name, str) for name in names):
            values, tokens = (self._timeline.part.array(str(name)) for name in names)
            if values is not None and tokens is not None:
                return _shift_by_values(values, tokens)
        rolled = "digest" in leaf and statistics(leaf) == statistics(self._tokens) and not same(leaf, self._tokens)
        return 1 if rolled else None


def _shift_by_values(labels: Any, tokens: Any) -> int | None:
    """0 or 1 if labels are tokens of this or the next position, wherever they are tokens at all (from 0 on)."""
    for ahead in (0, 1):
        labels_ahead, other = labels[..., : labels.shape[-1] - ahead], tokens[..., ahead:]
        counts = labels_ahead >= 0
        if np.count_nonzero(counts) > 1 and np.array_equal(labels_ahead[counts], other[counts]):
            return ahead
    return None


def _own(event: Event) -> int | None:
    """By how many positions a call moves its first argument; None if that is not known."""
    word = operation(event.stem)
    if word in operators.KEEPS_MOST:
        return 0
    if word == "getitem":
        return _begin(event)
    slots = dict(event.inputs())
    shape = tensors(event.inputs())[0].get("shape")
    last = (-1, len(shape) - 1) if isinstance(shape, list) else ()
    if word == "pad":
        # Numbers of elements before and behind, the last dimension first.
        return 0 if _number(slots.get("input.1.0", slots.get("input.pad.0"))) == 0 else None
    if word == "cat":
        return 0 if argument(event, 1, "dim") in last else None
    if word == "roll":
        shift, dim = argument(event, 1, "shifts"), argument(event, 2, "dims")
        return -shift if isinstance(shift, int) and shift < 0 and dim in last else None
    return None


def _number(leaf: Any) -> int | None:
    value = leaf.get("value") if isinstance(leaf, dict) and not is_tensor(leaf) else leaf
    return value if isinstance(value, int) else None


def _begin(event: Event) -> int | None:
    """Where a slice along the second (or last) dimension begins."""
    taken = [leaf for slot, leaf in event.inputs() if slot.startswith("input.1") and not is_ellipsis(leaf)]
    firsts = [first_of(leaf) for leaf in taken]
    if not firsts or None in firsts or any(firsts[:-1]):
        return None
    return firsts[-1]


def is_ellipsis(leaf: Any) -> bool:
    """True for the three dots of an index."""
    return isinstance(leaf, dict) and leaf.get("type") == "ellipsis"


def first_of(leaf: Any) -> int | None:
    """Where a slice without gaps begins; None for one that counts from the end, and for what is no slice."""
    if not (isinstance(leaf, dict) and leaf.get("type") == "slice" and isinstance(leaf.get("value"), list)):
        return None
    first, _, step = (*leaf["value"], None, None, None)[:3]
    if first is None and step in (None, 1):
        return 0
    return first if isinstance(first, int) and first >= 0 and step in (None, 1) else None
