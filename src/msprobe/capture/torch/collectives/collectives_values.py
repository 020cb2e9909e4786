"""How the values of torch.distributed are written in a record: operations, reductions, process groups."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from msprobe.capture import native
from msprobe.capture.records import Describe, Describer, Tree
from msprobe.capture.torch.tensors import values


class Text:
    """A text that stands in a record as it is, without a type beside it."""

    __slots__ = ("text",)

    def __init__(self, text: object) -> None:
        self.text = native.in_one_line(text)


class GroupText(NamedTuple):
    """A process group in a record: its encoding, ready, and its id."""

    text: bytes
    id: str


class Groups:
    """Process groups, each looked up once. The ranks of a group never change."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Any, GroupText] = weakref.WeakKeyDictionary()

    def find(self, group: Any) -> GroupText | None:
        """The group that a call with ``group`` uses (None: the default group); None if there is no such
        group.
        """
        distributed = torch.distributed
        if group is None:
            if not distributed.is_initialized():
                return None
            group = distributed.group.WORLD
        try:
            group_text = self._known.get(group)
        except TypeError:  # no process group: what the user passed is for torch to refuse
            return None
        if group_text is None:
            ranks = values.group_ranks(group)
            if not ranks:
                return None
            group_text = GroupText(native.in_one_line(values.process_group(group)), values.group_id(ranks))
            self._known[group] = group_text
        return group_text


def add_types(describer: Describer, groups: Groups) -> None:
    """Teach ``describer`` the types of torch.distributed."""
    distributed = torch.distributed
    types: dict[type, Describe] = {Text: _text}
    if distributed.is_available():
        reduce_op = distributed.ReduceOp
        types[reduce_op] = _reduce_op
        types[reduce_op.RedOpType] = _reduce_op

        def process_group(value: Any) -> Tree:
            group_text = groups.find(value)
            return group_text.text if group_text is not None else values.process_group(value)

        for kind in _with_subclasses(distributed.ProcessGroup):
            types[kind] = process_group

        def operation(value: Any) -> Tree:
            return describer.describe(open_operation(value, groups))

        types[distributed.P2POp] = operation
    describer.by_type.update(types)


def _text(value: Text) -> Tree:
    return value.text


def _with_subclasses(kind: Any) -> list[Any]:
    kinds = [kind]
    for child in kind.__subclasses__():
        kinds += _with_subclasses(child)
    return kinds


def _reduce_op(value: Any) -> Tree:
    # A ReduceOp object carries the operation; its own text is only an address.
    return {"type": "torch.distributed.ReduceOp", "value": str(getattr(value, "op", value))}


def open_operation(value: Any, groups: Groups) -> dict[str, Any]:
    """The parts of a ``P2POp``, in the order in which a dump has them; its tensor is still a tensor."""
    group = groups.find(value.group)
    return {
        "class_type": Text("torch.distributed.P2POp"),
        "tensor": value.tensor,
        "op": Text(getattr(value.op, "__name__", str(value.op))),
        "peer": Text(value.peer),
        "tag": Text(value.tag),
        "group_id": Text(group.id if group is not None else None),
    }


def open_operations(args: Sequence[Any], groups: Groups) -> Sequence[Any]:
    """``args`` with every ``P2POp`` in a list taken apart, so that its tensor has an index path."""
    return [_open(value, groups) for value in args]


def open_keyword_operations(kwargs: Mapping[str, Any], groups: Groups) -> dict[str, Any]:
    """The same for keyword arguments."""
    return {word: _open(value, groups) for word, value in kwargs.items()}


def _open(value: Any, groups: Groups) -> Any:
    kind = torch.distributed.P2POp
    if isinstance(value, kind):
        return open_operation(value, groups)
    if isinstance(value, (list, tuple)) and any(isinstance(item, kind) for item in value):
        return [open_operation(item, groups) if isinstance(item, kind) else item for item in value]
    return value
