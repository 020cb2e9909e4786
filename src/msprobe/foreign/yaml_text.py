"""The one reader of YAML: plain values out of a text that a stranger may have written.

The text is read event by event, so that depth, values and time are counted before anything is built. An alias counts
as much as what it stands for, each time; so does a merge (``<<``). No tag makes anything but a plain value.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import yaml

from msprobe.errors import InvalidInputError
from msprobe.foreign.budget import SETTINGS, Budget, Limits
from msprobe.messages import said

NodeKind = Literal["scalar", "sequence", "mapping"]

_PLAIN = "tag:yaml.org,2002:"
_STR, _NULL, _MERGE = f"{_PLAIN}str", f"{_PLAIN}null", f"{_PLAIN}merge"
#: Values that a text may always stand for; beyond these, as many as it has bytes.
_LEAST_VALUES = 300_000
_NUMBERS = (f"{_PLAIN}int", f"{_PLAIN}float", f"{_PLAIN}timestamp")
_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVERS = yaml.SafeLoader.yaml_implicit_resolvers
_CONSTRUCTOR: Any = yaml.constructor.SafeConstructor()
_SCALARS: dict[str, Callable[[yaml.ScalarNode], Any]] = {
    _NULL: lambda _: None,
    f"{_PLAIN}bool": _CONSTRUCTOR.construct_yaml_bool,
    f"{_PLAIN}int": _CONSTRUCTOR.construct_yaml_int,
    f"{_PLAIN}float": _CONSTRUCTOR.construct_yaml_float,
    f"{_PLAIN}binary": _CONSTRUCTOR.construct_yaml_binary,
    f"{_PLAIN}timestamp": _CONSTRUCTOR.construct_yaml_timestamp,
}
_SCALAR_PROBLEMS = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, yaml.YAMLError, binascii.Error)


class YamlError(InvalidInputError):
    """A text is no YAML, or has what is not allowed in it. ``line`` and ``column`` count from 1; 0 where unknown."""

    problem = ""
    line = column = 0

    @classmethod
    def at(cls, source: object, problem: str, line: int = 0, column: int = 0) -> YamlError:
        """The error of this place. ``problem`` is the message without the place."""
        where = said("yaml-place", line, column) if line else ""
        error = cls(said("no-readable-yaml", source, where, problem))
        error.problem, error.line, error.column = problem, line, column
        return error


@dataclass(eq=False)
class YamlNode:
    """A value as it is written. ``value``: a text, a list of nodes, or a list of pairs of nodes."""

    kind: NodeKind
    #: Empty where none is written and the value is no plain scalar.
    tag: str
    value: Any
    line: int
    column: int
    #: Whether a scalar is written without quotes.
    is_plain: bool = False
    #: How many values it stands for, aliases put in.
    size: int = 1
    #: How deep containers lie within each other in it, aliases put in.
    depth: int = 0
    is_open: bool = False
    #: Of a document: the line and column of its beginning, which may be that of ``---``.
    begins: tuple[int, int] = (0, 0)


def documents(data: str | bytes, source: object, limits: Limits = SETTINGS) -> list[YamlNode]:
    """The documents of a text, each as a tree of nodes; an empty one is left out.

    Aliases are put in: a node may stand in several places, and never within itself. Raises YamlError where it is no
    YAML, BudgetError where it is too large, too deep, or stands for too many values.
    """
    most = min(limits.items, _LEAST_VALUES + len(data))
    budget = Budget(source, replace(limits, items=most))
    budget.spend_bytes(len(data))
    loader = None
    try:
        loader = _Loader(data)
        return list(_Composer(loader, source, budget).documents())
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        text = " ".join(str(problem.problem or problem.context or said("yaml-cannot-be-read")).split())
        place = (0, 0) if mark is None else (mark.line + 1, mark.column + 1)
        raise YamlError.at(source, text, *place) from problem
    except yaml.YAMLError as problem:
        raise YamlError.at(source, " ".join(str(problem).split())[:200]) from problem
    except (UnicodeError, ValueError) as problem:
        raise YamlError.at(source, said("yaml-no-utf8")) from problem
    finally:
        if loader is not None:
            loader.dispose()


def load_all(data: str | bytes, source: object, *, ignores_tags: bool = False, limits: Limits = SETTINGS) -> list[Any]:
    """The values of all documents: texts, numbers, truths, dates, None, lists, sets and dicts of those.

    ``ignores_tags``: a value with a tag of its own is read as if it had none; otherwise such a tag is refused.
    Raises YamlError, BudgetError.
    """
    reader = _Values(source, ignores_tags, limits)
    return [reader.value(node) for node in documents(data, source, limits)]


def load(data: str | bytes, source: object, *, limits: Limits = SETTINGS) -> Any:
    """The value of a text of one document, None where it is empty. Raises YamlError, BudgetError."""
    loaded = load_all(data, source, limits=limits)
    if len(loaded) > 1:
        raise YamlError.at(source, said("yaml-documents", len(loaded)))
    return loaded[0] if loaded else None


def scalar(node: YamlNode, source: object, limits: Limits = SETTINGS) -> Any:
    """The value of a scalar as YAML means it. Raises YamlError, BudgetError."""
    make = _SCALARS.get(node.tag)
    if make is None:
        return node.value
    if node.tag in _NUMBERS and len(node.value) > limits.digits:
        Budget(source, limits).check_digits(len(node.value))
    try:
        return make(yaml.ScalarNode(node.tag, node.value))
    except _SCALAR_PROBLEMS as problem:
        shown = said("yaml-no-value", node.value[:40], " ".join(str(problem).split())[:80])
        raise YamlError.at(source, shown, node.line, node.column) from problem


def merged(node: YamlNode) -> list[tuple[YamlNode, YamlNode]]:
    """The pairs of a mapping, with those that ``<<`` merges in before its own, as YAML means it."""
    own: list[tuple[YamlNode, YamlNode]] = []
    inherited: list[tuple[YamlNode, YamlNode]] = []
    for key, value in node.value:
        if key.tag != _MERGE:
            own.append((key, value))
            continue
        several = value.value if value.kind == "sequence" else [value]
        for mapping in reversed(several):
            if mapping.kind != "mapping":
                raise YamlError.at("<<", said("yaml-merges-objects"), mapping.line, mapping.column)
            inherited += merged(mapping)
    return [*inherited, *own] if inherited else own


def has_own_tag(node: YamlNode) -> bool:
    """Whether a tag is written that is none of plain YAML."""
    return bool(node.tag) and (not node.tag.startswith(_PLAIN) or node.tag.startswith(f"{_PLAIN}python/"))


class _Composer:
    def __init__(self, loader: Any, source: object, budget: Budget) -> None:
        self.loader, self.source, self.budget = loader, source, budget
        self.anchors: dict[str, YamlNode] = {}

    def documents(self) -> Iterator[YamlNode]:
        while not isinstance(event := self.loader.get_event(), yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent):
                self.anchors = {}
                document = self.document()
                mark: Any = event.start_mark
                document.begins = (mark.line + 1, mark.column + 1)
                if not (document.kind == "scalar" and document.is_plain and not document.value):
                    yield document

    def document(self) -> YamlNode:
        """The tree of a document: a stack of what is open, so that no depth of the text is one of calls."""
        spend = self.budget.spend_items
        stack: list[tuple[YamlNode, list[YamlNode]]] = []
        while True:
            event: Any = self.loader.get_event()
            spend()
            if isinstance(event, yaml.ScalarEvent):
                node = self.scalar(event)
            elif isinstance(event, yaml.AliasEvent):
                node = self.alias(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self.budget.check_depth(len(stack) + 1)
                mark: Any = event.start_mark
                kind: NodeKind = "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence"
                node = YamlNode(kind, self.tag(event.tag), [], mark.line + 1, mark.column + 1, is_open=True)
                self.anchor(event, node)
                stack.append((node, []))
                continue
            else:  # the end of a collection
                node, held = stack.pop()
                node.is_open = False
                node.size = 1 + sum(child.size for child in held)
                node.depth = 1 + max((child.depth for child in held), default=0)
                self.budget.check_depth(len(stack) + node.depth)
                node.value = held if node.kind == "sequence" else list(zip(held[::2], held[1::2], strict=True))
            if not stack:
                return node
            stack[-1][1].append(node)

    def scalar(self, event: Any) -> YamlNode:
        mark, value = event.start_mark, event.value
        is_plain = not event.style
        tag = self.tag(event.tag)
        if not tag:
            tag = _resolved(value) if event.implicit[0] else _STR
        node = YamlNode("scalar", tag, value, mark.line + 1, mark.column + 1, is_plain)
        self.anchor(event, node)
        return node

    def alias(self, event: Any) -> YamlNode:
        node = self.anchors.get(event.anchor)
        mark: Any = event.start_mark
        if node is None or node.is_open:
            problem = said("alias-of-itself" if node else "alias-of-nothing", event.anchor[:40])
            raise YamlError.at(self.source, problem, mark.line + 1, mark.column + 1)
        self.budget.spend_items(node.size)
        return node

    def anchor(self, event: Any, node: YamlNode) -> None:
        if event.anchor is not None:
            self.anchors[event.anchor] = node

    @staticmethod
    def tag(tag: str | None) -> str:
        return "" if tag is None or tag == "!" else tag


class _Values:
    def __init__(self, source: object, ignores_tags: bool, limits: Limits) -> None:
        self.source, self.ignores_tags, self.limits = source, ignores_tags, limits

    def value(self, node: YamlNode) -> Any:
        tag = node.tag
        if tag and not self.ignores_tags and has_own_tag(node):
            shown = said("yaml-tag", tag[:60])
            raise YamlError.at(self.source, shown, node.line, node.column)
        if node.kind == "scalar":
            return scalar(node, self.source, self.limits)
        if node.kind == "sequence":
            return [self.value(child) for child in node.value]
        mapping: dict[Any, Any] = {}
        for key, value in merged(node):
            if key.kind != "scalar":
                raise YamlError.at(self.source, said("yaml-name-wrong"), key.line, key.column)
            mapping[self.value(key)] = self.value(value)
        return set(mapping) if tag == f"{_PLAIN}set" else mapping


def _resolved(value: str) -> str:
    """The tag of a scalar without quotes."""
    for tag, pattern in _RESOLVERS.get(value[:1], ()):
        if pattern.match(value):
            return str(tag)
    return _STR
