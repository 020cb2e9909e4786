"""The text of a MindSpore graph (``*.ir``): its nodes, their names, and the lines of the program they come from.

A node is a statement and the comments below it::

      %4(equiv_16_CNode_543) = PrimFunc_ReLU(%3) {instance name: relu} cnode_primal_attrs: {unique_id: "5583"}
          : (<Tensor[Float32], (3, 16)>) -> (<Tensor[Float32], (3, 16)>)
          # Fullname with scope: (Default/network-Net/act-ReLU/ReLU-op0)
          # In file net.py:18, 12~20/        h = self.act(self.fc1(x))/

Nodes of the backward pass name the lines of the forward node under ``# Corresponding forward node candidate:``. Seen
with MindSpore 2.10; texts of other versions and pieces of them are read as far as they go.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from msprobe.diagnose.code_mapping.code_stacks import EMPTY, SOURCE, CodeStacks
from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign.opening import check_written, open_regular
from msprobe.messages import said
from msprobe.paths import StrPath, check_readable_file

# The words MindSpore uses for lines that are not the node's own, and ours in their manner.
_FORWARD = b"Corresponding forward node candidate:"
_OPERANDS = b"Corresponding input node candidate:"

# No real line comes near it. What is longer is cut, so that a file without line breaks needs no more memory.
_LONGEST_LINE = 1 << 20
_LARGEST_FILE = 1 << 44
# Real stacks have less than two hundred lines.
_DEEPEST_STACK = 1000

_STATEMENT = re.compile(rb"%(\w+)(?:\([^=]*\))?\s*=|Return\(")
_OPERAND = re.compile(rb"%(\w+)")
_ATTRIBUTES = re.compile(rb"\)\s*(?:\{|[a-z_]+attrs: )")
_SCOPE = re.compile(rb"#[\w\s]*\bscope(?:\s*:)?\s*\((.*)\)", re.IGNORECASE)
_OWN_ID = re.compile(rb'(?<![\w])unique_id: "?(\w+)')
_FORWARD_ID = re.compile(rb'forward_unique_id: "?(\w+)')
# The same number stands at a node and at its recomputation.
_RECOMPUTE_ID = re.compile(rb"(recompute_id: (?:\w+\()?\d+)")
_KERNEL_GRAPH = re.compile(rb"# IR entry: @kernel_graph_?(\d{1,9})\b")

NONE = -1


@dataclass
class IrGraph:
    """The nodes of one text in its order; a node is its place in ``scopes`` and ``code``.

    ``scopes`` are the full names (``Default/network-Net/ReLU-op0``), in texts of earlier passes those of the cell.
    ``code`` are stacks of ``stacks``: the node's own lines; without any, those of its forward node or of its operands.
    ``number`` is the N of ``kernel_graphN``, by which the folders of a dump are called; None in other texts.
    ``whole`` is False if the text ends in the middle of a graph.
    """

    path: Path
    stacks: CodeStacks = field(default_factory=CodeStacks)
    scopes: list[str] = field(default_factory=list)
    code: list[int] = field(default_factory=list)
    number: int | None = None
    whole: bool = True


def read_ir(path: StrPath) -> IrGraph:
    """Read the text of a graph. Time grows with the size of the file, memory with the number of different lines in it.

    Raises PathError if the file cannot be read, InvalidInputError if it holds no node with a name.
    """
    file = check_readable_file(path, max_size=_LARGEST_FILE, follow_symlink=True)
    graph = IrGraph(file)
    try:
        with open_regular(file) as text:
            check_written(text, file)
            reader = _Reader(graph)
            reader.read(text)
    except OSError as problem:
        raise PathError(said("graph-file-unreadable", file, problem.strerror or problem)) from problem
    if not graph.scopes:
        raise InvalidInputError(said("no-graph-nodes", file))
    return graph


class _Reader:
    """What is known while the lines come by: the node that they belong to, and the names it may refer to."""

    def __init__(self, graph: IrGraph) -> None:
        self._graph = graph
        self._stacks = graph.stacks
        # Of all nodes, with a name or without: own lines, place among the named ones, forward node, operands.
        self._own = array("q")
        self._named = array("q")
        self._ids: dict[bytes, int] = {}
        self._twins: dict[int, bytes] = {}
        self._operands: dict[int, array[int]] = {}
        # Names like %4 count from 0 in each graph.
        self._local: dict[bytes, int] = {}
        self._statement = b""
        self._scope = b""
        self._stack = EMPTY
        self._has_lines = False
        self._depth = 0
        self._open = False
        self._inside = False

    def read(self, text: BinaryIO) -> None:
        for line in _lines(text):
            word = line.strip()
            if word.startswith(b"#"):
                self._comment(word)
            elif word.startswith((b"%", b"Return(")):
                if _STATEMENT.match(word):
                    self._close()
                    self._statement, self._open = word, True
            elif word.startswith(b"subgraph @"):
                self._close()
                self._local.clear()
                self._inside = True
            elif line.startswith(b"}"):
                self._close()
                self._inside = False
        self._close()
        self._graph.whole = not self._inside
        self._give_code_to_all()

    def _comment(self, word: bytes) -> None:
        if not self._open:
            if self._graph.number is None and (entry := _KERNEL_GRAPH.match(word)):
                self._graph.number = int(entry[1])
            return
        body = word[1:].lstrip()
        source = body.startswith(SOURCE)
        if source or body.startswith(b"Corresponding "):
            self._depth += 1
            if self._depth <= _DEEPEST_STACK:
                self._stack = self._stacks.push(self._stack, body.removesuffix(b"/") if source else body)
                self._has_lines = self._has_lines or source
        elif not self._scope and (scope := _SCOPE.match(word)):
            self._scope = scope[1].strip()

    def _close(self) -> None:
        """The node is complete."""
        if not self._open:
            return
        self._open = False
        node = len(self._own)
        own = self._stack if self._has_lines else EMPTY
        self._own.append(own)
        if self._scope:
            self._named.append(len(self._graph.scopes))
            self._graph.scopes.append(self._scope.decode("utf-8", "replace"))
            self._graph.code.append(own)
        else:
            self._named.append(NONE)
        statement = self._statement
        if own != EMPTY:
            for identity in filter(None, (_OWN_ID.search(statement), _RECOMPUTE_ID.search(statement))):
                self._ids.setdefault(identity[1], node)
        else:
            self._note_relations(node, statement)
        head = _STATEMENT.match(statement)
        if head is not None and head[1] is not None:
            self._local[head[1]] = node
        self._scope, self._stack, self._depth, self._has_lines = b"", EMPTY, 0, False

    def _note_relations(self, node: int, statement: bytes) -> None:
        """A node without lines is explained by the forward node that it belongs to or by what goes into it."""
        if forward := _FORWARD_ID.search(statement) or _RECOMPUTE_ID.search(statement):
            self._twins[node] = forward[1]
        head = _STATEMENT.match(statement)
        begin = head.end() if head else 0
        end = _ATTRIBUTES.search(statement, begin)
        names = _OPERAND.findall(statement, begin, end.start() if end else len(statement))
        known = [self._local[name] for name in dict.fromkeys(names) if name in self._local]
        if known:
            self._operands[node] = array("q", known)

    def _give_code_to_all(self) -> None:
        """Give lines to the nodes that have none, operands before those who use them."""
        code = array("q", self._own)
        for node in range(len(code)):
            if code[node] != EMPTY:
                continue
            twin = self._ids.get(self._twins.get(node, b""), NONE)
            if twin != NONE:
                code[node] = self._under(_FORWARD, [self._own[twin]])
            elif node in self._operands:
                operands = self._operands[node]
                stacks = [self._own[operand] for operand in operands if self._own[operand] != EMPTY]
                # Through nodes without lines of their own only the first: the lines of all would grow without end.
                through = [code[operand] for operand in operands if code[operand] != EMPTY][:1]
                code[node] = self._under(_OPERANDS, stacks) if stacks else (through[0] if through else EMPTY)
            if self._named[node] != NONE:
                self._graph.code[self._named[node]] = code[node]

    def _under(self, heading: bytes, stacks: list[int]) -> int:
        """The lines of these stacks, each once, under a heading that says that they are another node's."""
        new = self._stacks.push(EMPTY, heading)
        for line in dict.fromkeys(line for stack in stacks for line in self._stacks.lines(stack)):
            if line.startswith(SOURCE):
                new = self._stacks.push(new, line)
        return new


def _lines(text: BinaryIO) -> Iterator[bytes]:
    """The lines; of one that is too long the beginning."""
    rest = False
    while line := text.readline(_LONGEST_LINE):
        if not rest:
            yield line
        rest = not line.endswith(b"\n")
